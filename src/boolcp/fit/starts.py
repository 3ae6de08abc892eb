"""Beyond the paper: relax, round, polish. All factors of rank-one atoms are corrected, not only their weights."""

from functools import partial

import numpy as np

from boolcp.fit.atom_search import best_boolean, greedy_atom_search
from boolcp.fit.polish import polish
from boolcp.fit.relax import cp_als, pencil_start, random_factors
from boolcp.fit.steps import Steps
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import TuckerTensor

MIN_STARTS = 3  # starts that are always run; more only until two agree on the lowest loss
EXACT = 1e-10  # a loss below this part of |X|^2 is that of a noiseless tensor
PLENTY = 100  # observed entries for each free parameter that make traps rare
FEW = 10  # observed entries for each free parameter below which traps are many, and three times as many starts tried
SAME_LOSS = 1e-7  # difference of two losses, relative to |X|^2, that counts as none


def refine(data, small, W, n_atoms, modes, rng, *, n_init=10, max_iter=50, steps=None):
    """Return the Factors of lowest loss over several starts of relax - round - polish, finished on the full data.

    Parameters
    ----------
    data, small : storage
        The tensor, and the complete one on which the starts are run: compressed, or `data` itself. Where entries
        are missing it is the tensor with zeros in their place.
    W : BooleanCP
        The pursuit's estimate: the first start.
    n_atoms : int
        Number of atoms K.
    modes : sequence of int
        The modes allowed to be Boolean.
    n_init : int
        Starts at most; fewer are run when two of them agree on the lowest loss.
    max_iter : int
        Sweeps of a polish at most.
    steps : Steps, optional
        What remembers the starts and sweeps. If it is stopped, the best so far gets a last sweep over the full data.
    """
    steps = Steps() if steps is None else steps
    options = {"max_iter": max_iter, "steps": steps}
    best = steps.do("search", partial(search, small, W, n_atoms, modes, rng, n_init=n_init, **options), rng)
    if steps.is_stopped:
        best = polish(data, best.matrices, best.boolean_mode, max_iter=1)
    elif data.is_complete:
        best = steps.do("polish", partial(polish, data, best.matrices, best.boolean_mode, **options), rng)
        best = steps.do("revive", partial(revive, data, best, modes, rng, small=small, steps=steps), rng)
    else:
        compute = partial(search_observed, data, best, modes, rng, n_init=n_init, **options)
        best = steps.do("observed", compute, rng)
    return best


def not_worse(data, solution, W, *, max_iter=50, steps=None):
    """Return the Factors, or those polished from W, whose inner products with the data are known, if it is better."""
    if solution.loss <= data.squared_norm - W.weights @ W.data_inner:
        return solution
    steps = Steps() if steps is None else steps
    compute = partial(polish, data, sized_factors(W), W.boolean_mode, max_iter=max_iter, steps=steps)
    return min(solution, steps.do("pursued", compute), key=lambda each: each.loss)


def refine_path(data, small, n_atoms, modes, rng, *, n_init=1, max_iter=3, steps=None):
    """Return the refined decompositions with 0, 1, 2, .. atoms; each starts from the one before and a greedy atom."""
    steps = Steps() if steps is None else steps
    path = [BooleanCP(data.shape)]
    found = path[0]  # on the small tensor
    for k in range(1, n_atoms + 1):
        start = add_greedy(small, found, 1, modes, rng)
        if start is None:
            break
        best = search(small, start, k, modes, rng, n_init=n_init, max_iter=10, n_relax=30, is_repaired=False)
        found = to_decomposition(data.shape, best)
        best = polish(data, best.matrices, best.boolean_mode, max_iter=max_iter)
        path.append(to_decomposition(data.shape, best))
        steps.report("path", k, n_atoms, best.loss, data.squared_norm)
    return path


