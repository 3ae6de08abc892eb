"""What may be concluded from a result: nulls, power, recurrence in other trials, calibration of bits, cost.

    BOOLCP_DATA=folder python benchmarks/bench_trust.py null power

Parts that are left out keep their last table in results/trust.md, and results/whitening.md for `whitening`. The seeds
(50000 and up; 70000 and up for `calibration`) are not those by which thresholds and formulas were chosen.
"""

import argparse
import warnings
from itertools import pairwise

import numpy as np
import real_data
from common import fingerprint, on_processor, table, write, write_section
from cp_tucker import CP
from joblib import Memory, Parallel, delayed
from real_data import LOADERS
from recordings_like import NOISES, NULLS, SHAPE, ideal_bits, null, p3, planted, separable
from scipy.optimize import linear_sum_assignment

import boolcp
from boolcp.datasets import make_boolean_cp
from boolcp.result.atoms import Atom
from boolcp.trust.replication import pattern

SEED = 50_000
JOBS = argparse.Namespace(n=2, keep=None)
TRIALS = {"boolean_modes": [2], "mean": True, "noise": "separable"}  # as the command fits EEG
PLAIN = {"boolean_modes": [2], "mean": True}
N_ATOMS = 4


def runs(function, tasks):
    """Yield the results of a function, in the order of the tasks, from some processes; kept ones are not repeated."""
    kept = Memory(JOBS.keep, verbose=0).cache(function)
    yield from Parallel(n_jobs=JOBS.n, return_as="generator")(delayed(quiet)(kept, *task) for task in tasks)


