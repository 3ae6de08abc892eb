"""Slow answers that are plainly right."""

from dataclasses import replace
from functools import reduce
from itertools import permutations, product

import numpy as np
import scipy.optimize
import scipy.stats


def best_boolean(C, is_ratio=False):
    """Return the largest z'Cz (or z'Cz / |z|^2) over all nonzero Boolean z, and one z that has it."""
    Z = np.array(list(product([0, 1], repeat=len(C)))[1:])
    values = np.einsum("si,ij,sj->s", Z, C, Z, optimize=True)
    if is_ratio:
        values = values / Z.sum(axis=1)
    return values.max(), Z[values.argmax()].astype(bool)


def climb_ratio(C, P, z):
    """Return the largest z'Cz / z'Pz (zero where z'Pz vanishes) after best single flips while they raise it, and z."""

    def ratio(z):
        return z @ C @ z / (z @ P @ z) if z @ P @ z > 1e-9 * max(z.sum(), 1) else 0.0

    z = np.array(z, dtype=float)
    while True:
        flipped = [np.where(np.arange(len(z)) == i, 1 - z, z) for i in range(len(z))]
        best = max(flipped, key=ratio)
        if ratio(best) <= ratio(z) * (1 + 1e-9):
            return ratio(z), z.astype(bool)
        z = best


def sweep(A, V):
    """Return V after moving each row in turn to the unit vector along the sum of A[i, j] V[j], j != i."""
    V = V.copy()
    for i in range(len(A)):
        g = sum(A[i, j] * V[j] for j in range(len(A)) if j != i)
        V[i] = g / np.sqrt(sum(x * x for x in g))
    return V


def atom(atom):
    """Return the dense tensor of one atom, a sum of outer products."""
    if atom.block is not None:
        V = atom.block
    else:
        V = sum(reduce(np.multiply.outer, columns) for columns in zip(*(A.T for A in atom.factors), strict=True))
    return np.moveaxis(np.multiply.outer(atom.z.astype(float), V), 0, atom.mode)


def tensor(W):
    """Return the dense tensor of a decomposition, atom by atom."""
    return sum((c * atom(M) for c, M in zip(W.weights, W.atoms, strict=True)), np.zeros(W.shape))


def unfold(X, mode):
    """Return the matrix (d_n, all other modes) whose rows are the slices of X along `mode`."""
    return np.array([X.take(i, axis=mode).reshape(-1) for i in range(X.shape[mode])])


def contract(X, mode, Z):
    """Return for each column of Z the sum of the slices of X along `mode`, each times its entry."""
    slices = [X.take(i, axis=mode) for i in range(X.shape[mode])]
    return np.array([sum(Z[i, k] * part for i, part in enumerate(slices)) for k in range(Z.shape[1])])


def project(X, mode, blocks):
    """Return the inner product of each slice of X along `mode` with each block."""
    return np.array([[np.sum(X.take(i, axis=mode) * V) for V in blocks] for i in range(X.shape[mode])])


def mttkrp(X, factors, mode):
    """Return the inner product of each slice of X along `mode` with each product of other columns."""
    columns = zip(*(A.T for n, A in enumerate(factors) if n != mode), strict=True)
    return project(X, mode, [reduce(np.multiply.outer, vectors) for vectors in columns])


def power_iterations(T, factors, n_iter):
    """Replace each column in turn by T_k times the k-th columns of the others; all but the last have norm one."""
    found = [np.array(A) for A in factors]
    for _, at, k in product(range(n_iter), range(len(found)), range(len(T))):
        columns = [A[:, [k]] for A in found]
        P = mttkrp(T[k], columns, at)[:, 0] if len(found) > 1 else T[k]
        found[at][:, k] = P if at == len(found) - 1 else P / np.linalg.norm(P)
    return found


def least_squares(X, atoms):
    """Return the weights that bring the sum of the atoms closest to X, by dense least squares."""
    return np.linalg.lstsq(np.stack([atom(M).ravel() for M in atoms], axis=1), X.ravel(), rcond=None)[0]


