"""How a decomposition is found: Algorithms 1 and 2 of the paper, and the correction of all factors beyond it.

A storage and the parameters of `BMP` enter. The estimates of the pursuit and the corrected decomposition leave. The
storage is asked only the questions of `storage.protocol`, so arrays, files and clusters take the same path.
"""
