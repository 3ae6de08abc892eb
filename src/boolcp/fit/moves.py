"""The stage `last`, where bits are uncertain: soft sweeps, and atoms that may be noise exchanged for better ones.

At high noise the bits of the small tensor have errors that a polish keeps, and atoms below the noise of every unfolding
are not in the small tensor at all. A fit whose bits all clearly exceed the noise is left unchanged.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from boolcp.checks import RANGES
from boolcp.fit import atom_search
from boolcp.fit.atom_search import Candidates, climb, from_bits, greedy_atom_search, search_residual
from boolcp.fit.certify import NOISY, unique_gains
from boolcp.fit.losses import complete
from boolcp.fit.spec import Spec
from boolcp.fit.starts import noise_gain, oriented, refined_start, round_columns, tolerance, with_atom
from boolcp.fit.sweep import noise_variance, polish, relax, soft_bits, sweep
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.dense import Dense, Difference
from boolcp.storage.protocol import Storage, Tensor
from boolcp.storage.tucker import LONG, Tucker, augmented

# chosen on seeds that benchmarks/bench_noise.py does not use
TEMPERATURES = (4.0,) * 6 + (2.0,) * 6 + (1.0,) * 6  # of the soft sweeps, in units of the noise variance
FEW_TEMPERATURES = (4.0, 2.0, 1.0)  # where each sweep costs a pass
WEAK = 2.0  # gain, in units of the best atom of pure noise, below which an atom may hide a lost one
N_RELAX = 3  # sweeps without bits
N_TRIED = 10  # sweeps after which the better of two candidates is polished further; not tuned
N_TRIPLES = 600  # sets of three bits that are tried along each mode in search of a lost atom
N_KEPT = (200, 60, 60, 60)  # of them after each round
N_ON = (1, 2, 3, 4, 6, 9, 13, 20, 30, 45, 70)  # bits that are on in an atom that may be noise
N_FLIPS = 16  # of the least certain bits of each atom, one at a time
FEW_KEPT = (8, 4, 4)  # starts that are followed after each round where they are few
N_EXCHANGES, N_TRIES = 3, 3  # rounds of exchanges, and lost atoms that are tried in each
N_AUGMENTED = 3  # starts on an augmented core at most; not tuned
SAME_BITS = 1e-4  # relative gain of an atom that has the same bits as before which is worth a polish; not tuned
MAX_FORMED = 2**24  # entries of a residual that is formed for many candidates

Move = Callable[[Storage, Storage, Columns, Spec, np.random.Generator], Columns]


def moves_of(data: Storage, W: Columns) -> list[tuple[float, Move]]:
    """Return the moves, each with a level: it is skipped if every atom gains more, in units of `noise_gain`."""
    moves: list[tuple[float, Move]] = [
        (np.inf, soft_move),
        (WEAK, augmented_move),
        (np.inf, each_atom_move),
        (NOISY, exchange_move),
    ]
    return moves[: 1 if W.is_tied else 2 if data.n_passes else len(moves)]  # others need rank one, and many passes


def lowest(*found: Columns) -> Columns:
    """Return the columns of the lowest loss, the first of equal ones."""
    return min(found, key=lambda each: each.loss)


# moves: each returns the columns, or better ones; `small` is the tensor of the search


def soft_move(data: Storage, small: Storage, W: Columns, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return the columns after sweeps with soft bits (probabilities), from warm to cold, and a polish, if better."""
    variance, soft = noise_variance(data, W), W
    temperatures, rough = FEW_TEMPERATURES if data.n_passes else TEMPERATURES, rough_copy(data)
    for temperature in temperatures if variance > 0 else ():
        soft = sweep(rough, soft, choose=partial(soft_bits, temperature=temperature * variance))[0]
    soft = W.with_matrices([np.where(W.column_mode == n, np.round(A), A) for n, A in enumerate(soft.matrices)])
    options: dict[str, Any] = {"max_iter": min(N_TRIED, spec.max_iter), "tol": tolerance(data, W), "below": W.loss}
    found = polish(data, soft, **options)
    if not data.n_passes and not data.nonnegative:  # and without bits at all for a while
        relaxed = relax(data, W, max_iter=N_RELAX, tol=0.0)
        found = lowest(found, polish(data, round_columns(relaxed, spec.modes), **options))
    return lowest(W, polish(data, found, **options | {"max_iter": spec.max_iter}))


