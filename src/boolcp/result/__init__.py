"""What a fit returns: atoms, and the decomposition that they sum to.

Atoms, weights and labels enter. Frozen values leave: they answer questions about their sum without forming it, and
describe themselves to a reader. Nothing in this room searches or fits.
"""
