"""Do the trials of an atom differ between conditions, or follow a covariate? Permutation tests with effect sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import permutations, product
from math import factorial, prod
from typing import Any

import numpy as np
import scipy.stats

from boolcp import checks
from boolcp.plotting.mode_labels import group_names, is_unordered, mode_text
from boolcp.plotting.patterns import leading_column
from boolcp.result.atoms import BooleanCP
from boolcp.trust.repeated_fits import table_text
from boolcp.trust.replication import correlated

CHUNK = 2**22  # numbers of a temporary array
LEAST = 0.001  # smallest p-value of a design that is worth a word
WORDS = {"permute": "permutations", "runs": "permutations of runs of equal labels", "shift": "shifts"}
FEW_CHANGES = 1.64  # standard deviations; runs of labels that are not clustered cost hardly any power
TIES = 1e-9  # statistics that differ by less, relative to the largest possible one, are equal


@dataclass(frozen=True, eq=False)
class ConditionTest:
    """For each atom, a test whether it differs between conditions along one mode, or follows a covariate.

    Attributes
    ----------
    mode : int
        The mode along which the labels run.
    conditions : tuple of str
        The conditions in the order of their first entry, numbers by size; empty for a numeric covariate.
    counts : ndarray of shape (C,)
        Entries of each condition.
    mean : ndarray of shape (K, C)
        Under each condition the share of ones of a Boolean atom, or the mean of the factor of a real one, scaled to a
        largest entry of one.
    effect : ndarray of shape (K,)
        Difference between the highest and the lowest of these (second minus first for two conditions); for a covariate
        the rank correlation.
    auc : ndarray of shape (K,)
        Probability that an entry of the highest condition is above one of the lowest (second above first for two
        conditions), ties counting half; NaN for a covariate.
    p_value, p_adjusted : ndarray of shape (K,)
        Of the permutation test, and with the false discovery rate controlled over the atoms.
    is_boolean : ndarray of bool, shape (K,)
        Whether the atom is Boolean along the mode.
    n_permutations : int
        Number of random permutations, or of all if there are fewer.
    scheme : str
        How labels were permuted, in words.
    smallest_p : float
        The p-value of an atom that is exactly the labels: the design allows no smaller one.
    is_drift : ndarray of bool, shape (K,)
        Whether the bits of the atom are one long run, as slow drift gives, so that any slow label fits them.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((40, 7, 8), 2, random_state=0).truth
    >>> state = ["rest" if on else "task" for on in truth.atoms[0].z]  # as if trials of atom 0 were those of rest
    >>> test = boolcp.compare_conditions(truth, state)
    >>> test, test.is_significant().tolist()
    (ConditionTest(1 of 2 atoms differ between task, rest), [True, False])
    """

    mode: int
    conditions: tuple[str, ...]
    counts: np.ndarray
    mean: np.ndarray
    effect: np.ndarray
    auc: np.ndarray
    p_value: np.ndarray
    p_adjusted: np.ndarray
    is_boolean: np.ndarray
    n_permutations: int
    scheme: str
    smallest_p: float
    is_drift: np.ndarray
    mode_name: str

    def is_significant(self, alpha: float = 0.05) -> np.ndarray:
        """Return which atoms differ at a false discovery rate of `alpha`, (K,)."""
        return self.p_adjusted <= alpha

    def summary(self) -> str:
        """Return a table as text: mean under each condition, effect, AUC and p-values of each atom.

        Examples
        --------
        >>> truth = boolcp.datasets.make_boolean_cp((40, 7, 8), 2, random_state=0).truth
        >>> print(boolcp.compare_conditions(truth, truth.atoms[0].z, mode=0).summary())
        along mode 0: False (24), True (16); 9999 permutations
        atom    is  False  True  effect   AUC       p  p adjusted
           0  bits   0.00  1.00   +1.00  1.00  0.0001      0.0002
           1  real  -0.19  0.10   +0.29  0.68   0.052       0.052
        """
        sizes = ["effect", "AUC"] if self.conditions else ["rank correlation"]
        rows = [["atom", "is", *self.conditions, *sizes, "p", "p adjusted"]]
        for k, p in enumerate(self.p_value):
            numbers = [f"{value:z.2f}" for value in self.mean[k]]  # no -0.00
            auc = [f"{self.auc[k]:.2f}"] if self.conditions else []
            effect, kind = f"{self.effect[k]:+z.2f}", "bits" if self.is_boolean[k] else "real"
            rows.append([str(k), kind, *numbers, effect, *auc, f"{p:.2g}", f"{self.p_adjusted[k]:.2g}"])
        groups = ", ".join(f"{name} ({n})" for name, n in zip(self.conditions, self.counts, strict=True))
        title = f"along {self.mode_name}: {groups or 'a numeric covariate'}; {self.n_permutations} {self.scheme}"
        return "\n".join([table_text(title, rows), *self.caveats])

    @property
    def caveats(self) -> list[str]:
        """Return what limits the test: the smallest p-value that its design allows, and drift."""
        said, drifting = [], [str(k) for k in np.flatnonzero(self.is_drift)]
        if self.smallest_p > LEAST:
            said.append(f"The order of the labels allows no p below {self.smallest_p:.2g}.")
        if drifting:
            said.append(f"Atoms whose bits are one long run: {', '.join(drifting)}. That may be slow drift.")
        return said

    def __repr__(self) -> str:
        n, total = int(self.is_significant().sum()), len(self.p_value)
        what = f"differ between {', '.join(self.conditions)}" if self.conditions else "follow the covariate"
        return f"ConditionTest({n} of {total} atoms {what})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def compare_conditions(
    W: BooleanCP,
    labels: Any = "condition",
    *,
    mode: int | str | None = None,
    blocks: Any = None,
    unit: Any = None,
    numeric: bool | None = None,
    scheme: str | None = None,
    n_permutations: int = 9999,
    random_state: Any = 0,
) -> ConditionTest:
    """Return for each atom whether it differs between conditions, or follows a covariate, as a ConditionTest.

    The bits of an atom along the mode of the labels, or its real values there, are compared between the conditions by
    the ranks of a Kruskal-Wallis test, or with a numeric covariate by rank correlation. The p-value is the share of
    permutations of the labels that give at least the observed statistic.

    Parameters
    ----------
    W : BooleanCP
        The decomposition. Its fit must not have seen the labels.
    labels : str or sequence
        The name of a coordinate along the mode, or one label for each entry: names of conditions, or numbers. Entries
        whose label is missing (None, NaN, "") are ignored.
    mode : int or str, optional
        The mode, by index or name: trials, say. By default it is found from the name, or the number, of the labels.
    blocks : str or sequence, optional
        Groups of entries (sessions, subjects, runs) within which labels are permuted and values compared.
    unit : str or sequence, optional
        The subject (or session) of each entry: its means under each condition are what is compared, so that results
        hold for other subjects. They are permuted between subjects of one condition each, else within subjects.
    numeric : bool, optional
        Whether labels are numbers to correlate with. By default fractional numbers are, and all others are conditions.
    scheme : {"permute", "runs", "shift"}, optional
        Permute the entries, as if they were independent; permute whole runs of equal labels; or shift all entries along
        the mode by a random amount, which preserves the correlation of neighbors, too. By default runs where labels
        come in runs (stretches of one condition), shifts where a covariate is slow or the bits of an atom come in runs,
        and else permutations, also along modes without an order, such as channels and subjects.
    n_permutations : int
        Number of random permutations. If there are no more than these, all are taken and p is exact.
    random_state : int, Generator or None
        Seed.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((40, 7, 8), 2, random_state=0).truth
    >>> boolcp.compare_conditions(truth, truth.atoms[0].z, mode=0).p_value.round(4).tolist()
    [0.0001, 0.0516]
    """
    checks.check_choice(scheme or "permute", "scheme", tuple(WORDS))
    checks.check_integer(n_permutations, "n_permutations", 1)
    at = find_mode(W, labels, mode)
    given = read_along(W, at, labels, "labels")
    groups = np.zeros(len(given), dtype=int)
    if blocks is not None:
        groups = np.unique(read_along(W, at, blocks, "blocks").astype(str), return_inverse=True)[1]
    is_missing = [label is None or label != label or label in ("", b"") for label in given.tolist()]
    known = ~(np.array(is_missing, dtype=bool) | (W.undetermined or {}).get(at, False))
    given, groups = given[known], groups[known]
    if any(is_missing) and given.dtype.kind == "f" and 2 * len(np.unique(given)) <= len(given):
        is_code = (given == np.round(given)).all()  # a missing code has made all of them real numbers
        given = given.astype(int) if is_code else given
    Y = np.array([leading_column(W, k, at) for k in range(W.n_atoms)]).reshape(-1, len(known))[:, known]
    is_numeric = given.dtype.kind == "f" if numeric is None else numeric
    if unit is not None:
        if blocks is not None or scheme not in (None, "permute"):
            raise ValueError("unit takes the place of blocks, and its means are permuted: leave out blocks and scheme.")
        Y, given, groups, n_units = unit_means(Y, given, read_along(W, at, unit, "unit")[known], is_numeric)
        scheme, blocks = "permute", True if groups.any() else None
    names = () if is_numeric else tuple(group_names(given))
    if is_numeric:
        design = scipy.stats.rankdata(given.astype(float))[:, None]
    else:
        design = np.array([[str(label) == name for name in names] for label in given], dtype=float)
    if names and len(names) == len(design) and len(names) > 2:
        raise ValueError(f"All {len(names)} labels are different: pass numeric=True if they are numbers.")
    if len(design) < 2 or np.ptp(design, axis=0).max(initial=0) == 0:
        raise ValueError("labels has only one value: there is nothing to compare.")
    if blocks is not None and not center(design.T, groups).any():
        raise ValueError("labels do not differ within any of the blocks, so they cannot be permuted within them.")
    chosen = scheme or ("permute" if is_unordered(W, at) else scheme_for(design))
    codes = design @ np.arange(1.0, 1 + design.shape[1])  # of an atom that is the labels
    rng = checks.make_generator(random_state)
    *p, smallest = permutation_p(np.vstack([Y, codes]), design, groups, chosen, n_permutations, rng)
    p_value, how = np.array(p), WORDS[chosen]
    slow = np.array([correlated(y) for y in Y], dtype=bool)
    if scheme is None and chosen == "permute" and slow.any() and not is_unordered(W, at):
        p_value[slow] = permutation_p(Y[slow], design, groups, "shift", n_permutations, rng)
        how += f" (shifts for atoms in runs: {', '.join(map(str, np.flatnonzero(slow)))})"
    if unit is not None:
        name = unit if isinstance(unit, str) else "unit"
        how += f" of means {'between' if blocks is None else 'within'} {n_units} {name}s"
    elif blocks is not None:
        how += f" within {groups.max() + 1} blocks"
    sizes = (design.sum(axis=0).astype(int)[: len(names)], *describe(Y, design, groups, names))
    adjusted = scipy.stats.false_discovery_control(p_value) if len(p) else p_value
    is_bits, n_edges = W.boolean_mode == at, np.count_nonzero(np.diff(Y, axis=1), axis=1)
    drift = is_bits & slow & (n_edges <= 2) & (unit is None)
    n_taken = min(n_permutations, n_orders(groups)) if chosen == "permute" else n_permutations
    rest: tuple[Any, ...] = (n_taken, how, float(smallest), drift, mode_text(W, at))
    return ConditionTest(at, names, *sizes, p_value, adjusted, is_bits, *rest)


def unit_means(
    Y: np.ndarray, given: np.ndarray, units: np.ndarray, is_numeric: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the means of rows (K, d) over entries of each unit and label, their labels, blocks, and number of units.

    Blocks are the units if any has several labels, else all units are one.
    """
    own = np.unique(units.astype(str), return_inverse=True)[1]
    pairs = sorted(dict.fromkeys(zip(own.tolist(), given.tolist(), strict=True)), key=lambda pair: pair[0])
    n_units = int(own.max(initial=-1)) + 1
    if is_numeric and len(pairs) > n_units:
        raise ValueError("The covariate varies within units: pass blocks= instead of unit=.")
    means = np.stack([Y[:, (own == one) & (given == label)].mean(axis=1) for one, label in pairs], axis=1)
    groups = np.array([one for one, _ in pairs]) * (len(pairs) > n_units)
    return means, np.array([label for _, label in pairs], dtype=given.dtype), groups, n_units


