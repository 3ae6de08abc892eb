"""Atoms beside a background: the choice among several codes, and codes without redundant atoms.

Everything that is fitted competes by one estimated risk, |X - W - B|^2 + 2 sigma^2 (free numbers + bits). Atoms of rank
one may repeat bits, be on nearly everywhere, be on once, or cancel each other. Those with the same bits become one atom
of a larger rank. The others are left to the background where it fits as well up to the noise, and new atoms take their
place. Beside a large background, which takes all that they leave, atoms pay for their squared norms.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from boolcp.contractions import gram_product
from boolcp.fit.atom_search import residual_gram, singular_start
from boolcp.fit.background import (
    along,
    best_mean,
    find_background,
    judged,
    with_shares,
    within,
    without,
)
from boolcp.fit.blocks import best_code
from boolcp.fit.polish import polish, sweep
from boolcp.fit.state import Round
from boolcp.program.flips import DEPENDENT
from boolcp.result.atoms import BooleanCP
from boolcp.result.background import Background
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import DenseTensor
from boolcp.storage.protocol import Storage, Tensor

# rules of thumb, set while looking at the recordings of benchmarks/bench_default.py with other noise seeds; limits of
# the polish by reasoning
CANCELING = -0.5  # cosine of two atoms below which they cancel
PENALTY = 0.03  # of the squared norms of the atoms beside a large background, where it costs the sum nothing
SETTLED = 1e-4  # fall of the loss, relative to it, that ends a polish
N_SWEEPS = 10  # of a polish
MAX_RANK = 10  # of an atom that is polished as columns
MAX_FORMED = 2**24  # entries of a tensor of which several estimates are formed


def with_background(
    data: Storage,
    W: BooleanCP,
    kind: str | int,
    sigma: float,
    dof: float | None = None,
    before: Background | None = None,
    clear: float = 0.0,
) -> Round:
    """Return the atoms with the background of what they leave, |X - W - B|^2 and the estimated risk.

    `dof` are the degrees of freedom of the real parts, by default their number of parameters.
    """
    background = find_background(data, W, kind, sigma, before, clear)
    left = data.residual(W).squared_norm
    loss = left if background is None else left - background.share * data.squared_norm
    free = (W.n_parameters if dof is None else dof) + W.n_bits
    free += 0.0 if background is None else background.degrees_of_freedom
    if background is not None and background.level is not None:
        sigma = max(sigma, background.level)  # what held-out entries say
    return Round(replace(in_order(W), background=background), loss, loss + 2 * sigma**2 * free, sigma)


def in_order(W: BooleanCP) -> BooleanCP:
    """Return W with its arrays in C order, as if read from a file: products then round in the same way."""
    factors = [None if atom.factors is None else tuple(map(np.ascontiguousarray, atom.factors)) for atom in W.atoms]
    return replace(W, atoms=tuple(replace(atom, factors=A) for atom, A in zip(W.atoms, factors, strict=True)))


def spread(data: Storage, sigma: float) -> float:
    """Return the random spread of |noise|^2: risks that differ by less cannot be told apart."""
    return sigma**2 * float(np.sqrt(2 * data.n_observed))


def lowest(data: Storage, rounds: tuple[Round, ...], others: tuple[Round, ...] = ()) -> Round:
    """Return the round with the lowest risk; others win only by more than the random spread of the noise."""
    best = min(rounds, key=lambda each: each.risk)
    rival = min(others, key=lambda each: each.risk, default=best)
    return rival if rival.risk < best.risk - spread(data, best.sigma) else best


def simplify_beside(
    data: Storage, first: Round, n_atoms: int, modes: tuple[int, ...], kind: str | int, rng: np.random.Generator
) -> Round:
    """Return atoms without repeated bits, and as few baselines, single bits and canceling pairs as the fit allows.

    What is left out goes to the background, and new atoms are sought until there are `n_atoms` again. The risk may
    rise by the random spread of the noise in all. A large background takes whatever the atoms leave, and beside it a
    penalty on the squared norm of each atom keeps them from canceling. With missing entries only repeated bits are
    merged.
    """
    limit, here = first.risk + spread(data, first.sigma), merged(first)
    if not data.is_complete:  # each further background takes rounds of filling in
        return here
    if here.is_beside_large:  # which takes all that the atoms leave
        here = settled(data, here.W, kind, here.sigma)
        limit = here.risk + spread(data, first.sigma)
    here = shortened(data, here, kind, limit)
    for _ in range(0 if has_blocks(here.W) else n_atoms - here.W.n_atoms):
        longer = extended(data, here, modes, kind, rng)
        if longer is None or not is_worth(data, longer, here, limit):
            break
        here = longer
    return recoded(data, here, kind)


def beside_whole(data: Storage, here: Round, kind: str | int) -> Round:
    """Return the atoms beside what they leave of the shrunk data, if that lowers the risk beyond its random spread.

    The noise that least squares put into the atoms is in the background with the other sign.
    """
    W, sigma = here.W, here.sigma
    is_possible = data.is_complete and data.n_passes == 0 and kind == "auto" and not W.is_block
    is_possible &= np.prod(data.shape, dtype=float) <= MAX_FORMED
    if not (is_possible and W.n_atoms) or here.background is None:
        return here
    atoms, side = W.to_tensor(), max(data.shape)
    given = atoms + here.background.to_tensor(), (here.risk - here.loss) / (2 * sigma**2)
    E, loss, freedom = best_mean(data, sigma, [given])
    risk = loss + 2 * sigma**2 * freedom
    if not risk < here.risk - spread(data, sigma):
        return here
    found = along(DenseTensor(np.ascontiguousarray(E - atoms)), here.background.mode, side, sigma)[1]
    if found is None:
        return here
    beyond = max(freedom - W.n_parameters - W.n_bits, 0.0)
    background = with_shares(data, W, replace(found, degrees_of_freedom=beyond, shrunk_at=sigma), loss)
    return Round(replace(W, background=background), loss, risk, sigma)


def is_worth(data: Storage, longer: Round, here: Round, limit: float) -> bool:
    """Return True if one more atom pays: the risk stays below a limit, or falls if a large background is noise."""
    if not longer.is_beside_large:
        return longer.risk <= limit
    before, after = (data.residual(each.W).squared_norm for each in (here, longer))
    free = longer.W.n_parameters + longer.W.n_bits - here.W.n_parameters - here.W.n_bits
    return before - after > 2 * before / data.n_observed * free


def recoded(data: Storage, here: Round, kind: str | int) -> Round:
    """Return the round with baselines that are on everywhere, and few ones in the atoms along the same modes.

    A baseline may lose the random spread of what the atoms leave. Beside it an atom and its complement say the same,
    z V = 1 V - (1 - z) V: the one with fewer ones is taken, and the baseline has V as well.
    """
    if has_blocks(here.W) or not any(atom.is_baseline for atom in here.W.atoms):
        return here
    first, rest, penalty = to_columns(here.W), judged(data, here.background), penalty_of(data, here)
    limit = rest.residual(here.W).squared_norm * (1 + np.sqrt(2 / data.n_observed))
    found = first
    for k, atom in enumerate(here.W.atoms):
        if atom.is_baseline and not atom.z.all():
            whole = with_held_bits(rest, with_bits_on(found, k), penalty)
            found = whole if rest.residual(scaled_up(whole, penalty)).squared_norm <= limit else found
    for k in range(found.n_atoms):
        found = complemented(found, k)
    if found is first:
        return here
    W = scaled_up(with_held_bits(rest, found, penalty), penalty)
    there = merged(with_background(data, W, kind, here.sigma, before=here.background))
    return there if len(faults(there.W)) <= len(faults(here.W)) else here


def with_bits_on(W: Columns, k: int) -> Columns:
    """Return the columns with one atom on everywhere."""
    matrices = [A.copy() for A in W.matrices]
    matrices[W.boolean_mode[k]][:, W.owner == k] = 1.0
    return W.with_matrices(matrices)


def complemented(W: Columns, k: int) -> Columns:
    """Return the same sum with the complement of an atom that is mostly on, if a baseline along its mode can take V."""
    mode, own = W.boolean_mode[k], np.flatnonzero(W.owner == k)
    z = W.matrices[mode][:, own[0]]
    bases = [j for j in np.flatnonzero(W.boolean_mode == mode) if W.matrices[mode][:, W.owner == j].all()]
    if not bases or not 0.5 < z.mean() < 1:
        return W
    owner = np.append(W.owner, np.repeat(bases[0], len(own)))
    order = np.argsort(owner, kind="stable")
    matrices = [np.hstack([A, A[:, own]]) for A in W.matrices]
    matrices[mode][:, len(W.owner) :] = 1.0
    matrices[mode][:, own] = 1 - z[:, None]
    matrices[0 if mode else 1][:, own] *= -1
    return Columns(tuple(A[:, order] for A in matrices), owner[order], W.boolean_mode)


def with_held_bits(data: Storage, W: Columns, penalty: float) -> Columns:
    """Return the columns after sweeps that keep their bits."""
    for _ in range(N_SWEEPS):
        W, _ = sweep(data, W, choose=lambda S, Q, current: current, penalty=penalty)
    return W


def shortened(data: Storage, here: Round, kind: str | int, limit: float) -> Round:
    """Return the round without redundant atoms, as long as the risk stays below a limit."""
    while (shorter := next(without_faults(data, here, kind, limit), None)) is not None:
        here = shorter
    return here


def has_blocks(W: BooleanCP) -> bool:
    """Return True if the rank of an atom is so large that it is fitted by back-fitting, not by sweeps over columns."""
    return any(atom.rank is None or atom.rank > MAX_RANK for atom in W.atoms)


def merged(here: Round) -> Round:
    """Return the same sum with one atom, of a larger rank, for all that share their bits: it leaves the same."""
    W = here.W
    bits = [(atom.mode, atom.z.tobytes()) for atom in W.atoms]
    if len(set(bits)) == len(bits) or W.is_block:
        return here
    columns, names = to_columns(W), sorted(set(bits), key=bits.index)
    owner = np.array([names.index(bits[k]) for k in columns.owner])
    order = np.argsort(owner, kind="stable")
    matrices = tuple(A[:, order] for A in columns.matrices)
    tied = Columns(matrices, owner[order], np.array([mode for mode, _ in names])).to_decomposition()
    free = tied.n_parameters + tied.n_bits - W.n_parameters - W.n_bits
    risk = here.risk + 2 * here.sigma**2 * free
    return replace(here, W=replace(in_order(tied), background=here.background), risk=risk)


def faults(W: BooleanCP) -> list[tuple[int, bool]]:
    """Return the redundant atoms, and whether each has to lower the risk: single bits are fine if they do.

    Of a pair that cancels it is the smaller one.
    """
    G = W.inner_products() * np.outer(W.weights, W.weights)
    sizes = np.sqrt(np.maximum(G.diagonal(), 1e-300))
    found = []
    for k, l in combinations(range(W.n_atoms), 2):
        if G[k, l] < CANCELING * sizes[k] * sizes[l]:
            found.append((k if sizes[k] < sizes[l] else l, False))
    for k, atom in enumerate(W.atoms):
        if atom.is_baseline:
            found.append((k, False))
        elif atom.n_ones == 1 and len(atom.z) > 2:
            found.append((k, True))
    return found


def n_baselines(W: BooleanCP) -> int:
    """Return the number of atoms that are on (almost) everywhere."""
    return sum(atom.is_baseline for atom in W.atoms)


def without_faults(data: Storage, here: Round, kind: str | int, limit: float) -> Iterator[Round]:
    """Yield rounds without one of the redundant atoms, polished again, whose risk is low enough."""
    for k, must_pay in faults(here.W):
        kept = here.W[[j for j in range(here.W.n_atoms) if j != k]]
        found = settled(data, kept, kind, here.sigma)
        if len(faults(found.W)) < len(faults(here.W)) and found.risk <= (here.risk if must_pay else limit):
            yield found


def settled(
    data: Storage,
    W: BooleanCP,
    kind: str | int,
    sigma: float,
    before: Background | None = None,
    is_polished: bool = False,
) -> Round:
    """Return atoms that were changed, polished beside the background they leave, with a background of their own.

    Beside a large one they are not polished again if they are already, on the data themselves.
    """
    here = with_background(data, W, kind, sigma, before=before)
    if not W.n_atoms or has_blocks(W):
        return here
    if is_polished and here.is_beside_large:
        return merged(here)
    variance = 0.0 if data.is_complete else sigma**2
    rest, penalty = judged(data, here.background), penalty_of(data, here)
    loss = here.loss if variance == penalty == 0 else float("inf")
    columns = polish(rest, to_columns(W), max_iter=N_SWEEPS, tol=SETTLED, variance=variance, penalty=penalty, loss=loss)
    W = scaled_up(columns, penalty)
    return merged(with_background(data, W, kind, sigma, before=here.background))


def polished_near(data: Storage, W: BooleanCP, sigma: float, before: BooleanCP) -> Round | None:
    """Return atoms polished beside what they leave in the directions of an earlier background, with one of their own.

    None unless its mode is clearly that of the earlier one: the risk along others is higher by more than its spread.
    """
    B = before.background
    if B is None or B.is_large or not data.is_complete or data.n_passes or has_blocks(W):
        return None
    rest = without(data, within(W, before, sigma))
    V = polish(rest, to_columns(W), max_iter=N_SWEEPS, tol=np.inf).to_decomposition()  # until no bit changes
    here = with_background(data, V, "auto", sigma, before=B, clear=spread(data, sigma))
    return here if here.background is not None and here.background.mode == B.mode else None


def penalty_of(data: Storage, here: Round) -> float:
    """Return the penalty on the squared norms of atoms: only a large background makes up for what it costs the fit."""
    return PENALTY if data.is_complete and here.is_beside_large else 0.0


def scaled_up(W: Columns, penalty: float) -> BooleanCP:
    """Return the atoms without the shrinkage that a penalty means for orthogonal ones."""
    found = W.to_decomposition()
    return replace(found, weights=(1 + penalty) * found.weights)


def extended(
    data: Storage, here: Round, modes: tuple[int, ...], kind: str | int, rng: np.random.Generator
) -> Round | None:
    """Return the round with one more atom that is not redundant, or with a baseline; None if none is found.

    Beside a large background all have nearly the same risk, and the atom is chosen that leaves the least to it.
    """
    W = here.W
    found = [new_atom(data.residual(W), W, mode, rng) for mode in modes]
    longer = [settled(data, appended(W, atom), kind, here.sigma) for gain, atom in found if gain > 0]
    longer = [each for each in longer if each.W.n_atoms > W.n_atoms]
    clear = [each for each in longer if len(faults(each.W)) <= len(faults(W))]
    based = [each for each in longer if len(faults(each.W)) - n_baselines(each.W) <= len(faults(W)) - n_baselines(W)]

    def cost(each: Round) -> float:
        return data.residual(each.W).squared_norm if each.is_beside_large else each.risk

    return min(clear or based, key=cost, default=None)


def new_atom(R: Tensor, W: BooleanCP, mode: int, rng: np.random.Generator) -> tuple[float, Columns]:
    """Return the best atom of rank one along a mode beyond a baseline and the bits that are there, and its gain.

    With P the projection that removes these, the gain of bits z is z'PCPz / z'Pz. Beside a baseline z and its
    complement say the same: the one with fewer ones is taken.
    """
    C, _ = residual_gram(R, mode)
    known = [atom.z for atom in W.atoms if atom.mode == mode]
    P, C = C.without(np.stack([np.ones(R.shape[mode]), *known], axis=1).astype(float))
    z, _ = best_code(C, P, rng, "normalized", False)
    z = ~z if 2 * z.sum() > len(z) else z
    n_ones = float(z @ P @ z.astype(float))
    if not n_ones > DEPENDENT * max(z.sum(), 1):
        return 0.0, Columns((), np.zeros(0), np.zeros(0))
    V = np.asarray(R.contract(mode, (P @ z.astype(float))[:, None]), dtype=float)[0] / n_ones
    real = leading_product(V)
    matrices = [*real[:mode], z[:, None].astype(float), *real[mode:]]
    return n_ones * float(gram_product(real)[0, 0]), Columns(tuple(matrices), np.zeros(1, int), np.array([mode]))


def leading_product(V: np.ndarray) -> list[np.ndarray]:
    """Return the columns (d_m, 1) whose product is close to a block."""
    if V.ndim == 1:
        return [V[:, None]]
    columns = singular_start(V, 1)
    size = V
    for u in columns:
        size = np.tensordot(u[:, 0], size, axes=(0, 0))
    return [columns[0] * float(size), *columns[1:]]


def appended(W: BooleanCP, atom: Columns) -> BooleanCP:
    """Return the atoms with one more."""
    one = atom.to_decomposition()
    return BooleanCP(W.shape, (*W.atoms, *one.atoms), np.append(W.weights, one.weights))
