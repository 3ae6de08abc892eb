"""The report: one page that holds all it shows, with the numbers of the decomposition."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from xml.etree import ElementTree

import numpy as np
import pytest

import boolcp
from boolcp.cli import WRONG_INPUT, main
from boolcp.io import FileError
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("itables")

from boolcp import report
from boolcp.report import assets, charts, words

VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """Tags with their attributes, tables, words, styles and scripts, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.tables, self.words, self.styles, self.scripts = [], [], [], [], [], []
        self.feed(text)
        assert not self.open, f"{self.open} are not closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1:] == ["script"]:
            self.scripts[-1] += text
        else:
            (self.styles if self.open[-1:] == ["style"] else self.words).append(text)
        if "tr" in self.open and text.strip():
            self.tables[-1][-1].append(text)

    @property
    def rows(self):
        """The table of atoms."""
        return self.tables[1]

    def charts(self):
        """The charts that Plotly is given."""
        kinds = [attributes for tag, attributes in self.tags if tag == "script"]
        assert len(kinds) == len(self.scripts)
        return [
            json.loads(text)
            for attributes, text in zip(kinds, self.scripts, strict=True)
            if attributes.get("type") == "application/json" and "id" not in attributes
        ]

    def attributes(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def written(W, tmp_path, **options):
    path = tmp_path / "report.html"
    report.write_report(W, path, **options)
    return Page(path.read_text(encoding="utf-8"))


def plotly_reads(chart):
    """Let Plotly check every property of a chart; it raises at what it does not know."""
    graph_objects = pytest.importorskip("plotly.graph_objects")
    return bool(graph_objects.Figure(chart).data)


@pytest.fixture(scope="module")
def model():
    X, _, _ = boolcp.datasets.make_boolean_cp((12, 14, 16), 3, noise=0.3, random_state=0)
    return boolcp.BMP(3, random_state=7).fit(X)


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    return written(model, tmp_path_factory.mktemp("page"))


def test_the_table_has_the_numbers_of_the_atoms_sorted_by_share(model, tmp_path):
    W = model.decomposition_[[2, 0]]
    W = W if np.diff(W.explained_alone()) > 0 else W[[1, 0]]  # not in order
    page = written(W, tmp_path)
    head, *rows = page.rows
    assert head == ["atom", "Boolean along", "on", "rank", "weight", "alone", "unique", "certificate"]
    shares = W.explained_alone()
    assert [int(row[0].split()[1]) for row in rows] == np.argsort(-shares).tolist()
    for row in rows:
        k = int(row[0].split()[1])
        atom = W.atoms[k]
        assert row[1:4] == [f"mode {atom.mode}", f"{atom.n_ones} of {len(atom.z)}", "1"]
        assert float(row[4]) == pytest.approx(W.weights[k], rel=1e-3)
        percents = [float(cell.split()[0]) / 100 for cell in row[5:]]
        assert percents == pytest.approx([shares[k], W.explained_unique()[k], atom.certificate], abs=6e-4)


def test_the_page_is_self_contained_and_its_pictures_have_texts(page):
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"link", "iframe", "object", "base"}
    assert not any("src" in attributes for attributes in page.attributes("script"))
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:image/svg+xml;base64,"))
    images = page.attributes("img")
    assert len(images) == 3 + 3 * 3 and all(image["alt"] for image in images)
    plots = [attributes for attributes in page.attributes("div") if attributes.get("class") == "plot"]
    assert len(plots) == len(page.charts()) and all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    for image in images:
        picture = ElementTree.fromstring(base64.b64decode(image["src"].partition(",")[2]))
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        for element in picture.iter():
            addresses = [value for name, value in element.items() if name.endswith(("href", "src"))]
            assert all(address.startswith(("#", "data:")) for address in addresses)
    style = "".join(page.styles)
    assert "prefers-color-scheme: dark" in style and "@import" not in style
    assert all(address.startswith("data:") for address in re.findall(r"url\(['\"]?(.{5})", style))
    policy = page.attributes("meta")[4]["content"]
    kinds = [attributes.get("type") for attributes in page.attributes("script")]
    (glue,) = [text for kind, text in zip(kinds, page.scripts, strict=True) if kind is None]  # the only one that runs
    assert policy.startswith("default-src 'none'") and assets.script_hash(glue) in policy
    targets = {attributes.get("id") for _, attributes in page.tags}
    assert all(a["href"][1:] in targets for a in page.attributes("a"))