def scheme_for(design: np.ndarray) -> str:
    """Return how labels are permuted that come in runs, or not: a test of the number of changes between neighbors."""
    d = len(design)
    if design.shape[1] == 1:
        return "shift" if correlated(design[:, 0]) else "permute"
    counts = design.sum(axis=0)
    change = 1 - float(counts @ (counts - 1)) / (d * (d - 1))  # probability in a random order
    missing = (d - 1) * change - int(np.any(np.diff(design, axis=0), axis=1).sum())
    return "runs" if missing > FEW_CHANGES * np.sqrt((d - 1) * change * (1 - change)) else "permute"


def run_tests(
    W: BooleanCP, columns: Sequence[str], blocks: str | None = None, unit: str | None = None
) -> dict[str, ConditionTest]:
    """Return a ConditionTest for each column, with false discoveries controlled over all atoms and columns."""
    tests = {name: compare_conditions(W, name, blocks=blocks, unit=unit) for name in columns}
    if not tests or not W.n_atoms:
        return tests
    adjusted = scipy.stats.false_discovery_control([test.p_value for test in tests.values()], axis=None)
    parts = adjusted.reshape(len(tests), -1)
    return {name: replace(test, p_adjusted=p) for (name, test), p in zip(tests.items(), parts, strict=True)}


