"""The distance of an estimate from the truth: in values, in bits, in atoms."""

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from boolcp.checks import check_mode
from boolcp.result.atoms import BooleanCP, pattern


def rmse(X: Any, Y: Any) -> float:
    """Return the root-mean-square error |X - Y| / sqrt(number of entries) of two tensors, or of decompositions.

    Entries that are NaN in either are ignored.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 3, noise=0.5, random_state=0)
    >>> round(boolcp.metrics.rmse(X, truth), 2)
    0.5
    """
    X, Y = (np.asarray(Z.to_tensor() if hasattr(Z, "to_tensor") else Z, dtype=float) for Z in (X, Y))
    if X.shape != Y.shape:
        raise ValueError(f"X and Y must have the same shape, but they have {X.shape} and {Y.shape}.")
    error = X - Y
    observed = ~np.isnan(error)
    if not observed.any():
        raise ValueError("X and Y have no entry in common: every entry is NaN in one of them.")
    return float(np.sqrt(np.mean(error**2, where=observed)))


def hamming_error(estimate: BooleanCP, truth: BooleanCP) -> float:
    """Return the share of wrong bits, the atoms of each Boolean mode matched so that it is smallest.

    True atoms are matched with estimated atoms that are Boolean along the same mode. One that stays unmatched counts as
    half wrong, which is what coin flips would reach; estimated atoms in excess do not count.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> boolcp.metrics.hamming_error(truth[::-1], truth), boolcp.metrics.hamming_error(truth[:2], truth)
    (0.0, 0.25)
    """
    _check_pair(estimate, truth)
    n_bits = sum(len(atom.z) for atom in truth.atoms)
    if n_bits == 0:
        raise ValueError("truth has no atoms, so there are no bits to compare.")
    n_wrong = 0.0
    for mode, d in enumerate(truth.shape):
        true, found = (
            np.array([atom.z for atom in W.atoms if atom.mode == mode], dtype=float).reshape(-1, d)
            for W in (truth, estimate)
        )
        distance = true @ (1 - found).T + (1 - true) @ found.T
        rows, columns = linear_sum_assignment(distance)
        n_wrong += distance[rows, columns].sum() + (len(true) - len(rows)) * d / 2
    return float(n_wrong / n_bits)


def factor_match_score(estimate: Any, truth: Any) -> float:
    """Return how well the atoms of two decompositions agree, 1 if they are the same up to order and sign.

    The score of a pair of atoms is |cos| of the angle between them: for rank one, the product over the modes of |cos|
    of the angle between their columns. Atoms are matched so that the sum of the scores is largest, and the sum is
    divided by the larger number of atoms, so that an atom without a partner counts as 0. A pair (weights, factors), as
    in TensorLy, is a decomposition as well.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> round(boolcp.metrics.factor_match_score(truth[::-1], truth), 6)
    1.0
    """
    if isinstance(estimate, BooleanCP) and isinstance(truth, BooleanCP):
        _check_pair(estimate, truth)
        first, second = (np.sqrt(np.diag(W.inner_products())) for W in (estimate, truth))
        inner = estimate.inner_products(truth.atoms)
    else:
        A, B = ([np.asarray(matrix, dtype=float) for matrix in factors] for _, factors in (estimate, truth))
        if [len(matrix) for matrix in A] != [len(matrix) for matrix in B]:
            raise ValueError("estimate and truth must have factor matrices of the same modes with equal sizes.")
        first, second = (np.prod([np.linalg.norm(matrix, axis=0) for matrix in C], axis=0) for C in (A, B))
        inner = np.prod([a.T @ b for a, b in zip(A, B, strict=True)], axis=0)
    if max(inner.shape) == 0:
        raise ValueError("estimate and truth have no atoms to compare.")
    size = np.outer(first, second)
    scores = np.divide(np.abs(inner), size, out=np.zeros(inner.shape), where=size > 0)
    rows, columns = linear_sum_assignment(scores, maximize=True)
    return float(min(scores[rows, columns].sum() / max(scores.shape), 1.0))


def match(W: BooleanCP, V: BooleanCP, *, mode: int | str | None = None) -> list[tuple[int, int, float]]:
    """Return pairs of atoms of two fits, to two sessions say: their numbers, and the cosine of their patterns.

    Patterns are compared without `mode`, the trials, which the fits do not share: by default the Boolean mode of the
    first atom. The sum of the |cosines| is largest.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((9, 8, 50), 2, boolean_modes=[2], noise=0.1, random_state=0)
    >>> first, second = (boolcp.decompose(part, 2, boolean_modes=[2], random_state=0) for part in (X[..., :20], X))
    >>> [abs(round(cosine, 2)) for k, j, cosine in boolcp.metrics.match(first, second)]
    [1.0, 1.0]
    """
    at = int(W.boolean_mode[0]) if mode is None and W.n_atoms else check_mode(mode or 0, W.ndim, W.dims)
    if [d for n, d in enumerate(W.shape) if n != at] != [d for n, d in enumerate(V.shape) if n != at]:
        raise ValueError(f"The shapes {W.shape} and {V.shape} differ in other modes than {at}: choose what they share.")
    first, second = ([pattern(atom, at) for atom in U.atoms] for U in (W, V))
    table = np.array([[p @ q for q in second] for p in first]).reshape(W.n_atoms, V.n_atoms)
    table *= np.equal.outer(W.boolean_mode, V.boolean_mode)
    rows, columns = linear_sum_assignment(-np.abs(table))
    return [(int(k), int(j), float(table[k, j])) for k, j in zip(rows, columns, strict=True)]


def _check_pair(estimate: Any, truth: Any) -> None:
    for name, W in (("estimate", estimate), ("truth", truth)):
        if not isinstance(W, BooleanCP):
            raise TypeError(f"{name} must be a BooleanCP, but it is a {type(W).__name__}.")
    if estimate.shape != truth.shape:
        shapes = f"{estimate.shape} and {truth.shape}"
        raise ValueError(f"estimate and truth must have the same shape, but they have {shapes}.")
