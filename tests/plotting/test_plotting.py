"""Pictures: the numbers read back from the Axes are the numbers given."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest
from samples import random_atom

import boolcp
from boolcp import plotting
from boolcp.contractions import khatri_rao
from boolcp.plotting.patterns import atom_panels, leading_column, real_columns, signs_of
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels

pyplot, colors = (pytest.importorskip(f"matplotlib.{name}") for name in ("pyplot", "colors"))
pyplot.switch_backend("Agg")


def rank_one(shape, n_atoms, rng, **options):
    """Return atoms of rank one, Boolean along the modes in turn."""
    atoms = []
    for k in range(n_atoms):
        mode = k % len(shape)
        z = rng.permutation(np.arange(shape[mode]) % 3 == 0)
        atoms.append(replace(random_atom(shape, mode, "rank one", rng), z=z, certificate=0.5 + 0.1 * k))
    return BooleanCP(shape, tuple(atoms), 1.0 + np.arange(n_atoms), **options)


def block_atoms(shape, rng, mode=0):
    atom = replace(random_atom(shape, mode, "block", rng), z=np.arange(shape[mode]) < 2)
    return BooleanCP(shape, (atom,), [3.0])


def electrodes(shape, rng):
    extra = {"x": ("channel", rng.standard_normal(shape[0])), "y": ("channel", rng.standard_normal(shape[0]))}
    coords = {"channel": np.arange(1, shape[0] + 1), "time": np.arange(shape[1]) / 10}
    return Labels(("channel", "time", "trial"), coords, {"time": "s"}, extra, "ECoG")


@pytest.mark.parametrize("shape", [(6, 7), (6, 7, 8), (4, 5, 6, 3)])
def test_products_of_the_lines_are_the_entries_where_the_atom_is_on(shape, rng):
    W = rank_one(shape, 3, rng)
    for k, atom in enumerate(W.atoms):
        product = np.ones(())
        for mode in range(W.ndim):
            is_boolean = mode == atom.mode
            ax = plotting.plot_boolean(W, k) if is_boolean else plotting.plot_real(W, k, mode)
            values = ax.images[0].get_array()[0] if is_boolean else ax.lines[0].get_ydata()
            product = np.multiply.outer(product, np.asarray(values, dtype=float))
        np.testing.assert_allclose(product, W[[k]].to_tensor(), atol=1e-12)


def test_products_of_a_rank_two_atom_sum_to_its_entries(rng):
    factors = tuple(rng.standard_normal((d, 2)) for d in (5, 6))
    V = factors[0] @ factors[1].T
    atom = Atom(1, [1, 0, 1], (factors[0] / np.linalg.norm(V), factors[1]))
    W = BooleanCP((5, 3, 6), (atom,), [2.0])
    columns = [np.array([line.get_ydata() for line in plotting.plot_real(W, 0, n).lines[:-1]]).T for n in (0, 2)]
    np.testing.assert_allclose(columns[0] @ columns[1].T, 2 * V / np.linalg.norm(V), atol=1e-12)
    assert len(plotting.plot_atoms(W).axes) == 5  # three modes, the image and its scale


def written_otherwise(W, rng):
    """Return the same atoms by other products: mixed along two real modes, else in another order, scaled and signed."""
    atoms = []
    for atom in W.atoms:
        L = atom.rank
        if len(atom.factors) == 2:
            T = rng.standard_normal((L, L))
            factors = (atom.factors[0] @ T, atom.factors[1] @ np.linalg.inv(T).T)
        else:
            scales = rng.choice([-2.0, 0.5], (len(atom.factors), L))
            scales[0] = 1 / scales[1:].prod(axis=0)
            factors = tuple(A[:, ::-1] * c for A, c in zip(atom.factors, scales, strict=True))
        atoms.append(replace(atom, factors=factors))
    return replace(W, atoms=tuple(atoms))


@pytest.mark.parametrize("shape", [(9, 7), (4, 9, 7), (4, 9, 7, 6)])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_pictures_do_not_depend_on_the_products_that_an_atom_is_written_by(shape, is_hidden, rng):
    factors = tuple(rng.standard_normal((d, 3)) * [3, 2, 1] for d in shape[1:])
    hidden = {1: np.arange(shape[1]) == 2} if is_hidden else None
    W = BooleanCP(shape, (Atom(0, np.arange(shape[0]) < 2, factors),), [2.0], undetermined=hidden)
    other = written_otherwise(W, rng)
    np.testing.assert_allclose(other.to_tensor(), W.to_tensor(), rtol=1e-9, atol=1e-9)
    for mode in range(1, len(shape)):
        lines = [[line.get_ydata() for line in plotting.plot_real(V, 0, mode).lines[:-1]] for V in (W, other)]
        assert len(lines[0]) == (3 if len(shape) > 2 else 1)
        np.testing.assert_allclose(*lines, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(*(leading_column(V, 0, mode) for V in (W, other)), rtol=1e-6, atol=1e-6)
    columns = list(real_columns(W, 0).values())
    sums = np.nan_to_num(khatri_rao(columns)).sum(axis=1).reshape(shape[1:])
    np.testing.assert_allclose(sums, np.nan_to_num(W.to_tensor()[0]), atol=1e-9)


def test_nonnegative_products_are_drawn_as_they_are_and_those_of_rounding_not(rng):
    factors = tuple(rng.random((d, 2)) * [1, 3] for d in (9, 7))
    W = BooleanCP((4, 9, 7), (Atom(0, [1, 0, 1, 0], factors),), [2.0])
    drawn = real_columns(W, 0)[2]
    np.testing.assert_allclose(drawn, (factors[1] / factors[1].max(axis=0))[:, ::-1])
    A, B = rng.standard_normal((9, 1)), rng.standard_normal((7, 2))
    W = BooleanCP((4, 9, 7), (Atom(0, [1, 0, 1, 0], (A @ [[1, 2]], B)),), [2.0])
    assert real_columns(W, 0)[1].shape == (9, 1)


def test_rounding_does_not_turn_a_pattern_over(rng):
    """A pattern as large above zero as below has the same sign whatever the last digits say."""
    wave = np.sin(np.arange(1, 9) * np.pi / 4.5)
    for end in (0, -1):
        turned = wave.copy()
        turned[np.abs(wave).argsort()[-4:][end]] *= 1 + 1e-12
        V = np.outer(turned, np.arange(1.0, 10.0))
        atoms = [Atom(0, [1, 0, 1, 0], (turned[:, None], V[:1].T)), Atom(0, [1, 0, 1, 0], block=V)]
        for atom in atoms:
            W = BooleanCP((4, 8, 9), (atom,), [1.0])
            assert real_columns(W, 0)[1][0, 0] > 0


def test_the_leading_pattern_is_not_that_of_the_largest_entry():
    V = np.zeros((4, 4))
    V[0, 0], V[1:, 1:] = 10.0, 6.0
    for block in (V, V[:, :, None] * np.ones(2)):
        W = BooleanCP((3, *block.shape), (Atom(0, [1, 0, 1], block=block),), [1.0])
        np.testing.assert_allclose(np.abs(leading_column(W, 0, 1)), [0, 1, 1, 1], atol=1e-8)


def test_a_block_is_an_image_with_its_leading_pattern(rng):
    W = block_atoms((4, 9, 7), rng)
    V = 3.0 * W.atoms[0].block
    np.testing.assert_allclose(plotting.plot_real(W, 0, (1, 2)).images[0].get_array(), V)
    np.testing.assert_allclose(plotting.plot_real(W, 0, (2, 1)).images[0].get_array(), V.T)
    U, sizes, _ = np.linalg.svd(V)
    line = plotting.plot_real(W, 0, 1).lines[0].get_ydata()
    assert abs(line @ U[:, 0]) == pytest.approx(np.linalg.norm(line), rel=1e-6)
    columns = real_columns(W, 0)
    assert np.linalg.norm(columns[1]) * np.linalg.norm(columns[2]) == pytest.approx(sizes[0], rel=1e-6)


def test_an_order_four_block_is_contracted_with_its_pattern(rng):
    vectors = [rng.standard_normal(d) for d in (5, 6, 7)]
    V = np.einsum("i,j,k", *vectors)
    W = BooleanCP((3, 5, 6, 7), (Atom(0, [1, 0, 1], block=V / np.linalg.norm(V)),), [2.0])
    image = np.asarray(plotting.plot_real(W, 0, (2, 3)).images[0].get_array())
    expected = signs_of(vectors[0][:, None]) * np.outer(vectors[1], vectors[2])
    np.testing.assert_allclose(image, 2 * expected / np.linalg.norm(expected), rtol=1e-6)
    assert atom_panels(W, 0) == [0, 1, 2, 3, (2, 3)]


def test_positions_make_a_map_of_electrodes(rng):
    shape = (12, 8, 5)
    W = rank_one(shape, 3, rng, labels=electrodes(shape, rng))
    points = plotting.plot_boolean(W, 0).collections[0]
    on = np.all(points.get_facecolors() == colors.to_rgba(plotting.ON), axis=1)
    np.testing.assert_array_equal(on, W.atoms[0].z)
    off = np.all(points.get_facecolors() == colors.to_rgba(plotting.OFF), axis=1)
    np.testing.assert_array_equal(off, ~W.atoms[0].z)
    np.testing.assert_array_equal(points.get_offsets()[:, 0], W.labels.extra["x"][1])
    real = plotting.plot_real(W, 1, 0).collections[0]
    np.testing.assert_array_equal(real.get_array(), real_columns(W, 1)[0][:, 0])


def test_positions_of_another_mode_or_without_numbers_make_a_strip(rng):
    W = rank_one((4, 5, 6), 2, rng)
    for values in (np.full(4, np.nan), np.array(list("abcd"))):
        labels = Labels(("a", "b", "c"), extra={"x": ("a", values), "y": ("a", values)})
        assert len(plotting.plot_boolean(replace(W, labels=labels), 0).images) == 1
    assert len(plotting.plot_boolean(replace(W, labels=labels), 1).images) == 1


def test_axes_have_coordinates_units_and_names(rng):
    names = np.array(["Fz", "$Cz$", "a very long channel name", "<script>", "Oz"])
    coords = {"channel": names, "time": np.arange(6) / 10}
    labels = Labels(("channel", "time", "trial"), coords, {"time": "s"}, {}, "ECoG")
    W = rank_one((5, 6, 7), 3, rng, labels=labels)
    ax = plotting.plot_real(W, 0, 1)
    assert ax.get_xlabel() == "time (s)"
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), coords["time"])
    assert plotting.plot_boolean(W, 1).images[0].get_extent()[:2] == pytest.approx((-0.05, 0.55))
    texts = [tick.get_text() for tick in plotting.plot_boolean(W, 0).get_xticklabels()]
    assert texts[:2] == ["Fz", r"\$Cz\$"] and texts[3] == "<script>" and len(texts[2]) <= 18
    assert texts[2] == "a very lo…nel name"
    bars = plotting.plot_real(W, 1, 0).patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], real_columns(W, 1)[0][:, 0])
    W.plot().canvas.draw()  # no text is taken for a formula


@pytest.mark.parametrize("coords", [[1.0, 2.0, 4.0, 8.0], [3.0, 1.0, 2.0, 4.0], [4.0, 3.0, 2.0, 1.0]])
def test_strips_of_uneven_or_unordered_coordinates_are_labelled(coords, rng):
    labels = Labels(("f", "g"), {"f": np.array(coords)})
    W = rank_one((4, 5), 1, rng, labels=labels)
    ax = plotting.plot_boolean(W, 0)
    np.testing.assert_array_equal(ax.images[0].get_array()[0], W.atoms[0].z)
    left, right = ax.images[0].get_extent()[:2]
    if coords[0] == 4.0:
        assert (left, right) == (4.5, 0.5)
    else:
        assert [float(tick.get_text()) for tick in ax.get_xticklabels()] == coords


def test_octaves_are_drawn_on_a_logarithmic_axis(rng):
    frequencies = 2.0 ** np.arange(5)
    W = rank_one((4, 5), 1, rng, labels=Labels(("a", "frequency"), {"frequency": frequencies}))
    ax = plotting.plot_real(W, 0, 1)
    assert ax.get_xscale() == "log" and ax.get_xlim() == pytest.approx((2**-0.5, 2**4.5))
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), frequencies)
    W = replace(W, labels=Labels(("a", "time"), {"time": np.arange(5) + 1e3}))
    assert plotting.plot_real(W, 0, 1).get_xscale() == "linear"


def test_slices_without_data_are_gaps(rng):
    empty = np.array([False, True, False, False, False, False])
    W = rank_one((6, 7, 8), 2, rng, undetermined={0: empty})
    np.testing.assert_array_equal(np.ma.getmaskarray(plotting.plot_boolean(W, 0).images[0].get_array())[0], empty)
    np.testing.assert_array_equal(np.isnan(plotting.plot_real(W, 1, 0).lines[0].get_ydata()), empty)
    block = replace(block_atoms((6, 7, 8), rng, mode=2), undetermined={0: empty})
    image = np.ma.filled(plotting.plot_real(block, 0, (0, 1)).images[0].get_array(), np.nan)
    np.testing.assert_array_equal(np.isnan(image), np.repeat(empty[:, None], 7, axis=1))
    assert np.isfinite(block.atoms[0].block).all()  # the atom itself is not touched
    W.plot().canvas.draw()


@pytest.mark.parametrize("shape", [(6, 7), (6, 7, 8), (4, 5, 6, 3), (3, 4, 3, 5, 4)])
def test_figures_of_any_order(shape, rng):
    W = rank_one(shape, 3, rng)
    assert len(W.plot().axes) == 3 * W.ndim
    assert len(W.plot([-1]).axes) == W.ndim
    figure = pyplot.figure(layout="constrained")
    assert plotting.plot_atoms(W, [0], figure) is figure and len(figure.axes) == W.ndim
    plotting.plot_atoms(block_atoms(shape, rng)).canvas.draw()
    assert not BooleanCP(shape).plot().axes


def test_given_axes_are_drawn_on_and_wrong_modes_refused(rng):
    W = rank_one((6, 7, 8), 1, rng)
    ax = pyplot.figure().subplots()
    assert plotting.plot_boolean(W, ax=ax) is ax and len(ax.images) == 1
    for mode in (0, (0, 1)):
        with pytest.raises(ValueError, match="is Boolean along mode 0"):
            plotting.plot_real(W, 0, mode)
    for mode in (3, (1, 1), (-1, 1)):
        with pytest.raises(ValueError, match="mode must be"):
            plotting.plot_real(W, 0, mode)


def test_pictures_say_what_they_are_drawn_from_and_take_one_number(rng):
    W = rank_one((4, 5, 6), 3, rng)
    with pytest.raises(TypeError, match="plot needs a BooleanCP, got Atom"):
        plotting.plot_atoms(W.atoms[0])
    assert len(plotting.plot_atoms(W, 1).axes) == len(plotting.plot_atoms(W, [1]).axes) == 3


def test_uncertain_bits_are_pale():
    W = boolcp.decompose(boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=4, random_state=0).X, 2, random_state=0)
    confidence, mode = W.bit_confidence()[0], W.atoms[0].mode
    alpha = plotting.plot_boolean(W, 0).images[0].get_alpha()[0]
    order = np.argsort(confidence)
    assert (np.diff(alpha[order]) >= 0).all() and alpha[order[0]] < 0.9 < alpha[order[-1]] and alpha.min() >= 0.2
    assert "pale: uncertain" in [text.get_text() for text in W.plot().legends[0].get_texts()]
    labels = Labels(("a", "b", "c"), extra={c: ("abc"[mode], np.arange(W.shape[mode]) ** 2.0) for c in "xy"})
    points = plotting.plot_boolean(replace(W, labels=labels), 0).collections[-1]
    np.testing.assert_allclose(points.get_alpha(), alpha)
    plain = replace(W, trust=None)
    assert (plotting.plot_boolean(plain, 0).images[0].get_alpha() == 1).all()
    assert "pale: uncertain" not in [text.get_text() for text in plain.plot().legends[0].get_texts()]


def test_notebooks_show_tables_with_a_small_picture():
    X, _, _ = boolcp.datasets.make_boolean_cp((8, 9, 20), 2, noise=0.3, random_state=0)
    W = boolcp.decompose(X, 2, random_state=0)
    before, html = pyplot.get_fignums(), W._repr_html_()
    picture = base64.b64decode(re.search(r'src="data:image/png;base64,([^"]+)"', html)[1])
    assert picture.startswith(b"\x89PNG") and len(picture) < 60_000 and "<b>" not in html
    assert pyplot.get_fignums() == before, "no figure is left open"
    assert "<img" not in BooleanCP((2, 3))._repr_html_()
    assert "&lt;b&gt;" in boolcp.compare_conditions(W, ["<b>"] * 10 + ["b"] * 10, mode=2)._repr_html_()
