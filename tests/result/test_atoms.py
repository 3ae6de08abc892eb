import dataclasses
import itertools

import naive
import numpy as np
import pytest
from samples import KINDS, as_tested, check_questions, random_atom, random_decomposition

import boolcp
from boolcp.datasets import make_boolean_cp
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.result.labels import Labels
from boolcp.storage.dense import Dense

SHAPES = [(5, 6), (4, 5, 6), (3, 4, 2, 5)]


@pytest.fixture(params=itertools.product(SHAPES, KINDS), ids=lambda case: f"{len(case[0])} modes, {case[1]}")
def W(request, rng):
    return random_decomposition(*request.param, rng)


def fitted(X, atoms, dims=None):
    """Return the least-squares decomposition of X over `atoms`, with the numbers that make shares available."""
    inner = np.array([np.sum(X * naive.atom(M)) for M in atoms])
    labels = None if dims is None else Labels(dims)
    return BooleanCP(X.shape, atoms, naive.least_squares(X, atoms), labels, np.sum(X**2), inner)


def test_the_dense_tensor_is_the_sum_of_the_atoms(W):
    np.testing.assert_allclose(W.to_tensor(), naive.tensor(W), atol=1e-12)
    for k, atom in enumerate(W.atoms):
        np.testing.assert_allclose(np.linalg.norm(atom.dense_block()), 1)
        np.testing.assert_allclose(W[[k]].to_tensor(), W.weights[k] * naive.atom(atom), atol=1e-12)


def test_every_question_has_the_answer_of_the_dense_tensor(W, rng):
    X = naive.tensor(W)
    assert W.norm() == pytest.approx(np.linalg.norm(X))
    assert W.squared_norm == pytest.approx(np.sum(X**2))
    check_questions(W, X, rng)


def test_slices_that_nothing_determines_are_missing(W):
    unknown = np.arange(W.shape[1]) == 2
    tensor = dataclasses.replace(W, undetermined={1: unknown}).to_tensor()
    assert np.isnan(tensor[:, unknown]).all()
    np.testing.assert_allclose(tensor[:, ~unknown], naive.tensor(W)[:, ~unknown], atol=1e-12)


def test_inner_products_equal_those_of_dense_atoms(W, rng):
    own = np.array([naive.atom(M).ravel() for M in W.atoms])
    np.testing.assert_allclose(W.inner_products(), own @ own.T, atol=1e-12)
    for kind in KINDS:
        other = random_decomposition(W.shape, kind, rng, n_atoms=3)
        dense = np.array([naive.atom(M).ravel() for M in other.atoms])
        np.testing.assert_allclose(W.inner_products(other.atoms), own @ dense.T, atol=1e-12)
        assert W.inner(other) == pytest.approx(np.sum(naive.tensor(W) * naive.tensor(other)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, bool])
def test_inner_with_an_array_of_any_kind(W, dtype, rng):
    X = (rng.integers(0, 200, W.shape) * (rng.random(W.shape) < 0.5)).astype(dtype)  # sums of uint8 overflow
    exact = np.sum(naive.tensor(W) * X.astype(float))
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    for array in (X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.tolist()):
        assert W.inner(array) == pytest.approx(exact, abs=tolerance)


