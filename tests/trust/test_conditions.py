"""Do trials differ between conditions? p-values against all permutations, effects against their definitions."""

import naive
import numpy as np
import pytest
import scipy.signal
import scipy.stats

import boolcp
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels
from boolcp.trust.conditions import run_tests


def along_trials(rows, is_boolean=True, labels=None):
    """Return a decomposition with these bits, or real values, along mode 0."""
    rows = np.atleast_2d(rows)
    d = rows.shape[1]
    if is_boolean:
        atoms = [Atom(0, z, (np.array([[1.0], [0.0]]), np.ones((1, 1)))) for z in rows]
    else:
        atoms = [Atom(1, [True, False], (y[:, None] / np.linalg.norm(y), np.ones((1, 1)))) for y in rows]
    return BooleanCP((d, 2, 1), tuple(atoms), np.ones(len(rows)), labels)


def test_p_values_are_those_of_all_permutations(rng):
    y = np.array([0.1, 2.0, 0.3, 1.7, 1.1, 2.5])
    for values, is_boolean in (([1, 0, 0, 1, 1, 1], True), (y, False)):
        for groups, blocks in [("aabbbb", "000000"), ("abcabc", "000000"), ("ababab", "001122"), ("aababb", "000111")]:
            W = along_trials(values, is_boolean)
            how = {"blocks": list(blocks), "scheme": "permute", "n_permutations": 20_000}
            found = boolcp.compare_conditions(W, list(groups), **how)
            assert found.p_value[0] == pytest.approx(naive.permutation_p(values, groups, blocks))


def test_p_values_of_labels_without_meaning_are_uniform(rng):
    W = along_trials(rng.standard_normal((400, 30)), is_boolean=False)
    found = boolcp.compare_conditions(W, rng.permutation(["a"] * 12 + ["b"] * 18), n_permutations=499)
    assert scipy.stats.kstest(found.p_value, "uniform").pvalue > 0.01
    assert not found.is_significant().any()


def test_a_session_is_no_condition(rng):
    """Trials of the second session are on more often and mostly of condition b: within sessions nothing differs."""
    session = np.repeat([0, 1], 40)
    z = rng.random(80) < np.where(session == 0, 0.15, 0.85)
    condition = np.where(rng.random(80) < np.where(session == 0, 0.2, 0.8), "b", "a")
    W = along_trials(z)
    assert boolcp.compare_conditions(W, condition).p_value[0] < 0.01
    assert boolcp.compare_conditions(W, condition, blocks=session).p_value[0] > 0.05


def test_slow_covariates_need_shifts(rng):
    """Slow noise correlates by chance; permuted it is no longer slow, so that too many are significant."""
    slow = scipy.signal.lfilter([1], [1, -0.9], rng.standard_normal((61, 250)), axis=1)[:, 50:]
    W, speed = along_trials(slow[:60], is_boolean=False), slow[60]
    rates = [
        np.mean(boolcp.compare_conditions(W, speed, scheme=scheme, n_permutations=199).p_value < 0.05)
        for scheme in ("permute", "shift")
    ]
    assert rates[0] > 0.3 and rates[1] < 0.15


def test_labels_in_stretches_are_permuted_as_stretches(rng):
    """Slow states of trials follow three stretches of labels by chance; an atom can do no better than 1 / 3."""
    state = np.repeat(["awake", "asleep", "awake"], 40)
    slow = scipy.signal.lfilter([1], [1, -0.97], rng.standard_normal((60, 220)), axis=1)[:, 100:]
    z = np.vstack([slow > np.median(slow, axis=1, keepdims=True), state == "asleep"])
    found = boolcp.compare_conditions(along_trials(z), state, n_permutations=999)
    assert found.p_value.min() > 0.25 and found.p_value[60] == pytest.approx(1 / 3, abs=0.05)
    assert found.smallest_p == found.p_value[60] and "runs of equal labels" in found.scheme
    assert "The order of the labels allows no p below 0.3" in found.summary()
    freely = boolcp.compare_conditions(along_trials(z), state, scheme="permute", n_permutations=999)
    assert np.mean(freely.p_value < 0.05) > 0.3
    people = Labels(("subject", "channel", "time"))  # a table sorted by group has no order
    assert boolcp.compare_conditions(along_trials(z, labels=people), state, mode=0).p_value[60] < 0.001


