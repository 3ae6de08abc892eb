"""What holds for every fit: each kind of data, each loss and each rank of the atoms, through the public API alone."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from samples import on_disk, with_gaps

from boolcp import BMP, Atom, BooleanCP

SHAPE, MODES = (8, 9, 10), (0, 2)
LOSSES = ("squared", "huber", "poisson", "bernoulli")
RANKS = (1, 2, "block")


def some_weights(shape):
    """Return weights of all entries, from 1 to 2."""
    return 1 + np.random.default_rng(6).random(shape)


# name: how X is given to fit, and with what else
KINDS = {
    "C order": lambda X, folder: (X.copy(order="C"), {}),
    "Fortran order": lambda X, folder: (X.copy(order="F"), {}),
    "float32": lambda X, folder: (X.astype(np.float32), {}),
    "gaps": lambda X, folder: (with_gaps(X, 0.1), {}),
    "weights": lambda X, folder: (X.copy(), {"weights": some_weights(X.shape)}),
    "disk": lambda X, folder: (on_disk(X, "zarr", folder, (4, 5, 6)), {}),
}
MODELS = [("squared", rank) for rank in RANKS] + [(loss, 1) for loss in LOSSES[1:]]
CASES = [(kind, loss, rank) for kind in KINDS for loss, rank in MODELS]
every_case = pytest.mark.parametrize(("kind", "loss", "rank"), CASES)
every_model = pytest.mark.parametrize(("loss", "rank"), MODELS)
every_loss = pytest.mark.parametrize("loss", LOSSES)


@cache
def planted(loss, rank):
    """Return two atoms whose sum is a mean that the loss takes."""
    rng = np.random.default_rng(1)
    is_rate = loss in ("poisson", "bernoulli")
    atoms = []
    for mode in MODES:
        z = np.zeros(SHAPE[mode], dtype=bool)
        z[rng.permutation(SHAPE[mode])[: SHAPE[mode] // 2]] = True
        others = [d for n, d in enumerate(SHAPE) if n != mode]
        factors = [rng.standard_normal((d, 2 if rank == 2 else 1)) for d in others]
        factors = [np.abs(A) + 0.2 if is_rate else A for A in factors]
        V = rng.standard_normal(others) if rank == "block" else factors[0] @ factors[1].T
        factors[0] = factors[0] / np.linalg.norm(V)
        real = {"block": V / np.linalg.norm(V)} if rank == "block" else {"factors": tuple(factors)}
        atoms.append(Atom(mode, z, **real))
    truth = BooleanCP(SHAPE, tuple(atoms), [10.0, 9.0])
    size = 0.9 / truth.to_tensor().max() if loss == "bernoulli" else 1.0
    return BooleanCP(SHAPE, truth.atoms, size * truth.weights)


def clean(loss, rank):
    """Return the planted tensor without noise."""
    return planted(loss, rank).to_tensor()


def noisy(loss, rank):
    """Return the planted tensor with noise that suits the loss, so little that its bits are clear."""
    rng, X = np.random.default_rng(2), clean(loss, rank)
    if loss == "poisson":
        return rng.poisson(30 * X).astype(float)
    if loss == "bernoulli":
        return (rng.binomial(30, X) / 30).astype(np.float32).astype(float)
    X = X + 0.05 * rng.standard_normal(SHAPE)
    if loss == "huber":
        X[rng.random(SHAPE) < 0.02] = 20.0
    return X.astype(np.float32).astype(float)  # float32 holds the same numbers


def model(loss="squared", rank=1, **options):
    return BMP(len(MODES), loss=loss, atom_rank=rank, random_state=0, **options)


def fitted(X, loss="squared", rank=1, **given):
    return model(loss, rank).fit(X, **given).decomposition_


def bits(W, modes=range(3)):
    """Return the modes and bits of all atoms, in any order; `modes` are the new names of the modes."""
    return sorted((modes[atom.mode], tuple(atom.z.tolist())) for atom in W.atoms)


def assert_same(W, V, loss="squared"):
    """Check that two decompositions are equal: squares to the last digit, other losses up to rounding."""
    assert bits(W) == bits(V)
    if loss == "squared":
        np.testing.assert_array_equal(W.to_tensor(), V.to_tensor())
    else:  # two fits of the same array may differ in the last digits
        assert_close(W, V, 1e-9)


def assert_close(W, X, tolerance=1e-5):
    """Check that a decomposition is a tensor, up to an error relative to its norm."""
    X = X if isinstance(X, np.ndarray) else X.to_tensor()
    assert np.linalg.norm(W.to_tensor() - X) <= tolerance * np.linalg.norm(X)


# the answer


@every_case
def test_planted_atoms_are_found_and_found_again(kind, loss, rank, tmp_path):
    X, given = KINDS[kind](clean(loss, rank), tmp_path)
    W = fitted(X, loss, rank, **given)
    assert bits(W) == bits(planted(loss, rank))
    assert {atom.rank for atom in W.atoms} == {None if rank == "block" else rank}
    assert_close(W, clean(loss, rank), 1e-4)
    again = fitted(W.to_tensor(), loss, rank, **given)
    assert bits(again) == bits(W)
    assert_close(again, W, 1e-4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a function that makes one fit of each case: data, options, steps, answer, and which inputs it changed."""

    @cache
    def fit(kind, loss, rank):
        X, given = KINDS[kind](noisy(loss, rank), tmp_path_factory.mktemp("whole"))
        before, seen = {name: np.array(value) for name, value in {"X": X, **given}.items()}, []
        W = model(loss, rank).fit(X, callback=seen.append, **given).decomposition_
        changed = [name for name in before if not np.array_equal({"X": X, **given}[name], before[name], equal_nan=True)]
        return X, given, seen, W, changed

    return fit