def best_score(R, atom_rank, is_ratio):
    """Return the largest <R, M> (or <R, M> / |M|) over all modes, Boolean z and real parts of norm one."""
    best = 0.0
    for mode, d in enumerate(R.shape):
        for z in np.array(list(product([0, 1], repeat=d))[1:]):
            V = np.tensordot(z, R, axes=(0, mode))
            size = np.linalg.norm(V) if atom_rank is None else np.linalg.norm(np.linalg.svd(V)[1][:atom_rank])
            best = max(best, size / np.sqrt(z.sum()) if is_ratio else size)
    return best


def best_matching(costs):
    """Return the smallest sum of costs over all ways to give each row (or column, if fewer) its own partner."""
    costs = costs if costs.shape[0] <= costs.shape[1] else costs.T
    rows = range(costs.shape[0])
    return min(
        sum(costs[i, j] for i, j in zip(rows, order, strict=False)) for order in permutations(range(costs.shape[1]))
    )


def linked_sweep(X, weights, matrices, owner, boolean_mode, order):
    """Decide each row of each factor by trying all bits, its real entries by weighted least squares."""
    matrices = [np.array(A) for A in matrices]
    for mode in order:
        others = [A for n, A in enumerate(matrices) if n != mode]
        columns = np.stack(
            [reduce(np.multiply.outer, each).ravel() for each in zip(*(A.T for A in others), strict=True)], axis=1
        )
        Boolean = [k for k in range(len(boolean_mode)) if boolean_mode[k] == mode]
        real = np.array([boolean_mode[k] != mode for k in owner])
        for i in range(X.shape[mode]):
            root = np.sqrt(np.take(weights, i, axis=mode).ravel())
            x, B = root * np.take(X, i, axis=mode).ravel(), root[:, None] * columns
            rows = []
            for bits in product((0.0, 1.0), repeat=len(Boolean)):
                row = np.zeros(len(owner))
                for k, bit in zip(Boolean, bits, strict=True):
                    row[owner == k] = bit
                row[real] = np.linalg.lstsq(B[:, real], x - B @ row, rcond=None)[0]
                rows.append(row)
            matrices[mode][i] = min(rows, key=lambda row: np.sum((x - B @ row) ** 2))
    return matrices


def best_row(H, p, boolean):
    """Return the row a that minimizes a'Ha - 2 p'a with bits where `boolean`: all bits, each with its least squares."""
    rows = []
    for bits in product((0.0, 1.0), repeat=int(boolean.sum())):
        a = np.zeros(len(p))
        a[boolean] = bits
        a[~boolean] = np.linalg.lstsq(H[~boolean][:, ~boolean], (p - H @ a)[~boolean], rcond=None)[0]
        rows.append(a)
    return min(rows, key=lambda a: a @ H @ a - 2 * p @ a)


def full(factors):
    """Return the sum of the outer products of columns."""
    return sum(reduce(np.multiply.outer, columns) for columns in zip(*(A.T for A in factors), strict=True))


def weighted_equations(X, weights, factors, mode):
    """Return the matrix and the right side of the weighted normal equations of each row of a factor, entry by entry."""
    d, K = factors[mode].shape
    H, P = np.zeros((d, K, K)), np.zeros((d, K))
    for place in np.ndindex(*X.shape):
        row = np.prod([A[i] for n, (A, i) in enumerate(zip(factors, place, strict=True)) if n != mode], axis=0)
        H[place[mode]] += weights[place] * np.outer(row, row)
        P[place[mode]] += weights[place] * X[place] * row
    return H, P


