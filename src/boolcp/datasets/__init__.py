"""Tensors with a known answer: random Boolean CP tensors, the paper's Syn0-2, a simulated recording."""

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
