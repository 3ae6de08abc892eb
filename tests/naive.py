"""Slow answers that are plainly right."""

from itertools import product

import numpy as np


def best_boolean(C, is_ratio=False):
    """Return the largest z'Cz (or z'Cz / |z|^2) over all nonzero Boolean z, and one z that has it."""
    Z = np.array(list(product([0, 1], repeat=len(C)))[1:])
    values = np.einsum("si,ij,sj->s", Z, C, Z, optimize=True)
    if is_ratio:
        values = values / Z.sum(axis=1)
    return values.max(), Z[values.argmax()].astype(bool)


def sweep(A, V):
    """Return V after moving each row in turn to the unit vector along the sum of A[i, j] V[j], j != i."""
    V = V.copy()
    for i in range(len(A)):
        g = sum(A[i, j] * V[j] for j in range(len(A)) if j != i)
        V[i] = g / np.sqrt(sum(x * x for x in g))
    return V
