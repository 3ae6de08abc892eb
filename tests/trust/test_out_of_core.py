"""Selection, stability and significance of tensors that are not in memory: what is random is drawn chunk by chunk."""

import numpy as np
import pytest

from boolcp import baselines
from boolcp.atomic_norm import AtomicNorm
from boolcp.bmp import BMP
from boolcp.checks import BoolcpWarning
from boolcp.datasets import make_boolean_cp
from boolcp.trust import significance as significance_module
from boolcp.trust.assess import assess
from boolcp.trust.repeated_fits import active_client, draw_kept, hold_out_lazily, run_all
from boolcp.trust.selection import select_n_atoms
from boolcp.trust.significance import significance, thin_lazily, weight_scores
from boolcp.trust.stability import stability, stability_path

da = pytest.importorskip("dask.array")
SHAPE = (24, 40, 30)
SMALL = {"atom_rank": 1, "background": None, "n_init": 2}


@pytest.fixture
def data():
    return make_boolean_cp(SHAPE, 2, noise=0.5, random_state=0)


def kept_entries(chunks, seed, share):
    """Return which entries are not held out, chunk after chunk."""
    blocks = [np.cumsum((0, *sizes)) for sizes in chunks]
    kept = np.zeros([edges[-1] for edges in blocks], dtype=bool)
    for place in np.ndindex(*map(len, chunks)):
        box = tuple(slice(edges[i], edges[i + 1]) for edges, i in zip(blocks, place, strict=True))
        info = {None: {"chunk-location": place, "chunk-shape": kept[box].shape}}
        kept[box] = draw_kept(seed, share, info)
    return kept


@pytest.mark.parametrize("is_masked", [False, True])
def test_errors_are_those_of_the_entries_held_out(is_masked, data, rng, monkeypatch):
    X = np.where(rng.random(SHAPE) < 0.1, np.nan, data.X)
    mask = rng.random(SHAPE) < 0.7 if is_masked else np.ones(SHAPE, dtype=bool)
    array = da.from_array(X, chunks=(10, 17, -1))
    path, seen = (data.truth[:0], data.truth[:1], data.truth), {}

    def fit_path(self, X, mask=None, **others):
        seen["mask"] = mask.compute()
        return path

    monkeypatch.setattr(BMP, "fit_path", fit_path)
    lazy_mask = da.from_array(mask, chunks=array.chunks) if is_masked else None
    errors = hold_out_lazily(BMP(4), array, lazy_mask, None, 0, 0.2, np.random.default_rng(5))
    kept = kept_entries(array.chunks, int(np.random.default_rng(5).integers(2**63)), 0.2)
    np.testing.assert_array_equal(seen["mask"], kept & mask)
    assert 0.17 < 1 - kept.mean() < 0.23
    test = ~kept & mask & ~np.isnan(X)
    expected = [np.sqrt(np.mean((X - W.to_tensor())[test] ** 2)) for W in path]
    np.testing.assert_allclose(errors, [*expected, expected[-1], expected[-1]])


def test_the_number_of_atoms_is_that_of_the_array_in_memory(data):
    array = da.from_array(data.X, chunks=(-1, 10, -1))
    found = select_n_atoms(array, 3, splits=2, random_state=0, **SMALL)
    expected = select_n_atoms(data.X, 3, splits=2, random_state=0, **SMALL)
    assert found.n_atoms == expected.n_atoms == 2
    np.testing.assert_allclose(found.mean[:3], expected.mean[:3], rtol=0.03)


def test_what_needs_memory_is_refused_with_an_estimate(data):
    array = da.from_array(data.X, chunks=(-1, 10, -1))
    small = {"max_memory": "1MB", "random_state": 0, "splits": 2}
    for options in ({"scheme": "slabs"}, {"weights": {0: np.ones(24)}}, {"loss": "huber"}, {"nonnegative": True}):
        with pytest.raises(MemoryError, match=r"needs about 1\.15 MB.*need X in memory"):
            select_n_atoms(array, 2, **small, **options)
    with pytest.warns(BoolcpWarning, match="largest one tried"):
        found = select_n_atoms(array, 2, splits=2, scheme="slabs", random_state=0, **SMALL)
    with pytest.warns(BoolcpWarning, match="largest one tried"):
        expected = select_n_atoms(data.X, 2, splits=2, scheme="slabs", random_state=0, **SMALL)
    np.testing.assert_array_equal(found.errors, expected.errors)


