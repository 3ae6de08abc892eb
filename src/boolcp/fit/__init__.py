"""Algorithms: Boolean matching pursuit as printed, and the refined fit of linked columns and of blocks.

Input: a storage and a Spec. Output: states, the last of which has the decomposition. Each step is a pure function of
the data, the state before it and a generator of its own.
"""
