"""Several sessions: shared patterns, bits and amplitudes of each, other noise, missing channels, new subjects."""

import json
import re
import warnings

import numpy as np
import pytest

import boolcp
from boolcp.cli import main
from boolcp.metrics import match

xarray = pytest.importorskip("xarray")
CHANNELS = [f"c{n}" for n in range(10)]


def draw(seed=0, noises=(0.1, 0.1, 0.3), gains=(1.0, 1.0, 1.0)):
    """Return sessions as DataArrays, their bits (trials, 2) and the patterns (2, channel, time)."""
    rng = np.random.default_rng(seed)
    V = np.stack([np.outer(rng.standard_normal(10), rng.standard_normal(12)) for _ in range(2)])
    V /= np.linalg.norm(V, axis=(1, 2), keepdims=True)
    sessions, bits = {}, {}
    for n, (noise, gain) in enumerate(zip(noises, gains, strict=True)):
        Z = rng.random((20 + 5 * n, 2)) < [0.3, 0.5]
        values = gain * np.einsum("ik,kct->cti", Z, V) + noise * rng.standard_normal((10, 12, len(Z)))
        dims = ("channel", "time", "trial")
        sessions[f"day {n}"] = xarray.DataArray(values, dims=dims, coords={"channel": CHANNELS})
        bits[f"day {n}"] = Z
    return sessions, bits, V


def order_of(W, V):
    """Return which atom of W is which pattern."""
    C = [[abs(np.sum(atom.dense_block() * one)) for atom in W.atoms] for one in V]
    assert np.max(C, axis=1).min() > 0.95
    return np.argmax(C, axis=1)


def test_each_session_has_its_bits_and_amplitudes():
    sessions, bits, V = draw(gains=(0.8, 1.3, 1.0))
    model = boolcp.fit_sessions(sessions, 2, random_state=0)
    W, order = model.decomposition_, order_of(model.decomposition_, V)
    assert W.shape == (10, 12, 75) and W.labels.extra["session"][1].tolist().count("day 1") == 25
    for name, gain in zip(sessions, (0.8, 1.3, 1.0), strict=True):
        part, X = model.sessions_[name], sessions[name].values
        assert part.labels.coords["channel"].tolist() == CHANNELS
        found = np.array([part.atoms[k].z for k in order]).T
        assert np.mean(found != bits[name]) < (0.1 if name == "day 2" else 1e-9)
        assert np.allclose(part.weights[order], gain, atol=0.15)
        assert part.explained() == pytest.approx(1 - np.sum((X - part.to_tensor()) ** 2) / np.sum(X**2))
        pairs = match(W, part)
        assert [k for k, j, _ in pairs if k == j] == [0, 1] and min(cosine for *_, cosine in pairs) > 0.99


def test_a_channel_that_a_session_lacks_is_matched_by_label():
    sessions, bits, V = draw(1)
    sessions["day 0"] = sessions["day 0"].drop_sel(channel="c0").isel(channel=slice(None, None, -1))
    model = boolcp.fit_sessions(sessions, 2, random_state=0)
    labels = model.decomposition_.labels.coords["channel"].tolist()
    assert sorted(labels) == CHANNELS and labels[0] == "c9"
    order = order_of(model.decomposition_, V[:, [CHANNELS.index(label) for label in labels]])
    for name in ("day 0", "day 1"):
        assert np.array_equal(np.array([model.sessions_[name].atoms[k].z for k in order]).T, bits[name])
    with pytest.raises(ValueError, match="differ in other modes"):
        match(model.decomposition_, boolcp.decompose(sessions["day 0"], 2, boolean_modes=["trial"]))


def test_a_quiet_session_counts_more_than_a_loud_one():
    sessions, _, V = draw(2, noises=(0.1, 0.1, 1.5))
    sessions = {name: 1e9 * X for name, X in sessions.items()}  # in any unit
    W = boolcp.fit_sessions(sessions, 2, random_state=0).decomposition_
    joint = np.mean([max(abs(np.sum(a.dense_block() * one)) for a in W.atoms) for one in V])
    together = xarray.concat(list(sessions.values()), "trial")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", boolcp.BoolcpWarning)
        naive = boolcp.decompose(together, 2, boolean_modes=["trial"], random_state=0)
    assert joint > 0.97 > np.mean([max(abs(np.sum(a.dense_block() * one)) for a in naive.atoms) for one in V])