@every_case
def test_the_loss_never_rises_and_the_input_is_not_changed(kind, loss, rank, whole):
    _, _, seen, W, changed = whole(kind, loss, rank)
    assert bits(W) == bits(planted(loss, rank)) and seen and not changed
    for stage in {step.stage for step in seen}:
        errors = [step.relative_error for step in seen if step.stage == stage]
        assert all(after <= before * (1 + 1e-9) for before, after in pairwise(errors)), stage


# what must not matter


@every_model
def test_memory_order_and_dtype_do_not_change_bits(loss, rank):
    X = noisy(loss, rank)
    W = fitted(X, loss, rank)
    backward = X[::-1].copy()[::-1]
    for other in (np.asfortranarray(X), X.astype(np.float32), backward, X.astype(">f8")):
        V = fitted(other, loss, rank)
        assert bits(V) == bits(W)
        assert_close(V, W)
    if loss == "poisson":
        assert bits(fitted(X.astype(np.int16), loss, rank)) == bits(W)


@every_model
@pytest.mark.parametrize("modes", [(2, 0, 1), (1, 0, 2)])
def test_permuted_modes_give_permuted_atoms(loss, rank, modes):
    X = noisy(loss, rank)
    W, V = fitted(X, loss, rank), fitted(np.transpose(X, modes), loss, rank)
    assert bits(V, modes) == bits(W)


@every_model
def test_values_under_the_mask_never_matter(loss, rank):
    X = noisy(loss, rank)
    mask = ~np.isnan(with_gaps(X, 0.1))
    W = fitted(np.where(mask, X, np.nan), loss, rank)
    for value in (0.0, -7.5, 1e6, np.inf):
        assert_same(fitted(np.where(mask, X, value), loss, rank, mask=mask), W, loss)


@pytest.mark.parametrize(("loss", "rank"), [case for case in MODELS if case[0] != "bernoulli"])
def test_twice_the_tensor_has_twice_the_weights(loss, rank):
    X = noisy(loss, rank)
    W, V = fitted(X, loss, rank), fitted(2 * X, loss, rank)
    assert bits(V) == bits(W)
    np.testing.assert_allclose(np.sort(V.weights), 2 * np.sort(W.weights), rtol=1e-5)


@every_model
def test_weights_of_zero_and_one_are_a_mask(loss, rank):
    X = noisy(loss, rank)
    mask = ~np.isnan(with_gaps(X, 0.1))
    W, V = fitted(X, loss, rank, mask=mask), fitted(X, loss, rank, weights=mask.astype(float))
    assert bits(V) == bits(W)
    assert_close(V, W)


@every_model
def test_integer_weights_are_repeated_slices(loss, rank):
    X, counts = noisy(loss, rank), np.arange(SHAPE[1]) % 3 + 1
    weights = np.broadcast_to(counts[:, None].astype(float), SHAPE)
    W = fitted(X, loss, rank, weights=weights)
    V = fitted(np.repeat(X, counts, axis=1), loss, rank)
    assert bits(V) == bits(W)
    first = np.cumsum(counts) - counts
    tolerance = 1e-4 if loss == "squared" else 1e-2  # other losses are flat near their end, and Huber's has a scale
    assert_close(W, V.to_tensor()[:, first], tolerance)


# stop and resume


@every_case
def test_resumed_after_any_step_ends_the_same(kind, loss, rank, whole, tmp_path):
    X, given, seen, W, _ = whole(kind, loss, rank)
    for n in {1, 2, 3, len(seen) // 2, len(seen) - 1} & set(range(1, len(seen))):
        steps, file = iter(range(1, n + 1)), tmp_path / f"{n}.npz"
        model(loss, rank).fit(X, checkpoint=file, callback=lambda _, steps=steps, n=n: next(steps) == n, **given)
        assert_same(model(loss, rank).fit(X, checkpoint=file, **given).decomposition_, W, loss)


# what is refused


@pytest.mark.parametrize("rank", RANKS[1:])
@pytest.mark.parametrize("loss", LOSSES[1:])
def test_losses_ask_for_atoms_of_rank_one(loss, rank):
    with pytest.raises(ValueError, match="atom_rank=1"):
        fitted(clean(loss, 1), loss, rank)


@pytest.mark.parametrize("rank", [None, "auto"])
def test_ranks_that_are_gone_say_what_to_write(rank):
    with pytest.raises((TypeError, ValueError), match=r'atom_rank.*"block"'):
        fitted(clean("squared", 1), rank=rank)


@every_loss
def test_the_mean_of_the_answer_suits_the_loss(loss):
    W = fitted(noisy(loss, 1), loss).to_tensor()
    assert np.isfinite(W).all()
    if loss in ("poisson", "bernoulli"):
        assert (W >= 0).all()