def find_mode(W: BooleanCP, labels: Any, mode: int | str | None) -> int:
    """Return the index of the mode that labels belong to: the given one, or by their coordinate or their number."""
    if mode is not None:
        return checks.check_mode(mode, W.ndim, W.dims)
    if isinstance(labels, str):
        known = {} if W.labels is None else W.labels.extra
        if W.labels is not None and labels in known:
            return W.labels.dims.index(known[labels][0])
        text = f"labels names the coordinate {labels!r}, but the decomposition has {', '.join(sorted(known)) or 'none'}"
        raise ValueError(f"{text}: pass the name of a coordinate, or one label for each entry.")
    fitting = [n for n, d in enumerate(W.shape) if d == len(labels)]
    if len(fitting) != 1:
        advice = "say which with mode=" if fitting else "pass one label for each entry of a mode"
        modes = f"{len(fitting)} modes of that size in the shape {W.shape}"
        raise ValueError(f"There are {len(labels)} labels, and {modes}: {advice}.")
    return fitting[0]


def read_along(W: BooleanCP, mode: int, labels: Any, name: str) -> np.ndarray:
    """Return one label for each entry along a mode, from the name of a coordinate or from a sequence."""
    if isinstance(labels, str):
        if find_mode(W, labels, None) != mode:
            raise ValueError(f"{name} names the coordinate {labels!r}, which runs along a different mode.")
        assert W.labels is not None
        labels = W.labels.extra[labels][1]
    found = np.asarray(labels)
    if found.shape != (W.shape[mode],):
        raise ValueError(f"{name} has shape {found.shape}, but mode {W.mode_name(mode)} has {W.shape[mode]} entries.")
    return found


