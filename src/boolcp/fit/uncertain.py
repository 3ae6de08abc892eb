"""The last search, where bits are uncertain: soft sweeps, a full relaxation, and atoms that may be noise exchanged.

At high noise the bits of the small tensor have errors that a polish keeps, and atoms below the noise of every unfolding
are not in the small tensor at all. A fit whose bits all clearly exceed the noise is left unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import scipy.special

from boolcp.fit.candidates import Candidates, climb, flipped, from_bits, prefixes, similar_triples
from boolcp.fit.certify import flip_terms
from boolcp.fit.finish import by_size
from boolcp.fit.noise import noise_variance
from boolcp.fit.polish import MAX_JOINT, TOL, in_parts, pattern_costs, polish, sweep, times
from boolcp.fit.pursuit import atom_system
from boolcp.fit.relax import begin, last, relax_sweeps
from boolcp.fit.starts import EXACT, POLISHED, round_columns, small_fall
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.dense import DenseTensor
from boolcp.storage.long import is_long
from boolcp.storage.observed import SPARSE
from boolcp.storage.protocol import Storage, Tensor

# chosen on seeds that benchmarks/bench_noise.py does not use
CERTAIN = 1.0  # smallest margin of a bit, in standard deviations of the noise, at which it counts as certain
TEMPERATURES = (4.0,) * 6 + (2.0,) * 6 + (1.0,) * 6  # of the soft sweeps, in units of the noise variance
FEW_TEMPERATURES = (4.0, 2.0, 1.0)  # where each sweep costs a pass
N_RELAX = 3  # sweeps of the full relaxation
N_FIELD = 3  # rounds of the mean field that replaces all patterns when bits are many
WEAK, NOISY = 2.0, 1.0  # gains, in units of the best atom of pure noise, below which an atom may hide a lost one
N_STARTS = 600  # sets of three bits that are tried along each mode in search of a lost atom
N_KEPT = (200, 60, 60, 60)  # of them after each round
N_FLIPS = 16  # of the least certain bits of each atom, one at a time
FEW_KEPT = (8, 4, 4)  # starts that are followed after each round where they are few
N_TRIES = 3  # lost atoms that are tried in each round of exchanges
N_EXCHANGES = 3  # rounds of exchanges
N_CROSSED, N_REDRAWN = 2, 6  # rounds of crossings with new starts, and with some atoms drawn again, in one mode
REDRAWN = 4  # one atom in so many is drawn again
MAX_FORMED = 2**24  # entries of a residual that is formed for many candidates

Move = Callable[[Columns], Columns]


@dataclass(frozen=True)
class LastSearch:
    """The state of the last search: the best columns, the number of moves made, and whether it is over."""

    best: Columns
    n_done: int = 0
    is_over: bool = False


def last_search(
    data: Storage,
    here: LastSearch,
    modes: tuple[int, ...],
    search_augmented: Move,
    search_randomly: Move,
    rng: np.random.Generator,
    *,
    max_iter: int,
) -> Iterator[LastSearch]:
    """Yield the best columns after each of a few moves, as long as bits are uncertain.

    The bits are decided again; what `search_augmented` leads to is tried if an atom is weak; each atom is searched for
    again; atoms that may be noise are exchanged. If all bits are along one mode, where solutions with nearly the same
    loss are many, atoms are crossed with those of random starts, and with those found when some are drawn again.
    Columns that share their bits have the first move only, and data that are read in passes the first two.
    """
    decide = lru_cache(maxsize=1)(partial(decide_again, data, modes=modes, max_iter=max_iter))  # often the same columns
    moves: list[tuple[float, Move]] = [
        (np.inf, decide),
        (WEAK, lambda W: decide(polish(data, search_augmented(W), max_iter=max_iter))),
        (np.inf, lambda W: decide(search_each_atom(data, W, max_iter=max_iter))),
        (NOISY, partial(exchange_atoms, data, modes=modes, max_iter=max_iter)),
    ]
    if len(modes) == 1:
        shaken = partial(shake, data, rng=rng, max_iter=max_iter)
        draws = N_CROSSED * [search_randomly] + N_REDRAWN * [shaken]
        moves += [(NOISY, partial(cross, data, draw=draw, decide=decide, max_iter=max_iter)) for draw in draws]
    n_moves = 1 if here.best.is_tied else 2 if data.n_passes else len(moves)
    while here.n_done < n_moves and not here.is_over:
        W = by_size(here.best.to_decomposition())
        if is_certain(data, here.best, W):
            here = replace(here, is_over=True)
        else:
            level, move = moves[here.n_done]
            found = move(here.best) if has_weak_atom(data, here.best, W, level) else here.best
            here = LastSearch(min(here.best, found, key=lambda each: each.loss), here.n_done + 1)
        yield here


def is_certain(data: Storage, found: Columns, W: BooleanCP) -> bool:
    """Return True if the atoms of W and their bits clearly exceed the noise, or nothing is left.

    An atom that fits only noise can have bits that all clearly exceed it.
    """
    if found.loss <= EXACT * data.squared_norm or W.n_atoms == 0:
        return True
    is_clear = smallest_margin(data, W, noise_variance(data, found)) >= CERTAIN
    return is_clear and not has_weak_atom(data, found, W, NOISY)


def has_weak_atom(data: Storage, found: Columns, W: BooleanCP, level: float) -> bool:
    """Return True if an atom is dead, or gains less than `level` times what the best atom of pure noise gains."""
    if np.isinf(level) or W.n_atoms < found.n_atoms:
        return True
    return bool(unique_gains(data, W).min() < level * noise_gain(data, noise_variance(data, found)))


def smallest_margin(data: Storage, W: BooleanCP, variance: float) -> float:
    """Return the margin of the least certain bit, in standard deviations of the noise.

    Flipping a bit raises the loss by |V|^2 + 2 <R, V> or |V|^2 - 2 <R, V>, where R is what is left in its slice, and
    noise of variance s^2 gives this a standard deviation of 2 s |V|.
    """
    products, squares = flip_terms(data, W)
    margins = [np.inf]
    for atom, g, h in zip(W.atoms, products, squares, strict=True):
        rises = h + 2 * np.where(atom.z, g, -g)
        margins.append(np.min(rises[h > 0] / np.sqrt(h[h > 0]), initial=np.inf) / (2 * np.sqrt(variance)))
    return float(min(margins))


def soften(data: Storage, W: Columns, *, max_iter: int, temperatures: Sequence[float] = TEMPERATURES) -> Columns:
    """Return the columns after sweeps with soft bits, from warm to cold, and a polish.

    A soft bit is the probability that it is on, given all others. The temperatures are in units of the noise variance.
    """
    variance, soft = noise_variance(data, W), W
    for temperature in temperatures if variance > 0 else ():
        soft = sweep(data, soft, choose=partial(soft_bits, temperature=temperature * variance))[0]
    return polish(data, soft, max_iter=max_iter, tol=tolerance(data, W), below=W.loss)


def tolerance(data: Storage, W: Columns) -> float:
    """Return the relative fall of the loss that ends a polish; over observed entries sweeps with a ridge follow it."""
    return TOL if data.is_complete else max(POLISHED, small_fall(data, W))


def soft_bits(S: np.ndarray, Q: np.ndarray, current: np.ndarray, temperature: float) -> np.ndarray:
    """Return the mean of the rows b_i (d, K) whose probability falls as exp(-(b'S_i b - 2 q_i'b) / (2 temperature)).

    It is exact when the bits are few, and a mean field otherwise.
    """
    return in_parts(partial(mean_bits, temperature=temperature), S, Q, current)


def mean_bits(S: np.ndarray, Q: np.ndarray, current: np.ndarray, temperature: float) -> np.ndarray:
    """Return the rows of `soft_bits`, all at a time."""
    if Q.shape[1] > MAX_JOINT:
        return mean_field(S, Q, np.array(current), temperature)
    patterns, costs = pattern_costs(S, Q)
    weights = np.exp((costs.min(axis=1, keepdims=True) - costs) / (2 * temperature))
    return weights @ patterns / weights.sum(axis=1, keepdims=True)


def mean_field(S: np.ndarray, Q: np.ndarray, bits: np.ndarray, temperature: float) -> np.ndarray:
    """Return soft bits, each the mean given the others, after a few rounds, in place."""
    for _ in range(N_FIELD):
        for k in range(Q.shape[1]):
            h = S[..., k, k]
            g = Q[:, k] - times(bits, S[..., [k]])[:, 0] + bits[:, k] * h
            bits[:, k] = scipy.special.expit((g - h / 2) / temperature)
    return bits


def relax_fully(data: Storage, W: Columns, modes: tuple[int, ...], *, max_iter: int) -> Columns:
    """Return the columns after a few sweeps over the full data without the Boolean constraint, rounded and polished."""
    start = begin(W)
    relaxed = last(relax_sweeps(data, start, max_iter=N_RELAX, tol=0.0), start).result
    return polish(data, round_columns(relaxed, modes), max_iter=max_iter, tol=tolerance(data, W), below=W.loss)


def decide_again(data: Storage, W: Columns, modes: tuple[int, ...], *, max_iter: int) -> Columns:
    """Return the best of the columns, those after soft sweeps and those after a full relaxation.

    Data that are read in passes get the soft sweeps only, and few of them.
    """
    if data.n_passes:
        return min(W, soften(data, W, max_iter=max_iter, temperatures=FEW_TEMPERATURES), key=lambda each: each.loss)
    found = soften(data, W, max_iter=max_iter), relax_fully(data, W, modes, max_iter=max_iter)
    return min(W, *found, key=lambda each: each.loss)


# atoms that may be noise


def unique_gains(data: Storage, W: BooleanCP) -> np.ndarray:
    """Return by how much the loss rises when an atom is left out and the weights of the others adjust, (K,)."""
    G, _ = atom_system(data, W.atoms)
    inverse = np.linalg.pinv(G, hermitian=True).diagonal()
    return np.divide(W.weights**2, inverse, out=np.zeros(W.n_atoms), where=inverse > 0)


def noise_gain(data: Storage, variance: float) -> float:
    """Return about the largest decrease of the loss by an atom of rank one in pure noise.

    <E, z (x) u (x) w> / |z| for noise E is at most s (sqrt(d_1) + .. + sqrt(d_N)) in the mean (Sudakov and Fernique).
    """
    return variance * float(np.sum(np.sqrt(data.shape))) ** 2


def exchange_atoms(data: Storage, W: Columns, modes: tuple[int, ...], *, max_iter: int) -> Columns:
    """Return the columns with atoms that may be noise replaced by better ones that were lost, if there are any."""
    for _ in range(N_EXCHANGES):
        found = exchange_once(data, W, modes, max_iter=max_iter)
        if found is W:
            break
        W = decide_again(data, search_each_atom(data, found, max_iter=max_iter), modes, max_iter=max_iter)
    return W


def exchange_once(data: Storage, W: Columns, modes: tuple[int, ...], *, max_iter: int) -> Columns:
    """Return the columns after the best of the lost atoms were tried in the place of the weakest, or W itself."""
    for found in lost_atoms(data, W, modes)[:N_TRIES]:
        V, (atom, weight) = W.to_decomposition(), found.atom(0)
        if V.n_atoms < W.n_atoms:  # a dead atom leaves its place
            candidate = BooleanCP(V.shape, (*V.atoms, atom), np.append(V.weights, weight))
        else:
            candidate = replaced(V, int(np.argmin(unique_gains(data, V))), atom, weight)
        polished = polish(data, to_columns(candidate), max_iter=max_iter, tol=tolerance(data, W), below=W.loss)
        W = polished if polished.loss < W.loss else W
    return W


def shake(data: Storage, W: Columns, rng: np.random.Generator, *, max_iter: int) -> Columns:
    """Return what soft sweeps lead to from the columns with some atoms drawn again, of the same size."""
    matrices = [A.copy() for A in W.matrices]
    for k in rng.choice(W.n_atoms, max(1, W.n_atoms // REDRAWN), replace=False):
        for n, A in enumerate(matrices):
            if n == W.boolean_mode[k]:
                A[:, k] = rng.random(len(A)) < A[:, k].mean()
            else:
                A[:, k] = np.linalg.norm(A[:, k]) * rng.standard_normal(len(A)) / np.sqrt(len(A))
    return soften(data, W.with_matrices(matrices), max_iter=max_iter)


def cross(data: Storage, W: Columns, draw: Move, decide: Move, *, max_iter: int) -> Columns:
    """Return what the atoms drawn from W lead to, alone or with those of W, after each was searched for again."""
    V = draw(W)
    alone, both = (decide(polish(data, each, max_iter=max_iter)) for each in (V, best_of_both(data, W, V)))
    return decide(search_each_atom(data, min(alone, both, key=lambda each: each.loss), max_iter=max_iter))


def best_of_both(data: Storage, W: Columns, V: Columns) -> Columns:
    """Return as many atoms of W and V as W has: of all with different bits, the one that gains least is left out."""
    distinct = {(a.mode, a.z.tobytes()): a for U in (V, W) for a in U.to_decomposition().atoms}
    atoms = tuple(distinct.values())
    G, b = atom_system(data, atoms)
    kept = np.arange(len(atoms))
    while True:
        inverse = np.linalg.pinv(G[np.ix_(kept, kept)], hermitian=True)
        weights = inverse @ b[kept]
        if len(kept) <= W.n_atoms:
            return to_columns(BooleanCP(data.shape, tuple(atoms[k] for k in kept), weights))
        kept = np.delete(kept, np.argmin(weights**2 / np.maximum(inverse.diagonal(), 1e-300)))


def replaced(W: BooleanCP, k: int, atom: Atom, weight: float) -> BooleanCP:
    """Return the decomposition with another atom in the place of atom k."""
    atoms, weights = list(W.atoms), np.array(W.weights)
    atoms[k], weights[k] = atom, weight
    return BooleanCP(W.shape, tuple(atoms), weights)


def lost_atoms(data: Storage, W: Columns, modes: tuple[int, ...]) -> list[Candidates]:
    """Return the best candidates on the residual of W, from similar slices along each short mode, best first."""
    residual, found = in_memory(data.residual(W.to_decomposition()), data), []
    for mode in modes:
        if data.shape[mode] < 2 or is_long(data.shape[mode]) or not residual.has_gram(mode):
            continue
        start = from_bits(residual, mode, similar_triples(residual.gram(mode), N_STARTS))
        best = climb(residual, start, N_KEPT).best(N_TRIES)
        found += [best.take([j]) for j in range(len(best.gains))]
    return sorted(found, key=lambda each: -float(each.gains[0]))


def in_memory(residual: Tensor, data: Storage) -> Tensor:
    """Return a residual in memory as an array of single precision: candidates are polished later."""
    size = np.prod(data.shape, dtype=float)
    if data.n_passes or data.is_compressed or size > MAX_FORMED or data.n_observed < SPARSE * size:
        return residual
    return DenseTensor(residual.to_array().astype(np.float32))


def search_each_atom(data: Storage, W: Columns, *, max_iter: int) -> Columns:
    """Return the columns after each atom was searched for again, the weakest first.

    The starts are its bits with one of the least certain flipped and, if the atom may be noise, fewer of its bits.
    """
    V, noisy = W.to_decomposition(), noise_gain(data, noise_variance(data, W))
    gains = unique_gains(data, V)
    for k in np.argsort(gains, kind="stable"):
        rest = replace(V, weights=np.where(np.arange(V.n_atoms) == k, 0.0, V.weights))
        best = search_atom(data.residual(rest), V, int(k), is_noisy=bool(gains[k] < noisy))
        if best.gains[0] <= V.weights[k] ** 2 * V.atoms[k].n_ones * (1 + 1e-9):
            continue
        changed = to_columns(replaced(V, int(k), *best.atom(0)))
        candidate = polish(data, changed, max_iter=max_iter, tol=tolerance(data, W), below=W.loss)
        if candidate.loss < W.loss and not candidate.is_dead().any():
            W, V = candidate, candidate.to_decomposition()
    return W


def search_atom(residual: Tensor, W: BooleanCP, k: int, *, is_noisy: bool) -> Candidates:
    """Return the best candidate to replace atom k of W, on the residual of the other atoms."""
    atom, mode = W.atoms[k], W.atoms[k].mode
    z = atom.z.astype(float)
    p = np.asarray(residual.mttkrp([A[:, [k]] for A in W.matrices], mode), dtype=float)[:, 0] / W.weights[k]
    doubtful = np.argsort(np.abs(p - 0.5), kind="stable")[:N_FLIPS]
    Z = flipped(z, doubtful)
    real = [np.tile(A, Z.shape[1]) for A in atom.factors or ()]
    found = climb(residual, Candidates(mode, Z, real, np.zeros(Z.shape[1])), FEW_KEPT).best(1)
    if is_noisy:
        fewer = climb(residual, from_bits(residual, mode, prefixes(p)), FEW_KEPT).best(1)
        found = max(found, fewer, key=lambda each: each.gains[0])
    return found