def test_inner_with_atoms_asks_a_storage_for_the_same_numbers(W, rng):
    X = rng.standard_normal(W.shape)
    exact = [np.sum(X * naive.atom(M)) for M in W.atoms]
    np.testing.assert_allclose(inner_with_atoms(X, W.atoms), exact, atol=1e-12)
    np.testing.assert_allclose(inner_with_atoms(Dense(X), W.atoms), exact, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_decomposition_without_atoms_is_zero(shape, rng):
    W = BooleanCP(shape)
    assert W.n_atoms == W.n_parameters == W.n_bits == W.norm() == 0 and W.inner(rng.standard_normal(shape)) == 0
    assert not W.to_tensor().any() and W.to_tensor().shape == shape and W.certify(np.zeros(shape)).n_atoms == 0
    assert [A.shape for A in W.factors] == [(d, 0) for d in shape]
    check_questions(W, np.zeros(shape), rng)
    assert "0 atoms" in repr(W) and "0 atoms" in W.summary()


def test_nobody_can_spoil_a_decomposition(rng):
    shape = (4, 5, 6)
    given = [rng.standard_normal((5, 1)), rng.standard_normal((6, 1))]
    z, weights, inner = np.array([True, False, True, True]), np.array([2.0]), np.array([3.0])
    W = BooleanCP(shape, [Atom(0, z, given)], weights, data_norm2=10.0, data_inner=inner)
    before = naive.tensor(W)
    with pytest.raises(dataclasses.FrozenInstanceError):
        W.weights = np.ones(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        W.atoms[0].mode = 1
    for array in (W.weights, W.data_inner, W.atoms[0].z, *W.atoms[0].factors, *W.factors):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    W.factors.clear()
    z[:], weights[:], inner[:] = False, 7.0, 7.0  # the caller's own arrays
    np.testing.assert_array_equal(W.to_tensor(), before)
    assert len(W.factors) == 3 and W.weights[0] == 2 and W.data_inner[0] == 3


def test_slices_keep_the_atoms_with_their_numbers(rng):
    X = rng.standard_normal((4, 5, 6))
    W = fitted(X, random_decomposition(X.shape, "rank two", rng).atoms, dims=("a", "b", "c"))
    wanted = [1, 3, 4]
    mask = np.isin(np.arange(W.n_atoms), wanted)
    for part in (W[wanted], W[np.array(wanted)], W[mask]):
        assert part.n_atoms == 3 and part.dims == W.dims and part.data_norm2 == W.data_norm2
        assert all(a is W.atoms[k] for a, k in zip(part.atoms, wanted, strict=True))
        np.testing.assert_array_equal(part.weights, W.weights[wanted])
        np.testing.assert_array_equal(part.data_inner, W.data_inner[wanted])
    assert W[::-1].atoms[0] is W.atoms[-1] and W[:0].n_atoms == 0
    np.testing.assert_allclose(W[:2].to_tensor() + W[2:].to_tensor(), W.to_tensor())


def test_it_unpacks_as_weights_and_factors(rng):
    W = random_decomposition((4, 5, 6), "rank one", rng)
    weights, factors = W
    assert len(W) == W.n_atoms and W[0] is W.atoms[0] and W[-1] is W.atoms[-1]
    assert len(factors) == 3 and factors[2].shape == (6, W.n_atoms)
    assert all(np.array_equal(factors[atom.mode][:, k], atom.z) for k, atom in enumerate(W.atoms))  # exactly 0 and 1
    np.testing.assert_allclose(np.einsum("k,ak,bk,ck->abc", weights, *factors), naive.tensor(W), atol=1e-12)


def test_tensorly_takes_it_for_a_cp_tensor(rng):
    cp_tensor = pytest.importorskip("tensorly.cp_tensor")
    W = random_decomposition((4, 5, 6), "rank one", rng)
    np.testing.assert_allclose(cp_tensor.cp_to_tensor(W), naive.tensor(W), atol=1e-12)
    assert cp_tensor.cp_norm(W) == pytest.approx(np.linalg.norm(naive.tensor(W)))


def test_atoms_of_rank_two_have_no_factor_matrices_but_rank_one_terms(rng):
    W = random_decomposition((4, 5, 6), "rank two", rng)
    with pytest.raises(ValueError, match="rank_one_terms"):
        _ = W.factors
    terms = W.rank_one_terms()
    assert terms.n_atoms == 2 * W.n_atoms and {atom.rank for atom in terms.atoms} == {1}
    np.testing.assert_allclose(naive.tensor(terms), naive.tensor(W), atol=1e-12)
    assert all(np.allclose(np.linalg.norm(A, axis=0), 1) for atom in terms.atoms for A in atom.factors)
    with pytest.raises(ValueError, match="integer atom_rank"):
        random_decomposition((4, 5, 6), "block", rng).rank_one_terms()


@pytest.mark.parametrize("kind", KINDS)
def test_shares_are_those_of_dense_least_squares(kind, rng):
    X = rng.standard_normal((4, 5, 6))
    W = fitted(X, random_decomposition(X.shape, kind, rng).atoms)

    def explained(atoms):
        dense = BooleanCP(X.shape, atoms, naive.least_squares(X, atoms))
        return 1 - np.sum((X - naive.tensor(dense)) ** 2) / np.sum(X**2)

    assert W.explained() == pytest.approx(explained(W.atoms))
    np.testing.assert_allclose(W.explained_alone(), [explained((M,)) for M in W.atoms])
    lost = [W.explained() - explained(W.atoms[:k] + W.atoms[k + 1 :]) for k in range(W.n_atoms)]
    np.testing.assert_allclose(W.explained_unique(), lost, atol=1e-12)


def test_the_summary_is_a_table_of_what_is_known(rng):
    X = rng.standard_normal((4, 5, 6))
    atoms = [random_atom(X.shape, 2, "block", rng), random_atom(X.shape, 0, "rank two", rng)]
    atoms[1] = dataclasses.replace(atoms[1], z=[1, 0, 1, 0], certificate=0.987)
    W = fitted(X, tuple(atoms), dims=("channel", "time", "trial"))
    head, names, first, second, counts = W.summary().split("\n")
    assert counts == "38 parameters and 10 bits for 120 entries." and (W.n_parameters, W.n_bits) == (38, 10)
    assert (
        head.startswith("2 atoms of a 4 channel x 5 time x 6 trial tensor") and f"{100 * W.explained():.1f} %" in head
    )
    known = ["atom", "mode", "ones", "rank", "weight", "alone", "unique", "certificate"]
    assert names.split()[: len(known)] == known
    assert first.split()[:4] == ["0", "trial", f"{atoms[0].n_ones}/6", "block"] and first.split()[9] == "-"
    assert second.split()[:4] == ["1", "channel", f"{atoms[1].n_ones}/4", "2"] and second.split()[9] == "98.7"
    assert float(second.split()[4]) == pytest.approx(W.weights[1], rel=1e-3)
    assert float(second.split()[5]) == pytest.approx(100 * W.explained_alone()[1], abs=0.06)
    assert float(second.split()[7]) == pytest.approx(100 * W.explained_unique()[1], abs=0.06)


def test_the_summary_gives_a_verdict_where_it_is_cheap():
    for n_atoms, lines in ((1, ["Unique: no other atom"]), (3, ["Unique: no other 3 atoms"]), (11, [])):
        W = as_tested(make_boolean_cp((30, 31, 32), n_atoms, p=0.5, random_state=0).truth)
        found = W.summary().split("\n")[4 + n_atoms :]
        assert "nique:" not in dataclasses.replace(W, trust=None).summary(), "atoms must pass first"
        assert len(found) == len(lines) and all(
            text.startswith(start) for text, start in zip(found, lines, strict=True)
        )


def test_the_repr_says_what_it_is(rng):
    truth = make_boolean_cp((4, 5, 6), [2, 0, 1], random_state=0).truth
    assert repr(truth) == "BooleanCP(4 x 5 x 6, 3 atoms: 2 along mode 0, 0 along mode 1, 1 along mode 2)"
    assert repr(Atom(1, [1, 0, 1], block=np.ones((2, 2)) / 2)) == "Atom(mode=1, 2 of 3 on, block)"
    X = rng.standard_normal((4, 5, 6))
    W = fitted(X, truth.atoms, dims=("a", "b", "c"))
    assert repr(W).endswith(f"0 along mode b, 1 along mode c, explained {W.explained():.4f})")


def test_shares_need_the_data(rng):
    W = random_decomposition((4, 5, 6), "block", rng)
    for share in (W.explained, W.explained_alone, W.explained_unique):
        with pytest.raises(ValueError, match="only a fitted decomposition"):
            share()
    assert "-" in W.summary().split("\n")[2]


@pytest.mark.parametrize("kind", ["rank one", "rank two"])
def test_the_matrices_and_their_weights_sum_to_the_tensor(kind, rng):
    W = random_decomposition((4, 5, 6), kind, rng)
    total = np.einsum("ir,jr,kr,r->ijk", *W.matrices, W.column_weights)
    np.testing.assert_allclose(total, naive.tensor(W), atol=1e-12)
    assert all(not A.flags.writeable for A in W.matrices)


def test_blocks_have_no_columns(rng):
    W = random_decomposition((4, 5, 6), "block", rng)
    for ask in (lambda: W.atoms[0].columns(0), lambda: W.matrices):
        with pytest.raises(ValueError, match="no columns: use dense_block"):
            ask()


def test_what_does_not_fit_together_is_refused(rng):
    factors = (np.ones((5, 1)), np.ones((6, 1)))
    atom = Atom(0, [1, 0, 1, 1], factors)
    for make, words in (
        (lambda: Atom(0, [1, 0]), "exactly one of the two"),
        (lambda: Atom(0, [1, 0], factors, np.ones((5, 6))), "exactly one of the two"),
        *((lambda z=z: Atom(0, z, factors), "zeros and ones") for z in ([0.5, 1], [[1, 0]], [2, 1])),
        (lambda: BooleanCP((4, 5, 6), (atom,), [1.0, 2.0]), "1 atoms but 2 weights"),
        (lambda: BooleanCP((3, 5, 6), (atom,), [1.0]), "does not fit"),
        (lambda: BooleanCP((4, 5, 6), (atom,), [1.0]).inner(np.ones((4, 5))), r"X has shape \(4, 5\)"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_notebooks_show_a_table_with_escaped_labels(rng):
    W = random_decomposition((8, 9, 10), "rank one", rng, n_atoms=2)
    html = dataclasses.replace(W, labels=Labels(("<b>", "time", "trial")))._repr_html_()
    assert html.count("<tr>") == 3 and ">certificate</th>" in html and "&lt;b&gt;" in html and "<b>" not in html
    for cell in W.summary().splitlines()[2].split():
        assert cell in html or cell == "0"


def test_parameters_are_the_rank_of_the_jacobian(rng):
    for sizes, rank in (((6, 7), 1), ((6, 7), 3), ((4, 5, 3), 1), ((4, 5, 3), 2)):
        factors = [rng.standard_normal((d, rank)) for d in sizes]
        directions = []
        for n, A in enumerate(factors):
            for i, r in np.ndindex(A.shape):
                columns = [B[:, r] if m != n else np.eye(len(A))[i] for m, B in enumerate(factors)]
                block = columns[0]
                for column in columns[1:]:
                    block = np.multiply.outer(block, column)
                directions.append(block.ravel())
        assert Atom(0, np.ones(3, dtype=bool), tuple(factors)).n_parameters == np.linalg.matrix_rank(directions)
    assert Atom(0, np.ones(3, dtype=bool), block=np.ones((4, 5))).n_parameters == 20


@pytest.mark.parametrize(("modes", "is_said"), [([3, 0, 0], True), ([2, 1, 0], False), ([0, 2, 0], False)])
def test_the_summary_says_that_one_mode_took_over(modes, is_said):
    truth = boolcp.datasets.make_boolean_cp((8, 9, 10), modes, random_state=0).truth
    assert ("All atoms are on or off along mode 0" in truth.summary()) == is_said


def test_the_summary_says_that_one_mode_of_a_matrix_took_over():
    truth = boolcp.datasets.make_boolean_cp((8, 9), [3, 0], random_state=0).truth
    assert "mode 0; boolean_modes=[1] asks for the other mode (docs/guide/boolean_modes.md)." in truth.summary()
    named = dataclasses.replace(truth, labels=Labels(("channel", "time")))
    assert "along mode channel; boolean_modes=['time'] asks for the other mode" in named.summary()


def test_the_summary_does_not_advise_to_name_modes_if_they_were_named(tmp_path):
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), [3, 0, 0], random_state=0).X
    for modes, n_hints in ((None, 1), (0, 0), ([0], 0)):
        W = boolcp.decompose(X, 3, boolean_modes=modes, random_state=0)
        W.save(tmp_path / "result.nc", overwrite=True)
        again = boolcp.assess(X, W, n_parts=1, mode=2, random_state=0)
        for V in (W, W[[0, 1, 2]], boolcp.load(tmp_path / "result.nc"), again):
            assert V.summary().count("choose other modes with boolean_modes") == n_hints