def observed_blocks(X, mask, mode, codes):
    """Return the dense blocks of least squares for given bits along one mode, entry by entry over the observed rows."""
    X, mask = np.moveaxis(X, mode, 0), np.moveaxis(mask, mode, 0)
    Z, blocks = np.stack(codes, axis=1).astype(float), np.zeros((len(codes), *X.shape[1:]))
    for place in np.ndindex(X.shape[1:]):
        seen = mask[(slice(None), *place)]
        blocks[(slice(None), *place)] = np.linalg.lstsq(Z[seen], X[(slice(None), *place)][seen], rcond=None)[0]
    return blocks


def terms_tensor(shape, terms):
    """Return the sum of terms (mode, z, V) as a dense array."""
    parts = [np.moveaxis(np.multiply.outer(z.astype(float), V), 0, mode) for mode, z, V in terms]
    return sum(parts, np.zeros(shape))


def backfit_mode(X, mask, terms, mode):
    """Return terms (mode, z, V) with the blocks of one mode fitted, each row of its bits the best, and blocks again.

    Blocks are least squares over the observed entries, rows of bits the best of all patterns. Nothing is taken that
    does not lower the loss.
    """

    def loss(terms):
        return np.sum((X - terms_tensor(X.shape, terms))[mask] ** 2)

    own, others = [t for t in terms if t[0] == mode], [t for t in terms if t[0] != mode]
    R = X - terms_tensor(X.shape, others)
    codes = [z for _, z, _ in own]
    blocks = observed_blocks(R, mask, mode, codes)
    options = [own, [(mode, z, V) for z, V in zip(codes, blocks, strict=True)]]
    best = min(options, key=lambda option: loss([*others, *option]))
    rows = []
    for x, seen in zip(np.moveaxis(R, mode, 0), np.moveaxis(mask, mode, 0), strict=True):
        patterns = list(product((0, 1), repeat=len(own)))
        errors = [
            np.sum((x - sum(b * V for b, (_, _, V) in zip(bits, best, strict=True)))[seen] ** 2) for bits in patterns
        ]
        rows.append(patterns[int(np.argmin(errors))])
    codes = list(np.array(rows, dtype=bool).T)
    moved = [(mode, z, V) for z, V in zip(codes, observed_blocks(R, mask, mode, codes), strict=True)]
    best = min([best, moved], key=lambda option: loss([*others, *option]))
    places = iter(best)
    found = [next(places) if t[0] == mode else t for t in terms]
    return found, loss(terms) - loss(found)


def project_row(a, i):
    """Return the point y closest to a with 0 <= y_j <= y_i: the best of those with the largest entries leveled."""
    others = np.delete(a, i)
    best = None
    for n in range(len(a)):
        ceiling = max(np.mean([a[i], *np.sort(others)[::-1][:n]]), 0.0)
        y = np.clip(a, 0.0, ceiling)
        y[i] = ceiling
        if best is None or np.sum((y - a) ** 2) < np.sum((best - a) ** 2):
            best = y
    return best


def triangle(d, i, j, k):
    """Return the symmetric matrix whose inner product with X is X_ii + X_jk - X_ij - X_ik."""
    B = np.zeros((d, d))
    for a, b, size in ((i, i, 1.0), (j, k, 1.0), (i, j, -1.0), (i, k, -1.0)):
        B[a, b] += size / 2
        B[b, a] += size / 2
    return B


def rise(X, W, k, entry):
    """Return the rise of the loss over the entries of X that are not NaN when one bit of atom k is flipped."""
    z = W.atoms[k].z.copy()
    z[entry] = not z[entry]
    others = tensor(W) - W.weights[k] * atom(W.atoms[k])
    flipped = others + W.weights[k] * atom(replace(W.atoms[k], z=z))
    return np.nansum((X - flipped) ** 2) - np.nansum((X - tensor(W)) ** 2)