def search(small, W, n_atoms, modes, rng, *, n_init=10, max_iter=50, n_relax=200, is_repaired=True, steps=None):
    """Return the Factors of lowest loss over several starts on a complete tensor."""
    steps = Steps() if steps is None else steps
    n_starts, best, n_agree = steps.begin("best", (0, None, 0), rng)
    while n_starts < n_init and not (n_starts >= MIN_STARTS and n_agree >= 2):
        relaxed = relax(small, make_start(small, W, n_atoms, rng, n_starts), max_iter=n_relax)[0]
        candidate = polish(small, *round_factors(relaxed, modes), max_iter=max_iter)
        candidate = revive(small, candidate, modes, rng)
        best, n_agree = compare(best, n_agree, candidate, small.squared_norm)
        n_starts, best, n_agree = steps.keep("best", (n_starts + 1, best, n_agree), rng)
        steps.report("search", n_starts, n_init, best.loss, small.squared_norm)
        if steps.is_stopped:
            return best
    is_agreed = n_starts >= MIN_STARTS and n_agree >= 2
    return repair(small, best, modes, rng) if is_repaired and not is_agreed else best


def search_observed(data, start, modes, rng, *, n_init, max_iter, steps=None):
    """Return the Factors of lowest loss over the observed entries, from `start` and from what it lacks.

    `start` is polished, and taken if entries are plenty and the Boolean constraint costs no more than noise would
    explain. Else it is relaxed first, as another candidate. Unless two agree and the constraint is free, half of the
    atoms of the best are drawn anew at random and everything is relaxed again, until four candidates agree.
    """
    steps = Steps() if steps is None else steps
    options = {"max_iter": max_iter, "steps": steps}
    first = partial(polish_and_revive, data, start.matrices, start.boolean_mode, modes, rng, **options)
    best = steps.do("first", first, rng)
    if steps.is_stopped or best.loss <= EXACT * data.squared_norm:
        return best
    least = steps.do("least", lambda: cp_als(data, best.matrices, max_iter=3, tol=0.0, steps=steps)[1])
    share = data.n_observed / (len(best.boolean_mode) * sum(data.shape))
    if steps.is_stopped or (share >= PLENTY and is_free(data, best, least)):
        return best
    n_done, best, n_agree, least = steps.begin("best", (0, best, 1, least), rng)
    n_tries = n_init if share >= FEW else 3 * n_init
    while n_done < n_tries and not (n_agree >= 4 or (n_done and n_agree >= 2 and is_free(data, best, least))):
        factors = start.matrices if n_done == 0 else redraw(best, rng)
        compute = partial(search_from, data, factors, modes, rng, **options)
        candidate, loss = steps.do(f"candidate {n_done}", compute, rng)
        best, n_agree = compare(best, n_agree, candidate, 10 * data.squared_norm)
        if steps.is_stopped:
            break
        state = n_done + 1, best, n_agree, min(least, loss)
        n_done, best, n_agree, least = steps.keep("best", state, rng, instead_of=f"candidate {n_done}")
    return best


def search_from(data, factors, modes, rng, *, max_iter, steps):
    """Return the Factors that a start leads to over the observed entries, and the loss of the relaxed ones."""
    relaxed, loss = steps.do("relax", partial(relax_observed, data, factors, steps))
    rounded, boolean_mode = round_factors(relaxed, modes)
    return polish_and_revive(data, rounded, boolean_mode, modes, rng, max_iter=max_iter, steps=steps), loss


def polish_and_revive(data, factors, boolean_mode, modes, rng, *, max_iter, steps):
    """Return the Factors after a polish and the revival of dead atoms."""
    solution = steps.do("polish", partial(polish, data, factors, boolean_mode, max_iter=max_iter, steps=steps))
    return revive(data, solution, modes, rng, steps=steps)


def relax_observed(data, factors, steps):
    """Return CP factors fitted to the observed entries, and their loss.

    A ridge that fades keeps poor starts from blowing up.
    """
    for ridge, max_iter in ((1e-1, 10), (1e-2, 30), (0.0, 10)):
        compute = partial(cp_als, data, factors, max_iter=max_iter, tol=1e-5, ridge=ridge, steps=steps)
        factors, loss = steps.do(f"ridge {ridge}", compute)
    return factors, loss


