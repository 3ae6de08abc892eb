"""A fitted model continues with more atoms (`warm_start`), and a callback follows and ends a fit."""

import shutil

import numpy as np
import pytest
from samples import assert_identical, listed, tensor, with_gaps

import boolcp
from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.watch import Progress, Stop

STOPPED = "stopped by the callback: this is the best result so far"


@pytest.fixture
def searches(monkeypatch):
    """Return a list that grows with every search of the pursuit for an atom."""
    calls = []
    monkeypatch.setattr(
        "boolcp.fit.pursuit.greedy_atom_search", lambda *a, **k: calls.append(1) or greedy_atom_search(*a, **k)
    )
    return calls


def loss(W):
    return W.data_norm2 - 2 * W.weights @ W.data_inner + W.weights @ W.observed_gram() @ W.weights


WARM = {
    "complete": (BMP(4, random_state=0), lambda: tensor((20, 22, 24), 5)),
    "not compressed": (BMP(4, random_state=0, compression=False), lambda: tensor(n_atoms=5)),
    "masked": (BMP(4, atom_rank=1, random_state=0), lambda: with_gaps(tensor((15, 16, 17), 5), 0.3)),
    "listed": (BMP(2, atom_rank=1, random_state=0, n_init=3), lambda: listed(tensor((50, 50, 50), 3), 0.049)),
}


@pytest.mark.parametrize("name", WARM)
def test_more_atoms_are_added_to_those_found(name, searches):
    model, X = WARM[name][0], WARM[name][1]()
    cold = boolcp.BMP(**model.get_params()).set_params(n_atoms=model.n_atoms + 1).fit(X)
    n_cold = len(searches)
    model = boolcp.BMP(**model.get_params()).set_params(warm_start=True).fit(X)
    first, path, history = model.decomposition_, model.path_, model.history_
    del searches[:]
    K = model.n_atoms
    model.set_params(n_atoms=K + 1).fit(X)
    assert len(searches) == 1 < n_cold
    assert model.decomposition_.n_atoms == len(model.history_) == K + 1 and len(model.path_) == K + 2
    assert loss(model.decomposition_) < loss(first)
    assert loss(model.decomposition_) <= 1.02 * loss(cold.decomposition_)
    for old, new in zip(path, model.path_, strict=False):
        assert [atom.z.tolist() for atom in old.atoms] == [atom.z.tolist() for atom in new.atoms]
        np.testing.assert_allclose(old.weights, new.weights, rtol=1e-6)
    assert [step.n_ones for step in model.history_[:K]] == [step.n_ones for step in history]


