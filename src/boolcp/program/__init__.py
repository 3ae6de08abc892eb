"""The Boolean quadratic program, max z'Cz or z'Cz / |z|^2 over 0/1 vectors z. It knows nothing about tensors.

Input: a symmetric matrix C, dense or as FF'. Output: bits z, their value, and a bound that no other bits exceed.
"""
