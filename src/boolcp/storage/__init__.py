"""What a tensor can be made of. Each storage answers the same questions with small dense arrays.

========================  =====================================================================
shape, squared_norm       sizes d_n, and |X|^2
gram(mode)                X_n X_n', (d_n, d_n)
contract(mode, Z)         X times the columns of Z along one mode, (K, other modes)
project(mode, blocks)     X_n vec(V_k) for blocks V_k of the other modes, (d_n, K)
mttkrp(factors, mode)     X_n times the Khatri-Rao product of the other factors, (d_n, K)
normal_equations(..)      H and P of the least squares for one factor, given the others
residual(W)               the storage of X - W
========================  =====================================================================
"""

from boolcp.storage.dense import DenseTensor
from boolcp.storage.tucker import TuckerTensor, compress

__all__ = ["DenseTensor", "TuckerTensor", "compress"]
