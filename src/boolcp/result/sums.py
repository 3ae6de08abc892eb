"""The mathematics of W = sum_k c_k M_k: the questions that a storage answers.

The methods of `BooleanCP` say what each function returns. Nothing as large as W is formed, except by `to_tensor`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from boolcp import contractions

if TYPE_CHECKING:
    from boolcp.result.atoms import Atom, BooleanCP


def column_matrices(shape: Sequence[int], atoms: Sequence["Atom"]) -> list[np.ndarray]:
    """Return the matrices (d_n, R), R the sum of ranks, whose column products sum to the atoms without weights."""
    if not atoms:
        return [np.zeros((d, 0)) for d in shape]
    return [np.hstack([atom.columns(mode) for atom in atoms]) for mode in range(len(shape))]


def to_tensor(W: "BooleanCP") -> np.ndarray:
    """Return W as a dense array, NaN in slices that no observed entry determines."""
    X = np.zeros(W.shape)
    if W.n_atoms and not W.is_block:
        first = W.matrices[0] * W.column_weights
        np.matmul(first, contractions.khatri_rao(W.matrices[1:]).T, out=X.reshape(W.shape[0], -1))
    elif W.n_atoms:
        for n, (Z, blocks) in W.groups.items():
            X += np.moveaxis(np.tensordot(Z, blocks, axes=1), 0, n)
    if W.mean is not None:
        X += W.mean
    for mode, slices in (W.undetermined or {}).items():
        np.moveaxis(X, mode, 0)[slices] = np.nan
    return X


def at(W: "BooleanCP", indices: np.ndarray) -> np.ndarray:
    """Return the entries of W at the rows of `indices` (n, N), (n,)."""
    values = np.zeros(len(indices))
    if W.mean is not None:
        values += np.broadcast_to(W.mean, W.shape)[tuple(indices.T)]
    if not W.is_block:
        for start in range(0, len(indices), contractions.CHUNK // 8):
            part = slice(start, start + contractions.CHUNK // 8)
            products = np.tile(W.column_weights, (len(values[part]), 1))
            for n, A in enumerate(W.matrices):
                products *= A[indices[part, n]]
            values[part] += products.sum(axis=1)
        return values
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        others = tuple(indices[:, n] for n in range(W.ndim) if n != atom.mode)
        values += weight * atom.z[indices[:, atom.mode]] * atom.dense_block()[others]
    return values


def gram(W: "BooleanCP", mode: int) -> np.ndarray:
    """Return W_n W_n' (d_n, d_n), W_n the unfolding of W along `mode`."""
    if not W.is_block:
        A = W.matrices[mode] * W.column_weights
        return A @ contractions.gram_product(W.matrices, mode) @ A.T
    d, groups = W.shape[mode], W.groups
    total = np.zeros((d, d))
    for m, (Z, blocks) in groups.items():
        for l, (Y, others) in groups.items():
            if m == l == mode:
                total += Z @ (blocks.reshape(len(blocks), -1) @ others.reshape(len(others), -1).T) @ Y.T
            elif m == l:
                rows = np.moveaxis(blocks, 1 + mode - (mode > m), 0).reshape(d, len(blocks), -1)
                total += np.einsum("ikr,jkr->ij", np.einsum("ikr,kl->ilr", rows, Z.T @ Y), rows, optimize=True)
            elif l == mode:
                total += _cross_gram(W, m, l, mode)
            elif m != mode and m < l:
                cross = _cross_gram(W, m, l, mode)
                total += cross + cross.T
    if mode in groups:  # the transposes of the pairs (m, mode)
        for m in groups:
            if m != mode:
                total += _cross_gram(W, m, mode, mode).T
    return total


def _cross_gram(W: "BooleanCP", m: int, l: int, mode: int) -> np.ndarray:
    """Return the product of the unfoldings along `mode` of the atoms of Boolean modes m and l, m != l."""
    (Z, blocks), (Y, others) = W.groups[m], W.groups[l]
    V = np.tensordot(blocks, Y, axes=([1 + l - (l > m)], [0]))  # (K_m, rest without m and l, K_l)
    U = np.tensordot(others, Z, axes=([1 + m - (m > l)], [0]))  # (K_l, rest without l and m, K_m)
    rest = [n for n in range(W.ndim) if n not in (m, l)]
    if mode == l:
        # the pair meets in the modes of `rest`; mode l stays open in V's place through `blocks`
        open_blocks = np.moveaxis(blocks, 1 + l - (l > m), 0).reshape(W.shape[l], -1)
        kernel = np.moveaxis(U, -1, 0).reshape(Z.shape[1], Y.shape[1], -1).transpose(0, 2, 1)
        return open_blocks @ kernel.reshape(-1, Y.shape[1]) @ Y.T
    at = 1 + rest.index(mode)
    left = np.moveaxis(V, at, 0).reshape(W.shape[mode], V.shape[0], -1, V.shape[-1])
    right = np.moveaxis(U, at, 0).reshape(W.shape[mode], U.shape[0], -1, U.shape[-1])
    return np.einsum("ikrl,jlrk->ij", left, right, optimize=True)


