"""What a fit leaves behind: atoms and the decomposition they add up to.

Atoms, weights and labels enter. Frozen values leave, which answer questions about their sum without forming it and tell
a person what they are. Nothing in this room searches or fits.
"""