@pytest.mark.parametrize("noise", ["white", "separable"])
@pytest.mark.parametrize("mean", [False, True])
def test_a_new_subject_gets_bits_and_patterns_have_the_units_of_the_data(noise, mean):
    sessions, bits, V = draw(3, noises=(0.1, 0.15, 0.15))
    scale = np.linspace(1, 8, 10) if noise == "separable" else np.ones(10)  # of channels, signal and noise
    sessions = {name: X * scale[:, None, None] + 5 * mean for name, X in sessions.items()}
    V = V * scale[:, None]
    sizes = np.linalg.norm(V, axis=(1, 2))
    new, Z = sessions.pop("day 2"), bits.pop("day 2")
    model = boolcp.fit_sessions(list(sessions.values()), 2, noise=noise, mean=mean, random_state=0)
    order = order_of(model.decomposition_, V / sizes[:, None, None])
    wrong = np.mean(np.asarray(model.transform(new, mode="trial"))[:, order] != Z, axis=0)
    assert np.max(np.minimum(wrong, 1 - wrong) if mean else wrong) < 0.05  # beside a mean, bits or their complement
    for W in (model.decomposition_, *(model.sessions_[name] for name in ("0", "1"))):
        assert np.allclose(W.weights[order], sizes, rtol=0.15)


@pytest.mark.parametrize("mean", [False, True])
def test_each_session_has_a_noise_covariance_of_its_own(mean):
    sessions, bits, V = draw(5, noises=(0.15,) * 3)
    rng, lags = np.random.default_rng(5), np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    for n, (name, X) in enumerate(sessions.items()):  # noise of other channels and times, and another level
        signal, root = np.einsum("kct,ik->cti", V, bits[name]), np.linalg.cholesky((0.1 + 0.3 * n) ** lags)
        noise = np.exp(1.2 * rng.standard_normal(10))[:, None, None] * np.einsum("st,cti->csi", root, X - signal)
        sessions[name] = X.copy(data=signal + noise + 3 * n * mean)
    model = boolcp.fit_sessions(sessions, 2, noise="separable", mean=mean, random_state=0)
    order, truth = order_of(model.decomposition_, V), np.vstack(list(bits.values()))
    for W, Z in [(model.decomposition_, truth), *((model.sessions_[name], bits[name]) for name in sessions)]:
        wrong = np.mean(np.array([W.atoms[k].z for k in order]).T != Z, axis=0)
        assert np.max(np.minimum(wrong, 1 - wrong) if mean else wrong) == 0
        assert np.allclose(W.weights[order], 1, atol=0.2)
    W = model.decomposition_
    assert W.trust.sigma == pytest.approx(1, abs=0.1) and min(map(np.min, W.bit_confidence())) > 0.7
    assert W.trust.stands_out.all() and W.atoms[0].certificate > 0.3


def test_a_chain_does_not_join_sessions_and_new_trials_need_their_mode():
    first, second, third = draw(6)[0].values()
    model = boolcp.fit_sessions([first, second], 2, adjacency={"trial": "chain"}, smoothness=2.0, random_state=0)
    edges = dict(model.decomposition_.parameters["adjacency"])[2]["edges"]
    assert len(edges) == 19 + 24 and [19, 20, 1] not in edges
    for graph in ({2: "auto"}, [[2, "chain"]]):
        other = boolcp.fit_sessions([first, second], 2, adjacency=graph, smoothness=2.0, random_state=0)
        assert dict(other.decomposition_.parameters["adjacency"])[2]["edges"] == edges
    joint = np.hstack([np.array([atom.z for atom in model.sessions_[name].atoms]) for name in "01"])
    assert np.array_equal(joint, [atom.z for atom in model.decomposition_.atoms])
    for given in ([first, second[1:]], [first, third]):
        with pytest.raises(ValueError, match="sessions with all channels and equal noise"):
            boolcp.fit_sessions(given, 2, adjacency={"trial": "chain"})
    white = boolcp.fit_sessions([first, second], 1, noise="separable", random_state=0)
    for one, X in ((model, second), (white, second), (model, second.assign_coords(trial=np.arange(25)))):
        with pytest.raises(ValueError, match="mode='trial'"):
            one.transform(X)


