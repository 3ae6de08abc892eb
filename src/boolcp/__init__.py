"""Tensor decomposition with Boolean factors: atoms that are exactly on or off along one mode and real along the others.

>>> import boolcp
>>> X, clean, truth = boolcp.datasets.load_syn(0, random_state=0)
>>> decomposition = boolcp.decompose(X, n_atoms=3, random_state=0)
>>> boolcp.metrics.hamming_error(decomposition, truth)
0.0
"""

import importlib
from typing import Any

from boolcp._version import __version__

_HOMES = {
    "BMP": "bmp",
    "decompose": "bmp",
    "AtomicNorm": "atomic_norm",
    "PathPoint": "atomic_norm",
    "alpha_max": "atomic_norm",
    "atomic_norm_path": "atomic_norm",
    "BooleanCP": "result.atoms",
    "Atom": "result.atom",
    "Background": "result.background",
    "BoolcpWarning": "checks",
    "BooleanQuadratic": "program.maxcut",
    "Progress": "fit.watch",
    "ConditionTest": "trust.conditions",
    "Degeneracy": "trust.degeneracy",
    "DegenerateAtomsWarning": "checks",
    "Selection": "trust.selection",
    "Significance": "trust.significance",
    "Stability": "trust.stability",
    "StabilityPath": "trust.stability",
    "Trust": "result.trust",
    "UncertainBit": "result.trust",
    "Verdict": "trust.verdict",
    "assess": "trust.assess",
    "degeneracy": "trust.degeneracy",
    "select_n_atoms": "trust.selection",
    "significance": "trust.significance",
    "stability": "trust.stability",
    "stability_path": "trust.stability",
    "test_conditions": "trust.conditions",
    "verdicts": "trust.verdict",
    "maximize_boolean_quadratic": "program.maxcut",
    "maximize_boolean_rayleigh": "program.maxcut",
    "open_tensor": "io",
    "save": "io",
    "load": "io",
}
_MODULES = {
    "baselines": "baselines",
    "datasets": "datasets",
    "experiments": "experiments",
    "identifiability": "trust.identifiability",
    "interop": "interop",
    "io": "io",
    "metrics": "metrics",
    "plotting": "plotting",
    "prepare": "prepare",
    "report": "report",
    "residuals": "trust.residuals",
}

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import boolcp` itself is fast."""
    if name in _HOMES:
        value = getattr(importlib.import_module(f"boolcp.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"boolcp.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'boolcp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
