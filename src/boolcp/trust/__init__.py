"""What may be concluded from a result: uniqueness, noise left, number of atoms, their significance and stability.

A decomposition enters, with its data or the parameters of its fit. Frozen verdicts leave, with numbers, texts and
pictures. Nothing in this room changes a result.
"""
