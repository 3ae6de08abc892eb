"""Random fits against plain numpy; all kinds of fit, storage and damage; damaged and forged files; killed fits.

`make fuzz` runs all of it, or the rest of it, and prints a table; `tests/test_fuzz.py` runs a short version.
"""

import argparse
import json
import math
import os
import pickle
import resource
import signal
import sys
import time
import warnings
from functools import reduce
from pathlib import Path

import naive
import numpy as np

SEED = 20261116
MEMORY = 12 * 2**30  # bytes of address space of a case: one that needs more fails by itself
SECONDS = 30  # of the processor for a case
BATCH = 50  # cases of a forked process
LEAST = 30  # cases of each kind of fit, of storage and of damage

# Random fits


def draw_case(seed):
    """Return a random tensor, its mask or None, its weights or None, and parameters of a fit."""
    rng = np.random.default_rng([SEED, seed])
    order = int(rng.integers(2, 7))
    shape = tuple(rng.integers(1 if order > 2 else 2, (14, 8, 5, 4, 3)[order - 2] + 1, order).tolist())
    shape = shape if max(shape) > 1 else (2, *shape[1:])
    X = draw_layout(draw_values(shape, rng), rng)
    mask, weights = draw_mask(X, rng), draw_weights(shape, rng)
    return X, mask, weights, draw_parameters(X, rng)


def draw_values(shape, rng):
    """Return noise, a noisy Boolean CP, counts, bits, rounded numbers or a constant, of some dtype and scale."""
    kind = rng.choice(["noise", "atoms", "counts", "bits", "rounded", "constant"], p=[0.2, 0.4, 0.1, 0.1, 0.15, 0.05])
    if kind == "noise":
        X = rng.standard_normal(shape)
    elif kind == "atoms":
        X = rng.choice([0.0, 0.1, 1.0]) * rng.standard_normal(shape)
        for _ in range(rng.integers(1, 4)):
            columns = [rng.standard_normal(d) for d in shape]
            mode = rng.integers(len(shape))
            columns[mode] = (rng.random(shape[mode]) < 0.5).astype(float)
            X = X + reduce(np.multiply.outer, columns)
    elif kind == "counts":
        return rng.poisson(rng.uniform(0.05, 4.0), shape).astype(rng.choice(["i4", "i8", "u1"]))
    elif kind == "bits":
        return rng.random(shape) < rng.uniform(0.1, 0.9)
    else:
        X = np.round(rng.standard_normal(shape)) if kind == "rounded" else np.full(shape, 3.0)
    X = X * 10.0 ** rng.choice([0, 0, 0, -8, 8])
    return X.astype("f4") if rng.random() < 0.2 else X


def draw_layout(X, rng):
    """Return the same numbers in C order, Fortran order, another order of the axes, with gaps, or read-only."""
    kind = rng.integers(5)
    if kind == 1:
        X = np.asfortranarray(X)
    elif kind == 2:
        order = rng.permutation(X.ndim)
        X = np.ascontiguousarray(X.transpose(order)).transpose(np.argsort(order))
    elif kind == 3:
        wide = np.zeros((*X.shape[:-1], 2 * X.shape[-1]), dtype=X.dtype)
        wide[..., ::2] = X
        X = wide[..., ::2]
    else:
        X.flags.writeable = False
    return X


def draw_mask(X, rng):
    """Return no mask, a random one, or one that hides a whole slice; at least one entry is observed."""
    kind = rng.integers(6)
    if kind < 4:
        return None
    mask = rng.random(X.shape) < rng.uniform(0.3, 0.98)
    if kind == 5:
        mode = int(rng.integers(X.ndim))
        np.moveaxis(mask, mode, 0)[int(rng.integers(X.shape[mode]))] = False
    mask.flat[0] = True
    return mask


def draw_weights(shape, rng):
    """Return no weights, one for each entry (some zero), or the same along all modes but one."""
    kind = rng.integers(10)
    if kind == 0:
        weights = rng.uniform(0.1, 3.0, shape) * (rng.random(shape) < 0.9)
        weights.flat[0] = 1.0
        return weights
    mode = int(rng.integers(len(shape)))
    vector = np.expand_dims(rng.uniform(0.1, 3.0, shape[mode]), [n for n in range(len(shape)) if n != mode])
    return vector * np.ones(shape) if kind == 1 else None


