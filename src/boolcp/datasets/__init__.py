"""Tensors with a known answer: random Boolean CP tensors, Syn0 to Syn2 of the paper, simulated recordings.

Input: sizes, a noise level and a seed. Output: a tensor, and the decomposition that generated it. Nothing is loaded.
"""

from boolcp.datasets.ecog import EcogSimulation, Recording, simulate_ecog, simulate_recording
from boolcp.datasets.synthetic import Synthetic, load_syn, make_boolean_cp

__all__ = [
    "EcogSimulation",
    "Recording",
    "Synthetic",
    "load_syn",
    "make_boolean_cp",
    "simulate_ecog",
    "simulate_recording",
]