def test_runs_of_labels_within_sessions_can_be_exchanged(rng):
    state, session = np.tile(np.repeat(["a", "b"], 5), 10), np.repeat(np.arange(10), 10)
    found = boolcp.compare_conditions(along_trials(state == "b"), state, blocks=session, n_permutations=1999)
    assert found.p_value[0] < 0.01 and found.scheme.endswith("within 10 blocks")


def test_drift_is_named_and_atoms_in_runs_are_shifted(rng):
    labels, drift = rng.permutation(np.repeat(["a", "b"], 30)), np.arange(60) > 22
    found = boolcp.compare_conditions(along_trials([drift, labels == "a"]), labels)
    assert found.is_drift.tolist() == [True, False] and "one long run: 0." in found.summary()
    assert found.scheme == "permutations (shifts for atoms in runs: 0)" and found.p_value[1] < 0.001
    assert found.p_value[0] * 60 > 0.9  # no more than 60 shifts


def test_effects_are_what_they_are_called(rng):
    y = rng.standard_normal(20)
    x = y + rng.standard_normal(20)
    real = boolcp.compare_conditions(along_trials(y, is_boolean=False), x)
    assert real.effect[0] == pytest.approx(scipy.stats.spearmanr(y, x).statistic)
    assert real.p_value[0] == pytest.approx(scipy.stats.spearmanr(y, x).pvalue, abs=0.02)
    assert real.conditions == () and np.isnan(real.auc[0]) and "rank correlation" in real.summary()
    z, groups = np.array([1, 1, 0, 1, 0, 0, 0, 1], dtype=bool), np.array(list("aaaabbbb"))
    bits = boolcp.compare_conditions(along_trials(z), groups)
    assert bits.mean.tolist() == [[0.75, 0.25]] and bits.effect[0] == -0.5
    pairs = [(float(q > p) + 0.5 * (q == p)) for p in z[:4].astype(int) for q in z[4:].astype(int)]
    assert bits.auc[0] == np.mean(pairs)
    three = boolcp.compare_conditions(along_trials(z), list("aabbbccc"))
    assert three.effect[0] == pytest.approx(1 - 1 / 3) and three.counts.tolist() == [2, 3, 3]


def test_more_atoms_make_discoveries_harder(rng):
    z = rng.permutation(np.arange(24) < 12)
    W = along_trials(np.vstack([z, rng.random((19, 24)) < 0.5]))
    found = boolcp.compare_conditions(W, np.where(z, "on", "off"))
    np.testing.assert_allclose(found.p_adjusted, scipy.stats.false_discovery_control(found.p_value))
    assert found.is_significant().tolist() == [True] + [False] * 19
    assert repr(found).startswith("ConditionTest(1 of 20 atoms differ between o")
    assert abs(found.effect[0]) == 1 and len(found.summary().splitlines()) == 22


def test_columns_are_tested_together():
    z = np.random.default_rng(0).permutation(np.arange(40) < 16)
    extra = {"drug": ("trial", z), "side": ("trial", np.arange(40) % 2)}
    W = along_trials([z, np.arange(40) % 3 < 1], labels=Labels(("trial", "channel", "time"), extra=extra))
    tests = run_tests(W, ["drug", "side"])
    assert [test.is_significant().tolist() for test in tests.values()] == [[True, False], [False, False]]
    p = [*tests["drug"].p_value, *tests["side"].p_value]
    found = [*tests["drug"].p_adjusted, *tests["side"].p_adjusted]
    np.testing.assert_allclose(found, scipy.stats.false_discovery_control(p))