def augmented_move(data: Storage, small: Storage, W: Columns, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return what a short search on a core augmented by contractions with ones leads to, if it is better."""
    if not isinstance(small, Tucker):
        return W
    large = augmented(complete(data), small, W.n_atoms, spec.modes)
    found = replace(to_columns(BooleanCP(data.shape)), loss=large.squared_norm)
    while found.n_atoms < W.n_atoms:
        candidate = greedy_atom_search(search_residual(large, found)[0], spec, rng)
        if candidate is None:
            return W
        found = with_atom(found, candidate)
    found = lowest(*(refined_start(large, found, spec, rng, count) for count in range(N_AUGMENTED)))
    if data.n_passes:
        found = exchange_move(large, large, found, spec, rng)
    found = polish(data, oriented(found, data), max_iter=spec.max_iter)
    return lowest(W, soft_move(data, small, found, spec, rng))


def each_atom_move(data: Storage, small: Storage, W: Columns, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return the columns after each atom was searched for again, the weakest first, and a soft move if that helped.

    The starts are its bits with one of the least certain flipped and, if the atom may be noise, fewer of its bits.
    """
    before, V, noisy = W, W.to_decomposition(), noise_gain(data, noise_variance(data, W))
    gains, R = unique_gains(data, V), rough_copy(data, V)
    for k in np.argsort(gains, kind="stable"):
        others, own = V[np.arange(V.n_atoms) != k], replace(V[[k]], weights=-V.weights[[k]])
        residual = search_residual(data, to_columns(others))[0] if R is data else Difference(R, own)
        best = search_atom(residual, V, int(k), is_noisy=bool(gains[k] < noisy))
        least = SAME_BITS if np.array_equal(best.Z[:, 0] > 0.5, V.atoms[k].z) else 1e-9
        if best.gains[0] <= V.weights[k] ** 2 * V.atoms[k].n_ones * (1 + least):
            continue
        changed = oriented(to_columns(replaced(V, int(k), *best.atom(0))), data)
        candidate = polish(data, changed, max_iter=spec.max_iter, tol=tolerance(data, W), below=W.loss)
        if candidate.loss < W.loss and not candidate.is_dead().any():
            W, V = candidate, candidate.to_decomposition()
            R = rough_copy(data, V)
    return W if W is before else soft_move(data, small, W, spec, rng)


def exchange_move(data: Storage, small: Storage, W: Columns, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return the columns with atoms that may be noise replaced by better ones that were lost, if there are any."""
    for _ in range(N_EXCHANGES):
        before = W
        for found in lost_atoms(data, W, spec.modes)[:N_TRIES]:
            V, (atom, weight) = W.to_decomposition(), found.atom(0)
            if V.n_atoms < W.n_atoms:  # a dead atom leaves its place
                candidate = BooleanCP(V.shape, (*V.atoms, atom), np.append(V.weights, weight))
            else:
                candidate = replaced(V, int(np.argmin(unique_gains(data, V))), atom, weight)
            changed = oriented(to_columns(candidate), data)
            W = lowest(W, polish(data, changed, max_iter=spec.max_iter, tol=tolerance(data, W), below=W.loss))
        if W is before:
            break
        W = each_atom_move(data, small, W, spec, rng)
    return W


# what moves are made of


def lost_atoms(data: Storage, W: Columns, modes: tuple[int, ...]) -> list[Candidates]:
    """Return the best candidates on the residual of W, from similar slices along each short mode, best first."""
    (R, _), found = search_residual(data, W), []
    R = R if data.n_passes else rough_copy(R)
    for mode in modes:
        if not 2 <= data.shape[mode] <= LONG:
            continue
        start = from_bits(R, mode, atom_search.similar_triples(R.gram(mode), N_TRIPLES))
        best = climb(R, start, N_KEPT).best(N_TRIES)
        found += [best.take([j]) for j in range(len(best.gains))]
    return sorted(found, key=lambda each: -float(each.gains[0]))


def rough_copy(data: Any, W: BooleanCP | None = None) -> Any:
    """Return complete data of moderate size, or what W leaves of them, in float32; others, or huge numbers, as are."""
    is_plain = getattr(data, "center", None) is None and not getattr(data, "nonnegative", ())
    if not isinstance(data, Dense | Difference) or not is_plain or np.prod(data.shape, dtype=float) > MAX_FORMED:
        return data
    A, (low, high) = data.to_array() if W is None else data.to_array() - W.to_array(), RANGES["float32"]
    return Dense(A.astype(np.float32)) if low <= np.abs(A).max() <= high else data


def replaced(W: BooleanCP, k: int, atom: Atom, weight: float) -> BooleanCP:
    """Return the decomposition with another atom in the place of atom k."""
    atoms, weights = list(W.atoms), np.array(W.weights)
    atoms[k], weights[k] = atom, weight
    return BooleanCP(W.shape, tuple(atoms), weights)


def search_atom(residual: Tensor, W: BooleanCP, k: int, *, is_noisy: bool) -> Candidates:
    """Return the best candidate to replace atom k of W, on the residual of the other atoms."""
    atom, mode = W.atoms[k], W.atoms[k].mode
    z = atom.z.astype(float)
    p = np.asarray(residual.mttkrp([A[:, [k]] for A in W.matrices], mode), dtype=float)[:, 0] / W.weights[k]
    which = np.argsort(np.abs(p - 0.5), kind="stable")[:N_FLIPS]
    Z = np.abs(z[:, None] - (np.arange(len(z))[:, None] == which))
    Z = np.column_stack([z, Z[:, Z.any(axis=0)]])
    real: Sequence[np.ndarray] = [np.tile(A, Z.shape[1]) for A in atom.factors or ()]
    found = climb(residual, Candidates(mode, Z, list(real), np.zeros(Z.shape[1])), FEW_KEPT).best(1)
    if is_noisy:
        ranks = np.argsort(np.argsort(-p, kind="stable"))  # the bits of the largest entries, up to half of all
        Z = (ranks[:, None] < [n for n in N_ON if n <= max(len(p) // 2, 1)]).astype(float)
        fewer = climb(residual, from_bits(residual, mode, Z), FEW_KEPT).best(1)
        found = max(found, fewer, key=lambda each: each.gains[0])
    return found
