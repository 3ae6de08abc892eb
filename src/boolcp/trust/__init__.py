"""What may be concluded from a result: its uniqueness, the noise that is left, the number of atoms, their return.

A decomposition enters, with its data or the parameters of its fit. Frozen verdicts leave, with numbers, texts and
pictures. Nothing in this room changes a result.
"""
