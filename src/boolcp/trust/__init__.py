"""What may be concluded from a result: uniqueness, structure in the residual, number of atoms, replication, conditions.

A decomposition enters, with its data or the parameters of its fit. Frozen results leave, with numbers, texts and
pictures. Nothing here changes a decomposition, except that `assess` adds its findings to a copy.
"""