@pytest.mark.parametrize("scheme", ["halves", "bootstrap", "seeds"])
def test_stability_is_that_of_the_array_in_memory(scheme, data, rng):
    X = data.X if scheme == "halves" else np.where(rng.random(SHAPE) < 0.1, np.nan, data.X)
    options = {"n_runs": 1, "scheme": scheme, "random_state": 0, **SMALL}
    found = stability(da.from_array(X, chunks=(-1, 10, -1)), 2, **options)
    expected = stability(X, 2, **options)
    np.testing.assert_allclose(found.similarity, expected.similarity, atol=1e-3)
    for one, other in zip(found.bit_probability, expected.bit_probability, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_path_of_stability_is_that_of_the_array_in_memory(data):
    array = da.from_array(data.X, chunks=(-1, 10, -1))
    found = stability_path(array, 1, n_runs=2, random_state=0, **SMALL)
    np.testing.assert_allclose(found.errors, stability_path(data.X, 1, n_runs=2, random_state=0, **SMALL).errors)


def double(x, y):
    return 2 * x + y


def test_fits_are_tasks_of_an_active_client(monkeypatch):
    distributed = pytest.importorskip("distributed")
    large = np.arange(4.0)
    tasks = [(large, i) for i in range(3)]
    expected = run_all(double, tasks, 1, 0, "fits")
    assert active_client() is None
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        assert active_client() is client
        submit, sent = client.submit, []
        monkeypatch.setattr(client, "submit", lambda *args, **how: sent.append(args) or submit(*args, **how))
        found = run_all(double, tasks, 1, 0, "fits")
    assert len(sent) == 3
    np.testing.assert_array_equal(found, expected)


def test_what_loads_a_tensor_that_does_not_fit_gives_an_estimate(monkeypatch):
    huge = da.zeros((3000, 10**5, 2000), chunks=(3000, 10, 2000), dtype=np.float32)
    monkeypatch.setattr("boolcp.memory.available_memory", lambda: 10**9)
    for run in (AtomicNorm(1.0).fit, baselines.CP(2).fit, baselines.LFM(2).fit):
        with pytest.raises(MemoryError, match=r"7\.2 TB .*the available memory is 1 GB.*Only BMP"):
            run(huge)


def test_the_parts_of_a_lazy_array_are_independent_and_always_the_same(rng):
    X = da.from_array(3 + 2.0 * rng.standard_normal((40, 50, 30)), chunks=(10, 20, -1))
    first, second = thin_lazily(X, 2.0, 0.7, seed=3)
    one, other = first.compute(), second.compute()
    np.testing.assert_array_equal(one, first[:, :, :].rechunk((40, 7, 30)).compute())
    np.testing.assert_allclose(one + other, X.compute())
    noise = (one - 0.7 * X.compute())[:, :20]
    assert np.corrcoef(noise[:10].ravel(), noise[10:20].ravel())[0, 1] == pytest.approx(0, abs=0.05)
    assert np.corrcoef(one.ravel(), other.ravel())[0, 1] == pytest.approx(0, abs=0.02)
    assert one.std() == pytest.approx(2 * 0.7**0.5, rel=0.02) and other.mean() == pytest.approx(0.9, rel=0.05)


@pytest.fixture
def seen(monkeypatch):
    """Return a dict that gets the parts of X, the fit to the first and the scores in the second."""
    found, judge = {}, significance_module._judge

    def thin(*args):
        found["parts"] = thin_lazily(*args)
        return found["parts"]

    def judged(W, part, scores, *rest):
        found["part"], found["scores"] = part, scores
        return judge(W, part, scores, *rest)

    monkeypatch.setattr(significance_module, "thin_lazily", thin)
    monkeypatch.setattr(significance_module, "_judge", judged)
    return found


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_significance_of_a_lazy_array(missing, seen):
    X = make_boolean_cp(SHAPE, 2, noise=1.0, missing=missing, random_state=0).X
    array = da.from_array(X, chunks=(-1, 10, -1))
    found = significance(array, 3, random_state=0, max_memory="100MB", **SMALL)
    expected = [True, True, False][: found.decomposition.n_atoms]
    assert found.is_significant().tolist() == expected and found.sigma == pytest.approx(1, rel=0.05)
    observed, second = None if missing == 0 else ~np.isnan(X), seen["parts"][1].compute()
    twin = weight_scores(second, observed, seen["part"], 0.2 * found.sigma**2)
    np.testing.assert_allclose(seen["scores"], twin, rtol=1e-6)
    W = assess(array, found.decomposition, tests=["significance"], random_state=0, max_memory="100MB", **SMALL)
    assert (W.trust.p_adjusted < 0.05).tolist() == expected


def test_significance_of_a_lazy_array_beside_a_background(seen, rng):
    X = make_boolean_cp(SHAPE, 2, noise=1.0, random_state=0).X
    X += np.einsum("ir,jkr->ijk", rng.standard_normal((24, 3)), 1 + rng.standard_normal((40, 30, 3)))
    array = da.from_array(X, chunks=(-1, 10, -1))
    found = significance(array, 2, random_state=0, max_memory="100MB", atom_rank=1, background=3)
    assert found.is_significant().all()
    B = seen["part"].background
    second = seen["parts"][1].compute() - 0.25 * B.to_tensor()
    np.testing.assert_allclose(seen["scores"], weight_scores(second, None, seen["part"], 0.2 * found.sigma**2))


def test_counts_and_weights_of_a_lazy_array_are_tested_in_memory():
    X = da.from_array(np.ones((200, 40, 50)), chunks=(-1, 10, -1))
    for how in ({"noise": "poisson"}, {"weights": {0: np.arange(1.0, 201.0)}}):
        with pytest.raises(MemoryError):
            significance(X, 2, **how, max_memory="5MB")
