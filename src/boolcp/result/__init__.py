"""What a fit returns: atoms, and the decomposition that they sum to.

Input: atoms, weights and labels. Output: frozen values that answer questions about their sum without forming it, and
describe themselves to a reader. Nothing in this package searches or fits.
"""
