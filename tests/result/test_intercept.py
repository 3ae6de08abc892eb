"""The mean over the Boolean mode: shares are of what varies around it, whatever counts how much."""

import numpy as np
import pytest

import boolcp

pytestmark = pytest.mark.filterwarnings("ignore::boolcp.DegenerateAtomsWarning")


@pytest.mark.parametrize("atom_rank", [1, 2, "block"])
@pytest.mark.parametrize("kind", ["complete", "missing", "weighted"])
@pytest.mark.parametrize("mode", [0, 2])
def test_shares_are_of_what_varies_around_the_mean(atom_rank, kind, mode, rng):
    data = boolcp.datasets.make_boolean_cp((8, 9, 16), [0, 0, 2], noise=0.1, random_state=0)
    X, w = np.moveaxis(data.X + 5, 2, mode), np.ones(data.X.shape)
    if kind != "complete":
        w = np.moveaxis(rng.uniform(0.1, 2, data.X.shape) if kind == "weighted" else w, 2, mode)
        w = w * (rng.random(X.shape) > 0.2)
    w = np.broadcast_to(w if w.shape == X.shape else 1.0, X.shape)
    model = boolcp.BMP(2, atom_rank=atom_rank, mean=True, boolean_modes=[mode], random_state=0).fit(X, weights=w)
    center = (w * X).sum(axis=mode, keepdims=True) / w.sum(axis=mode, keepdims=True)
    total = (w * (X - center) ** 2).sum()
    for W in (*model.path_, model.decomposition_):
        assert W.explained() == pytest.approx(1 - (w * (X - W.to_tensor()) ** 2).sum() / total, abs=0.02)
        assert all(2 * atom.n_ones <= len(atom.z) for atom in W.atoms)
    assert W.explained() == pytest.approx(1 - (w * (X - W.to_tensor()) ** 2).sum() / total, abs=1e-9)
    text = W.summary()
    assert "% of the variance around the mean explained" in text and f"Mean over {mode} fitted apart" in text


@pytest.mark.parametrize("loss", ["huber", "poisson", "bernoulli"])
def test_shares_of_a_deviance_are_shown(loss):
    clean = np.abs(boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).clean)
    X = np.random.default_rng(0).poisson(clean).astype(float)
    W = boolcp.BMP(2, loss=loss, n_init=1, random_state=0).fit(np.minimum(X, 1.0) if loss == "bernoulli" else X)
    W = W.decomposition_
    assert f"{100 * W.explained():.1f} % of the {loss.capitalize()} deviance explained" in W.summary()
    assert W.data_norm2 is not None and len(W.data_inner) == W.n_atoms
