"""One verdict for each atom, and honest words about all of them."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from samples import as_tested, random_atom, tensor

import boolcp
from boolcp import checks
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels
from boolcp.result.tables import from_xarray
from boolcp.trust.verdict import closing_words, is_noise

SHAPE = (10, 5, 4)


def atom_with(bits, rng, mode=0):
    z = np.zeros(SHAPE[mode], dtype=bool)
    z[list(bits)] = True
    return replace(random_atom(SHAPE, mode, "rank one", rng), z=z)


def test_what_speaks_against_an_atom_is_named(rng):
    baseline, once = atom_with(range(9), rng), atom_with([4], rng)
    first = atom_with([0, 1, 2, 3, 4], rng)
    twin = replace(first, z=np.arange(10) < 5)
    nearly = replace(first, z=np.arange(10) < 6)
    same_bits = Atom(0, first.z, atom_with([0], rng).factors)
    W = BooleanCP(SHAPE, (baseline, once, first), [1.0, 1.0, 1.0])
    assert boolcp.degeneracy(W).reasons == ("on in 9 of 10: a baseline", "on in only one of 10", "")
    pair = BooleanCP(SHAPE, (first, nearly), [1.0, 2.0])
    assert boolcp.degeneracy(pair).reasons == ("nearly the same as atom 1", "nearly the same as atom 0")
    against = BooleanCP(SHAPE, (first, twin), [1.0, -0.9])
    assert boolcp.degeneracy(against).reasons == ("largely canceled by atom 1", "largely canceled by atom 0")
    bits = boolcp.degeneracy(BooleanCP(SHAPE, (first, same_bits), [1.0, 1.0]))
    assert bits.reasons == ("same bits as atom 1", "same bits as atom 0")
    assert "Atom 1: same bits" in str(bits) and "No atom" in str(boolcp.degeneracy(W[[2]]))


def test_a_constant_split_in_two_is_named(rng):
    """z and its complement with the same real part are a pattern that is always on, whatever the signs say of it."""
    on = atom_with([0, 1, 2, 3], rng)
    off = replace(on, z=~on.z)
    text = "a constant split in two with atom "
    assert boolcp.degeneracy(BooleanCP(SHAPE, (on, off), [2.0, 1.5])).reasons == (f"{text}1", f"{text}0")
    minus = Atom(0, off.z, (-on.factors[0], on.factors[1]))
    assert boolcp.degeneracy(BooleanCP(SHAPE, (on, minus), [2.0, -1.5])).reasons == (f"{text}1", f"{text}0")
    for other in (Atom(0, off.z, atom_with([0], rng).factors), minus):  # other patterns, or a difference of two groups
        assert boolcp.degeneracy(BooleanCP(SHAPE, (on, other), [2.0, 1.5])).reasons == ("", "")
    X = np.multiply.outer(np.ones(10), on.dense_block()) + 0.01 * rng.standard_normal(SHAPE)
    assert "constant split" not in str(boolcp.degeneracy(boolcp.decompose(X, 1, random_state=0)))


def test_atoms_are_nearly_the_same_by_bits_and_real_parts(rng):
    """What is said of pairs is what the overlap of bits times the cosine of real parts says of all of them."""
    n_alike = 0
    for seed in range(10):
        W = boolcp.datasets.make_boolean_cp((6, 7, 8), [3, 0, 0], p=0.8, random_state=seed).truth
        first = W.atoms[0]
        atoms = *W.atoms, replace(first, z=np.roll(first.z, 1)), W.atoms[seed % 3]
        reasons = boolcp.degeneracy(BooleanCP(W.shape, atoms, np.ones(len(atoms)))).reasons
        for k, l in combinations(range(len(atoms)), 2):
            a, b = atoms[k], atoms[l]
            overlap = np.sum(a.z & b.z) / max(np.sum(a.z | b.z), 1)
            if overlap * np.vdot(a.dense_block(), b.dense_block()) >= 0.8:
                n_alike += 1
                assert f"nearly the same as atom {l}" in reasons[k]
    assert n_alike >= 10


def test_the_score_is_what_the_other_atoms_can_replace(rng):
    atoms = tuple(atom_with(rng.choice(10, 4, replace=False), rng) for _ in range(4))
    W = BooleanCP(SHAPE, atoms, rng.standard_normal(4))
    columns = np.stack([W[[k]].to_tensor().ravel() for k in range(4)], axis=1)
    for k, score in enumerate(boolcp.degeneracy(W).score):
        others = np.delete(columns, k, axis=1)
        rest = columns[:, k] - others @ np.linalg.lstsq(others, columns[:, k], rcond=None)[0]
        assert score == pytest.approx(1 - np.sum(rest**2) / np.sum(columns[:, k] ** 2))


def test_a_fit_warns_of_atoms_that_should_not_be_interpreted_alone(rng):
    block = np.multiply.outer(np.arange(10) < 4, rng.standard_normal((5, 4)))
    options = {"boolean_modes": [0], "random_state": 0}
    with pytest.warns(boolcp.DegenerateAtomsWarning, match=r"atom 0 \(same bits as atom 1\)"):
        boolcp.decompose(block, 2, **options)


@pytest.mark.filterwarnings("error::boolcp.BoolcpWarning")
def test_a_baseline_is_named_but_is_nothing_to_warn_of():
    W = boolcp.decompose(np.ones((5, 6, 7)), 1, random_state=0)
    assert W.atoms[0].is_baseline and "a baseline" in str(boolcp.degeneracy(W)) and "Baselines, on" in W.summary()
    twice = BooleanCP(W.shape, W.atoms * 2, [1.0, 1.0])
    assert boolcp.degeneracy(twice).faults == ("nearly the same as atom 1", "nearly the same as atom 0")


def test_an_atom_that_several_others_cancel_together_is_named(rng):
    """Three atoms have a cosine of -0.4 with it, and are orthogonal to each other."""
    columns, z, time = np.linalg.qr(rng.standard_normal((5, 5)))[0].T, np.arange(10) < 5, np.ones((4, 1)) / 2
    simplex = np.linalg.cholesky(np.full((3, 3), -0.16 / 0.84) + (1 + 0.16 / 0.84) * np.eye(3))
    others = [-0.4 * columns[0] + np.sqrt(1 - 0.4**2) * (V @ columns[1:4]) for V in simplex]
    W = BooleanCP(SHAPE, [Atom(0, z, (column[:, None], time)) for column in (columns[0], *others)], np.ones(4))
    G = W.inner_products() / 5
    assert G[0, 1:] == pytest.approx(-0.4) and G[1, 2] == pytest.approx(0, abs=1e-12)
    found, text = boolcp.degeneracy(W), "largely canceled by the other atoms together"
    assert [text in reason for reason in found.reasons] == [True, False, False, False]
    assert text in W.summary() and not boolcp.verdicts(as_tested(W))[0].passes
    with pytest.warns(boolcp.DegenerateAtomsWarning, match=rf"atom 0 \(.*{text}; degeneracy 0\.48\)"):
        checks.warn_degenerate(found.faults, found.score)
    small = replace(W, weights=np.array([10.0, 1.0, 1.0, 1.0]))  # others that are small take little away
    assert text not in str(boolcp.degeneracy(small))


@pytest.mark.parametrize("seed", range(5))
def test_no_atoms_of_simulated_data_are_canceled(seed):
    for shape, n_atoms in (((8, 9, 10), 4), ((20, 25, 30), 6)):
        data = boolcp.datasets.make_boolean_cp(shape, n_atoms, noise=0.5, random_state=seed)
        for W in (data.truth, boolcp.decompose(data.X, n_atoms, certify=False, random_state=0)):
            assert "together" not in str(boolcp.degeneracy(W))
    truth = boolcp.datasets.load_syn(seed % 3, random_state=seed).truth
    assert "No atom" in str(boolcp.degeneracy(truth))


def test_a_warning_names_pairs_with_their_scores_and_at_most_five_atoms(rng):
    first = atom_with([0, 1, 2, 3, 4], rng)
    for second, sign, text in ((6, 1.0, "nearly the same as"), (5, -0.9, "largely canceled by")):
        found = boolcp.degeneracy(BooleanCP(SHAPE, (first, replace(first, z=np.arange(10) < second)), [1.0, sign]))
        with pytest.warns(boolcp.DegenerateAtomsWarning, match=rf"atom 0 \({text} atom 1; degeneracy (0\.83|1\.00)\)"):
            checks.warn_degenerate(found.reasons, found.score)
    with pytest.warns(boolcp.DegenerateAtomsWarning, match=r"atom 5 \(x\) and 2 more\."):
        checks.warn_degenerate(["", *"xxxxxxx"], np.zeros(8))


@pytest.mark.filterwarnings("error::boolcp.BoolcpWarning")
@pytest.mark.parametrize("seed", range(3))
def test_a_good_fit_warns_of_nothing_nor_do_tests_of_parts_of_the_data(seed):
    X = boolcp.datasets.make_boolean_cp((12, 13, 14), 3, noise=0.5, random_state=seed).X
    W = boolcp.decompose(X, 3, random_state=0)
    boolcp.assess(X, W, n_parts=2, random_state=0)
    assert "a baseline" in str(boolcp.degeneracy(boolcp.decompose(X + 5, 4, random_state=0)))


def test_verdicts_say_what_is_known(rng):
    atoms = (atom_with([0, 1, 2], rng), atom_with([4, 5, 6], rng), atom_with(range(10), rng), atom_with([7, 8], rng))
    W = BooleanCP(SHAPE, atoms, np.ones(4))
    assert [verdict.text for verdict in boolcp.verdicts(W)] == ["", "", "on in 10 of 10: a baseline", ""]
    known = as_tested(W, [1.0, 0.1, 1.0, 0.7], [0.002, 0.5, 0.0, 0.2])
    on = replace(known.trust, on_off=np.array([50.0, 50.0, 50.0, np.nan]))
    longer = tuple(replace(atom, z=np.tile(atom.z, 2)) for atom in atoms)
    known = replace(known, atoms=longer, shape=(20, 5, 4), trust=on)
    assert [verdict.text for verdict in boolcp.verdicts(known)] == [
        "comes back in 100 % of the parts, on/off (d' 5.0)",
        "not replicated: comes back in 10 % of the parts",
        "comes back in 100 % of the parts; on in 20 of 20: a baseline",
        "comes back in 70 % of the parts; not more than noise (p = 0.2)",
    ]
    assert is_noise(known).tolist() == [False, True, False, True]
    first, second, third, fourth = boolcp.verdicts(known)
    assert first == (True, True, True, True, first.text) and second[:4] == (False, None, False, False)
    assert not third.passes and fourth[:4] == (True, None, False, False)
    assert [verdict.replicates for verdict in boolcp.verdicts(W)] == [None] * 4
    drifting = replace(known, trust=replace(known.trust, has_runs=np.ones(4, dtype=bool)))
    first = boolcp.verdicts(drifting)[0]
    assert first.text.endswith("; comes in runs along mode 0 (a slow state or drift)") and not first.passes
    few = boolcp.verdicts(as_tested(W))[3]
    assert not few.is_on_off and "not shown to be on/off" in few.text, "a group of two is a handful of outliers"


def test_words_fit_the_modes_that_they_are_said_of():
    X = tensor((12, 9, 20), 1, boolean_modes=[0])
    W = replace(boolcp.decompose(X, 1, random_state=0), labels=Labels(("channel", "time", "trial")))
    W = boolcp.assess(X, W, n_parts=2, random_state=0)  # fits to parts of the trials, of an atom along channels
    text = W.summary()
    assert "share of 2 fits to three quarters of the trials in which" in text and "No atom passes" not in text
    assert "on/off is tested along trial alone: boolean_modes=['trial'] asks for atoms there." in text
    runs = replace(W, trust=replace(as_tested(W).trust, has_runs=np.ones(1, dtype=bool)))
    assert boolcp.verdicts(runs)[0].text.endswith("comes in runs along channel (not independent)")


def test_nothing_is_said_about_the_uniqueness_of_noise(rng):
    X = rng.standard_normal((14, 15, 16))
    W = boolcp.decompose(X, 3, n_init=2, random_state=0)
    assert is_noise(W).all()
    text = W.summary()
    assert "Unique" not in text and text.count("no larger than noise") == 3
    assert "boolcp.assess" in text and "sure bits" in text.splitlines()[1]
    strong = as_tested(boolcp.datasets.make_boolean_cp((14, 15, 16), 3, p=0.5, random_state=0).truth)
    assert closing_words(strong)[-1] == "Unique: no other 3 atoms give the same sum."
    assert "Unique" not in as_tested(strong, [1, 1, 0]).summary()


def test_assess_fills_in_what_is_known():
    X = tensor((12, 13, 40), n_atoms=2, noise=0.5, boolean_modes=[2])
    W = boolcp.decompose(X, 2, boolean_modes=[2], random_state=0)
    assert W.trust.p_value is W.replication is W.on_off is replace(W, trust=None).on_off is None
    full = boolcp.assess(X, replace(W, trust=None), n_parts=4, random_state=0)
    assert full.replication.tolist() == [1.0, 1.0] and full.trust.same_bits.min() > 0.99
    assert full.trust.parts == "4 fits to three quarters of mode 2"
    table, found = full.to_dataframe(), full.on_off
    assert {"sure_bits", "replication", "on_off", "degeneracy", "verdict"} <= set(table.columns)
    np.testing.assert_array_equal(table[["mean_off", "mean_on", "d_prime"]].T, [found.low, found.high, found.d_prime])
    np.testing.assert_allclose([found.low, found.high], [[0, 0], [1, 1]], atol=0.3)
    assert found.evidence.min() > 10 and f"(d' {found.d_prime[0]:.1f})" in table["verdict"][0]

    text = full.summary()
    assert "replication" in text and "three quarters of mode 2" in text and "boolcp.assess" not in text
    assert "comes back in 100 % of the parts, on/off" in full._repr_html_()
    again = boolcp.assess(X, full, n_parts=4, random_state=0)
    np.testing.assert_array_equal(again.trust.on_off, full.trust.on_off)


def test_what_was_not_tested_is_unknown_and_a_file_with_impossible_parts_is_refused():
    X = boolcp.datasets.make_boolean_cp((9, 8, 50), 2, boolean_modes=[2], noise=0.5, random_state=0).X
    W = boolcp.assess(X, boolcp.decompose(X, 2, boolean_modes=[0], random_state=0), random_state=0, n_parts=4)
    assert np.isnan([W.on_off.evidence, W.on_off.d_prime, W.on_off.low]).all()
    stored = W.to_xarray()
    header = json.loads(stored.attrs["header"])
    header["trust"]["split_mode"] = 99
    with pytest.raises(ValueError, match="split_mode"):
        from_xarray(stored.assign_attrs(header=json.dumps(header)))
    model = boolcp.BMP(2, boolean_modes=[2], random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"`transform` takes data that are new along mode 2 as mode=2"):
        model.score(X[..., :20])


def test_the_fits_that_test_atoms_have_atoms_of_the_same_rank():
    X = tensor((12, 13, 14), n_atoms=1, noise=0.5)
    W = boolcp.decompose(X, 1, atom_rank="block", boolean_modes=[0], random_state=0)
    seen = boolcp.assess(X, W, n_parts=2, random_state=0)
    given = boolcp.assess(X, replace(W, parameters=None), boolean_modes=[0], n_parts=2, random_state=0)
    assert seen.trust.replication.tolist() == [1.0]
    np.testing.assert_array_equal(given.trust.amplitude[0], seen.trust.amplitude[0])


def test_baselines_are_listed_apart(rng):
    W = BooleanCP(SHAPE, (atom_with(range(10), rng), atom_with([1, 2, 5], rng)), [3.0, 2.0])
    title, head, *lines = W.summary().splitlines()
    assert title.startswith("1 atom and 1 baseline of a ") and head.split()[0] == "atom"
    assert [line.split()[0] for line in lines[:3]] == ["1", "Baselines,", "0"]
    html = W._repr_html_()
    assert html.index("3/10") < html.index("Baselines, on (almost) everywhere:") < html.index("10/10")
    assert W[:1].summary().startswith("1 baseline of a ") and "Baselines" not in W[1:].summary()