def draw_parameters(X, rng):
    """Return parameters of BMP, few starts and sweeps: a case takes about a tenth of a second."""
    modes = [n for n, d in enumerate(X.shape) if d > 1]
    is_high = X.ndim > 3  # sweeps over many modes are slow: fewer of them
    rank = [1, 1, 1, 2, 3, "block"][rng.integers(6)]
    parameters = {
        "n_atoms": int(rng.choice([1, 2] if is_high else [1, 2, 2, 3, 4])),
        "atom_rank": rank,
        "refine": bool(rng.random() < (0.12 if is_high else 0.45)),
        "boolean_modes": None if rng.random() < 0.6 else sorted(rng.permutation(modes)[: rng.integers(1, 4)].tolist()),
        "n_init": int(rng.choice([1, 1, 1, 3])),
        "max_iter": int(rng.choice([1, 3, 10, 50])),
        "random_state": int(rng.integers(1000)),
    }
    if parameters["refine"] and rng.random() < 0.3:
        return parameters | draw_loss(X, rank, rng)
    is_mean = parameters["refine"] and rng.random() < 0.3
    return parameters | ({"mean": True, "boolean_modes": [int(rng.choice(modes))]} if is_mean else {})


def draw_loss(X, rank, rng):
    """Return a loss that the data can take, or nonnegative parts, or both."""
    names = ["squared", "huber"] + ["poisson"] * int(X.min() >= 0) + ["bernoulli"] * int(0 <= X.min() <= X.max() <= 1)
    loss = str(rng.choice(names)) if rank == 1 else "squared"
    modes = sorted(rng.permutation(X.ndim)[: rng.integers(1, X.ndim + 1)].tolist())
    signs = True if rank == "block" or rng.random() < 0.5 else modes
    return {"loss": loss, "nonnegative": signs if loss == "squared" or rng.random() < 0.5 else False}


def fit(X, parameters, **data):
    """Return the fitted model; RuntimeWarnings are errors."""
    from boolcp import BMP

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        model = BMP(**parameters).fit(X, **data)
        text = model.decomposition_.summary()
    assert text.count("\n") > model.decomposition_.n_atoms, "summary"
    return model


def check_fit(seed):
    """Fit a random case and compare what the result says with plain numpy; AssertionError if they differ."""
    X, mask, weights, parameters = draw_case(seed)
    before, mask_before, weights_before = X.copy(), pickle.dumps(mask), pickle.dumps(weights)
    data = {name: value for name, value in (("mask", mask), ("weights", weights)) if value is not None}
    steps = []
    W = fit(X, parameters, **data, callback=steps.append).decomposition_
    assert np.array_equal(X, before), "X was changed"
    assert (pickle.dumps(mask), pickle.dumps(weights)) == (mask_before, weights_before), "mask or weights were changed"
    errors = [step.relative_error for step in steps if step.stage == "observed"]
    check_result(W, X, entry_weights(X.shape, mask, weights), parameters, errors)


def check_result(W, X, counts, parameters, errors=()):
    """Compare what a result says with plain numpy; AssertionError if they differ."""
    assert W.n_atoms <= parameters["n_atoms"], "number of atoms"
    check_atoms(W, parameters)
    check_signs(W, parameters)
    if W.deviance is not None:
        check_deviance(W, X, counts, errors)
    elif W.mean is not None:
        check_mean(W, X, counts)
    else:
        check_numbers(W, X, counts, parameters)


def entry_weights(shape, mask, weights):
    """Return how much each entry counts, 0 where it is missing."""
    counts = np.ones(shape) if mask is None else mask.astype(float)
    counts = counts if weights is None else counts * weights
    return np.ones(shape) if counts.min() == counts.max() else counts  # equal weights are none


def dense(W):
    """Return W and its atoms as arrays, slices without data as zeros."""
    atoms = [np.nan_to_num(naive.atom(atom)) for atom in W.atoms]
    return np.einsum("k,k...->...", W.weights, np.array(atoms)), atoms


def check_atoms(W, parameters):
    modes = parameters.get("boolean_modes")
    for atom in W.atoms:
        assert atom.z.dtype == bool and atom.z.any(), "bits"
        assert modes is None or atom.mode in modes, "mode"
        assert np.isnan(atom.certificate) or 0 <= atom.certificate <= 1, "certificate"
        assert np.isclose(np.linalg.norm(np.nan_to_num(atom.dense_block())), 1, rtol=1e-4), "norm of the real part"
    assert np.isfinite(W.weights).all(), "weights"