def log_odds_on(x, z, entry, noise2, signal2):
    """Return the log odds that point x[entry] belongs to V, known from the other points with z on, rather than zero.

    V is normal with variance signal2 / p around zero before any point is seen; bits are on with the same, unknown
    probability.
    """
    p = x.shape[1]
    others = [x[j] for j in range(len(x)) if z[j] and j != entry]
    prior2, k = signal2 / p, len(others)
    mean, variance = np.zeros(p), prior2
    for y in others:  # Bayes' rule, point by point
        gain = variance / (variance + noise2)
        mean, variance = mean + gain * (y - mean), variance * (1 - gain)
    on = scipy.stats.norm.logpdf(x[entry], mean, np.sqrt(noise2 + variance)).sum()
    off = scipy.stats.norm.logpdf(x[entry], 0, np.sqrt(noise2)).sum()
    return on - off + np.log((k + 0.5) / (len(x) - 1 - k + 0.5))


def permutation_p(y, groups, blocks):
    """Return the share of all orders within blocks whose ranks differ at least as much between groups, as squares.

    The mean of each block is taken out of the ranks and of the groups first.
    """
    members = [np.flatnonzero([b == name for b in blocks]) for name in sorted(set(blocks))]
    ranks = scipy.stats.rankdata(y)
    design = np.array([[g == name for name in sorted(set(groups))] for g in groups], dtype=float)
    for places in members:
        design[places] -= design[places].mean(axis=0)
        ranks[places] -= ranks[places].mean()
    found = []
    for choice in product(*(permutations(places) for places in members)):
        order = np.empty(len(y), dtype=int)
        order[np.concatenate(members)] = np.concatenate(choice)
        found.append(ranks[order] @ design @ np.linalg.pinv(design) @ ranks[order])
    return np.mean(np.array(found) >= ranks @ design @ np.linalg.pinv(design) @ ranks - 1e-9)


def soft_bits(S, q, temperature):
    """Return the mean of the bits b with weights exp(-(b'Sb - 2 q'b) / (2 temperature)), over all patterns."""
    patterns = np.array(list(product((0.0, 1.0), repeat=len(q))))
    costs = np.array([b @ S @ b - 2 * q @ b for b in patterns])
    weights = np.exp(-(costs - costs.min()) / (2 * temperature))
    return weights @ patterns / weights.sum()


def nonnegative_row(H, p, boolean, nonnegative):
    """Return the row a that minimizes a'Ha / 2 - p'a: all bits are tried, real entries are those of scipy."""
    L = np.linalg.cholesky(H)
    best = None
    for bits in product((0.0, 1.0), repeat=int(boolean.sum())):
        a = np.zeros(len(p))
        a[boolean] = bits
        real = np.flatnonzero(~boolean)
        rest = np.linalg.solve(L, p) - L.T @ a
        if len(real) and nonnegative[real].all():
            a[real] = scipy.optimize.nnls(L.T[:, real], rest)[0]
        elif len(real):
            bounds = (np.where(nonnegative[real], 0, -np.inf), np.inf)
            a[real] = scipy.optimize.lsq_linear(L.T[:, real], rest, bounds, tol=1e-14).x
        value = a @ H @ a / 2 - p @ a
        if best is None or value < best[0]:
            best = value, a
    return best[1]


def solve_each_row(H, P):
    """Return the solutions of least norm of H_i x = p_i, the unknowns scaled by the mean diagonal of all H_i."""
    scale = np.sqrt(np.einsum("ikk->k", H) / len(H))
    scaled = [np.linalg.pinv(h / np.outer(scale, scale), rcond=1e-7, hermitian=True) for h in H]
    return np.stack([(s / np.outer(scale, scale)) @ p for s, p in zip(scaled, P, strict=True)])


def joint_gain(R, mode, known, z):
    """Return by how much a dense block for the bits z lowers |R|^2 beyond blocks for known bits, all fitted jointly."""
    Y, left = unfold(R, mode), []
    for Z in (np.array(known, dtype=float).T, np.array([*known, z], dtype=float).T):
        left.append(np.sum((Y - Z @ np.linalg.lstsq(Z, Y, rcond=None)[0]) ** 2))
    return left[0] - left[1]