def test_coordinates_may_be_named_and_missing_labels_are_left_out():
    z = np.array([1, 1, 1, 0, 0, 0, 1, 0], dtype=bool)
    extra = {
        "condition": ("trial", np.array(["a", "a", "a", "b", "b", "b", "", ""])),
        "speed": ("trial", np.array([1.0, 2, 3, 4, 5, 6, np.nan, np.nan])),
        "place": ("channel", np.array(["left", "right"])),
    }
    W = along_trials(z, labels=Labels(("trial", "channel", "time"), extra=extra))
    found = boolcp.compare_conditions(W)
    assert found.counts.tolist() == [3, 3] and found.effect[0] == -1 and found.mode_name == "trial"
    plain = boolcp.compare_conditions(along_trials(z[:6]), list("aaabbb"))
    assert found.p_value[0] == plain.p_value[0]
    expected = scipy.stats.spearmanr(z[:6], range(6)).statistic
    assert boolcp.compare_conditions(W, "speed").effect[0] == pytest.approx(expected)
    with pytest.raises(ValueError, match="names the coordinate 'color'"):
        boolcp.compare_conditions(W, "color")
    with pytest.raises(ValueError, match="runs along a different mode"):
        boolcp.compare_conditions(W, blocks="place")


def test_undetermined_trials_are_left_out():
    z = np.array([1, 1, 0, 0, 0, 0], dtype=bool)
    W = along_trials(z)
    known = boolcp.BooleanCP(W.shape, W.atoms, W.weights, undetermined={0: np.arange(6) >= 4})
    assert boolcp.compare_conditions(known, list("aabbab")).mean.tolist() == [[1.0, 0.0]]


def test_bad_labels_are_named():
    W = along_trials(np.arange(6) < 3)
    for labels, options, message in [
        (list("aaaaaa"), {}, "only one value"),
        ([1, 2, 3, 4, 5, 6], {}, "numeric=True"),
        (list("aab"), {}, "pass one label for each entry"),
        (list("aaabbb"), {"blocks": [0, 0, 0, 1, 1, 1]}, "do not differ within"),
        (list("aaabbb"), {"scheme": "guess"}, "scheme must be one of"),
        (list("aaabbb"), {"mode": 1}, "has 2 entries"),
    ]:
        with pytest.raises(ValueError, match=message):
            boolcp.compare_conditions(W, labels, **options)
    assert boolcp.compare_conditions(W, [1, 2, 3, 4, 5, 6], numeric=True).effect[0] < -0.8


def test_codes_stay_conditions_when_one_is_missing(rng):
    W, codes = along_trials(rng.random((2, 9)) < 0.5), [1, 2, 3] * 3
    assert boolcp.compare_conditions(W, [*codes[:8], np.nan]).conditions == ("1", "2", "3")
    assert boolcp.compare_conditions(W, [*codes[:7], 0.5, np.nan]).conditions == ()
    days = np.array(["2020-01-01", "2020-01-02", "NaT"] * 3, dtype="datetime64[D]")
    assert boolcp.compare_conditions(W, days).conditions == ("2020-01-01", "2020-01-02")


@pytest.mark.parametrize("is_within", [True, False])
def test_a_test_takes_the_subject_as_its_unit(is_within, rng):
    subject = np.repeat(np.arange(12), 20)
    group = rng.integers(2, size=240) if is_within else subject % 2
    own = rng.random(12)[subject]  # how often the second atom is on differs between subjects alone
    Z = np.stack([rng.random(240) < 0.2 + 0.6 * group, rng.random(240) < own])
    W = along_trials(Z)
    test = boolcp.compare_conditions(W, group, mode=0, unit=subject)
    assert test.counts.tolist() == ([12, 12] if is_within else [6, 6]) and test.p_value[0] < 0.01 < test.p_value[1]
    assert "of means " + ("within" if is_within else "between") + " 12 units" in test.summary()
    with pytest.raises(ValueError, match="takes the place"):
        boolcp.compare_conditions(W, group, mode=0, unit=subject, blocks=subject)
    with pytest.raises(ValueError, match="varies within"):
        boolcp.compare_conditions(W, rng.random(240), mode=0, unit=subject)