def contract(W: "BooleanCP", mode: int, Z: np.ndarray) -> np.ndarray:
    """Return sum_i W[.., i, ..] Z[i, k], (K', other modes), for Z (d_n, K')."""
    others = W.shape[:mode] + W.shape[mode + 1 :]
    if not W.is_block:
        coefficients = Z.T @ (W.matrices[mode] * W.column_weights)
        first, *rest = (A for m, A in enumerate(W.matrices) if m != mode)
        if not rest or W.matrices[0].shape[1] <= Z.shape[1]:  # the products of all others are no larger than the result
            product = contractions.khatri_rao([first, *rest])
            # in the memory order that the same answer of an array has
            blocks = (product @ coefficients.T).T if mode == W.ndim - 1 else coefficients @ product.T
            return blocks.reshape(-1, *others)
        product = contractions.khatri_rao(rest).T
        blocks = np.empty((len(coefficients), len(first), product.shape[1]))
        for row, block in zip(coefficients, blocks, strict=True):
            np.matmul(first * row, product, out=block)
        return blocks.reshape(-1, *others)
    total = np.zeros((Z.shape[1], *others))
    for m, (Y, blocks) in W.groups.items():
        if m == mode:
            total += np.tensordot(Z.T @ Y, blocks, axes=1)
        else:
            part = np.tensordot(Z.T, blocks, axes=([1], [1 + mode - (mode > m)]))  # (K', K_m, rest)
            total += np.moveaxis(np.tensordot(part, Y, axes=([1], [1])), -1, 1 + m - (m > mode))
    return total


def project(W: "BooleanCP", mode: int, blocks: np.ndarray) -> np.ndarray:
    """Return W_n vec(V_k) (d_n, K') for blocks V_k of the other modes, (K', other modes)."""
    if not W.is_block:
        rest = [A for m, A in enumerate(W.matrices) if m != mode]
        inner = contractions.khatri_rao(rest).T @ blocks.reshape(len(blocks), -1).T
        return (W.matrices[mode] * W.column_weights) @ inner
    total = np.zeros((W.shape[mode], len(blocks)))
    for m, (Y, own) in W.groups.items():
        if m == mode:
            total += Y @ (own.reshape(len(own), -1) @ blocks.reshape(len(blocks), -1).T)
        else:
            part = np.tensordot(Y, blocks, axes=([0], [1 + m - (m > mode)]))  # (K_m, K', rest)
            own = np.moveaxis(own, 1 + mode - (mode > m), 0).reshape(W.shape[mode], -1)
            part = np.moveaxis(part, 1, -1).reshape(-1, len(blocks))
            total += own @ part
    return total


def inner_products(W: "BooleanCP", atoms: Sequence["Atom"]) -> np.ndarray:
    """Return <M_k, M_l> (K, K') between the atoms of W and `atoms`."""
    if not atoms or not W.atoms:
        return np.zeros((W.n_atoms, len(atoms)))
    if W.is_block or any(atom.block is not None for atom in atoms):
        return np.array([[_inner(first, second) for second in atoms] for first in W.atoms])
    others = W.matrices if atoms is W.atoms else column_matrices(W.shape, atoms)
    H = contractions.gram_product(W.matrices, None, others)
    own, further = ([atom.rank or 0 for atom in group] for group in (W.atoms, atoms))
    return _sum_groups(_sum_groups(H, own).T, further).T


def inner_with_atoms(X: Any, atoms: Sequence["Atom"]) -> np.ndarray:
    """Return <X, M_k> (K,) for a dense array or any storage."""
    inner = np.empty(len(atoms))
    for mode in {atom.mode for atom in atoms}:
        members = [k for k, atom in enumerate(atoms) if atom.mode == mode]
        Z = np.stack([atoms[k].z for k in members], axis=1).astype(float)
        if isinstance(X, np.ndarray):
            blocks = contractions.contract(np.ascontiguousarray(X), mode, Z)
        else:
            blocks = X.contract(mode, Z)
        for k, block in zip(members, blocks, strict=True):
            inner[k] = np.vdot(block, atoms[k].dense_block())
    return inner


def _inner(first: "Atom", second: "Atom") -> float:
    """Return <M, M'> of two atoms through their dense blocks."""
    V, U = first.dense_block(), second.dense_block()
    if first.mode == second.mode:
        return float(first.z @ second.z.astype(float)) * float(np.vdot(V, U))
    V = np.tensordot(V, second.z.astype(float), axes=([second.mode - (second.mode > first.mode)], [0]))
    U = np.tensordot(U, first.z.astype(float), axes=([first.mode - (first.mode > second.mode)], [0]))
    return float(np.vdot(V, U))


def _sum_groups(H: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return H with consecutive groups of rows summed."""
    return np.add.reduceat(H, np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int), axis=0)


def lost_without_each(G: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return by how much the best |W|^2 = b'G^+ b falls without each atom, (K,); G is <M_k, M_l>, and b is <X, M_k>."""
    best = _quadratic_form(G, b)
    keep = ~np.eye(len(b), dtype=bool)
    return np.array([max(best - _quadratic_form(G[np.ix_(k, k)], b[k]), 0.0) for k in keep])


def _quadratic_form(G: np.ndarray, b: np.ndarray) -> float:
    """Return b' G^+ b."""
    return float(b @ np.linalg.lstsq(G, b, rcond=None)[0]) if len(b) else 0.0