@pytest.mark.parametrize(
    "options",
    [
        {"refine": False},
        {"refine": False, "atom_rank": None, "criterion": "published"},
        {"atom_rank": None},
        {"atom_rank": 2},
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_pursuits_and_blocks_go_on_too(options, share):
    X = tensor(n_atoms=5) if share == 0 else with_gaps(tensor((8, 9, 10), n_atoms=5), share)
    options = options | {"n_init": 1, "max_iter": 8}
    cold = BMP(4, random_state=0, **options).fit(X)
    model = BMP(2, random_state=0, warm_start=True, **options).fit(X)
    path, first = model.path_, loss(model.decomposition_)
    model.set_params(n_atoms=4).fit(X)
    assert len(model.path_) == 5 and loss(model.decomposition_) < first
    assert loss(model.decomposition_) <= 1.15 * loss(cold.decomposition_)
    np.testing.assert_allclose(model.path_[2].weights, path[2].weights, rtol=1e-9)
    assert loss(model.path_[3]) < loss(path[2])
    if not options.get("refine", True):  # a pursuit never looks back: continued or not, it is the same
        np.testing.assert_allclose(model.decomposition_.weights, cold.decomposition_.weights, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_blocks_that_won_go_on_too(share, rng):
    X = sum(
        np.multiply.outer(rng.random(12) < 0.5, rng.standard_normal((10, 3)) @ rng.standard_normal((3, 9)))
        for _ in range(3)
    )
    X = np.where(rng.random(X.shape) < share, np.nan, X + 0.2 * rng.standard_normal(X.shape))
    model = BMP(2, background=None, random_state=0, warm_start=True).fit(X)
    path, first = model.path_, loss(model.decomposition_)
    assert max(atom.rank for atom in model.decomposition_.atoms) > 1
    model.set_params(n_atoms=3).fit(X)
    assert len(model.path_) == 4 and loss(model.decomposition_) < 0.6 * first
    assert max(atom.rank for atom in model.decomposition_.atoms) > 1
    if max(atom.rank for atom in path[2].atoms) > 1:
        assert [atom.z.tolist() for atom in model.path_[2].atoms] == [atom.z.tolist() for atom in path[2].atoms]


def test_a_matrix_goes_on_too():
    X = tensor((30, 40), 5)
    model = BMP(2, random_state=0, warm_start=True).fit(X)
    first = loss(model.decomposition_)
    assert loss(model.set_params(n_atoms=5).fit(X).decomposition_) < first


def test_never_worse_than_what_it_goes_on_from():
    for seed in range(2):
        X = np.random.default_rng(seed).standard_normal((7, 8, 9))  # noise alone: many optima
        model = BMP(2, random_state=seed, n_init=1, max_iter=2, warm_start=True)
        losses = [loss(model.set_params(n_atoms=k).fit(X).decomposition_) for k in (2, 3, 3, 5, 8)]
        assert (np.diff(losses) <= 1e-9 * losses[0]).all(), seed


def test_slices_without_entries_do_not_disturb():
    X = with_gaps(tensor((15, 16, 17), 3), 0.2)
    X[4] = np.nan
    model = BMP(2, random_state=0, warm_start=True)
    with pytest.warns(UserWarning, match="no observed entry"):
        model.fit(X).set_params(n_atoms=3).fit(X)
    assert model.decomposition_.n_atoms == 3 and np.isnan(model.decomposition_.to_tensor()[4]).all()


def test_a_cold_start_begins_anew():
    X = tensor(n_atoms=4)
    model = BMP(2, random_state=0).fit(X)
    assert_identical(model.set_params(n_atoms=4).fit(X), BMP(4, random_state=0).fit(X))
    assert_identical(BMP(4, random_state=0, warm_start=True).fit(X), BMP(4, random_state=0).fit(X))


def test_what_a_warm_start_cannot_do_is_said():
    X = tensor(n_atoms=4)
    model = BMP(3, random_state=0, warm_start=True).fit(X)
    with pytest.raises(ValueError, match=r"n_atoms=2 is less than the 3 atoms .*path_\[2\]"):
        model.set_params(n_atoms=2).fit(X)
    with pytest.raises(ValueError, match="not the tensor that was fitted"):
        model.set_params(n_atoms=4).fit(2 * X)
    with pytest.raises(ValueError, match="not the tensor that was fitted"):
        model.fit(X[:-1])
    with pytest.raises(ValueError, match=r"atom_rank, boolean_modes changed since"):
        model.set_params(atom_rank=2, boolean_modes=[0]).fit(X)


def test_a_warm_start_is_resumed_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("boolcp.fit.watch.INTERVAL", 0.0)
    X = tensor((20, 22, 24), 4)
    whole = BMP(2, random_state=0, warm_start=True).fit(X).set_params(n_atoms=4).fit(X)
    for stage in ("pursuit", "search", "polish"):
        model, path = BMP(2, random_state=0, warm_start=True).fit(X), tmp_path / f"{stage}.npz"
        model.set_params(n_atoms=4).fit(X, checkpoint=path, callback=lambda p, stage=stage: p.stage == stage)
        assert_identical(BMP.resume(shutil.copy(path, tmp_path / "copy.npz"), X), whole)


# callback


def follow(model, X, answer=None, **options):
    """Fit and return the model and what the callback was told; `answer` tells what it returns."""
    seen: list[Progress] = []

    def callback(progress):
        seen.append(progress)
        return None if answer is None else answer(progress)

    return model.fit(X, callback=callback, **options), seen


def test_the_callback_is_told_every_step_and_changes_nothing():
    X = tensor((20, 22, 24))
    model, seen = follow(BMP(3, random_state=0), X)
    assert_identical(model, BMP(3, random_state=0).fit(X))
    assert [p.step for p in seen if p.stage == "pursuit"] == [1, 2, 3]
    starts = [p for p in seen if p.stage == "search"]
    sweeps = [p for p in seen if p.stage == "polish"]
    assert len(starts) >= 2 and {p.n_steps for p in starts} == {40}
    assert [p.step for p in sweeps] == list(range(1, len(sweeps) + 1)) and {p.n_steps for p in sweeps} == {50}
    assert (np.diff([p.relative_error for p in starts]) <= 0).all()
    assert sweeps[-1].relative_error == pytest.approx(np.sqrt(1 - model.decomposition_.explained()))
    with pytest.raises(AttributeError):
        seen[0].step = 7  # frozen
    _, seen = follow(BMP(2, atom_rank=2, background=None, random_state=0), with_gaps(X[:8, :9, :10], 0.2))
    assert [p.step for p in seen if p.stage == "pursuit"] == [1, 2]
    assert list(dict.fromkeys(p.stage for p in seen)) == ["pursuit", "search", "observed", "ridge"]


@pytest.mark.parametrize("how", ["true", "interrupt"])
@pytest.mark.parametrize("share", [0.0, 0.7])
def test_a_fit_is_stopped_with_the_best_so_far(how, share):
    X = make_boolean_cp((12, 14, 16), 4, noise=1.0, random_state=0).X
    X = X if share == 0 else with_gaps(X, share)
    whole, steps = follow(BMP(4, random_state=0, n_init=3), X)
    for i in sorted({0, 1, 4, len(steps) // 2, len(steps) - 3}):

        def answer(progress, target=steps[i]):
            if progress == target and how == "interrupt":
                raise KeyboardInterrupt
            return progress == target

        model, seen = follow(BMP(4, random_state=0, n_init=3), X, answer)
        assert seen == steps[: i + 1]  # nothing is told after the end
        assert model.stop_reason_ == STOPPED and not model.converged_
        W = model.decomposition_
        assert W.n_atoms == min(i + 1, 4) == len(model.history_)
        assert W.explained() >= model.path_[-1].explained() - 1e-12
        estimate = W.to_tensor()
        explained = 1 - np.nansum((X - estimate) ** 2) / np.nansum(X**2)
        assert W.explained() == pytest.approx(explained)
    slack = 0.02 if share else 1e-9  # the ridge over observed entries costs a little of them
    assert whole.decomposition_.explained() >= W.explained() - slack and whole.stop_reason_ != STOPPED


@pytest.mark.parametrize("options", [{"atom_rank": None}, {"atom_rank": "auto"}, {"refine": False}])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_every_pursuit_is_stopped(options, share):
    X = with_gaps(tensor((8, 9, 10)), share)
    model, _ = follow(BMP(3, random_state=0, **options), X, lambda progress: progress.step == 1)
    assert model.decomposition_.n_atoms == 1 and model.stop_reason_ == STOPPED
    error = np.nansum((X - model.decomposition_.to_tensor()) ** 2) / np.nansum(X**2)
    assert model.decomposition_.explained() == pytest.approx(1 - error)
    assert model.history_[0].relative_error == pytest.approx(np.sqrt(error))


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_a_step_is_given_up_at_any_moment_and_all_before_it_counts(share):
    X = make_boolean_cp((12, 14, 16), 3, noise=1.0, random_state=0).X
    X = X if share == 0 else with_gaps(X, share)
    _, steps = follow(BMP(3, random_state=0, n_init=3), X)
    for stage in dict.fromkeys(progress.stage for progress in steps):
        seen = []

        def interrupt(progress, stage=stage, seen=seen):
            seen.append(progress.stage)
            if progress.stage == stage:
                raise Stop

        model = BMP(3, random_state=0, n_init=3).fit(X, callback=interrupt)
        W = model.decomposition_
        assert model.stop_reason_ == STOPPED and W.n_atoms == (1 if stage == "pursuit" else 3)
        assert seen.count(stage) == 1 and (len(set(seen)) > 1 or stage != "pursuit")  # a pursuit is refined
        B = 0.0 if W.background is None else W.background.to_tensor()
        total = W.explained() + (0.0 if W.background is None else W.background.share)
        assert total == pytest.approx(1 - np.nansum((X - W.to_tensor() - B) ** 2) / np.nansum(X**2))


def test_a_stop_before_anything_was_found_comes_through(monkeypatch):
    def interrupt(*arguments):
        raise Stop

    monkeypatch.setattr("boolcp.fit.stages.complete_tensor", interrupt)
    with pytest.raises(KeyboardInterrupt):
        BMP(2, random_state=0).fit(tensor())


def test_the_pursuit_alone_is_ended():
    X = tensor()
    model, seen = follow(BMP(3, random_state=0), X, lambda progress: "refine" if progress.step == 2 else None)
    assert model.stop_reason_ == STOPPED and model.decomposition_.n_atoms == 2
    assert {p.stage for p in seen} == {"pursuit", "search", "polish", "background"}
    np.testing.assert_allclose(
        model.decomposition_.explained(), BMP(2, random_state=0).fit(X).decomposition_.explained(), rtol=1e-6
    )


def test_other_answers_go_on_and_other_errors_come_through():
    X = tensor()
    whole = BMP(2, random_state=0).fit(X)
    for answer in (None, 0, 1, "stop", np.False_, [1]):
        assert_identical(BMP(2, random_state=0).fit(X, callback=lambda progress, answer=answer: answer), whole)
    with pytest.raises(ZeroDivisionError):
        BMP(2, random_state=0).fit(X, callback=lambda progress: 1 / 0)
    assert BMP(2).fit(X, callback=lambda progress: np.bool_(True)).stop_reason_ == STOPPED


def test_the_bars_show_every_stage(monkeypatch):
    shown = []

    class Bar:
        def __init__(self, desc, total, disable):
            self.n = 0
            shown.append(self)
            self.desc, self.total, self.is_closed = desc, total, False

        def set_postfix(self, error, refresh):
            self.error = error

        def update(self, n):
            self.n += n

        def close(self):
            self.is_closed = True

    monkeypatch.setattr("tqdm.tqdm", Bar)
    model = BMP(3, random_state=0, verbose=1).fit(tensor((20, 22, 24)))
    assert [bar.desc for bar in shown] == ["pursuit", "search", "polish"]
    assert shown[0].n == shown[0].total == 3 and all(bar.is_closed for bar in shown)
    assert float(shown[-1].error) == pytest.approx(np.sqrt(1 - model.decomposition_.explained()), rel=1e-3)
    del shown[:]
    model.fit_path(tensor())
    assert [(bar.desc, bar.n) for bar in shown] == [("path", 3)]