def test_times_that_are_equal_up_to_rounding_are_the_same():
    first, second, _ = draw()[0].values()
    times = np.arange(first.sizes["time"]) / 1000 - 0.2
    both = [X.assign_coords(time=t) for X, t in ((first, times), (second, times.astype("f4")))]
    W = boolcp.fit_sessions(both, 2, random_state=0).decomposition_
    assert np.array_equal(W.labels.coords["time"], times) and W.shape[1] == len(times)


def test_what_does_not_correspond_is_refused():
    sessions, _, _ = draw()
    X, Y = sessions["day 0"], sessions["day 1"]
    for given, options, words in (
        (sessions, {"shared": ("channel",)}, "same modes"),
        ([X, Y[1:]], {"noise": "separable"}, "complete data"),
        ([X, Y[..., :1]], {}, "does not vary"),
        ([np.ones((3, 4, 5)), np.ones((4, 4, 5))], {"shared": (0, 1)}, "need labels"),
        ({1: X, "1": X}, {}, "a name of its own"),
        ([X], {}, "Two or more"),
        ({"a": X, "b": X * np.inf}, {}, "Session 'b': X contains infinity"),
        ([X, X.isel(channel=[0, 0, 1])], {}, "repeat in a session"),
    ):
        with pytest.raises(ValueError, match=words):
            boolcp.fit_sessions(given, 2, **options)
    hidden = np.ma.masked_array(X.values, X.values > 0)
    tensors = [
        boolcp.fit_sessions([Y.T, X.values.T], 1, shared=(1, 2), random_state=0).decomposition_.to_tensor()
        for Y in (hidden, hidden.filled(np.nan))
    ]
    np.testing.assert_array_equal(*tensors)


def test_several_files_are_sessions_of_the_command_and_rows_of_the_page(tmp_path, monkeypatch, capsys):
    sessions, _, _ = draw(4)
    for n, X in enumerate(sessions.values()):
        placed = X.assign_coords(condition=("trial", ["go", "stop"] * (X.sizes["trial"] // 2) + ["go"] * (n % 2)))
        positions = {"x": ("channel", np.cos(np.arange(10.0))), "y": ("channel", np.sin(np.arange(10.0)))}
        placed.assign_coords(positions).rename("power").to_netcdf(tmp_path / f"s{n}.nc", engine="h5netcdf")
    monkeypatch.chdir(tmp_path)
    files = ["s0.nc", "s1.nc", "s2.nc"]
    tests = ["--assess", "--test", "condition", "--unit", "session"]
    assert main(["fit", *files, "-k", "2", "-o", "out", *tests, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["shape"] == [10, 12, 75] and "within 3 sessions" in answer["tests"]["condition"]["scheme"]
    W = boolcp.load("out")
    assert W.trust.by_session.shape == (2, 3) and W.trust.by_session[:, :2].min() > 0.9
    assert main(["report", "out"]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.findall(r'<th scope="row" class="words">(s\d)</th>', page) == ["s0", "s1", "s2"]
    assert page.count("alone 0.9") + page.count("alone 1.0") >= 4 and ">sessions</th>" in page
    assert main(["fit", "s0.nc", "-k", "1", "-o", "map", "--adjacency", "channel", "--smoothness", "2"]) == 0
    W = boolcp.load("map")
    assert dict(W.parameters["adjacency"])[0]["edges"] and W.trust.smoothness[0] > 0
    assert main(["report", "map"]) == 0
    assert re.search(r"on in \d of 10 channels in \d regions?", (tmp_path / "map" / "report.html").read_text())