def check_signs(W, parameters):
    """Real parts are nonnegative along the modes for which that was asked."""
    is_mean = parameters.get("loss") in ("poisson", "bernoulli")
    signs = True if is_mean else parameters.get("nonnegative", False)
    signs = range(W.ndim) if signs is True else signs or ()
    for atom in W.atoms:
        if atom.block is not None:
            assert not len(signs) or (atom.block >= 0).all(), "negative block"
            continue
        real = [n for n in range(W.ndim) if n != atom.mode]
        assert all((A >= 0).all() for n, A in zip(real, atom.factors, strict=True) if n in signs), "negative column"
    assert (W.weights >= 0).all(), "negative weight"


def check_deviance(W, X, counts, errors):
    """Compare the deviance with a plain sum over the entries; it never rises from start to start."""
    X = np.where(counts > 0, X, 0).astype(float)
    found = float(np.sum(counts * 2 * (entry_loss(W.deviance, X, dense(W)[0]) - entry_loss(W.deviance, X, X))))
    atol = 1e-6 * W.deviance.null + 1e-12 * np.sum(counts * np.abs(X))  # of constant data, null is 0: rounding is left
    atol += 1e-15 * np.sum(counts) * (W.deviance.loss == "bernoulli")  # whose entries count as much as their ones
    assert np.isclose(W.deviance.total, found, rtol=1e-6, atol=atol), f"{W.deviance.total}, not {found}"
    assert W.deviance.loss != "huber" or found <= W.deviance.null * (1 + 1e-6), "worse than zero"
    assert (np.diff(errors) <= 1e-9).all(), f"the deviance rises: {errors}"


def entry_loss(deviance, x, m):
    """Return the loss of each entry, as its formula is written."""
    scale = deviance.scale
    if deviance.loss == "huber":
        r = np.abs(x - m)
        return np.where(r <= scale, r**2 / 2, scale * (r - scale / 2))

    def log(m):
        away = m / scale - 1
        return np.where(m >= scale, np.log(np.maximum(m, scale)), np.log(scale) + away - away**2 / 2)

    if deviance.loss == "poisson":
        return m - x * log(m)
    return -x * log(m) - (1 - x) * log(1 - m) + np.where(m > 1, (m - 1) ** 2 / (2 * scale**2), 0)


def check_numbers(W, X, counts, parameters):
    """Compare norm, inner products, loss and shares with sums over all entries, and certificates with all z."""
    if W.n_atoms == 0:
        return
    X = np.where(counts > 0, X, 0).astype(float)
    total, atoms = dense(W)
    norm2, tol = float(np.sum(counts * X**2)), 1e-4
    loss = float(np.sum(counts * (X - total) ** 2))
    assert np.isclose(W.data_norm2, norm2, rtol=1e-5), "norm"
    inner = np.array([np.sum(counts * X * atom) for atom in atoms])
    sizes = np.array([np.sum(counts * atom**2) for atom in atoms])
    assert np.allclose(W.data_inner, inner, atol=tol * np.sqrt(norm2 * sizes.max())), "inner"
    gram = np.array([[np.sum(counts * a * b) for b in atoms] for a in atoms])
    assert np.allclose(W.observed_gram(), gram, atol=tol * sizes.max()), "gram"
    assert abs(W.explained() - (1 - loss / norm2)) < tol, f"explained {W.explained()} instead of {1 - loss / norm2}"
    assert loss <= norm2 * (1 + tol), "worse than zero"
    assert np.allclose(W.explained_alone(), inner**2 / np.where(sizes > 0, sizes, 1.0) / norm2, atol=tol), "shares"
    if (counts == 1).all() and parameters.get("refine", True):
        check_certificates(W, X, total, atoms)


def check_mean(W, X, counts):
    """The mean is that of what the atoms leave, and shares are of what varies."""
    X = np.where(counts > 0, X, 0).astype(float)
    (mode,) = np.flatnonzero(np.array(W.mean.shape) < W.shape)  # Boolean modes have several entries
    total = dense(W)[0] + W.mean
    R = counts * (X - total)
    assert np.abs(R.sum(axis=mode)).max() <= 1e-3 * np.abs(counts * X).max() * X.shape[mode], "mean"
    seen = np.maximum(counts.sum(axis=mode, keepdims=True), 1e-300)
    varies = np.sum(counts * (X - (counts * X).sum(axis=mode, keepdims=True) / seen) ** 2)
    loss = np.sum(counts * (X - total) ** 2)
    assert loss <= varies * (1 + 1e-3) + 1e-9 * np.sum(counts * X**2), "worse than the mean"
    assert not W.n_atoms or all(2 * atom.n_ones <= len(atom.z) for atom in W.atoms), "complements"


