"""The evidence for the bits of atoms: the share of the best score that they provably reach, the rise if one flips."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp import checks
from boolcp.fit.neighbors import penalties_of
from boolcp.fit.starts import EXACT, noise_gain
from boolcp.fit.sweep import noise_variance
from boolcp.program.bounds import eigenvalue_bound
from boolcp.program.maxcut import EFFORTS, LARGE, ratio_bound
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.result.columns import Columns
from boolcp.result.labels import read_aligned
from boolcp.result.trust import Evidence, stands_out
from boolcp.storage import make_storage
from boolcp.storage.dense import Complete, n_columns, n_observed, unfold
from boolcp.storage.lazy import Lazy
from boolcp.storage.protocol import Storage, Tensor
from boolcp.storage.tucker import LONG, THIN, reduced
from boolcp.system import one_thread

CERTAIN = 1.0  # smallest margin of a bit, in standard deviations of the noise, at which it counts as certain
NOISY = 1.0  # gain of an atom, in units of the best atom of pure noise, below which it may hide a lost one
MAX_WORK, MIN_SLICES = 2e9, 8  # products that the correlation of a residual may take, and slices at least; not tuned
UNSEEN = 1e-12  # share of |M|^2 over the observed entries that counts as none: rounding


def certify_on(W: BooleanCP, X: Any, mask: ArrayLike | None, weights: Any, effort: str) -> BooleanCP:
    """Return W with the certificates of its atoms on data given by a user."""
    checks.check_choice(effort, "effort", EFFORTS)
    if W.deviance is not None:
        raise ValueError(f'There are no certificates under loss="{W.deviance.loss}": they are about squares.')
    X, mask, weights, _ = read_aligned(X, mask, weights, like=W.labels)
    X, observed = checks.check_tensor(X, mask)
    checks.check_shape(X.shape, W.shape, None)
    weights = None if weights is None else checks.check_weights(weights, X.shape)
    values, atoms = units_of_fit(X, W)
    data = make_storage(values, observed, weights)
    with one_thread():
        judged = certify(data, with_system(atoms, data), effort=effort) if W.n_atoms else W
    shares = [atom.certificate for atom in judged.atoms]
    return replace(W, atoms=tuple(replace(atom, certificate=c) for atom, c in zip(W.atoms, shares, strict=True)))


def units_of_fit(X: np.ndarray, W: BooleanCP) -> tuple[np.ndarray, BooleanCP]:
    """Return X without the mean of W, and the atoms of W, both whitened if the fit has been."""
    values, atoms = X if W.mean is None else X - W.mean, replace(W, mean=None)
    return (values, atoms) if W.noise is None else (W.noise.whiten(values), W.noise.whiten_atoms(atoms))


def certify(data: Storage, W: BooleanCP, *, effort: str = "quick") -> BooleanCP:
    """Return W with the certificate of each atom k, judged on R_k = X - sum of the other atoms.

    It is z'Cz / |z|^2 with C = R_n R_n', the decrease of the loss by the bits with the best real part, over a proved
    upper bound for any bits. A mode n that is long, or whose Gram matrix takes long to compute, judges the atom
    itself by its own decrease <R_k, M_k>^2 / |z|^2, over a `long_bound`. What neighbors cost, z'Lz, is subtracted.
    """
    shares, own = np.full(W.n_atoms, np.nan), np.zeros(0)
    for k, (atom, L) in enumerate(zip(W.atoms, penalties_of(W), strict=True)):
        R = data.residual(replace(W, weights=np.where(np.arange(W.n_atoms) == k, 0.0, W.weights)))
        is_large = data.shape[atom.mode] > LARGE and min(data.shape) <= LARGE  # not worth its time with little effort
        lost = 0.0 if L is None else float(atom.z @ (L @ atom.z))
        is_slow = effort == "quick" and not W.is_block and data.n_passes == 0 and is_large
        if has_gram(data, atom.mode) and not is_slow:
            C = R.gram(atom.mode)
            bound = ratio_bound(C, atom.z, effort) if L is None else penalized_bound(C, L, atom.z, effort)
            shares[k] = np.nan if bound is None else (float(atom.z @ C @ atom.z) / atom.n_ones - lost) / bound
        elif not W.is_block:
            own = own if len(own) else own_gains(data, W)
            shares[k] = (own[k] - lost) / long_bound(data, R, atom)
        del R  # which may be as large as X, before the next is made
    shares = np.clip(shares, 0.0, 1.0)
    return replace(W, atoms=tuple(replace(a, certificate=float(r)) for a, r in zip(W.atoms, shares, strict=True)))


def penalized_bound(C: np.ndarray, L: Any, z: np.ndarray, effort: str) -> float | None:
    """Return a bound on z'Cz / |z|^2 - z'Lz over all bits, or None: by C - L (as |z|^2 >= 1), or by C alone."""
    shift = 2 * float(L.diagonal().max())  # makes C - L positive
    found = ratio_bound(C - L.toarray() + shift * np.eye(len(C)), z, effort)
    bounds = [ratio_bound(C, z, effort), None if found is None else found - shift]
    return min((bound for bound in bounds if bound is not None), default=None)


def own_gains(data: Storage, W: BooleanCP) -> np.ndarray:
    """Return <R_k, M_k>^2 / |z_k|^2 of each atom k on the residual R_k of the others, (K,)."""
    if data.weights is not None and isinstance(data, Complete):  # the targets of data on disk
        W = replace(W, data_inner=inner_with_atoms(data, W.atoms), data_gram=None)
    G = W.observed_gram()
    return (W.data_inner - G @ W.weights + np.diag(G) * W.weights) ** 2 / [atom.n_ones for atom in W.atoms]


def has_gram(data: Storage, mode: int) -> bool:
    """Return True if a Gram matrix fits in memory and, for data on disk, can be brought by a pass."""
    return data.shape[mode] <= LONG and (not isinstance(data, Lazy) or data.has_gram(mode))


def long_bound(data: Storage, R: Tensor, atom: Atom) -> float:
    """Return an upper bound on the decrease by any atom along the mode of an atom, which is long, for a residual R.

    An unfolding with at most THIN columns has lambda_max(R_n'R_n). Otherwise it is L times the smallest
    lambda_max(R_m R_m') over the short modes m (docs/maths.md). NaN if there is no short mode, or no proof.
    """
    short, rank = [m for m in range(len(data.shape)) if has_gram(data, m)], atom.rank or 1
    if n_columns(data, atom.mode) <= THIN and not data.n_passes:
        X = unfold(R.to_array(), atom.mode)
        grams, rank = [X.T @ X], 1
    else:
        grams = [R.gram(m) for m in [m for m in short if data.shape[m] <= LARGE] or short]
    found = [eigenvalue_bound(C, C.sum(axis=0) + C.diagonal()) for C in grams]
    return rank * min((bound for bound in found if bound is not None), default=np.nan)


def judge_bits(data: Storage, W: BooleanCP) -> Evidence:
    """Return for each bit of W the exact rise of the loss when it is flipped, and the noise level: its confidence."""
    products, squares = flip_terms(data, W)
    signs = [np.where(atom.z, 1.0, -1.0) for atom in W.atoms]
    rise = tuple(h + 2 * s * g for g, h, s in zip(products, squares, signs, strict=True))
    sizes = np.maximum(W.weights**2, np.finfo(float).tiny)
    share = None if data.weights is None else tuple(h / size for h, size in zip(squares, sizes, strict=True))
    pairs = zip(signs, W.atoms, penalties_of(W), strict=True)
    cost = tuple(0.0 if L is None else L.diagonal() - 2 * s * (L @ atom.z.astype(float)) for s, atom, L in pairs)
    return Evidence(rise, share, noise_left(data, W), cost)


def flip_terms(data: Storage, W: BooleanCP) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return for each atom <R_i, c V> and |c V|^2 over the observed entries of each slice i, with R = X - W."""
    g, h = [np.zeros(0)] * W.n_atoms, [np.zeros(0)] * W.n_atoms
    for mode, members in W.members.items():
        if W.is_block:
            blocks = np.stack([W.weights[k] * W.atoms[k].dense_block() for k in members])
            products = np.asarray(data.residual(W).project(mode, blocks), dtype=float)
            squares = W.weights[members] ** 2 if data.weights is None else data.weights.project(mode, blocks**2)
        else:
            A, H, P, same = equations_at(data, W, mode)
            B = same[:, members]
            products = (P - (A @ H if H.ndim == 2 else np.einsum("ij,ijl->il", A, H))) @ B
            squares = np.einsum("jk,...jl,lk->...k", B, H, B, optimize=True)
        squares = np.broadcast_to(np.asarray(squares, dtype=float), products.shape)
        for place, k in enumerate(members):
            g[k], h[k] = products[:, place], squares[:, place]
    return g, h


def equations_at(data: Storage, W: BooleanCP, mode: int) -> tuple[np.ndarray, ...]:
    """Return the factor A of one mode, the equations H and P that it meets, and the atom of each column as 0/1 (R, K).

    The weights are in the other factors. Complete data have answered the same for the columns without weights.
    """
    A, weights, factors = W.matrices[mode], W.column_weights, list(W.matrices)
    other = 1 if mode == 0 else 0
    factors[other] = factors[other] * weights
    if isinstance(data, Complete) and data.weights is None:
        P = np.asarray(data.mttkrp(W.matrices, mode), dtype=float) * weights
        H, P, _ = data.equations_of(P, factors, mode)
    else:
        H, P, _ = data.equations(factors, mode)
    return A, H, P, np.repeat(np.eye(W.n_atoms), [atom.rank or 0 for atom in W.atoms], axis=0)


def noise_left(data: Storage, W: BooleanCP) -> float:
    """Return the standard deviation of the noise: the residual over the entries that the parameters do not use up.

    Atoms that are not larger than those of pure noise are excluded: such atoms fit more of the noise than they have
    parameters.
    """
    norm2 = W.data_norm2
    is_fitted = norm2 is not None and W.data_inner is not None and np.isclose(norm2, data.squared_norm, rtol=1e-9)
    while True:
        n_free = sum(atom.n_parameters + len(atom.z) for atom in W.atoms)
        loss = (W if is_fitted else with_system(W, data)).squared_error
        sigma = float(np.sqrt(loss / max(n_observed(data) - n_free, 1)))
        kept = stands_out(W, sigma)
        if kept.all():
            return sigma
        W = W[kept]


# whether bits and atoms are in doubt


def is_certain(data: Storage, W: Columns) -> bool:
    """Return True if all bits and atoms clearly exceed the noise, or the fit is exact.

    Flipping a bit raises the loss by |V|^2 + 2 <R, V> or |V|^2 - 2 <R, V>, where R is what is left in its slice, and
    noise of variance s^2 gives this a standard deviation of 2 s |V|. An atom that fits only noise can have bits that
    all clearly exceed it.
    """
    if W.loss <= EXACT * data.squared_norm or W.is_dead().all():
        return True
    V, least = by_size(W.to_decomposition()), 2 * CERTAIN * np.sqrt(noise_variance(data, W))
    for atom, g, h in zip(V.atoms, *flip_terms(data, V), strict=True):
        rises = h + 2 * np.where(atom.z, g, -g)
        if np.any(rises[h > 0] < least * np.sqrt(h[h > 0])):
            return False
    return not has_weak_atom(data, W, NOISY)


def has_weak_atom(data: Storage, W: Columns, level: float) -> bool:
    """Return True if an atom is dead, or gains less than `level` times what the best atom of pure noise gains."""
    if np.isinf(level) or W.is_dead().any():
        return True
    V = by_size(W.to_decomposition())
    return bool(unique_gains(data, V).min() < level * noise_gain(data, noise_variance(data, W)))


def unique_gains(data: Storage, W: BooleanCP) -> np.ndarray:
    """Return by how much the loss rises when an atom is left out and the weights of the others adjust, (K,)."""
    A, H, _, same = equations_at(data, W, 1 if data.center == 0 else 0)
    G = A.T @ A * H if H.ndim == 2 else np.einsum("ik,ikl,il->kl", A, H, A)
    return 1 / np.maximum(np.linalg.pinv(same.T @ G @ same, hermitian=True).diagonal(), 1e-300)


# the inner products of atoms and data, which shares of variance need


def atom_system(data: Storage, atoms: tuple[Atom, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return G (K, K) and b (K,) of the weights: <M_k, M_l> and <X, M_k> over the entries of `data`."""
    W, is_even = BooleanCP(data.shape, atoms, np.ones(len(atoms))), data.weights is None
    if not atoms:
        return np.zeros((0, 0)), np.zeros(0)
    if W.is_block and is_even and data.center is None:
        return W.inner_products(), inner_with_atoms(data, atoms)
    if W.is_block or not (is_even or data.center is None):  # b less the same for the residual of one atom
        b, size = inner_with_atoms(data.residual(BooleanCP(data.shape)), atoms), np.sqrt(data.squared_norm) or 1.0
        each = [BooleanCP(data.shape, (atom,), [size]) for atom in atoms]  # in the unit of the data
        return np.stack([b - inner_with_atoms(data.residual(M), atoms) for M in each]) / size, b
    mode = 1 if data.center == 0 else 0
    A, (H, P, _) = W.matrices[mode], data.equations(W.matrices, mode)
    G = A.T @ A * H if H.ndim == 2 else np.einsum("ik,ikl,il->kl", A, H, A)
    first = np.cumsum([0, *(atom.rank for atom in atoms[:-1])])  # column of each atom
    G = np.add.reduceat(np.add.reduceat(G, first, axis=0), first, axis=1)
    return G, np.add.reduceat(np.sum(P * A, axis=0), first)


def with_system(W: BooleanCP, data: Storage) -> BooleanCP:
    """Return W with what shares of variance need, |X|^2, <X, M_k>, <M_k, M_l>, without atoms on no observed entry."""
    if W.is_block and data.weights is None and data.center is None:
        return replace(W, data_norm2=data.squared_norm, data_inner=inner_with_atoms(data, W.atoms))
    G, b = atom_system(data, W.atoms)
    gram = None if data.weights is None and data.center is None else G
    W = replace(W, data_norm2=data.squared_norm, data_inner=b, data_gram=gram)
    seen = np.diag(G) > UNSEEN * np.array([atom.n_ones for atom in W.atoms])
    return W if seen.all() else W[seen]


def by_size(W: BooleanCP) -> BooleanCP:
    """Return W with its atoms sorted from the largest to the smallest norm."""
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])
    return W[np.argsort(-sizes, kind="stable")]


def left_correlation(data: Storage, W: BooleanCP) -> tuple[float, ...]:
    """Return for each mode but the one Boolean mode of W the root mean square correlation of the residual along it.

    What chance gives is subtracted; some slices stand for large data. Nothing with gaps, under a loss, or on disk.
    """
    if data.weights is not None or W.deviance is not None or data.n_passes:
        return ()
    R, found, (boolean,) = data.residual(replace(W, mean=None)), [0.0] * len(data.shape), W.members
    n_slices = max(MIN_SLICES, int(MAX_WORK / n_columns(data, boolean) / max(data.shape)))
    if n_slices < (d := data.shape[boolean]):
        some = np.linspace(0, d - 1, n_slices).astype(int)
        R = reduced(R, boolean, (np.arange(d)[:, None] == some).astype(float))
    for mode, d in enumerate(data.shape):
        if mode != boolean and d <= LONG:
            C = np.asarray(R.gram(mode), dtype=float)
            if C.trace() <= UNSEEN * data.squared_norm:  # an exact fit leaves rounding
                return ()
            sizes = np.sqrt(np.maximum(C.diagonal(), UNSEEN * C.trace()))
            r2 = float(np.sum((C / np.outer(sizes, sizes)) ** 2) - d) / max(d * (d - 1), 1)
            found[mode] = float(np.sqrt(max(r2 - 1 / n_columns(R, mode), 0.0)))
    return tuple(found)