def test_plotly_is_the_file_that_its_note_names():
    folder = resources.files("boolcp.report").joinpath("plotly")
    source = folder.joinpath("plotly-cartesian.min.js").read_bytes()
    note = folder.joinpath("README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(source).hexdigest() in note
    version = re.search(rb"plotly\.js \(cartesian - minified\) v([\d.]+)", source)[1].decode()
    assert f"dist-min` {version}" in note


def test_a_fitted_model_brings_its_origin(model, page):
    text = "".join(page.words)
    code = next(word for word in page.words if word.startswith("boolcp.BMP("))
    assert "random_state=7" in code and "n_atoms=3" in code and code.endswith(".fit(X)")
    again = eval(code.removesuffix(".fit(X)"), {"boolcp": boolcp})
    assert again.get_params() == model.get_params()
    assert f"{100 * model.decomposition_.explained():.2f} %" in text and np.__version__ in text
    assert ", ".join(f"{step.relative_error:.4f}" for step in model.history_) in page.attributes("img")[0]["alt"]
    assert "These atoms are identifiable" in text


def test_labels_are_text(tmp_path, rng):
    evil = "<script>alert(1)</script>"
    names = np.array([evil, '"><img src=x>', "$\\frac$", "a & b"])
    labels = Labels((evil, "time", "c"), {evil: names}, {"time": "<b>"}, {evil: ("c", np.arange(5))}, evil)
    vectors = tuple(rng.standard_normal((d, 1)) for d in (6, 5))
    W = BooleanCP((4, 6, 5), (Atom(0, [1, 0, 1, 0], vectors),), [1.0], labels)
    page = written(W, tmp_path, provenance={"command": f"boolcp fit '{evil}'", evil: evil, "versions": {evil: evil}})
    assert len(page.attributes("script")) == len(page.charts()) + 3 and not page.attributes("b")
    assert evil not in "".join(page.scripts) and "&lt;script&gt;" in json.dumps(page.charts())
    assert all(image["src"].startswith("data:") for image in page.attributes("img"))
    text = "".join(page.words)
    assert f"boolcp fit '{evil}'" in text and f"On along {evil}: {evil}, $\\frac$" in text


@pytest.mark.parametrize(
    ("shape", "atom_rank"),
    [((8, 9), 1), ((8, 9), None), ((6, 7, 8), 2), ((6, 7, 8), None), ((5, 6, 4, 3), None)],
)
def test_any_order_and_rank(shape, atom_rank, tmp_path):
    X, _, _ = boolcp.datasets.make_boolean_cp(shape, 1, noise=0.1, random_state=0)
    W = boolcp.BMP(1, atom_rank=atom_rank, random_state=0).fit(X).decomposition_
    page = written(W, tmp_path)
    assert len(page.attributes("article")) == 1
    captions = [image["alt"] for image in page.attributes("img") if "real part, " in image["alt"]]
    has_image = len(shape) > 2 and atom_rank != 1
    assert len([alt for alt in captions if " by " in alt]) == int(has_image)
    assert all(plotly_reads(chart) for chart in page.charts())


def test_missing_entries_and_slices_without_data(tmp_path):
    X, _, _ = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.1, missing=0.3, random_state=0)
    X[:, 4] = np.nan
    with pytest.warns(UserWarning):
        W = boolcp.BMP(2, random_state=0).fit(X).decomposition_
    text = "".join(written(W, tmp_path).words)
    assert "some; the fit is over the observed ones" in text
    assert "Without any data, mode 14" in text and "nan" not in text


def test_truths_and_empty_decompositions_have_a_page(tmp_path):
    truth = boolcp.datasets.make_boolean_cp((5, 6), 2, random_state=0).truth
    assert [row[5:] for row in written(truth, tmp_path).rows[1:]] == [["-"] * 3] * 2
    assert "There are none." in "".join(written(BooleanCP((2, 3)), tmp_path, force=True).words)


