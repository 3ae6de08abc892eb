"""The Boolean quadratic program: the 0/1 vector z with the largest z'Cz or z'Cz / |z|^2.

A Gram matrix enters, dense or as a thin factor. A Boolean vector leaves, with its value and a proved upper bound. This
room knows nothing about tensors.
"""