def is_free(data, solution, relaxed_loss):
    """Return True if the Boolean constraint raises the loss by no more than noise does, three times over.

    Noise of variance s^2 lowers the loss of the relaxed fit by about s^2 for each entry that the constraint fixes.
    """
    n_bits = sum(data.shape[mode] for mode in solution.boolean_mode)
    n_free = len(solution.boolean_mode) * sum(data.shape)
    variance = relaxed_loss / max(data.n_observed - n_free, 1)
    return solution.loss - relaxed_loss <= 3 * n_bits * variance + EXACT * data.squared_norm


def redraw(solution, rng):
    """Return the factors with half of the atoms, at least one, replaced by random columns of the median size."""
    factors = [A / np.maximum(np.linalg.norm(A, axis=0), 1e-300) for A in solution.matrices]
    sizes = np.prod([np.linalg.norm(A, axis=0) for A in solution.matrices], axis=0)
    for k in rng.choice(len(sizes), max(1, len(sizes) // 2), replace=False):
        for A in factors:
            A[:, k] = rng.standard_normal(len(A)) / np.sqrt(len(A))
        sizes[k] = np.median(sizes)
    factors[-1] = factors[-1] * sizes
    return factors


def compare(best, n_agree, candidate, squared_norm):
    """Return the better of two solutions and how many reached its loss so far."""
    if best is None or candidate.loss < best.loss - SAME_LOSS * squared_norm:
        return candidate, 1
    return best, n_agree + (candidate.loss <= best.loss + SAME_LOSS * squared_norm)


def make_start(small, W, n_atoms, rng, count):
    """Return the CP start number `count`: the pursuit's atoms, eigenvectors of slice pencils, or random factors."""
    if count == 0 and W.n_atoms == n_atoms:
        return sized_factors(W)
    core = small.core if isinstance(small, TuckerTensor) else small
    factors = pencil_start(core, n_atoms, rng) if count % 3 == 1 else None
    return expand(small, random_factors(core.shape, n_atoms, rng) if factors is None else factors)


def expand(small, factors):
    """Return factors of the core as factors of the tensor."""
    if not isinstance(small, TuckerTensor):
        return factors
    return [U @ A for U, A in zip(small.bases, factors, strict=True)]


def relax(data, factors, *, max_iter=200, tol=1e-8):
    """Return the CP factors reached from `factors` without the Boolean constraint, and their loss."""
    if not isinstance(data, TuckerTensor):
        return cp_als(data, factors, max_iter=max_iter, tol=tol)
    small = [U.T @ A for U, A in zip(data.bases, factors, strict=True)]
    small, loss = cp_als(data.core, small, max_iter=max_iter, tol=tol)
    return expand(data, small), loss + data.squared_norm - data.core.squared_norm


def round_factors(factors, modes):
    """Return factors in which one column of each component is replaced by the {0, a} column that fits it best.

    For each component the allowed mode is taken whose column is closest in angle to a Boolean vector.
    """
    factors = [A.copy() for A in factors]
    boolean_mode = np.empty(factors[0].shape[1], dtype=int)
    for k in range(factors[0].shape[1]):
        fits = []
        for mode in modes:
            a = factors[mode][:, k]
            z, _ = best_boolean(a)
            total = a[z].sum()
            fits.append((total**2 / z.sum() / max(a @ a, 1e-300), mode, z, total / z.sum()))
        _, mode, z, scale = max(fits, key=lambda fit: fit[0])
        boolean_mode[k] = mode
        factors[mode][:, k] = z
        factors[1 if mode == 0 else 0][:, k] *= scale
    return factors, boolean_mode


def is_dead(factors):
    """Return which atoms are empty or without size, (K,)."""
    sizes = np.prod([np.linalg.norm(A, axis=0) for A in factors], axis=0)
    return sizes <= 1e-12 * max(sizes.max(initial=0.0), 1e-300)


def revive(data, solution, modes, rng, *, small=None, steps=None):
    """Return the solution with each dead atom replaced by the atom of steepest descent, all polished again.

    It is searched on `small`, if that is given, else on the data.
    """
    for n_tries in range(len(solution.boolean_mode)):
        dead = is_dead(solution.matrices)
        if not dead.any() or (steps is not None and steps.is_stopped):
            break
        replaced = exchange(data if small is None else small, solution, dead, modes, rng)
        if replaced is None:
            break
        compute = partial(polish, data, *replaced, steps=steps)
        replaced = compute() if steps is None else steps.do(f"revive {n_tries}", compute)
        if replaced.loss >= solution.loss:
            break
        solution = replaced
    return solution


def repair(small, solution, modes, rng, *, n_trials=3):
    """Return the solution after moves out of known traps, each taken only if the loss falls.

    The atoms most alike (same mode and nearly the same or complementary bits), else the two that matter least, are
    removed together, found again one by one, and everything is relaxed, rounded and polished.
    """
    for _ in range(n_trials):
        out = np.zeros(len(solution.boolean_mode), dtype=bool)
        out[most_alike(solution)] = True
        replaced = exchange(small, solution, out, modes, rng)
        if replaced is None:
            break
        candidate = polish(small, *round_factors(relax(small, replaced[0])[0], modes))
        if candidate.loss >= solution.loss - SAME_LOSS * small.squared_norm:
            break
        solution = candidate
    return solution


def most_alike(solution):
    """Return the indices of the two atoms with the most similar (or most complementary) factors."""
    unit = [A / np.maximum(np.linalg.norm(A, axis=0), 1e-300) for A in solution.matrices]
    alike = np.sort([np.abs(A.T @ A) for A in unit], axis=0)[1:].sum(axis=0)  # all modes but the least similar
    np.fill_diagonal(alike, -1)
    return list(np.unravel_index(np.argmax(alike), alike.shape))


def exchange(data, solution, out, modes, rng):
    """Return factors and Boolean modes with the atoms `out` replaced by greedy ones, or None if nothing descends."""
    W = add_greedy(data, to_decomposition(data.shape, solution, keep=~out), int(out.sum()), modes, rng)
    return None if W is None else (sized_factors(W), W.boolean_mode)


def add_greedy(data, W, n_atoms, modes, rng):
    """Return W with `n_atoms` more atoms of steepest descent, or None if nothing descends."""
    for _ in range(n_atoms):
        found = greedy_atom_search(data.residual(W), modes, rng, certify=False)
        if found is None:
            return None
        weights = np.append(W.weights, found.descent / found.atom.n_ones)
        W = BooleanCP(data.shape, (*W.atoms, found.atom), weights)
    return W


def sized_factors(W):
    """Return the factor matrices of rank-one atoms with the weight of each atom in its first real column."""
    factors = [np.array(A, dtype=float) for A in W.factors]
    for k, (mode, weight) in enumerate(zip(W.boolean_mode, W.weights, strict=True)):
        factors[1 if mode == 0 else 0][:, k] *= weight
    return factors


def to_decomposition(shape, solution, keep=None):
    """Return the BooleanCP of a solution: real columns of norm one, positive weights, dead atoms left out.

    The entry of largest magnitude is positive in every real column but the last one, which takes the sign.
    """
    dead = is_dead(solution.matrices)
    chosen = ~dead if keep is None else keep & ~dead
    atoms, weights = [], []
    for k in np.flatnonzero(chosen):
        mode = int(solution.boolean_mode[k])
        vectors = [A[:, k] for n, A in enumerate(solution.matrices) if n != mode]
        sizes = [np.linalg.norm(v) for v in vectors]
        vectors = [v / size for v, size in zip(vectors, sizes, strict=True)]
        for i, v in enumerate(vectors[:-1]):
            if v[np.argmax(np.abs(v))] < 0:
                vectors[i], vectors[-1] = -v, -vectors[-1]
        atoms.append(Atom(mode, solution.matrices[mode][:, k] > 0.5, tuple(v[:, None] for v in vectors)))
        weights.append(np.prod(sizes))
    return BooleanCP(shape, tuple(atoms), np.array(weights))
