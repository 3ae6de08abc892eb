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

_NAMES = {
    "atomic_norm": ("AtomicNorm", "alpha_max"),
    "bmp": ("BMP", "decompose"),
    "checks": ("BoolcpWarning", "DegenerateAtomsWarning"),
    "fit.watch": ("Progress",),
    "io": ("from_dataframe", "load", "open_tensor", "save"),
    "program.maxcut": ("BooleanQuadratic", "maximize_boolean_quadratic", "maximize_boolean_rayleigh"),
    "result.atoms": ("Atom", "BooleanCP"),
    "result.noise": ("Noise",),
    "result.trust": ("Trust", "UncertainBit"),
    "sessions": ("fit_sessions",),
    "trust.assess": ("assess", "consensus"),
    "trust.conditions": ("ConditionTest", "compare_conditions"),
    "trust.degeneracy": ("Degeneracy", "degeneracy"),
    "trust.replication": ("Replication", "replication"),
    "trust.selection": ("Selection", "select_n_atoms"),
    "trust.verdict": ("Verdict", "verdicts"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_MODULES = {"identifiability": "trust.identifiability", "residuals": "trust.residuals"}
_ROOMS = ("baselines", "datasets", "interop", "io", "metrics", "plotting", "prepare", "report")
_MODULES |= {name: name for name in _ROOMS}

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
