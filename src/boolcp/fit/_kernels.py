"""Compiled inner loops of the fit: arrays in, a number out, no checks."""

import numpy as np
from numba import njit


@njit(cache=True)
def descend_bits(S, Q, B):
    """Flip bits and pairs of bits of the rows of B (d, K) in place while b'S_i b - 2 q_i'b falls; return the fall."""
    d, K = B.shape
    fall = 0.0
    slope = np.empty(K)
    for i in range(d):
        for k in range(K):
            slope[k] = -2.0 * Q[i, k]
            for l in range(K):
                slope[k] += 2.0 * S[i, k, l] * B[i, l]
        while True:
            best, first, second = -1e-13 * (1.0 + np.abs(slope).max()), -1, -1
            for k in range(K):
                step_k = 1.0 - 2.0 * B[i, k]
                change_k = step_k * slope[k] + S[i, k, k]
                if change_k < best:
                    best, first, second = change_k, k, -1
                for l in range(k):
                    step_l = 1.0 - 2.0 * B[i, l]
                    change = change_k + step_l * slope[l] + S[i, l, l] + 2.0 * step_k * step_l * S[i, k, l]
                    if change < best:
                        best, first, second = change, k, l
            if first < 0:
                break
            fall -= best
            for k in (first, second):
                if k >= 0:
                    step = 1.0 - 2.0 * B[i, k]
                    B[i, k] += step
                    for l in range(K):
                        slope[l] += 2.0 * step * S[i, l, k]
    return fall
