"""Tests of the atoms against the conditions and covariates in the labels of a decomposition."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from boolcp import plotting
from boolcp.result.atoms import BooleanCP
from boolcp.trust.conditions import ConditionTest, run_tests

PLACES = ("x", "y", "z", "onset", "stop")  # numbers that are not covariates
MAX_COVARIATES = 6
ALPHA = 0.05

Tests = Mapping[str, ConditionTest]


def find_tests(W: BooleanCP, provenance: Mapping[str, Any]) -> dict[str, ConditionTest]:
    """Return a ConditionTest, by name, for each requested column or, by default, for each that can be tested."""
    asked = provenance.get("tests") or {}
    if asked:
        return run_tests(W, list(asked), next(iter(asked.values())).get("blocks"))
    groups = [name for _, name in plotting.groups_of(W) if name not in (W.dims or ())]  # no mode that is its groups
    names = [name for name in [*groups, *_covariates(W)] if _can_be_tested(W, name)]
    return run_tests(W, names) if W.n_atoms else {}


def _can_be_tested(W: BooleanCP, name: str) -> bool:
    try:
        return bool(run_tests(W[[]], [name]))
    except ValueError:  # only one value, or all are different
        return False


def _covariates(W: BooleanCP) -> list[str]:
    """Return the coordinates with fractional numbers along modes without positions: reaction times, running speed."""
    if W.labels is None:
        return []
    found = [
        name
        for name, (dim, values) in W.labels.extra.items()
        if np.asarray(values).dtype.kind == "f"
        and name not in PLACES
        and plotting.positions_of(W, W.labels.dims.index(dim)) is None
    ]
    return found[:MAX_COVARIATES]


def best_test(tests: Tests, k: int, mode: int | None = None) -> tuple[str, ConditionTest] | None:
    """Return the name and test of what an atom differs in, or follows, most clearly, along one or any mode; or None."""
    fitting = [(name, test) for name, test in tests.items() if mode in (None, test.mode)]
    fitting = [(name, test) for name, test in fitting if test.p_adjusted[k] <= ALPHA]
    return min(fitting, key=lambda pair: pair[1].p_adjusted[k]) if fitting else None


def p_words(p: float) -> str:
    """Return a p-value in words.

    Examples
    --------
    >>> from boolcp.report.tested import p_words
    >>> p_words(0.0001), p_words(0.0234), p_words(0.3)
    ('p < 0.001', 'p = 0.023', 'p = 0.30')
    """
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
