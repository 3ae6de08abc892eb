"""Conditions and covariates in the labels: tests of the atoms against them, and entries sorted by them."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from boolcp.fit.neighbors import part_of
from boolcp.plotting.mode_labels import CONDITION, further_of, group_names, groups_of
from boolcp.result.atoms import BooleanCP, part_of_atom
from boolcp.result.trust import BITS
from boolcp.trust.conditions import ConditionTest, run_tests

ALPHA = 0.05
NO_LABEL = "no label"

Tests = Mapping[str, ConditionTest]


def find_tests(W: BooleanCP, provenance: Mapping[str, Any]) -> dict[str, ConditionTest]:
    """Return a ConditionTest, by name, for each requested column or, by default, for each with a few groups."""
    if asked := provenance.get("tests"):
        first = next(iter(asked.values()))
        return run_tests(W, list(asked), first.get("blocks"), first.get("unit"))
    found = []
    for name in [name for _, name in groups_of(W) if name not in (W.dims or ())]:  # no mode that is its groups
        with contextlib.suppress(ValueError):  # only one value, or all are different
            found += list(run_tests(W[[]], [name]))
    return run_tests(W, found) if W.n_atoms else {}


def best_test(tests: Tests, k: int) -> tuple[str, ConditionTest] | None:
    """Return the name and test of what an atom differs in, or follows, most clearly; None if nothing is clear."""
    found = [(name, test) for name, test in tests.items() if test.p_adjusted[k] <= ALPHA]
    return min(found, key=lambda pair: pair[1].p_adjusted[k]) if found else None


def p_words(p: float) -> str:
    """Return a p-value in words: p < 0.001, p = 0.023, p = 0.30."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


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
    if means.is_boolean[k] and n:
        return f"{round(mean * n)} of {n} ({100 * mean:.0f} %)"
    return f"{mean:z.2f} ± {means.spread[k, c]:.2f}" if n > 1 else f"{mean:z.2f}" if n else "-"


def test_note(test: ConditionTest, name: str) -> str:
    """Describe a test: whether any atom passes, what the numbers are, and how labels were permuted."""
    verb = f"differs clearly by {name}" if test.conditions else f"clearly follows {name}"
    item, least = "a mean" if "of means" in test.scheme else "an entry", test.p_adjusted.min(initial=1.0)
    found = "" if least <= ALPHA else f"No atom {verb} (smallest {p_words(least)}). "
    if test.conditions:
        pair = [adjective(name, each) for each in test.conditions[::-1]]
        one, other = pair if len(pair) == 2 else ("the highest condition", "the lowest")
        found += f"Effect: {one} minus {other}; AUC: how often {item} of {one} exceeds one of {other}. "
    is_free = not any(word in test.scheme for word in ("of runs", "shifts", "of means"))
    free = ", entries taken as independent" * is_free
    permuted = f"p: {test.n_permutations} {test.scheme}{free}; false discovery rate controlled over this page."
    return " ".join([f"{found}{permuted}", *test.caveats])


def bands(W: BooleanCP, mode: int) -> list[tuple[str, int, int]]:
    """Return name, start and stop of the runs of equal groups along a mode; none without groups, or if scattered."""
    labels = _group_labels(W, mode)
    edges = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist(), len(labels)]
    is_scattered = len(edges) - 1 > len(set(labels.tolist())) or not len(labels)
    return [] if is_scattered else [(str(labels[a]), a, b) for a, b in pairwise(edges)]


def group_name(W: BooleanCP, mode: int) -> str:
    """Return the name of the first additional coordinate of a mode that has a few groups, or nothing."""
    further = [] if W.labels is None else list(W.labels.extra)
    return next((name for n, name in groups_of(W, further) if n == mode and name not in (W.dims or ())), "")


def _group_labels(W: BooleanCP, mode: int) -> np.ndarray:
    values = further_of(W, mode, name) if (name := group_name(W, mode)) else ()
    return np.array([str(value) or NO_LABEL for value in values])


def in_order(W: BooleanCP, tested: Sequence[str] = ()) -> BooleanCP:
    """Return W with the entries of each mode sorted by group: by a tested column, else by condition."""
    if W.labels is None:
        return W
    rank = {name: n for n, name in enumerate(dict.fromkeys([*tested, CONDITION]))}
    extra = sorted(W.labels.extra.items(), key=lambda pair: rank.get(pair[0], len(rank)))
    W = replace(W, labels=replace(W.labels, extra=dict(extra)))
    for mode in range(W.ndim):
        labels = _group_labels(W, mode)
        names = [*group_names(labels[labels != NO_LABEL]), NO_LABEL]
        if len(labels):
            W = permuted(W, mode, np.argsort([names.index(label) for label in labels], kind="stable"))
    return W


def permuted(W: BooleanCP, mode: int, order: np.ndarray) -> BooleanCP:
    """Return W with the entries along a mode in another order."""
    moved: dict[str, Any] = {}
    atoms, labels = [part_of_atom(atom, mode, order) for atom in W.atoms], W.labels
    for name in BITS:
        if (bits := getattr(W.trust, name, None)) is not None:
            moved[name] = tuple(v[order] if atom.mode == mode else v for atom, v in zip(W.atoms, bits, strict=True))
    if labels is not None:
        dim = labels.dims[mode]
        coords = {**labels.coords, dim: np.asarray(labels.coords.get(dim, np.arange(W.shape[mode])))[order]}
        extra = {n: (d, np.asarray(v)[order] if d == dim else v) for n, (d, v) in labels.extra.items()}
        labels = replace(labels, coords=coords, extra=extra)
    unknown = {n: slices[order] if n == mode else slices for n, slices in (W.undetermined or {}).items()}
    trust, known = replace(W.trust, **moved) if W.trust else None, dict(W.parameters or {})
    known |= {"adjacency": part_of(known.get("adjacency"), mode, order, W.shape)}
    return replace(W, atoms=tuple(atoms), undetermined=unknown or None, trust=trust, labels=labels, parameters=known)
