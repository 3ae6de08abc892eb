"""Tests of the atoms against every condition and covariate that the labels of a decomposition hold."""

from collections.abc import Mapping

import numpy as np

from boolcp import plotting
from boolcp.result.atoms import BooleanCP
from boolcp.trust.conditions import ConditionTest, test_conditions

PLACES = ("x", "y", "z", "onset", "stop")  # numbers that are no covariates
MAX_COVARIATES = 6
ALPHA = 0.05

Tests = Mapping[tuple[int, str], ConditionTest]


def run_tests(W: BooleanCP) -> dict[tuple[int, str], ConditionTest]:
    """Return a ConditionTest for each coordinate that can be tested, by mode and name.

    Coordinates with groups are compared, numbers are correlated. A mode that is itself a few states has one entry in
    each, which cannot be tested.
    """
    found = {}
    for mode, name in [*_conditions(W), *_covariates(W)]:
        try:
            found[mode, name] = test_conditions(W, name, mode=mode)
        except ValueError:  # one value only, or all are different
            continue
    return found if W.n_atoms else {}


def _conditions(W: BooleanCP) -> list[tuple[int, str]]:
    return [(mode, name) for mode, name in plotting.groups_of(W) if name not in (W.dims or ())]


def _covariates(W: BooleanCP) -> list[tuple[int, str]]:
    """Return the coordinates with broken numbers along modes of trials: reaction times, running speed."""
    extra = {} if W.labels is None else W.labels.extra
    found = [
        (W.labels.dims.index(dim), name)
        for name, (dim, values) in extra.items()
        if W.labels is not None and np.asarray(values).dtype.kind == "f" and name not in PLACES
    ]
    return [(mode, name) for mode, name in found if plotting.positions_of(W, mode) is None][:MAX_COVARIATES]


def best_test(tests: Tests, k: int, mode: int) -> tuple[str, ConditionTest] | None:
    """Return name and test of the conditions along a mode that an atom differs in most surely, if it does in any."""
    fitting = [(name, test) for (n, name), test in tests.items() if n == mode and test.conditions]
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