def test_a_page_of_a_large_decomposition_is_small(tmp_path, rng):
    shape = (128, 3000, 100)
    x, y = rng.standard_normal((2, 128))
    labels = Labels(("channel", "time", "trial"), extra={"x": ("channel", x), "y": ("channel", y)})
    atoms = [Atom(0, rng.random(128) < 0.5, block=rng.standard_normal(shape[1:])) for _ in range(5)]
    for n in (0, 1, 1, 2, 2):
        others = tuple(rng.standard_normal((d, 1)) for m, d in enumerate(shape) if m != n)
        atoms.append(Atom(n, rng.random(shape[n]) < 0.5, others))
    W = BooleanCP(shape, tuple(atoms), np.ones(10), labels)
    written(W, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 10e6


def test_json_and_labels_stay_text():
    held = json.loads(assets.to_json({"</script>": ["<!--", 1 / 3, np.float32(2), np.int64(3), True, None]}))
    assert held == {"</script>": ["<!--", 0.33333333, 2, 3, True, None]} and "<" not in assets.to_json("</script>")
    assert assets.held_script("1 < 2") == ("text/plain", "1 < 2")
    kind, text = assets.held_script('"<SCRIPT>"')
    assert kind == "application/json" and "<" not in text and json.loads(text) == '"<SCRIPT>"'
    assert assets.plain("<b>%{x}&</b>") == "&lt;b&gt;&#37;{x}&amp;&lt;/b&gt;"


@pytest.mark.parametrize("values", [np.array([[1.5, np.nan], [2, -3]]), np.arange(4), np.array([True, False])])
def test_typed_arrays_hold_the_numbers(values):
    held = json.loads(assets.to_json(values))
    back = np.frombuffer(base64.b64decode(held["bdata"]), dtype=f"<{held['dtype']}")
    assert np.array_equal(back, values.ravel(), equal_nan=values.dtype.kind == "f")
    assert held.get("shape") == (", ".join(map(str, values.shape)) if values.ndim > 1 else None)


def test_times_far_from_zero_keep_their_digits():
    times = 1.6e9 + np.arange(5) / 1000
    held = json.loads(assets.to_json(times))
    assert np.array_equal(np.frombuffer(base64.b64decode(held["bdata"]), dtype=f"<{held['dtype']}"), times)


def test_very_long_lines_keep_their_extremes_and_the_page_says_so(tmp_path, rng):
    column = rng.standard_normal(50_001)
    kept = charts.kept_points(column)
    assert len(kept) <= charts.MAX_POINTS and {column.argmin(), column.argmax()} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all() and len(charts.kept_points(column[:20_000])) == 20_000
    W = BooleanCP((3, 50_001), (Atom(0, [1, 0, 1], (column[:, None],)),), [1.0])
    assert "mode 1: real part (least and largest of each 6 points)" in written(W, tmp_path).words


def test_large_images_are_means_of_neighbors(rng):
    image = rng.standard_normal((101, 700))
    steps = charts._image_steps(image.shape)
    small = charts._averaged(image, steps)
    assert small.size <= charts.MAX_CELLS < image.size
    naive = [
        [image[i : i + steps[0], j : j + steps[1]].mean() for j in range(0, 700, steps[1])]
        for i in range(0, 101, steps[0])
    ]
    assert np.allclose(small, naive)


def test_conditions_areas_and_states_are_compared(tmp_path, rng):
    labels = Labels(
        ("channel", "state", "trial"),
        {"state": np.array(["awake", "asleep"]), "channel": np.array([f"c{i}" for i in range(20)])},
        extra={"condition": ("trial", np.array(["b", "a", "b", "b"])), "onset": ("trial", np.arange(4.0))},
    )
    assert words.find_groups(BooleanCP((20, 2, 4), labels=labels)) == [(1, "state"), (2, "condition")]
    factors = (rng.standard_normal((20, 1)), np.array([[1.0], [-0.5]]))
    page = written(BooleanCP((20, 2, 4), (Atom(2, [1, 0, 0, 1], factors),), [1.0], labels), tmp_path)
    assert page.tables[2] == [
        ["atom", "what", "awake (1)", "asleep (1)"],
        ["atom 0", "mean of the real part", "1", "-0.5"],
    ]
    assert page.tables[3] == [["atom", "what", "b (3)", "a (1)"], ["atom 0", "share of ones", "67 %", "0 %"]]


def test_units_missing_entries_residual_and_stability_are_shown(tmp_path):
    xarray = pytest.importorskip("xarray")
    X, _, _ = boolcp.datasets.make_boolean_cp((12, 13, 14), 2, noise=0.5, missing=0.1, random_state=0)
    X = xarray.DataArray(X, dims=("channel", "time", "trial"), name="ECoG", attrs={"units": "uV"})
    model = boolcp.BMP(2, random_state=0).fit(X)
    check = boolcp.residuals.residual_check(X, model.decomposition_)
    stability = boolcp.stability(X, 2, n_runs=2, random_state=0, reference=model.decomposition_)
    assert stability.decomposition.atoms == model.decomposition_.atoms
    boolcp.save(model, tmp_path / "result.nc", data=X)
    W, provenance = boolcp.load(tmp_path / "result.nc"), boolcp.io.load_provenance(tmp_path / "result.nc")
    page = written(W, tmp_path, provenance=provenance, residual=check, stability=stability)
    n_missing = int(np.isnan(X.values).sum())
    text = "".join(page.words)
    assert f"{n_missing} of {X.size} ({100 * n_missing / X.size:.1f} %)" in text and "ECoG (uV)" in text
    assert f"{np.sqrt(np.nanmean(X.values**2)):.4g} uV" in page.words
    assert "no structure above white noise" in text and f"channel {check.structure[0]:.2f}, time " in text
    assert page.rows[0][-1] == "came back" and [row[-1] for row in page.rows[1:]] == ["100.0 %"] * 2
    assert "came back in 100.0 % of 2 fits (seeds)" in text and "on in 100 % of the fits" in "".join(page.scripts)
    assert all(plotly_reads(chart) for chart in page.charts())
    with pytest.raises(ValueError, match="another decomposition"):
        report.write_report(W[[1, 0]], tmp_path / "other.html", stability=stability)
    with pytest.raises(ValueError, match="reference has shape"):
        boolcp.stability(X[:, :5], 2, reference=W)


def test_where_an_atom_is_on_is_told_in_runs():
    z = np.array([1, 1, 1, 0, 1, 0, 0, 1, 1], dtype=bool)
    labels = Labels(("time", "c"), {"time": np.arange(9) / 10}, {"time": "s"})
    W = BooleanCP((9, 2), (Atom(0, z, (np.ones((2, 1)),)),), [1.0], labels)
    assert words.on_text(W, 0) == "0 to 0.2, 0.4, 0.7, 0.8 s"
    assert words.on_text(replace(W, atoms=(replace(W.atoms[0], z=z | True),)), 0) == "all 9 entries"
    assert words.on_text(replace(W, atoms=(replace(W.atoms[0], z=z & False),)), 0) == "no entry"


def test_equal_decompositions_have_equal_pages_and_pages_are_not_lost(tmp_path):
    W = boolcp.datasets.make_boolean_cp((5, 6), 1, random_state=0).truth
    path = tmp_path / "report.html"
    W.report(path)
    first = path.read_bytes()
    with pytest.raises(FileError, match="exists already"):
        W.report(path)
    with pytest.raises(TypeError, match="BooleanCP"):
        report.write_report(3, path, force=True)
    assert path.read_bytes() == first
    W.report(path, force=True)
    assert path.read_bytes() == first and [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_command_writes_the_page_beside_the_result(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, _, _ = boolcp.datasets.make_boolean_cp((6, 7, 8), 1, noise=0.1, random_state=0)
    np.save("data.npy", X)
    assert main(["fit", "data.npy", "-k", "1", "-o", "out", "--stability", "2"]) == 0
    capsys.readouterr()
    assert main(["report", "out"]) == 0 and capsys.readouterr().out.split() == ["out/report.html"]
    page = Page((tmp_path / "out" / "report.html").read_text())
    text = "".join(page.words)
    assert boolcp.io.load_provenance("out/decomposition.nc")["data"]["fingerprint"] in text
    assert re.search(r"By the command\s+boolcp ", text)
    assert "came back in 100.0 % of 2 fits (bootstrap along mode2)" in text and "Residual, root mean square" in text
    boolcp.datasets.make_boolean_cp((4, 5), 1, random_state=0).truth.save("other.nc")
    assert main(["report", "other.nc"]) == 0 and (tmp_path / "other.html").exists()
    capsys.readouterr()
    for arguments, message in (
        (["out"], "exists already"),
        (["nothing"], "there is no such file"),
        (["data.npy"], "data.npy"),
        ([str(tmp_path)], "has no decomposition.nc"),
    ):
        assert main(["report", *arguments]) == WRONG_INPUT
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert main(["report", "out", "--force"]) == 0
    assert main(["fit", "data.npy", "-k", "1", "-o", "out", "--force"]) == 0
    assert not (tmp_path / "out" / "report.html").exists()
