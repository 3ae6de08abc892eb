"""Pictures of electrodes, conditions, replication and residuals: the numbers are those given, whatever the labels."""

from dataclasses import replace

import numpy as np
import pytest
from samples import as_tested, random_decomposition

from boolcp import plotting
from boolcp.result.labels import Labels

pyplot, colors = (pytest.importorskip(f"matplotlib.{name}") for name in ("pyplot", "colors"))
pyplot.switch_backend("Agg")
DIMS = ("channel", "time", "trial")


def is_color(points, color):
    return np.all(points.get_facecolors() == colors.to_rgba(color), axis=1)


def labelled(shape, rng, *, coords=None, condition=None, **options):
    """Return a decomposition with positions along mode 0 and, if given, conditions along mode 2."""
    extra = {name: ("channel", rng.standard_normal(shape[0])) for name in ("x", "y")}
    if condition is not None:
        extra["condition"] = "trial", np.array(condition)
    labels = Labels(DIMS, coords or {}, {"time": "s"}, extra, "ECoG")
    return replace(random_decomposition(shape, "rank one", rng, **options), labels=labels)


# electrodes


def test_electrode_maps_of_booleans_and_numbers(rng):
    positions = rng.standard_normal((20, 2))
    bits = np.ma.masked_array(rng.random(20) < 0.5, np.arange(20) == 3)
    points = plotting.plot_electrodes(positions, bits).collections[-1]
    np.testing.assert_array_equal(is_color(points, plotting.ON), bits.filled(False))
    np.testing.assert_array_equal(is_color(points, "#BBBBBB"), np.arange(20) == 3)
    values = rng.standard_normal(20)
    values[4] = np.nan
    ax = plotting.plot_electrodes(positions, values, label="power ($dB$)")
    np.testing.assert_array_equal(ax.collections[-1].get_array().filled(np.nan), values)
    low, high = ax.collections[-1].get_clim()
    assert low == -high == pytest.approx(-np.nanmax(np.abs(values)))
    assert ax.figure.axes[1].get_ylabel() == r"power (\$dB\$)"


def test_bad_maps_are_refused(rng):
    positions = rng.standard_normal((5, 2))
    with pytest.raises(ValueError, match="values has 4 entries"):
        plotting.plot_electrodes(positions, np.ones(4))
    with pytest.raises(ValueError, match="two columns"):
        plotting.plot_electrodes(rng.standard_normal((5, 3)), np.ones(5))


@pytest.mark.parametrize("n", [1, 2, 300])
def test_few_and_many_electrodes_are_drawn(n, rng):
    positions = rng.standard_normal((n, 2))
    ax = plotting.plot_electrodes(positions, rng.random(n) < 0.5)
    assert len(ax.collections[-1].get_offsets()) == n
    ax.figure.canvas.draw()


# conditions


def test_conditions_are_means_of_bits_and_of_factors(rng):
    condition = np.array(["a", "b", "b", "a", "b"])
    W = labelled((6, 7, 5), rng, condition=condition, n_atoms=3)
    means, z = plotting.condition_means(W, "trial"), W.atoms[2].z
    column = W.atoms[0].factors[1][:, 0]
    column = column / column[np.argmax(np.abs(column))]
    np.testing.assert_allclose(means.mean[0], [column[condition == name].mean() for name in "ab"])
    np.testing.assert_allclose(means.mean[2], [z[condition == name].mean() for name in "ab"])
    assert means.counts.tolist() == [2, 3] and means.is_boolean.tolist() == [False, False, True]
    np.testing.assert_allclose(means.spread[0], [column[condition == name].std(ddof=1) for name in "ab"])
    assert np.isnan(means.spread[2]).all()


def test_entries_without_data_do_not_count(rng):
    condition = ["a", "b", "b", "a", "b"]
    W = labelled((6, 7, 5), rng, condition=condition, n_atoms=3)
    W = replace(W, undetermined={2: np.array([True, False, False, False, False])})
    assert plotting.condition_means(W, 2).mean[2, 0] == W.atoms[2].z[3]
    assert plotting.condition_means(W, 2).counts.tolist() == [1, 3]
    assert plotting.condition_means(W, 2).spread[0, 0] == 0  # of one entry
    hidden = replace(W, undetermined={2: np.array(condition) == "a"})
    assert np.isnan(plotting.condition_means(hidden, 2).mean[:, 0]).all()


def test_unknown_conditions_are_refused(rng):
    W = labelled((6, 7, 5), rng, condition=list("aabbb"))
    with pytest.raises(ValueError, match=r"'state', but trial has condition"):
        plotting.condition_means(W, 2, "state")
    with pytest.raises(ValueError, match="condition has 2 labels"):
        plotting.condition_means(W, 2, ["a", "b"])


