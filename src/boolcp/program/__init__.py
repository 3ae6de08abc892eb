"""The Boolean quadratic program, max z'Cz or z'Cz / |z|^2 over 0/1 vectors z. It knows nothing about tensors.

Input: a Gram matrix C, dense or known by a thin factor. Output: the best bits found, their value and a proved bound.
"""