def permutation_p(
    Y: np.ndarray, design: np.ndarray, groups: np.ndarray, scheme: str, n_permutations: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the p-value (K,) of each row of Y (K, d): the share of permutations that fit the design as well."""
    R = center(scipy.stats.rankdata(Y, axis=1), groups)
    Q, sizes, _ = np.linalg.svd(center(design.T, groups).T, full_matrices=False)
    basis = Q[:, sizes > 1e-9 * sizes[0]]
    observed = np.sum((R @ basis) ** 2, axis=1) - TIES * np.sum(R**2, axis=1)  # ties count
    members = [np.flatnonzero(groups == group) for group in sorted(set(groups.tolist()))]
    n_above, step = np.zeros(len(Y)), max(1, CHUNK // max(R.size, 1))
    if scheme == "permute" and n_orders(groups) <= n_permutations:
        every = [sum(order, ()) for order in product(*(permutations(places.tolist()) for places in members))]
        orders = np.array(every)[:, np.argsort(np.concatenate(members))]
        return np.array(
            [np.mean(np.sum((r[orders] @ basis) ** 2, axis=1) >= least) for r, least in zip(R, observed, strict=True)]
        )
    for start in range(0, n_permutations, step):
        n = min(step, n_permutations - start)
        orders = np.empty((n, len(groups)), dtype=int)
        for places in members:
            if scheme == "shift":
                shifts = rng.integers(len(places), size=(n, 1))
                orders[:, places] = places[(np.arange(len(places)) + shifts) % len(places)]
            else:  # runs in a random order, or single entries
                starts = np.ones(len(places), dtype=bool)
                starts[1:] = scheme == "permute" or np.any(np.diff(design[places], axis=0), axis=1)
                keys = rng.random((n, int(starts.sum())))[:, np.cumsum(starts) - 1]
                orders[:, places] = places[np.argsort(keys, axis=1, kind="stable")]
        found = np.sum((R[:, orders] @ basis) ** 2, axis=2)  # (K, permutations)
        n_above += np.sum(found >= observed[:, None], axis=1)
    return (1 + n_above) / (1 + n_permutations)


def n_orders(groups: np.ndarray) -> int:
    """Return the number of permutations within groups."""
    return prod(factorial(n) for n in np.unique(groups, return_counts=True)[1].tolist())


def center(rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the rows (K, d) minus the mean of each block."""
    rows = rows.astype(float)
    for group in set(groups.tolist()):
        rows[:, groups == group] -= rows[:, groups == group].mean(axis=1, keepdims=True)
    return rows


def describe(
    Y: np.ndarray, design: np.ndarray, groups: np.ndarray, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means under each condition (K, C), effects or rank correlations, and AUC (K,) of each row of Y (K, d)."""
    if not names:
        R, x = center(scipy.stats.rankdata(Y, axis=1), groups), center(design.T, groups)[0]
        sizes = np.linalg.norm(R, axis=1) * np.linalg.norm(x)
        return np.zeros((len(Y), 0)), R @ x / np.where(sizes > 0, sizes, 1.0), np.full(len(Y), np.nan)
    mean = Y @ design / design.sum(axis=0)
    effect, auc = np.empty(len(Y)), np.empty(len(Y))
    for k, (values, means) in enumerate(zip(Y, mean, strict=True)):
        low, high = (0, 1) if len(means) == 2 else (int(np.argmin(means)), int(np.argmax(means)))
        above, below = values[design[:, high] > 0], values[design[:, low] > 0]
        effect[k] = means[high] - means[low]
        auc[k] = scipy.stats.mannwhitneyu(above, below).statistic / (len(above) * len(below))
    return mean, effect, auc
