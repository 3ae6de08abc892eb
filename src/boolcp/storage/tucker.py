"""A tensor compressed to a small core with an orthonormal basis for each mode: X ~ core x_1 U_1 .. x_N U_N."""

import numpy as np
import scipy.linalg

from boolcp.contractions import gram_product
from boolcp.storage.dense import Contracted, DenseTensor, Difference
from boolcp.storage.long import is_long, leading_directions, n_columns, short_gram, square_root, unfold


class TuckerTensor:
    """X^ = core x_n U_n (all modes), which answers like a full tensor at the cost of its core."""

    is_complete = True

    def __init__(self, core, bases, squared_norm):
        self.core, self.bases = core, bases
        self.shape = tuple(len(U) for U in bases)
        self.dtype = core.dtype
        self.squared_norm = squared_norm  # of X, not of X^: losses are then comparable with those of X

    @property
    def ndim(self):
        """Return the order N."""
        return len(self.shape)

    def gram(self, mode):
        """Return X^_n X^_n' (d_n, d_n)."""
        U = self.bases[mode]
        return U @ self.core.gram(mode) @ U.T

    def gram_factor(self, mode, W=None):
        """Return F (d_n, p) with FF' the Gram matrix of X^ - W along one mode, for a sum W of rank-one terms.

        With X^_n = U G and W_n = A B' the unfolding of X^ - W is [U A] [G' -B]'.
        """
        U, M = self.bases[mode], self.core.gram(mode)
        if W is None or W.n_atoms == 0:
            return U @ square_root(M)
        columns, r = W.matrices, U.shape[1]
        cross = np.asarray(self.core.mttkrp([Q.T @ A for Q, A in zip(self.bases, columns, strict=True)], mode))
        scale = np.append(np.ones(r), W.column_weights)
        M = np.block([[M, -cross], [-cross.T, gram_product(columns, mode)]]) * scale * scale[:, None]
        T = square_root(M)
        return U @ T[:r] + columns[mode] @ T[r:]

    def contract(self, mode, Z):
        """Return sum_i X^[.., i, ..] Z[i, k], (K, other modes)."""
        blocks = self.core.contract(mode, self.bases[mode].T @ np.asarray(Z, dtype=self.dtype))
        for at, U in enumerate(U for n, U in enumerate(self.bases) if n != mode):
            blocks = np.moveaxis(np.tensordot(blocks, U, axes=([1 + at], [1])), -1, 1 + at)
        return blocks

    def project(self, mode, blocks):
        """Return X^_n vec(V_k), (d_n, K)."""
        for at, U in enumerate(U for n, U in enumerate(self.bases) if n != mode):
            blocks = np.moveaxis(np.tensordot(blocks, U, axes=([1 + at], [0])), -1, 1 + at)
        return self.bases[mode] @ self.core.project(mode, blocks)

    def mttkrp(self, factors, mode):
        """Return X^_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        small = [U.T @ A for U, A in zip(self.bases, factors, strict=True)]
        return self.bases[mode] @ self.core.mttkrp(small, mode)

    def normal_equations(self, factors, mode):
        """Return H (K, K) and P (d_n, K): row i of the factor that fits best solves H a = p_i."""
        return gram_product(factors, mode), np.asarray(self.mttkrp(factors, mode), dtype=float)

    def update(self, factors, mode, decide):
        """Return the factor A = decide(P, current) of one mode, and X^ contracted with it, as that of the core."""
        A = decide(np.asarray(self.mttkrp(factors, mode), dtype=float), current=factors[mode])
        return A, Contracted(self.core.contract(mode, self.bases[mode].T @ A), mode, self.bases)

    def residual(self, W):
        """Return the storage of X^ - W."""
        return Difference(self, W)


def is_compressible(shape, rank):
    """Return True if a core with at most `rank` directions per mode has at most half of the entries."""
    return np.prod([min(d, rank) for d in shape], dtype=float) <= 0.5 * np.prod(shape, dtype=float)


def by_length(shape):
    """Return the modes from the shortest to the longest, of equal ones the last first, along which no file is cut."""
    return sorted(range(len(shape)), key=lambda n: (shape[n], -n))


def first_gram(shape, rank):
    """Return the mode whose Gram matrix `compress` asks first, None if it asks for none."""
    first = next((n for n in by_length(shape) if shape[n] > rank), None)
    return None if first is None or is_long(shape[first]) else first


def compress(data, rank):
    """Return `data` projected on the leading `rank` left singular vectors of each unfolding, one mode after another.

    The shortest mode goes first, so that the Gram matrices of the long ones are taken of an already small tensor
    (sequentially truncated higher-order SVD). Returns `data` itself when the core would not be much smaller.
    """
    ranks = [min(d, rank) for d in data.shape]
    if not is_compressible(data.shape, rank):
        return data
    bases = [np.eye(d) if r == d else None for r, d in zip(ranks, data.shape, strict=True)]
    core = data
    for mode in by_length(data.shape):
        d, r = data.shape[mode], ranks[mode]
        if r == d:
            continue
        bases[mode] = leading_basis(core, mode, r)
        core = core.reduced(mode, bases[mode])
    return TuckerTensor(core, bases, data.squared_norm)


def leading_basis(data, mode, rank):
    """Return the leading left singular vectors (d_n, rank) of the unfolding, through the smaller Gram matrix.

    A long mode with many columns has no small one: power iterations take its place.
    """
    d, c = data.shape[mode], n_columns(data, mode)
    if not is_long(d) and (d <= c or not isinstance(data, DenseTensor)):
        return scipy.linalg.eigh(data.gram(mode), subset_by_index=[d - rank, d - 1])[1][:, ::-1]
    if not is_long(d):
        return np.linalg.svd(unfold(data, mode), full_matrices=False)[0][:, :rank]
    if is_long(c) or c < rank:
        return leading_directions(data, mode, rank)
    Q = scipy.linalg.eigh(short_gram(data, mode), subset_by_index=[c - rank, c - 1])[1][:, ::-1]
    others = [n for m, n in enumerate(data.shape) if m != mode]
    products = np.asarray(data.project(mode, Q.T.reshape(-1, *others)), dtype=float)
    return scipy.linalg.qr(products, mode="economic")[0]
