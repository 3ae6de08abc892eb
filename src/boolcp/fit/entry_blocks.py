"""Dense blocks with weights or nonnegative entries: Algorithm 1, its line 7 entry by entry.

Of what the other atoms leave, the best block of an atom is the weighted mean over its slices, cut at zero if it is to
be nonnegative; and a bit is on where that lowers the loss. Each of these steps is exact, so the loss never rises.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from boolcp.fit.atom_search import Candidate, greedy_atom_search
from boolcp.fit.finish import with_data
from boolcp.fit.losses import Problem
from boolcp.fit.pursuit import pursue
from boolcp.fit.state import Pursuit, record
from boolcp.result.atoms import Atom, BooleanCP

N_SWEEPS = 50  # not tuned
SETTLED = 1e-9  # relative fall of the loss by a sweep that ends them

Block = tuple[int, np.ndarray, np.ndarray]  # mode, bits (d_n,), block (other modes)


def entry_block_pursuit(
    problem: Problem,
    n_atoms: int,
    modes: tuple[int, ...],
    rng: np.random.Generator,
    *,
    start: Pursuit | None = None,
    tol: float = 1e-6,
) -> Iterator[Pursuit]:
    """Run Alg. 1 with dense blocks; after each atom all blocks and bits are corrected in turn."""
    first = Pursuit((BooleanCP(problem.data.shape),)) if start is None else start
    if not problem.data.squared_norm > 0:
        first = replace(first, stop_reason="zero")

    def find(pursuit: Pursuit) -> Candidate | None:
        return greedy_atom_search(problem.data.inner_residual(pursuit.W), modes, rng, atom_rank=None, certify=False)

    return chain([first], pursue(first, n_atoms, find, partial(correct, problem, tol=tol)))


def correct(problem: Problem, pursuit: Pursuit, found: Candidate | None, *, tol: float) -> Pursuit:
    """Return the pursuit with the atom that was found and all blocks and bits corrected (line 7), or why it stops."""
    if found is None:
        return replace(pursuit, stop_reason="no descent")
    pairs = [*zip(pursuit.W.atoms, pursuit.W.weights, strict=True), (found.atom, found.descent / found.atom.n_ones)]
    blocks = [(atom.mode, atom.z.astype(float), size * atom.dense_block()) for atom, size in pairs]
    if problem.nonnegative:
        blocks = [(mode, z, np.maximum(V, 0)) for mode, z, V in blocks]
    *_, (blocks, loss) = backfit(*problem.arrays(), blocks, is_nonnegative=bool(problem.nonnegative))
    sizes = np.array([np.linalg.norm(V) for _, _, V in blocks])
    alive = [k for k, (_, z, _) in enumerate(blocks) if sizes[k] > 0 and z.any()]
    if len(alive) <= pursuit.n_atoms:
        return replace(pursuit, stop_reason="no descent")
    atoms = tuple(Atom(blocks[k][0], blocks[k][1] > 0, block=blocks[k][2] / sizes[k]) for k in alive)
    W, norm2 = with_data(BooleanCP(problem.data.shape, atoms, sizes[alive]), problem.data), problem.data.squared_norm
    history = (*pursuit.history, record(W.atoms[-1], loss, norm2))
    return Pursuit((*pursuit.path, W), history, "explained" if loss <= tol**2 * norm2 else "")


def backfit(
    X: np.ndarray, weights: np.ndarray, blocks: list[Block], *, is_nonnegative: bool
) -> Iterator[tuple[list[Block], float]]:
    """Yield blocks and bits after each sweep over the atoms, with their loss, until it hardly falls."""
    R, before = X.copy(), np.inf
    for mode, z, V in blocks:
        np.moveaxis(R, mode, 0)[z > 0] -= V
    for _ in range(N_SWEEPS):
        blocks = [corrected(R, weights, block, is_nonnegative) for block in blocks]
        loss = float(np.vdot(weights, R**2))
        yield blocks, loss
        if before - loss <= SETTLED * loss:
            return
        before = loss


def corrected(R: np.ndarray, weights: np.ndarray, block: Block, is_nonnegative: bool) -> Block:
    """Return one atom with its best block, then its best bits; R is what all atoms leave, and is updated in place."""
    mode, z, V = block
    rest, counts = np.moveaxis(R, mode, 0), np.moveaxis(weights, mode, 0)
    rest[z > 0] += V
    weighted = (counts * rest).reshape(len(z), -1)
    flat = counts.reshape(len(z), -1)
    total = z @ flat
    best = np.divide(z @ weighted, total, out=np.zeros_like(total), where=total > 0)
    best = np.maximum(best, 0) if is_nonnegative else best
    z = (weighted @ best - 0.5 * (flat @ best**2) > 0).astype(float)
    V = best.reshape(V.shape)
    rest[z > 0] -= V
    return mode, z, V
