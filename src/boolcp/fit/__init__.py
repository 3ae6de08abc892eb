"""Algorithms: Boolean matching pursuit as printed, and the refined fit of linked columns and of blocks."""