def quiet(function, *task):
    """Return the result of a call without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*task)


def judged(X, n_atoms, seed, **options):
    """Return a fit with all that is known of its atoms, and their verdicts."""
    model = boolcp.BMP(n_atoms, random_state=seed, certify=False, **options).fit(X)
    W = boolcp.assess(X, model, n_jobs=1, random_state=seed)
    return W, boolcp.verdicts(W)


def agreement(bits, z):
    """Return the share of bits right of the best of several columns, which may be the complement."""
    return max((max(np.mean(one == z), np.mean(one != z)) for one in bits), default=0.0)


def bits_of(W):
    """Return the bits of all atoms."""
    return [atom.z for atom in W.atoms]


def percent(x, digits=0):
    """Return a share as text."""
    return "-" if not np.isfinite(x) else f"{100 * x:.{digits}f} %"


# whitening


WHITENINGS = {
    "none": None,
    "full (ridge 0.000001)": (1e-6, False),
    **{f"ridge {r}{', Ledoit-Wolf' * lw}": (r, lw) for lw in (False, True) for r in (0.005, 0.02, 0.05)},
}
PLANTED = {
    "P3": lambda seed: p3(seed),
    "P3, 1/f^2": lambda seed: p3(seed, exponent=2.0, sensor=0.3),
    **{
        f"{kind}, d' {size}": lambda seed, kind=kind, size=size: planted(seed, kind, size, (24, 60, 100))[:2]
        for kind in ("pink", "brown", "white")
        for size in (5, 8)
    },
}


def whitening_run(seed):
    """Return the share of bits right, {(whitening, case): share}."""
    found = {}
    for case, make in PLANTED.items():
        X, z = make(seed)
        R = X - X.mean(axis=2, keepdims=True)
        for name, how in WHITENINGS.items():
            Y = X if how is None else separable(R, *how).whiten(X)
            model = boolcp.BMP(N_ATOMS, boolean_modes=[2], mean=True, random_state=seed, certify=False)
            found[name, case] = agreement(bits_of(model.fit(Y).decomposition_), z)
    return found


def whitening(n_seeds):
    """Yield the share of bits right with several ways of whitening."""
    text = (
        "Share of the bits right of the best of four atoms (mean over the seeds), after whitening along channel and "
        "time by the separable covariance of what varies over trials, with a ridge of a share of its largest "
        "eigenvalue, and with or without shrinkage as Ledoit and Wolf have it. P3: 31 x 60 x 120, 20 microvolts in 8 "
        "microvolts of noise that is 1/f in time and mixed in space; the others: 24 x 60 x 100, a pattern about as "
        "smooth as the noise with this d' for a detector that knows the covariance. 35 % of the trials are on. Seeds "
        f"from {SEED}."
    )
    rows = []
    for row in runs(whitening_run, [(seed,) for seed in range(SEED, SEED + n_seeds)]):
        rows.append(row)
        lines = [
            [name, *(percent(np.mean([r[name, case] for r in rows]), 1) for case in PLANTED)] for name in WHITENINGS
        ]
        yield f"{text} {len(rows)} seeds.\n\n{table(['whitening', *PLANTED], lines)}"


# nulls


SETTINGS = {
    "trials, separable": TRIALS,
    "trials, white": {"boolean_modes": [2]},
    "all modes, white": {},
}
COUNTS = (4, 2, 8)  # in the order in which they are run
FEW = (12, 30, 80)


def null_run(seed, kind, name, n_atoms):
    """Return what of each atom passes, replicates and is on/off, whether it comes in runs, and its p-value."""
    W, known = judged(null(kind, seed, FEW), n_atoms, seed, **SETTINGS[name])
    p = np.full(W.n_atoms, np.nan) if W.trust.p_value is None else W.trust.p_value
    each = np.array([(v.passes, bool(v.replicates), bool(v.is_on_off)) for v in known], dtype=bool)
    return (kind, name, n_atoms), (each.reshape(-1, 3), np.asarray(W.trust.has_runs, dtype=bool), p)


def nulls(n_seeds, counts=COUNTS):
    """Yield how often something passes that is not on and off; most runs have the first number of atoms."""
    many = {n: n_seeds if n == counts[0] else -(-n_seeds // 6) for n in counts}
    tasks = [
        (seed, kind, name, n)
        for seed in range(SEED, SEED + n_seeds)
        for n in counts
        if seed < SEED + many[n]
        for name in SETTINGS
        for kind in NULLS
    ]
    rows = {(kind, name, n): [] for kind in NULLS for name in SETTINGS for n in COUNTS}
    for done, (case, found) in enumerate(runs(null_run, tasks), 1):
        rows[case].append(found)
        if done % (len(SETTINGS) * len(NULLS)) == 0 or done == len(tasks):
            yield null_tables(rows)


def null_tables(rows):
    """Return the tables of verdicts, of p-values and of what the verdict is made of."""
    cells = [(name, n) for name in SETTINGS for n in COUNTS if rows[NULLS[-1], name, n]]
    text = (
        f"Tensors of {' x '.join(map(str, FEW))}, channel x time x trial, without anything that is on and off; seeds "
        f"from {SEED}; `assess` with its 8 fits to three quarters of the trials. Recordings have random phases, the "
        "same for all channels. Graded amplitudes and drift are those of a pattern in 1/f noise with d' = 7 for the "
        "amplitude one: mean and standard deviation one (normal), mean one (exponential), a ramp from 0 to 2, a "
        "random walk of standard deviation one. *Trials, separable* is `mean=True, noise='separable'`, as the "
        "command fits EEG, *trials, white* is `boolean_modes=[2]` and *all modes* the default of `BMP`; then the "
        "number of atoms."
    )
    head = ["", *(f"{name}, {n}" for name, n in cells)]
    lines = [[kind, *(passed_text(rows[kind, *cell]) for cell in cells)] for kind in NULLS]
    lines.append(
        ["all ten kinds", *(passed_text([one for kind in NULLS for one in rows[kind, *cell]]) for cell in cells)]
    )
    parts = [text, "Runs with an atom that passes:", table(head, lines)]
    columns = [cell for cell in cells if cell[0].endswith("white")]
    if columns:
        lines = [[kind, *(low_text(rows[kind, *cell]) for cell in columns)] for kind in NOISES]
        lines.append(["all", *(low_text([one for kind in NOISES for one in rows[kind, *cell]]) for cell in columns)])
        parts.append("p-values below 0.05, of those computed (noise alone):")
        parts.append(table(["", *(f"{name}, {n}" for name, n in columns)], lines))
    parts.append("Atoms that replicate / that are on/off, too / of these in runs, of all:")
    lines = [[kind, *(parts_text(rows[kind, *cell]) for cell in cells)] for kind in NULLS]
    return "\n\n".join([*parts, table(head, lines)])


def passed_text(some):
    """Return in how many runs an atom passes."""
    return f"{sum(bool(each[:, 0].any()) for each, _, _ in some)} of {len(some)}"


def parts_text(some):
    """Return how many atoms pass single tests."""
    each, in_runs = np.concatenate([one[0] for one in some]), np.concatenate([one[1] for one in some])
    return f"{each[:, 1].sum()} / {each[:, 2].sum()} / {np.sum(each[:, 2] & in_runs)} of {len(each)}"


def low_text(some):
    """Return how many p-values are below 0.05, as text."""
    p = np.concatenate([one[2] for one in some])
    p = p[np.isfinite(p)]
    return f"{np.sum(p < 0.05)} of {len(p)} ({percent(np.mean(p < 0.05), 1)})" if len(p) else "-"


# power


SIZES = (3, 4.5, 7)
KINDS = ("white", "pink", "EEGLAB", "ECoG")
METHODS = ("separable", "white", "CP", "CP, whitened", "k-means", "k-means, whitened")


def power_run(seed, kind, size):
    """Return the share of bits right by all methods, and what is known of the atom of the pattern."""
    X, z, V, E = (*p3(seed), None, None) if kind == "P3" else planted(seed, kind, size)
    n_atoms = 2 if kind in ("white", "pink") else 4
    W, known = judged(X, n_atoms, seed, **TRIALS)
    plain = boolcp.BMP(n_atoms, random_state=seed, certify=False, **PLAIN).fit(X).decomposition_
    centered = X - X.mean(axis=2, keepdims=True)
    clean = W.noise.whiten(centered)
    bits = {"separable": agreement(bits_of(W), z), "white": agreement(bits_of(plain), z)}
    for name, Y in (("", centered), (", whitened", clean)):
        bits[f"CP{name}"] = agreement(cp_bits(Y, n_atoms, seed), z)
        bits[f"k-means{name}"] = agreement(kmeans_bits(Y, n_atoms, seed), z)
    if kind == "P3":  # the limits, and the more probable bits by amplitudes in trials that a fit has not seen
        sure = W.bit_confidence()
        bits["probable"] = agreement([one ^ (p < 0.5) for one, p in zip(bits_of(W), sure, strict=True)], z)
        bits |= {"ideal": agreement([ideal_bits(X, seed)], z), "learned": agreement([learned_bits(clean, z)], z)}
    left = np.nan if V is None else detectable(W.noise, V, X - E, E)
    return (kind, size), bits, facts(W, known, z), left


def facts(W, known, z):
    """Return replication, on/off and verdict of the atom whose bits are best, the others that pass, and its bits."""
    if not W.n_atoms:
        return 0.0, False, False, 0, np.zeros(0), np.zeros(0, bool)
    k = int(np.argmax([agreement([bits], z) for bits in bits_of(W)]))
    bits = W.atoms[k].z
    is_right = bits == z if np.mean(bits == z) >= 0.5 else bits != z
    others = sum(v.passes for v in known) - known[k].passes
    confidence = W.bit_confidence()[k]
    return float(W.trust.replication[k]), bool(known[k].is_on_off), known[k].passes, others, confidence, is_right


def learned_bits(Y, z):
    """Return bits of trials by a pattern of rank one, the difference of means of other trials whose bits are known."""
    scores = np.zeros(len(z))
    for some in np.array_split(np.random.default_rng(0).permutation(len(z)), 10):
        on, off = z.copy(), ~z
        on[some] = off[some] = False
        U, sizes, Vt = np.linalg.svd(Y[:, :, on].mean(axis=2) - Y[:, :, off].mean(axis=2), full_matrices=False)
        M = sizes[0] * np.outer(U[:, 0], Vt[0])
        scores[some] = np.tensordot(M, Y[:, :, some], 2) - np.sum(M**2) / 2
    high, low = scores[z].mean(), scores[~z].mean()  # also the threshold is that of the known bits
    spread = np.std(scores - np.where(z, high, low))
    return scores > (high + low) / 2 + spread**2 / (high - low) * np.log(np.mean(~z) / np.mean(z))


def detectable(noise, V, signal, E):
    """Return the d' of a pattern for the filter of an estimated covariance, in the noise that is there."""
    f = noise.whiten(noise.whiten(V[:, :, None]))[:, :, 0]
    return float(np.abs(np.tensordot(f, signal, 2)).max() / np.tensordot(f, E, 2).std())


