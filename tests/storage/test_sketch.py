"""The core of a tensor that is read in passes: as good as that of all Gram matrices, without most of them."""

import numpy as np
import pytest

from boolcp import contractions
from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.storage import DenseTensor, compress, sketch, slabs, sources
from boolcp.storage.lazy import look_at

da = pytest.importorskip("dask.array")
SHAPE = (60, 70, 50)
RANK = 3  # so that modes of more than 44 entries are sketched


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 200_000)
    monkeypatch.setattr(sketch, "WIDE", 4)


def opened(X, limit=10**9, rank=RANK, **options):
    return look_at(sources.Source(da.from_array(X, chunks=(-1, 7, -1))), limit, rank=rank, **options)


def noisy(rng, noise=1.0, dtype=float):
    X = make_boolean_cp(SHAPE, 3, random_state=1).X
    return (X / X.std() + noise * rng.standard_normal(SHAPE)).astype(dtype)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("shape", [(5, 6, 7), (1, 6, 7), (4, 1, 3, 5)])
def test_a_gram_matrix_times_a_block(mode, shape, rng, monkeypatch):
    monkeypatch.setattr(contractions, "CHUNK", 40)
    X, Q = rng.standard_normal(shape), rng.standard_normal((shape[mode], 4))
    unfolded = np.moveaxis(X, mode, 0).reshape(shape[mode], -1)
    np.testing.assert_allclose(contractions.gram_times(X, mode, Q)[0], unfolded @ unfolded.T @ Q, atol=1e-10)


def test_float32_is_multiplied_as_such_and_summed_in_float64(rng, monkeypatch):
    monkeypatch.setattr(contractions, "CHUNK", 40)
    X, Q = rng.standard_normal((50, 6, 7)).astype(np.float32), rng.standard_normal((6, 2))
    found = contractions.gram_times(X, 1, Q)[0]
    assert found.dtype == np.float64
    expected = sum(
        part @ (part.T @ Q.astype(np.float32)) for part in X[:, None].transpose(0, 2, 1, 3).reshape(50, 6, 7)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_two_passes_capture_what_all_gram_matrices_do(dtype, rng):
    X = noisy(rng, 1.0, dtype)
    data = opened(X)
    assert data.known_grams == [] and sorted(data.facts.sketches) == [0, 2]
    small, twin = data.compressed(RANK), compress(DenseTensor(X), RANK)
    assert data.n_passes == 2 and small.core.shape == twin.core.shape
    noise = RANK * sum(SHAPE)  # what bases of so many numbers take of noise of variance one
    assert small.core.squared_norm >= twin.core.squared_norm - noise
    for U in small.bases:
        np.testing.assert_allclose(U.T @ U, np.eye(RANK), atol=1e-5)
    projected = DenseTensor(X)
    for mode, U in enumerate(small.bases):
        projected = projected.reduced(mode, U)
    np.testing.assert_allclose(small.core.to_array(), projected.to_array(), atol=1e-3 if dtype == np.float32 else 1e-9)


def test_directions_that_have_not_settled_take_further_passes(rng, monkeypatch):
    decaying = [np.linalg.qr(rng.standard_normal((d, d)))[0] * np.linspace(1.2, 1, d) for d in SHAPE]
    X = np.einsum("ia,ja,ka->ijk", *(A[:, :50] for A in decaying))
    data = opened(X)
    data.compressed(RANK)
    assert data.n_passes == 2 + sketch.MAX_POWER
    monkeypatch.setattr(sketch, "SETTLED", np.inf)
    once = opened(X)
    once.compressed(RANK)
    assert once.n_passes == 2


def test_another_pass_finds_what_the_first_sketch_only_hints_at(rng):
    u, v, w = (np.linalg.qr(rng.standard_normal((d, 1)))[0][:, 0] for d in SHAPE)
    X = 35 * np.einsum("i,j,k->ijk", u, v, w) + rng.standard_normal(SHAPE)
    data = opened(X)
    small = data.compressed(RANK)
    assert data.n_passes > 2
    assert np.linalg.norm(small.bases[0].T @ u) > 0.9


def test_certificates_bring_their_gram_matrices_in_the_same_passes(rng, monkeypatch):
    asked = []
    monkeypatch.setattr(slabs.DenseTensor, "gram_times", lambda self, mode, Q: asked.append(mode))
    data = opened(noisy(rng), wanted=range(3))
    data.compressed(RANK)
    assert data.known_grams == [0, 1, 2] and data.n_passes == 2 and not asked


@pytest.mark.parametrize(("certify", "missing"), [(True, 0.0), (False, 0.0), (False, 0.1)])
def test_a_fit_with_sketches_has_the_bits_of_the_array_in_memory(certify, missing):
    X = make_boolean_cp((90, 100, 85), 2, noise=0.5, missing=missing, random_state=3).X
    model = BMP(2, atom_rank=1, random_state=0, certify=certify)
    expected = model.fit(X).decomposition_
    found = model.fit(da.from_array(X, chunks=(-1, 10, -1))).decomposition_
    for one, other in zip(found.atoms, expected.atoms, strict=True):
        np.testing.assert_array_equal(one.z, other.z)
    np.testing.assert_allclose(found.to_tensor(), expected.to_tensor(), atol=1e-4 * np.abs(expected.to_tensor()).max())
    if certify:
        np.testing.assert_allclose(*([a.certificate for a in W.atoms] for W in (found, expected)), rtol=1e-4)