def check_certificates(W, X, total, atoms):
    for c, atom, M in zip(W.weights, W.atoms, atoms, strict=True):
        if np.isnan(atom.certificate) or len(atom.z) > 10:
            continue
        R = naive.unfold(X - total + c * M, atom.mode)
        best, _ = naive.best_boolean(R @ R.T, is_ratio=True)
        share = np.sum((atom.z @ R) ** 2) / atom.z.sum() / max(best, 1e-300)
        is_proved = atom.certificate <= share + 1e-5 or best <= 1e-9 * np.sum(X**2)
        assert is_proved, f"certificate {atom.certificate} of a share of {share}"


# All of it, in forked processes that may crash


def run(check, seeds):
    """Return {seed: why it failed} of cases, checked in a forked process; a crash or a hang fails one case."""
    failed, seeds = {}, list(seeds)
    while seeds:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            with os.fdopen(writer, "w") as file:
                check_each(check, seeds, file)
        os.close(writer)
        with os.fdopen(reader) as file:
            answers = [json.loads(line) for line in file]
        status = os.waitpid(child, 0)[1]
        answers += [f"the process ended with status {status}"] * (len(answers) < len(seeds))
        failed |= {seed: text for seed, text in zip(seeds, answers, strict=False) if text}
        seeds = seeds[len(answers) :]
    return failed


def check_each(check, seeds, file):
    """Write for each case why it failed, or an empty line, and end the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        for seed in seeds:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # these end the process, even in a compiled loop
            signal.alarm(20 * SECONDS)
            text = ""
            try:
                check(seed)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
            print(json.dumps(text), file=file, flush=True)
        os._exit(0)
    finally:
        os._exit(1)


def main():
    """Run batches of all parts in turn, from where the last run ended; print failures and a table."""
    from fuzz_files import DAMAGE, check_damaged, check_forged, check_kill, file_names
    from fuzz_grid import DAMAGE as OF_DATA
    from fuzz_grid import FITS, STORAGES, check_cell

    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0, help="the first case: another one runs other cases")
    parser.add_argument("--seconds", type=float, default=np.inf, help="time for this run; the next one resumes")
    parser.add_argument("--state", type=Path, default=Path("fuzz.json"), help="what has been done")
    args = parser.parse_args()
    kinds = {check_cell: [FITS, STORAGES, OF_DATA], check_damaged: [file_names(), DAMAGE]}
    parts = {check: LEAST * math.prod(map(len, lists)) for check, lists in kinds.items()}
    parts |= {check_forged: 900, check_kill: 60, check_fit: 10_000}
    state = json.loads(args.state.read_text()) if args.state.exists() else {"first": args.first}
    first, end = state["first"], time.monotonic() + args.seconds
    known = {check: state.setdefault(check.__name__, {"done": 0, "failed": {}, "seconds": 0.0}) for check in parts}
    while left := [check for check, count in parts.items() if known[check]["done"] < count]:
        check = min(left, key=lambda check: known[check]["done"] / parts[check])
        if (begin := time.monotonic()) > end:
            break
        done = known[check]["done"]
        seeds = range(first + done, first + min(done + BATCH, parts[check]))
        failed = run(check, seeds)
        known[check]["done"], known[check]["failed"] = done + len(seeds), known[check]["failed"] | failed
        known[check]["seconds"] += time.monotonic() - begin
        args.state.write_text(json.dumps(state))
        for seed, text in failed.items():
            print(check.__name__, seed, *cell_of(seed, *kinds.get(check, [])), text, flush=True)
    print("| part | combinations | cases | failed | seconds |\n| --- | --- | --- | --- | --- |")
    for check, has in known.items():
        cells = math.prod(map(len, kinds.get(check, [])))
        print(f"| {check.__name__} | {cells} | {has['done']} | {len(has['failed'])} | {has['seconds']:.0f} |")
    sys.exit(any(has["failed"] for has in known.values()))


def cell_of(seed, *lists):
    """Return one entry of each list: all combinations come one after another."""
    return [list(each)[seed // math.prod(map(len, lists[:n])) % len(each)] for n, each in enumerate(lists)]


if __name__ == "__main__":
    main()