def cp_bits(X, n_atoms, seed):
    """Return the trial columns of a CP of TensorLy, the best of five starts, cut in two by two-means."""
    factors = CP(n_atoms, n_init=5, random_state=seed).fit(X).decomposition_.factors
    return [clusters(column[:, None], 2, seed) == 0 for column in factors[2].T]


def kmeans_bits(X, n_atoms, seed):
    """Return the clusters of trials, of two and of as many as there are atoms and a rest."""
    rows = X.reshape(-1, X.shape[2]).T
    found = []
    for n in (2, n_atoms + 1):
        labels = clusters(rows, n, seed)
        found += [labels == j for j in range(n)]
    return found


def clusters(rows, n, seed):
    """Return the labels of k-means."""
    from sklearn.cluster import KMeans

    return KMeans(n, n_init=10, random_state=seed).fit(rows).labels_


def power(n_seeds):
    """Yield how often a pattern that is on and off is found, and passes."""
    cases = [("P3", 20), *((kind, size) for kind in KINDS for size in SIZES)]
    many = {case: -(-n_seeds // 2) if case[0] in KINDS[2:] else n_seeds for case in cases}  # fewer in recordings
    tasks = [(seed, *case) for case in cases for seed in range(SEED, SEED + many[case])]
    rows = {case: [] for case in cases}
    for done, (case, *found) in enumerate(runs(power_run, tasks), 1):
        rows[case].append(found)
        if done % len(cases) == 0 or done == len(tasks):
            yield power_tables(rows)


def power_tables(rows):
    """Return the tables of bits and of verdicts."""
    text = (
        f"One pattern, on in 35 % of the trials; seeds from {SEED}; two atoms or terms in white and pink noise, four "
        "otherwise, `mean=True`. P3: 31 x 60 x 120, 20 microvolts in 8 microvolts of pink noise mixed in space. The "
        f"others are {' x '.join(map(str, SHAPE))}: a pattern about as smooth as the noise (rough in white noise), "
        "with this d' for a detector that knows the covariance (that of the stretch, separable, where it is planted "
        "into a recording as it is). *After whitening*: d' of the filter by the estimated covariance.\n\nBits right, "
        "mean over the seeds, of the best column or its complement (65 % is what all zeros give). *Separable* and "
        "*white*: `BMP` with this noise model. CP: TensorLy, the best of 5 starts, trial columns cut by two-means. "
        "k-means: 2 clusters of trials and one more than there are atoms, the best one."
    )
    lines, facts_lines = [], []
    for (kind, size), some in rows.items():
        if not some:
            continue
        name = "P3" if kind == "P3" else f"{kind}, d' {size}"
        bits = {method: np.array([r[0][method] for r in some]) for method in METHODS}
        lines.append(
            [name, len(some), f"{np.mean([r[2] for r in some]):.1f}", *(percent(bits[m].mean()) for m in METHODS)]
        )
        each, n = [r[1] for r in some], len(some)
        counts = [np.sum(bits["separable"] >= 0.93), sum(f[1] for f in each), sum(f[2] for f in each)]
        shares = [f"{count} of {n}" for count in counts]
        come_back = percent(np.mean([f[0] for f in each]))
        facts_lines.append([name, shares[0], come_back, *shares[1:], sum(f[3] for f in each)])
    head = ["", "at least 93 % of the bits", "replication", "on/off", "passed", "other atoms that pass"]
    second = (
        "What `assess` says of the atom with the best bits, `noise='separable'`: mean share of the parts in which it "
        "comes back, called on/off, passed; and how many other atoms pass in all seeds together (recordings may hold "
        "more that is on and off)."
    )
    first = table(["", "seeds", "d' after whitening", *METHODS], lines)
    limits = [r[0] for r in rows["P3", 20]]
    n_ideal, n_learned, n_probable = (sum(b[name] >= 0.93 for b in limits) for name in ("ideal", "learned", "probable"))
    third = (
        f"P3, seeds of {len(limits)} with at least 93 % of the bits right: {n_ideal} for a detector that knows the "
        f"pattern, the mean and the covariance; {n_learned} for one that learns the pattern, of rank one after the "
        f"same whitening, from nine tenths of the trials whose bits it is told; {n_probable} for the bits that are "
        "more probable after `assess`, as `consensus` takes them."
    )
    return "\n\n".join([text, first, second, table(head, facts_lines), third, bits_table(rows)])


def bits_table(rows):
    """Return how many bits are wrong of those said to be so sure, in all runs in pink noise with the pattern found."""
    text = (
        "Calibration of `bit_confidence` after `assess` with `noise='separable'`, of atoms called on/off: wrong bits "
        "in percent of all bits with this confidence (what it promises; how many bits)."
    )
    groups = {"P3": [("P3", 20)], "pink": [("pink", s) for s in SIZES], "white": [("white", s) for s in SIZES]}
    groups |= {"recordings": [(kind, s) for kind in KINDS[2:] for s in SIZES]}
    lines = []
    for name, cases in groups.items():
        some = [r[1] for case in cases for r in rows[case] if r[1][1]]
        if some:
            p, right = (np.concatenate([f[at] for f in some]) for at in (4, 5))
            lines.append([name, len(some), *calibration_cells(p, right)])
    return f"{text}\n\n{table(['', 'atoms', *calibration_heads()], lines)}"


# calibration in pink noise


def pink_run(seed, size):
    """Return confidences of bits, and whether they are right, of the atom whose pattern is the planted one."""
    X, z, V, _ = planted(seed, "pink", size, (16, 40, 160))
    W, known = judged(X, 2, seed, **TRIALS)
    own = W.noise.whiten(V[:, :, None]).ravel()
    own /= np.linalg.norm(own)
    cosines = [pattern(atom, 2) @ own for atom in W.noise.whiten_atoms(W).atoms]
    k = int(np.argmax(np.abs(cosines)))
    if abs(cosines[k]) < 0.5:
        return size, False, np.zeros(0), np.zeros(0, bool)
    right = (W.atoms[k].z == z) if cosines[k] > 0 else (W.atoms[k].z != z)
    return size, bool(known[k].is_on_off), W.bit_confidence()[k], right


def pink(n_seeds):
    """Yield how many bits are wrong of those said to be so sure, in pink noise."""
    sizes = (3, 4)
    tasks = [(seed, size) for seed in range(SEED + 1000, SEED + 1000 + n_seeds) for size in sizes]
    rows = []
    for done, row in enumerate(runs(pink_run, tasks), 1):
        rows.append(row)
        if done % 40 == 0 or done == len(tasks):
            yield pink_table(rows, sizes)


def pink_table(rows, sizes):
    """Return the table of bits in pink noise."""
    n_seeds = len(rows) // len(sizes)
    text = (
        "Confidence of bits after `assess` in noise that is 1/f in time and mixed in space, 16 x 40 x 160, two "
        f"atoms, one planted pattern, {n_seeds} seeds from {SEED + 1000}; of atoms whose pattern is the planted one "
        "(cosine after whitening at least 0.5). Wrong bits in percent of all bits with this confidence (what it "
        "promises; how many)."
    )
    lines = []
    for is_on_off in (True, False):
        for size in (*sizes, None):
            some = [r for r in rows if r[1] == is_on_off and len(r[2]) and size in (r[0], None)]
            if some:
                p, right = (np.concatenate([r[at] for r in some]) for at in (2, 3))
                name = f"{'on/off' if is_on_off else 'not shown to be'}, {'all' if size is None else f'd {size}'}"
                said = f"{np.sum(~right)} / {np.sum(1 - p):.1f}"
                lines.append([name.replace("d ", "d' "), len(some), *calibration_cells(p, right), said])
    return f"{text}\n\n{table(['', 'atoms', *calibration_heads(), 'wrong / said'], lines)}"


# recurrence


RECORDINGS = {
    "ecog_raw": TRIALS,
    "ecog_envelope": TRIALS,
    "eeg_raw": TRIALS,
    "eeglab_epochs": TRIALS,
    "spikes": {"boolean_modes": [2]},
    "anesthesia": {"boolean_modes": [0]},
}
SAMPLES = {"boolean_modes": [0], "mean": True}
OTHERS = {  # whose samples are many and apart: not pixels of one picture, nor the conditions of IL2 and kinetic
    "digits": (real_data.digits, SAMPLES),
    "faces": (real_data.faces, SAMPLES),
    "serology": (real_data.WHEELS["serology"], {"boolean_modes": [0]}),  # centered by its authors
    "bikes": (real_data.days, SAMPLES),
    "sst": (real_data.WHEELS["sst"], SAMPLES),
    "heights": (real_data.WHEELS["heights"], SAMPLES),
}
UNORDERED = ("digits", "faces", "serology")  # the order of the file is that of classes, or means nothing


def recurrence_run(name, split, n_atoms):
    """Return, for both halves of the trials, what is known of each atom and its best |cosine| in the other half."""
    load, options = OTHERS[name] if name in OTHERS else (LOADERS[name], RECORDINGS[name])
    X, mode = load(), options["boolean_modes"][0]
    order = np.random.default_rng([SEED, split]).permutation(X.shape[mode])
    parts = [places if name in UNORDERED else np.sort(places) for places in np.array_split(order, 2)]
    halves = [X.take(places, axis=mode) for places in parts]
    fits = [(half, *judged(half, n_atoms, SEED + split, **options)) for half in halves]
    found = []
    for (half, W, known), (_, other, _) in (fits, fits[::-1]):
        share = boolcp.replication(half, W, scheme="halves", n_jobs=1, random_state=SEED + split).share
        in_runs = np.asarray(W.trust.has_runs, dtype=bool)
        units = W.noise.whiten_atoms if W.noise is not None else lambda V: V
        theirs = np.array([pattern(atom, mode) for atom in units(other).atoms])
        cosines = [float(np.abs(theirs @ pattern(atom, mode)).max()) for atom in units(W).atoms]
        found += [
            (v.passes, bool(v.replicates), bool(v.is_on_off), often >= 0.75, runs, c)
            for v, often, runs, c in zip(known, share, in_runs, cosines, strict=True)
        ]
    return name, found


def recurrence(n_splits, n_atoms=8):
    """Yield how many atoms recur in a fit to the other half of the trials."""
    names = [*RECORDINGS, *(name for name in OTHERS if name in real_data.available())]
    tasks = [(name, split, n_atoms) for split in range(n_splits) for name in names]
    rows = {name: [] for name in names}
    for name, found in runs(recurrence_run, tasks):
        rows[name] += found
        yield recurrence_table(rows, n_atoms)


def recurrence_table(rows, n_atoms):
    """Return the table of recurrence."""
    text = (
        f"{n_atoms} atoms fitted to each of two random halves of the trials and assessed there alone; an atom recurs "
        "if the other half has one with |cosine| at least 0.7 in the units of the fit. `mean=True, noise='separable'` "
        "for EEG and ECoG, Boolean trials alone for spikes, Boolean channels for the power spectra, which have five "
        "states; *all* are these six. Then data that are no recordings, whose samples (pictures, blood samples, days "
        "of the week in a month, winters) are Boolean and halved, with `mean=True` unless they are centered; those "
        "whose order in the file means nothing are in random order. In each cell: how many recur, of how many atoms. "
        "*Replicate* is the label of `assess` (60 % of 8 fits to three quarters); *halves* asks more: 75 % of 8 fits "
        "to halves, a rule found with other cuts."
    )
    groups = {
        "all": lambda r: r[:, 0] | True,
        "pass": lambda r: r[:, 0],
        "replicate, on/off, in runs": lambda r: r[:, 1] & r[:, 2] & r[:, 4],
        "replicate, not shown to be on/off": lambda r: r[:, 1] & ~r[:, 2],
        "replicate": lambda r: r[:, 1],
        "do not replicate": lambda r: ~r[:, 1],
        "halves": lambda r: r[:, 3],
    }
    lines = []
    sums = {"all": RECORDINGS, "all others": OTHERS, "all twelve": rows}
    sums = {name: [one for each in rows if each in some for one in rows[each]] for name, some in sums.items()}
    for name, found in [*rows.items(), *sums.items()]:
        if found:
            known, recurs = np.array([f[:5] for f in found], dtype=bool), np.array([f[5] for f in found]) >= 0.7
            cells = [f"{np.sum(recurs[some(known)])} of {np.sum(some(known))}" for some in groups.values()]
            lines.append([name, *cells])
    return f"{text}\n\n{table(['', *groups], lines)}"


# cost


def cost(n_repeats):
    """Yield the processor time of `assess` over that of a fit."""
    cases = {
        "white, 16 x 40 x 80": (lambda seed: null("white", seed), TRIALS),
        "1/f, 16 x 40 x 80": (lambda seed: null("1/f", seed), TRIALS),
        "P3, 31 x 60 x 120": (lambda seed: p3(seed)[0], TRIALS),
        "P3, all modes Boolean, white": (lambda seed: p3(seed)[0], {}),
        "ecog_raw, 63 x 150 x 100": (lambda seed: LOADERS["ecog_raw"](), TRIALS),
        "spikes, 30 x 100 x 300": (lambda seed: LOADERS["spikes"](), {"boolean_modes": [2]}),
    }
    lines = []
    for name, (make, options) in cases.items():
        times = np.array([cost_run(make(seed), seed, options) for seed in range(SEED, SEED + n_repeats)])
        fit, judge = np.median(times, axis=0)
        lines.append([name, f"{fit:.2f}", f"{judge:.2f}", f"{np.median(times[:, 1] / times[:, 0]):.1f}"])
        text = f"Processor seconds, one thread, four atoms, 8 parts; medians of {n_repeats} seeds."
        yield f"{text}\n\n{table(['', 'fit', '`assess`', 'ratio'], lines)}"


def cost_run(X, seed, options):
    """Return the processor seconds of a fit and of `assess`."""
    model = boolcp.BMP(N_ATOMS, random_state=seed, **options)
    W, first = on_processor(quiet, model.fit, X)
    _, second = on_processor(quiet, lambda: boolcp.assess(X, W, n_jobs=1, random_state=seed))
    return first, second


# calibration of fits to white noise


WHITE_SEED = 70_000
EDGES = (0.0, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0)
CUBE = (20, 25, 30)
CASES = {
    "noise 2": {"noise": 2.0},
    "noise 3.5": {"noise": 3.5},
    "noise 5": {"noise": 5.0},
    "noise 3, half missing": {"noise": 3.0, "missing": 0.5},
    "noise 4, a quarter missing": {"noise": 4.0, "missing": 0.25},
    "noise 4, five atoms": {"noise": 4.0, "n_atoms": 5},
    "noise 4, a quarter of the bits on": {"noise": 4.0, "p": 0.25},
    "noise 5, rank 2": {"noise": 5.0, "rank": 2},
    "noise 6, rank 2": {"noise": 6.0, "rank": 2},
    "noise 7, rank 3": {"noise": 7.0, "rank": 3},
}


def draw(seed, noise, n_atoms=3, missing=0.0, p=0.5, rank=1):
    """Return a tensor with noise and the atoms that it is made of."""
    if rank == 1:
        X, _, truth = make_boolean_cp(CUBE, n_atoms, noise=noise, missing=missing, p=p, random_state=seed)
        return X, truth.atoms
    rng = np.random.default_rng(seed)
    X, atoms = noise * rng.standard_normal(CUBE), []
    for k in range(n_atoms):
        mode = k % 3
        z = rng.random(CUBE[mode]) < p
        atom = Atom(mode, z, tuple(rng.standard_normal((d, rank)) for d in np.delete(CUBE, mode)))
        X += np.moveaxis(np.multiply.outer(z.astype(float), atom.dense_block()), 0, mode)
        atoms.append(atom)
    return X, atoms


def pairs(W, atoms):
    """Return which fitted atom is which true one: the best assignment, with a cosine of real parts above 1/2."""
    unit = [[a.dense_block() / np.linalg.norm(a.dense_block()) for a in some] for some in (W.atoms, atoms)]
    C = np.array(
        [
            [abs(np.vdot(unit[0][i], unit[1][j])) if a.mode == b.mode else 0.0 for j, b in enumerate(atoms)]
            for i, a in enumerate(W.atoms)
        ]
    ).reshape(-1, len(atoms))
    return [(i, j) for i, j in zip(*linear_sum_assignment(-C), strict=True) if C[i, j] > 0.5]


def calibration(n_seeds):
    """Yield how many bits are wrong among those said to be so sure, case by case."""
    rows = []
    for name, case in CASES.items():
        confidence, right = [np.zeros(0)], [np.zeros(0, dtype=bool)]
        n_atoms, rank = case.get("n_atoms", 3), case.get("rank", 1)
        for seed in range(WHITE_SEED, WHITE_SEED + n_seeds):
            X, atoms = draw(seed, **case)
            model = boolcp.BMP(n_atoms, atom_rank=rank, certify=False, random_state=seed)
            W = model.fit(X).decomposition_
            for i, j in pairs(W, atoms):
                confidence.append(W.bit_confidence()[i])
                right.append(W.atoms[i].z == atoms[j].z)
        p, ok = np.concatenate(confidence), np.concatenate(right)
        rows.append((name, p, ok))
    rows.append(("all", *(np.concatenate([row[n] for row in rows]) for n in (1, 2))))
    heads = ["", *calibration_heads(), "wrong / said"]
    lines = [[name, *calibration_cells(p, ok), f"{np.sum(~ok)} / {np.sum(1 - p):.1f}"] for name, p, ok in rows]
    text = (
        "Bits of the fitted atoms that match a true one (cosine of the real parts above 1/2). Tensors of 20 x 25 x "
        f"30 with three atoms of rank one and half of the bits on unless said otherwise, {n_seeds} seeds from "
        f"{WHITE_SEED}. In each cell: wrong bits in percent of all bits with this confidence (what it promises; how "
        "many bits)."
    )
    yield f"{text}\n\n{table(heads, lines)}"


def calibration_heads():
    """Return the ranges of confidence as text."""
    return [f"{100 * a:.0f} to {100 * b:.0f} %" for a, b in pairwise(EDGES)]


def calibration_cells(p, right):
    """Return one text for each range of confidence."""
    cells = []
    for low, high in pairwise(EDGES):
        some = (p >= low) & ((p < high) | (high == 1.0))
        n = int(some.sum())
        cells.append(f"{100 * np.mean(~right[some]):.1f} ({100 * np.mean(1 - p[some]):.1f}; {n})" if n else "- (0)")
    return cells


PARTS = {
    "whitening": ("Whitening", whitening, 10),
    "null": ("Nothing that is on and off", nulls, 20),
    "power": ("Power", power, 20),
    "recurrence": ("Recurrence in the other half of the trials", recurrence, 2),
    "pink": ("Calibration of bits in pink noise", pink, 30),
    "cost": ("Cost", cost, 3),
    "calibration": ("Calibration of bits", calibration, 30),
}


def save(part, command, text):
    """Write the table of a part to its page, beside those of other parts."""
    packages = "scikit-learn", "tensorly"
    if part == "whitening":
        write("whitening.md", command, ["# Whitening", text], *packages)
    else:
        titles = ["Trust", *(title for title, _, _ in PARTS.values())]
        write_section("trust.md", titles, command, [PARTS[part][0], text], *packages)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="which parts; all by default")
    parser.add_argument("--runs", type=int, help="seeds of each part, or cuts into halves")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--keep", help="folder of runs that are done, with which a run that was ended continues")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    JOBS.n = options.jobs
    JOBS.keep = options.keep and f"{options.keep}/{fingerprint('benchmarks/bench_trust.py')}"
    for name in options.parts or PARTS:
        _, run, usual = PARTS[name]
        n = options.runs or usual
        *_, text = run(n)
        save(name, f"python benchmarks/bench_trust.py {name} --runs {n}", text)


if __name__ == "__main__":
    main()
