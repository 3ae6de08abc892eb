"""Conditions and covariates in the labels: tests of the atoms against them, and entries sorted by them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from boolcp.plotting.mode_labels import CONDITION, further_of, group_names, groups_of, positions_of
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.trust.conditions import ConditionTest, run_tests

PLACES = ("x", "y", "z", "onset", "stop")  # numbers that are not covariates
MAX_COVARIATES = 6
ALPHA = 0.05
NO_LABEL = "no label"

Tests = Mapping[str, ConditionTest]


def find_tests(W: BooleanCP, provenance: Mapping[str, Any]) -> dict[str, ConditionTest]:
    """Return a ConditionTest, by name, for each requested column or, by default, for each that can be tested."""
    asked = provenance.get("tests") or {}
    if asked:
        return run_tests(W, list(asked), next(iter(asked.values())).get("blocks"))
    groups = [name for _, name in groups_of(W) if name not in (W.dims or ())]  # no mode that is its groups
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
    numbers = {
        name: W.labels.dims.index(dim)
        for name, (dim, values) in W.labels.extra.items()
        if np.asarray(values).dtype.kind == "f" and name not in PLACES
    }
    return [name for name, mode in numbers.items() if positions_of(W, mode) is None][:MAX_COVARIATES]


def best_test(tests: Tests, k: int) -> tuple[str, ConditionTest] | None:
    """Return the name and test of what an atom differs in, or follows, most clearly; None if nothing is clear."""
    found = [(name, test) for name, test in tests.items() if test.p_adjusted[k] <= ALPHA]
    return min(found, key=lambda pair: pair[1].p_adjusted[k]) if found else None


def p_words(p: float) -> str:
    """Return a p-value in words.

    Examples
    --------
    >>> from boolcp.report.conditions import p_words
    >>> p_words(0.0001), p_words(0.0234), p_words(0.3)
    ('p < 0.001', 'p = 0.023', 'p = 0.30')
    """
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def adjective(name: str, value: str) -> str:
    """Return a value as an adjective: with the name of its column if it means nothing by itself."""
    return f"{name}={value}" if value in ("True", "False") or value.replace(".", "").isdigit() else value


def test_cells(test: ConditionTest, k: int) -> list[str]:
    """Return effect, AUC of conditions, and p-value of one atom as texts."""
    is_share = bool(test.conditions) and test.is_boolean[k]
    effect = f"{100 * test.effect[k]:+.0f} points" if is_share else f"{test.effect[k]:+z.2f}"
    auc = [f"{test.auc[k]:.2f}"] if test.conditions else []
    return [effect, *auc, p_words(test.p_adjusted[k]).removeprefix("p ").removeprefix("= ").replace("< ", "<")]


def mean_cell(means: Any, k: int, c: int) -> str:
    """Return how many entries of a group are on, or the mean and standard deviation of a real part."""
    mean, n = means.mean[k, c], int(means.counts[c])
    if np.isnan(mean):
        return "-"
    if means.is_boolean[k]:
        return f"{round(mean * n)} of {n} ({100 * mean:.0f} %)"
    return f"{mean:z.2f} ± {means.spread[k, c]:.2f}" if n > 1 else f"{mean:z.2f}"


def test_note(test: ConditionTest, name: str) -> str:
    """Describe a test: whether any atom passes, what the numbers are, and how labels were permuted."""
    verb = f"differs clearly by {name}" if test.conditions else f"clearly follows {name}"
    smallest = test.p_adjusted.min(initial=1.0)
    found = "" if smallest <= ALPHA else f"No atom {verb} (smallest {p_words(smallest)}). "
    one, other = [adjective(name, each) for each in test.conditions[::-1]][:2] if test.conditions else ("", "")
    if len(test.conditions) > 2:
        one, other = "the highest condition", "the lowest"
    sizes = f"Effect: {one} minus {other}; AUC: how often an entry of {one} exceeds one of {other}. "
    permuted = f"p: {test.n_permutations} {test.scheme} of the labels, entries taken as independent; "
    return f"{found}{sizes if test.conditions else ''}{permuted}false discovery rate controlled over this page."


class Band(NamedTuple):
    """A run of neighbors in one group: entries start <= i < stop."""

    name: str
    start: int
    stop: int


def bands(W: BooleanCP, mode: int) -> list[Band]:
    """Return the runs of a mode with equal groups; none if it has no groups or they are scattered."""
    labels = _group_labels(W, mode)
    if labels is None:
        return []
    edges = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist(), len(labels)]
    is_scattered = len(edges) - 1 > len(set(labels.tolist()))
    return [] if is_scattered else [Band(str(labels[a]), a, b) for a, b in pairwise(edges)]


def group_name(W: BooleanCP, mode: int) -> str:
    """Return the name of the first additional coordinate of a mode that has a few groups, or nothing."""
    further = [] if W.labels is None else list(W.labels.extra)
    return next((name for n, name in groups_of(W, further) if n == mode and name not in (W.dims or ())), "")


def _group_labels(W: BooleanCP, mode: int) -> np.ndarray | None:
    values = further_of(W, mode, name) if (name := group_name(W, mode)) else None
    return None if values is None else np.array([str(value) or NO_LABEL for value in values])


def in_order(W: BooleanCP, tested: Sequence[str] = ()) -> BooleanCP:
    """Return W with the entries of each mode sorted by group: by a tested column, else by condition."""
    if W.labels is None:
        return W
    rank = {name: n for n, name in enumerate(dict.fromkeys([*tested, CONDITION]))}
    extra = sorted(W.labels.extra.items(), key=lambda pair: rank.get(pair[0], len(rank)))
    W = replace(W, labels=replace(W.labels, extra=dict(extra)))
    for mode in range(W.ndim):
        labels = _group_labels(W, mode)
        if labels is not None:
            names = [*group_names(labels[labels != NO_LABEL]), NO_LABEL]
            W = permuted(W, mode, np.argsort([names.index(label) for label in labels], kind="stable"))
    return W


def permuted(W: BooleanCP, mode: int, order: np.ndarray) -> BooleanCP:
    """Return W with the entries along a mode in another order."""
    atoms = tuple(_permuted_atom(atom, mode, order) for atom in W.atoms)
    unknown = {n: slices[order] if n == mode else slices for n, slices in (W.undetermined or {}).items()}
    found = replace(W, atoms=atoms, undetermined=unknown or None)
    if W.trust is not None:
        bits = {name: values for name in ("rise", "share") if (values := getattr(W.trust, name)) is not None}
        pairs = {name: zip(W.atoms, values, strict=True) for name, values in bits.items()}
        moved = {n: tuple(v[order] if a.mode == mode else v for a, v in pair) for n, pair in pairs.items()}
        found = replace(found, trust=replace(W.trust, **moved))
    if W.labels is None:
        return found
    labels, dim = W.labels, W.labels.dims[mode]
    coords = {**labels.coords, dim: np.asarray(labels.coords.get(dim, np.arange(W.shape[mode])))[order]}
    extra = {n: (d, np.asarray(v)[order] if d == dim else v) for n, (d, v) in labels.extra.items()}
    return replace(found, labels=replace(labels, coords=coords, extra=extra))


def _permuted_atom(atom: Atom, mode: int, order: np.ndarray) -> Atom:
    """Return an atom with the entries along a mode in another order."""
    if atom.mode == mode:
        return replace(atom, z=atom.z[order])
    axis = mode - (mode > atom.mode)
    if atom.factors is None:
        return replace(atom, block=np.take(atom.block, order, axis))
    return replace(atom, factors=tuple(A[order] if n == axis else A for n, A in enumerate(atom.factors)))
