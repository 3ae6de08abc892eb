"""The tensor W that weighted atoms sum to, and the questions a storage answers about it: methods of `BooleanCP`.

Nothing as large as W is formed, except by `to_tensor`.
"""

import numpy as np

from boolcp import contractions


def to_tensor(W):
    """Return W as a dense array, NaN in slices that no observed entry determines.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> truth.to_tensor().shape
    (8, 9, 10)
    >>> truth[[0]].to_tensor().shape  # one atom alone
    (8, 9, 10)
    """
    X = np.zeros(W.shape)
    if W.n_atoms and not W.is_block:
        first = W._columns[0] * W._column_weights
        np.matmul(first, contractions.khatri_rao(W._columns[1:]).T, out=X.reshape(W.shape[0], -1))
    elif W.n_atoms:
        for n, (Z, blocks) in W._groups.items():
            X += np.moveaxis(np.tensordot(Z, blocks, axes=1), 0, n)
    for mode, slices in (W.undetermined or {}).items():
        np.moveaxis(X, mode, 0)[slices] = np.nan
    return X


def at(W, indices):
    """Return the entries of W at the rows of `indices` (n, N), (n,).

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> bool(abs(truth.at([[1, 2, 3]])[0] - truth.to_tensor()[1, 2, 3]) < 1e-12)
    True
    """
    indices = np.asarray(indices)
    values = np.zeros(len(indices))
    if not W.is_block:
        for start in range(0, len(indices), contractions.CHUNK // 8):
            part = slice(start, start + contractions.CHUNK // 8)
            products = np.tile(W._column_weights, (len(values[part]), 1))
            for n, A in enumerate(W._columns):
                products *= A[indices[part, n]]
            values[part] = products.sum(axis=1)
        return values
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        others = tuple(indices[:, n] for n in range(W.ndim) if n != atom.mode)
        values += weight * atom.z[indices[:, atom.mode]] * atom.dense_block()[others]
    return values


def gram(W, mode):
    """Return W_n W_n' (d_n, d_n), W_n the unfolding of W along `mode`.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> truth.gram(1).shape
    (9, 9)
    """
    if not W.is_block:
        A = W._columns[mode] * W._column_weights
        return A @ contractions.gram_product(W._columns, mode) @ A.T
    d, groups = W.shape[mode], W._groups
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


def _cross_gram(W, m, l, mode):
    """Return the product of the unfoldings along `mode` of the atoms of Boolean modes m and l, m != l."""
    (Z, blocks), (Y, others) = W._groups[m], W._groups[l]
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


def contract(W, mode, Z):
    """Return sum_i W[.., i, ..] Z[i, k], (K', other modes), for Z (d_n, K').

    Examples
    --------
    >>> import numpy as np, boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> truth.contract(0, np.ones((8, 1))).shape  # the sum over mode 0
    (1, 9, 10)
    """
    others = W.shape[:mode] + W.shape[mode + 1 :]
    Z = np.asarray(Z, dtype=float)
    if not W.is_block:
        coefficients = Z.T @ (W._columns[mode] * W._column_weights)
        first, *rest = (A for m, A in enumerate(W._columns) if m != mode)
        if not rest:
            return coefficients @ first.T
        product = contractions.khatri_rao(rest).T
        blocks = np.empty((len(coefficients), len(first), product.shape[1]))
        for row, block in zip(coefficients, blocks, strict=True):
            np.matmul(first * row, product, out=block)
        return blocks.reshape(-1, *others)
    total = np.zeros((Z.shape[1], *others))
    for m, (Y, blocks) in W._groups.items():
        if m == mode:
            total += np.tensordot(Z.T @ Y, blocks, axes=1)
        else:
            part = np.tensordot(Z.T, blocks, axes=([1], [1 + mode - (mode > m)]))  # (K', K_m, rest)
            total += np.moveaxis(np.tensordot(part, Y, axes=([1], [1])), -1, 1 + m - (m > mode))
    return total


def project(W, mode, blocks):
    """Return W_n vec(V_k) (d_n, K') for blocks V_k of the other modes, (K', other modes).

    Examples
    --------
    >>> import numpy as np, boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> truth.project(0, np.ones((1, 9, 10))).shape
    (8, 1)
    """
    blocks = np.asarray(blocks, dtype=float)
    if not W.is_block:
        rest = [A for m, A in enumerate(W._columns) if m != mode]
        inner = contractions.khatri_rao(rest).T @ blocks.reshape(len(blocks), -1).T
        return (W._columns[mode] * W._column_weights) @ inner
    total = np.zeros((W.shape[mode], len(blocks)))
    for m, (Y, own) in W._groups.items():
        if m == mode:
            total += Y @ (own.reshape(len(own), -1) @ blocks.reshape(len(blocks), -1).T)
        else:
            part = np.tensordot(Y, blocks, axes=([0], [1 + m - (m > mode)]))  # (K_m, K', rest)
            own = np.moveaxis(own, 1 + mode - (mode > m), 0).reshape(W.shape[mode], -1)
            part = np.moveaxis(part, 1, -1).reshape(-1, len(blocks))
            total += own @ part
    return total


def mttkrp(W, factors, mode):
    """Return W_n (khatri-rao of `factors` without `mode`), (d_n, K').

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> truth.mttkrp(truth.factors, 0).shape
    (8, 2)
    """
    if W.is_block:
        rest = [A for m, A in enumerate(factors) if m != mode]
        shape = [len(A) for A in rest]
        return W.project(mode, contractions.khatri_rao(rest).T.reshape(-1, *shape))
    inner = contractions.gram_product(W._columns, mode, factors)
    return (W._columns[mode] * W._column_weights) @ inner


def inner_products(W, atoms=None):
    """Return <M_k, M_l> (K, K') between the atoms of this decomposition and `atoms` (its own by default).

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> truth.inner_products().round(2).tolist()  # the diagonal has the numbers of ones
    [[3.0, -0.1], [-0.1, 3.0]]
    """
    own = atoms is None
    atoms = W.atoms if own else tuple(atoms)
    if not atoms or not W.atoms:
        return np.zeros((W.n_atoms, len(atoms)))
    if W.is_block or any(atom.block is not None for atom in atoms):
        return np.array([[_inner(first, second) for second in atoms] for first in W.atoms])
    second = W if own else type(W)(W.shape, atoms, np.ones(len(atoms)))
    H = contractions.gram_product(W._columns, None, second._columns)
    return _sum_groups(_sum_groups(H, [a.rank for a in W.atoms]).T, [a.rank for a in atoms]).T


def inner(W, X):
    """Return <W, X> for an array or another BooleanCP.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> bool(abs(truth.inner(truth) - truth.norm() ** 2) < 1e-9)
    True
    """
    if isinstance(X, type(W)):
        return float(W.weights @ W.inner_products(X.atoms) @ X.weights)
    X = np.asarray(X)
    X = X if X.dtype.kind == "f" else X.astype(float)  # sums of small integers overflow, of bools saturate
    if X.shape != W.shape:
        raise ValueError(f"X has shape {X.shape}, the decomposition has {W.shape}.")
    return float(W.weights @ inner_with_atoms(X, W.atoms))


def inner_with_atoms(X, atoms):
    """Return <X, M_k> (K,) for a dense array or anything that answers `contract`."""
    inner = np.empty(len(atoms))
    for mode in {atom.mode for atom in atoms}:
        members = [k for k, atom in enumerate(atoms) if atom.mode == mode]
        Z = np.stack([atoms[k].z for k in members], axis=1).astype(float)
        blocks = (
            contractions.contract(np.ascontiguousarray(X), mode, Z)
            if isinstance(X, np.ndarray)
            else X.contract(mode, Z)
        )
        for k, block in zip(members, blocks, strict=True):
            inner[k] = np.vdot(block, atoms[k].dense_block())
    return inner


def _inner(first, second):
    """Return <M, M'> of two atoms through their dense blocks."""
    V, U = first.dense_block(), second.dense_block()
    if first.mode == second.mode:
        return float(first.z @ second.z.astype(float)) * float(np.vdot(V, U))
    V = np.tensordot(V, second.z.astype(float), axes=([second.mode - (second.mode > first.mode)], [0]))
    U = np.tensordot(U, first.z.astype(float), axes=([first.mode - (first.mode > second.mode)], [0]))
    return float(np.vdot(V, U))


def _sum_groups(H, sizes):
    """Return H with consecutive groups of rows summed."""
    return np.add.reduceat(H, np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int), axis=0)