@pytest.mark.parametrize("n_atoms", [0, 1, 30])
def test_any_number_of_atoms(n_atoms, rng):
    shape = (40, 6, 6)
    W = labelled(shape, rng, condition=list("aabbcc"), n_atoms=n_atoms)
    figure = plotting.plot_atoms(W)
    assert len([ax for ax in figure.axes if ax.get_label() != "<colorbar>"]) == 3 * n_atoms


def test_conditions_are_bands_of_color_in_every_panel(rng):
    condition = ["rest", "rest", "task", "rest", "task"]
    W = labelled((6, 7, 5), rng, condition=condition, n_atoms=3)
    strip = plotting.plot_boolean(W, 2)
    spans = {tuple(band.get_facecolors()[0]): band.get_paths() for band in strip.collections}
    assert [len(paths) for paths in spans.values()] == [2, 2]  # two runs each
    edges = [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in next(iter(spans.values()))]
    assert edges == [(-0.5, 1.5), (2.5, 3.5)]
    line = plotting.plot_real(W, 0, 2)
    assert [text.get_text() for text in line.get_legend().get_texts()] == ["rest", "task"]
    assert line.get_ylim()[0] < np.min(line.lines[0].get_ydata())
    texts = [text.get_text() for text in W.plot().legends[0].get_texts()]
    assert texts == ["on", "off", "rest", "task"]


# odd labels


@pytest.mark.parametrize(
    "values",
    [
        np.array(["<b>x</b>", "$a_b$", "θδ ∂μ ж", "\\frac{1}{2}", "n" * 80, "", "%s {0}"]),
        np.array("2020-01-01", dtype="M8[h]") + np.arange(7),
        np.array(["2020-01-01", "NaT", *["2021-01-01"] * 5], dtype="M8[D]"),
        np.arange(7) * np.timedelta64(250, "ms"),
        np.array([0.0, np.nan, 1, 2, 3, 4, 5]),
        np.array([3, 1, 2, 7, 5, 6, 4]),
        np.array([True, False] * 3 + [True]),
    ],
    ids=["markup", "dates", "no date", "durations", "nan", "unordered", "bool"],
)
def test_any_coordinates_are_drawn(values, rng):
    shape = (6, 7, 5)
    W = labelled(shape, rng, coords={"time": values}, n_atoms=3)
    figure = W.plot([0, 1])
    figure.canvas.draw()
    assert len(figure.axes) >= 6  # two atoms, three modes
    block = replace(random_decomposition(shape, "block", rng, n_atoms=1), labels=W.labels)
    block.plot().canvas.draw()


def test_durations_are_in_seconds(rng):
    W = labelled((6, 7, 5), rng, coords={"time": np.arange(7) * np.timedelta64(500, "ms")}, n_atoms=3)
    ax = plotting.plot_real(W, 0, 1)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), np.arange(7) / 2)
    assert ax.get_xlabel() == "time (s)"


def test_three_hundred_channels_have_few_ticks(rng):
    names = np.array([f"LFP channel {n:03d} of the left hemisphere" for n in range(300)])
    W = random_decomposition((300, 4, 5), "rank one", rng, n_atoms=2)
    W = replace(W, labels=Labels(DIMS, {"channel": names}))
    for ax in (plotting.plot_boolean(W, 0), plotting.plot_real(W, 1, 0)):
        texts = [tick.get_text() for tick in ax.get_xticklabels()]
        assert len(texts) <= 20 and max(map(len, texts)) <= 14


# replication, on/off, residual


def test_amplitudes_are_a_histogram_with_both_groups(rng):
    W = as_tested(random_decomposition((6, 7, 80), "rank one", rng, n_atoms=3))
    seen = tuple(np.where(atom.z, 1.0, 0.0) + 0.2 * rng.standard_normal(len(atom.z)) for atom in W.atoms)
    seen[2][5] = np.nan  # never held out
    W = replace(W, trust=replace(W.trust, amplitude=seen))
    ax = plotting.plot_on_off(W, 2)
    assert sum(bar.get_height() for bar in ax.patches) == 79
    width = ax.patches[0].get_width()
    low, high = (line.get_xydata() for line in ax.lines)
    assert low[np.argmax(low[:, 1]), 0] == pytest.approx(0, abs=0.05)
    assert high[np.argmax(high[:, 1]), 0] == pytest.approx(1, abs=0.05)
    assert np.trapezoid(high[:, 1], high[:, 0]) / width == pytest.approx(79 / 2, rel=0.05)
    with pytest.raises(ValueError, match=r"boolcp\.assess"):
        plotting.plot_on_off(replace(W, trust=None), 2)
