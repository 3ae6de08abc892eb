"""The report: one page that holds all it shows, with the numbers of the decomposition."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import boolcp
from boolcp.cli import WRONG_INPUT, main
from boolcp.io import FileError
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels
from boolcp.result.trust import Trust

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("itables")

import matplotlib.colors

from boolcp import plotting, report
from boolcp.fit.state import STOP_REASONS
from boolcp.io.results import make_provenance
from boolcp.report import assets, charts, ordering, pictures, story, tested, words

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
        text = text.replace(words.NO_BREAK, " ")
        if self.open[-1:] == ["script"]:
            self.scripts[-1] += text
        else:
            (self.styles if self.open[-1:] == ["style"] else self.words).append(text)
        if "tr" in self.open and text.strip():
            self.tables[-1][-1].append(text)

    @property
    def rows(self):
        """The table of atoms, which comes first; none without atoms."""
        return self.tables[0]

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
    return bool(graph_objects.Figure({name: chart[name] for name in ("data", "layout")}).data)


@pytest.fixture(scope="module")
def model():
    X, _, _ = boolcp.datasets.make_boolean_cp((12, 14, 16), 3, noise=0.3, random_state=0)
    return boolcp.BMP(3, random_state=7).fit(X)


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    return written(model, tmp_path_factory.mktemp("page"))


def test_the_table_has_the_numbers_of_the_atoms_in_their_order(model, tmp_path):
    W = model.decomposition_[[2, 0]]
    page = written(W, tmp_path)
    head, *rows = page.rows
    assert head[:4] == ["atom", "on or off along", "on", "sure bits"]
    assert head[4:] == ["alone", "unique", "certificate"]
    confidence = W.bit_confidence()
    shares = W.explained_alone()
    assert [int(row[0].split()[1]) for row in rows] == [0, 1]
    for row in rows:
        k = int(row[0].split()[1])
        atom = W.atoms[k]
        assert row[1:3] == [f"mode {atom.mode}", f"{atom.n_ones} of {len(atom.z)}"]
        assert f"{W.weights[k]:.4g}" in page.words
        percents = [float(cell.split()[0]) / 100 for cell in row[3:]]
        sure = np.mean(confidence[k] >= 0.95)
        assert percents[:3] == pytest.approx([sure, shares[k], W.explained_unique()[k]], abs=6e-4)
        assert 0 <= atom.certificate - percents[3] < 1.001e-3  # what is proved is rounded down


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
    errors = ", ".join(f"{step.relative_error:.4f}" for step in model.history_)
    assert any(errors in image["alt"] for image in page.attributes("img"))
    assert "no other 3 atoms give the same sum" in text


def test_nothing_is_said_of_uniqueness_where_atoms_are_noise(tmp_path, rng):
    W = boolcp.decompose(rng.standard_normal((9, 10, 11)), 3, random_state=0)
    text = "".join(written(W, tmp_path).words)
    assert "Three of them are no larger than noise can be." in text and "description" not in text


def test_labels_are_text(tmp_path, rng):
    evil = "<script>alert(1)</script>"
    names = np.array([evil, '"><img src=x>', "$\\frac$", "a & b"])
    labels = Labels((evil, "time", "c"), {evil: names}, {"time": "<b>"}, {evil: ("c", np.arange(5))}, evil)
    vectors = tuple(rng.standard_normal((d, 1)) for d in (6, 5))
    W = BooleanCP((4, 6, 5), (Atom(0, [1, 0, 1, 0], vectors),), [1.0], labels)
    page = written(W, tmp_path, provenance={"command": f"boolcp fit '{evil}'", evil: evil, "versions": {evil: evil}})
    assert len(page.attributes("script")) == len(page.charts()) + 4 and not page.attributes("b")
    assert evil not in "".join(page.scripts) and "&lt;script&gt;" in json.dumps(page.charts())
    assert all(image["src"].startswith("data:") for image in page.attributes("img"))
    text = "".join(page.words)
    assert f"boolcp fit '{evil}'" in text and f"{evil}, $\\frac$." in text


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
    page = written(truth, tmp_path)  # shares of no data, and the notes on them, are left out
    assert [len(row) for row in page.rows[:3]] == [3] * 3 and "alone" not in "".join(page.words)
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
    assert "mode 1: real part (smallest and largest of each 6 points)" in written(W, tmp_path).words


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
    assert plotting.groups_of(BooleanCP((20, 2, 4), labels=labels)) == [(1, "state"), (2, "condition")]
    factors = (rng.standard_normal((20, 1)), np.array([[1.0], [-0.5]]))
    page = written(BooleanCP((20, 2, 4), (Atom(2, [1, 1, 0, 0], factors),), [1.0], labels), tmp_path)
    assert page.tables[1] == [
        ["atom", "what", "awake (1)", "asleep (1)"],
        ["atom 0", "mean of the real part", "1.00", "-0.50"],
    ]
    assert page.tables[2] == [
        ["atom", "what", "effect", "AUC", "p", "b (3)", "a (1)"],
        ["atom 0", "share of ones", "+67 points", "0.83", "1.00", "1 of 3 (33 %)", "1 of 1 (100 %)"],
    ]


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
    assert "no pattern stands out" in text and f"channel {check.structure[0]:.3f}, time " in text
    assert page.rows[0][3:6] == ["verdict", "sure bits", "stability"]
    assert [row[3:6:2] for row in page.rows[1:]] == [["stable, informative", "100 %"]] * 2
    assert (
        "Both pass all tests: they come back in at least 80 % of 4 fits to halves along trial and are informative."
        in text
    )
    assert ": on, 100 % sure" in "".join(page.scripts)
    assert all(plotly_reads(chart) for chart in page.charts())
    with pytest.raises(ValueError, match="a different decomposition"):
        report.write_report(W[[1, 0]], tmp_path / "other.html", stability=stability)
    with pytest.raises(ValueError, match="W has shape"):
        boolcp.stability(X[:, :5], 2, reference=W)


def test_where_an_atom_is_on_is_told_in_runs():
    z = np.array([1, 1, 1, 0, 1, 0, 0, 1, 1], dtype=bool)
    labels = Labels(("time", "c"), {"time": np.arange(9) / 10}, {"time": "s"})
    W = BooleanCP((9, 2), (Atom(0, z, (np.ones((2, 1)),)),), [1.0], labels)

    def told(z, labels=labels):
        return words.on_text(replace(W, atoms=(replace(W.atoms[0], z=z),), labels=labels), 0)

    assert told(z) == "0 to 0.2, 0.4, 0.7, 0.8 s"
    assert told(z | True) == "all 9 time points" and told(z & False) == "nowhere"
    named = Labels(("channel", "c"), {"channel": np.array(["FPz", "Fz", "Cz", "T8", "CP5", "Pz", "O1", "Oz", "O2"])})
    assert told(z, named) == "FPz, Fz, Cz, CP5, Oz, O2"
    assert told(np.arange(9) != 3, named) == "all but T8"
    many = Labels(("channel", "c"), {"channel": np.array([f"E{n}" for n in range(30)])})
    long = BooleanCP((30, 2), (Atom(0, np.arange(30) % 7 > 0, (np.ones((2, 1)),)),), [1.0], many)
    assert words.on_text(long, 0) == "all but E0, E7, E14, E21, E28"
    assert story.atom_sentence(long, 0, {}) == "Atom 0 is on in 25 of 30 channels: all but E0, E7, E14, E21, E28."
    times = Labels(("time", "c"), {"time": np.arange(9) / 128 - 1}, {"time": "s"})
    assert told(z, times) == "-1 to -0.984, -0.969, -0.945, -0.938 s"


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
    fit = ["fit", "data.npy", "-k", "1", "-o", "out", "--assess", "--stability", "2"]
    monkeypatch.setattr("sys.argv", ["boolcp", *fit])
    assert main(fit) == 0
    capsys.readouterr()
    assert main(["report", "out"]) == 0 and capsys.readouterr().out.split() == ["out/report.html"]
    page = Page((tmp_path / "out" / "report.html").read_text())
    text = "".join(page.words)
    assert boolcp.io.load_provenance("out/decomposition.nc")["data"]["fingerprint"] in text
    assert re.search(r"By the command\s+boolcp fit data.npy -k 1 ", text)
    trusted = "It passes all tests: stable, significant, informative."
    assert trusted in text and "Residual, root mean square" in text
    boolcp.datasets.make_boolean_cp((4, 5), 1, random_state=0).truth.save("other.nc")
    assert main(["report", "other.nc"]) == 0 and (tmp_path / "other.html").exists()
    capsys.readouterr()
    for arguments, message in (
        (["out"], "exists already"),
        (["nothing"], "there is no such file"),
        (["data.npy"], "data.npy"),
        ([str(tmp_path)], "is a folder without decomposition.nc"),
    ):
        assert main(["report", *arguments]) == WRONG_INPUT
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert main(["report", "out", "--force"]) == 0
    assert main(["fit", "data.npy", "-k", "1", "-o", "out", "--force"]) == 0
    assert not (tmp_path / "out" / "report.html").exists()


def labelled_atoms(rng):
    """Three atoms: on in the trials of a drug; on in all but one channel; on in a time, negative along trials."""
    n_channels, n_times, n_trials = 16, 20, 30
    channels = np.array([f"E{n}" for n in range(n_channels)])
    drug = np.array(["none", "propofol", "ketamine"])[np.arange(n_trials) % 3]
    labels = Labels(
        ("channel", "time", "trial"),
        {"channel": channels, "time": np.arange(n_times) / 128, "trial": np.arange(n_trials)},
        {"time": "s"},
        {"drug": ("trial", drug), "correct": ("trial", np.arange(n_trials) % 2 == 0)},
        "EEG",
        "µV",
    )
    shape, atoms = (n_channels, n_times, n_trials), []
    for mode, z in ((2, drug == "propofol"), (0, channels != "E3"), (1, np.arange(n_times) < 8)):
        factors = tuple(rng.standard_normal((d, 1)) for n, d in enumerate(shape) if n != mode)
        atoms.append(Atom(mode, z, tuple(v / np.linalg.norm(v) for v in factors)))
    return BooleanCP(shape, tuple(atoms), [3.0, -2.0, 1.5], labels)


def test_the_story_says_what_is_so(rng):
    W = labelled_atoms(rng)
    tests = tested.find_tests(W, {})
    sentences = story.tell(W, {}, tests)
    assert sentences[0] == "Two atoms and one baseline (on almost everywhere) make up this tensor."
    assert story.tell(W[[0]], {}, {})[0] == "One atom makes up this tensor."
    assert words.subtitle_of(W).endswith(", in 2 atoms and 1 baseline")
    assert words.describe_fit(W, {})[0] == ("Atoms", "2 atoms and 1 baseline")
    assert "Atom 0 is on in 10 of 30 trials: all 10 propofol trials, and no others (p < 0.001)." in sentences[2]
    assert "Atom 1 is a baseline, on in 15 of 16 channels: all but E3." in sentences[3]
    assert sentences[4].startswith("Atom 2 is on in 8 of 20 time points: 0 to 0.055 s.")
    peak = W.atoms[0].factors[0][:, 0]
    flat = replace(W.atoms[0], factors=(np.sign(peak)[:, None] / 4, W.atoms[0].factors[1]))
    sharp = replace(W.atoms[0], factors=(np.eye(16)[:, [5]] + 0.2, W.atoms[0].factors[1]))
    for atom, said in ((flat, "Its pattern is strongest at E"), (sharp, "Its pattern is strongest at E5")):
        assert (said in story.peak_text(replace(W, atoms=(atom, *W.atoms[1:])), 0)) == (atom is sharp)
    always = replace(W, atoms=(replace(W.atoms[0], z=W.atoms[0].z | True), *W.atoms[1:]))
    assert story.atom_sentence(always, 0, {}).startswith("Atom 0 is a baseline, on in all 30 trials.")
    assert story.card_text(W, 2, {}).startswith("On at 0 to 0.055 s.")
    few = replace(W, atoms=(replace(W.atoms[0], z=np.arange(30) % 7 == 3), *W.atoms[1:]))
    assert story.card_text(few, 0, {}).startswith("On in trials 3, 10, 17, 24.")
    z = W.atoms[0].z.copy()
    z[[1, 0, 3]] = False, True, True  # one of propofol off, two of the others on
    changed = replace(W, atoms=(replace(W.atoms[0], z=z), *W.atoms[1:]))
    text = story.atom_sentence(changed, 0, tested.find_tests(changed, {}))
    assert "all but one of the 10 propofol trials, 2 of the 10 none trials and none of the 10 ketamine trials" in text


def test_conditions_are_named_only_if_a_test_finds_them(rng):
    W = labelled_atoms(rng)
    some = np.isin(np.arange(30), [1, 4, 7, 10, 0, 2])  # 4 of 10 propofol trials, 1 of 10 others: 30 points apart
    half = replace(W, atoms=(replace(W.atoms[0], z=some), *W.atoms[1:]))
    tests = tested.find_tests(half, {})
    assert tests["drug"].effect[0] == pytest.approx(0.3) and tests["drug"].p_adjusted[0] > 0.05
    assert "propofol" not in story.atom_sentence(half, 0, tests)
    speed = rng.standard_normal(30)
    real = replace(W.atoms[1], factors=(W.atoms[1].factors[0], speed[:, None] / np.linalg.norm(speed)))
    extra = W.labels.extra | {"speed": ("trial", speed + 0.0)}
    moved = replace(W, atoms=(W.atoms[0], real, W.atoms[2]), labels=replace(W.labels, extra=extra))
    tests = tested.find_tests(moved, {})
    assert "Its real part rises with speed (rank correlation +1.00, p < 0.001)." in story.atom_sentence(moved, 1, tests)
    for sign, size in ((1, "larger"), (-1, "smaller")):  # bits are on or off, which is simpler to say
        extra = W.labels.extra | {"speed": ("trial", sign * W.atoms[0].z + 0.01 * speed)}
        followed = replace(W, labels=replace(W.labels, extra=extra))
        text = story.atom_sentence(followed, 0, tested.find_tests(followed, {}))
        assert f"It is on more often where speed is {size} (rank correlation {sign * 0.82:+.2f}, p < 0.001)." in text
    drug = (W.labels.extra["drug"][1] == "ketamine") + 0.1
    real = replace(W.atoms[2], factors=(W.atoms[2].factors[0], drug[:, None] / np.linalg.norm(drug)))
    moved = replace(W, atoms=(*W.atoms[:2], real))
    text = "Its real part differs most between ketamine trials and none trials"
    text += " (mean 1.00 and 0.09 of its largest size, p < 0.001)."
    assert text in story.atom_sentence(moved, 2, tested.find_tests(moved, {}))


def test_tests_that_were_asked_for_are_the_only_ones_and_all_count_for_false_discoveries(rng):
    W = labelled_atoms(rng)
    every, asked = tested.find_tests(W, {}), tested.find_tests(W, {"tests": {"correct": {"blocks": "drug"}}})
    codes = np.arange(30) % 3
    extra = {"code": ("trial", codes), "again": ("trial", codes), "n": ("trial", np.arange(30))}
    coded = replace(W, labels=replace(W.labels, extra=extra))  # repeated numbers are conditions, once; a count is not
    assert list(tested.find_tests(coded, {})) == ["code"]
    assert list(every) == ["drug", "correct"] and list(asked) == ["correct"] and "3 blocks" in asked["correct"].scheme
    p = np.concatenate([every["drug"].p_value, every["correct"].p_value])
    together = np.concatenate([every["drug"].p_adjusted, every["correct"].p_adjusted])
    order = np.argsort(p)
    naive = np.minimum.accumulate((p[order] * 6 / np.arange(1, 7))[::-1])[::-1]
    np.testing.assert_allclose(together[order], np.minimum(naive, 1))


def test_the_story_says_how_many_atoms_were_asked_for_and_of_what(rng):
    W = replace(labelled_atoms(rng), data_norm2=9.0, data_inner=[1.0, 1.0, 1.0])
    asked = {"parameters": {"n_atoms": 5}}
    assert story.tell(W, asked, {})[0].endswith(". Five were asked for.")
    assert ("Atoms", "2 atoms and 1 baseline of 5 that were asked for") in words.describe_fit(W, asked)
    stopped = dict(words.describe_fit(W, asked | {"stop_reason": STOP_REASONS["n_atoms"]}))
    assert stopped["The pursuit stopped because"].endswith("was reached; not all of them were kept")
    assert "asked for" not in story.tell(W, asked | {"is_partial": True}, {})[0]
    assert "asked for" not in story.tell(W, {"parameters": {"n_atoms": 3}}, {})[0]
    for name, said in (("y", "of the data"), ("count", "of the counts"), ("EEG", "of the EEG")):
        named = replace(W, labels=replace(W.labels, name=name))
        assert f"% of the variance {said}." in story.tell(named, {}, {})[0]
        source = {"data": {"source": f"{name}.nc"}}  # an array with the name of its file
        assert f"of the {'counts' if name == 'count' else 'data'}." in story.tell(named, source, {})[0]
    assert words.value_label(replace(W, labels=replace(W.labels, name="count", value_unit=""))) == "count"


def test_groups_without_room_for_their_names_have_a_legend(rng):
    W = labelled_atoms(rng)
    assert charts.band_legend(W, 2) == []
    narrow = np.array(["rare"] + ["common"] * 29)
    W = replace(W, labels=replace(W.labels, extra={"kind": ("trial", narrow)}))
    legend = charts.band_legend(W, 2)
    assert [name for _, name in legend] == ["rare (1)", "common (29)"] and len({color for color, _ in legend}) == 2
    panel = pictures.atom_figure(W, 0, 2)
    assert panel["legend"] == legend and panel["caption"].endswith(", sorted by kind")
    assert pictures.atom_figure(W, 1, 2)["caption"] == "trial: real part, sorted by kind"
    assert pictures.atom_figure(W, 1, (2, 1))["caption"].startswith("real part, trial by time, sorted by kind")
    assert json.loads(panel["chart"])["layout"]["annotations"] == []  # all names, or none


def test_modes_have_other_colors_than_atoms():
    modes = {charts.mode_color(n) for n in range(5)}
    assert len(modes) == 5 and not modes & set(charts.atom_colors(7))


def test_what_is_left_out_of_a_list_is_counted_in_entries():
    z = np.tile([True] * 5 + [False], 100)
    W = BooleanCP((600, 2), (Atom(0, z, (np.ones((2, 1)),)),), [1.0])
    assert words.on_text(W, 0).endswith("174 to 178 and 350 more")


@pytest.mark.parametrize(
    ("stability", "p", "words"),
    [
        (
            [1, 0.9, 0.8],
            None,
            "All three pass all tests: they come back in at least 80 % of 6 fits and are informative.",
        ),
        (
            [1, 0.9, 0.2],
            [0.001, 0.3, 0.3],
            "Of the atoms, two come back in at least 80 % of 6 fits, one is significantly more than noise and",
        ),
        (
            [1, 0.9, 0.2],
            [0.3, 0.3, 0.03],
            "Of the atoms, two come back in at least 80 % of 6 fits, one is significantly more than noise and",
        ),
        (
            [0, 0.1, 0.2],
            None,
            "Of the atoms, none comes back in at least 80 % of 6 fits and none is informative. No atom",
        ),
        (None, None, "Whether the atoms are more than noise has not been tested"),
    ],
)
def test_the_story_tells_of_trust(stability, p, words, rng):
    W = labelled_atoms(rng)
    z = np.arange(16) % 2 == 0  # an atom that is on in nearly all channels is no news
    W = replace(W, atoms=(W.atoms[0], replace(W.atoms[1], z=z), W.atoms[2]))
    known = {"p_adjusted": p if p is None else np.array(p)}
    known |= {} if stability is None else {"stability": np.array(stability)}
    W = replace(W, trust=Trust(**known, stable_over="6 fits"))
    told = story.tell(W, {}, {})[1]
    good = [k for k in range(3) if stability and stability[k] >= 0.8 and (p is None or p[k] <= 0.05)]
    assert told.startswith(words)
    assert not stability or bool(re.search(r"No atom passes all tests", told)) == (not good)
    assert len(good) != 1 or f"Atom {good[0]} passes all tests." in told


def test_bits_in_doubt_are_gray_and_follow_their_entries(rng):
    X, _, _ = boolcp.datasets.make_boolean_cp((14, 10, 12), 1, noise=4, random_state=3)
    W = boolcp.decompose(X, 1, boolean_modes=[0], random_state=0)
    p, z = W.bit_confidence()[0], W.atoms[0].z
    assert (p < 0.9).any(), "some bits are in doubt"
    values = charts.bit_values(W, 0)
    np.testing.assert_allclose(values[p > 0.5], np.where(z, p, 1 - p)[p > 0.5])
    assert (values[z] >= 0.5).all() and (values[~z] <= 0.5).all(), "a bit never has the color of the other state"
    order = rng.permutation(14)
    np.testing.assert_allclose(charts.bit_values(ordering.reordered(W, 0, order), 0), values[order])
    k = int(np.argmin(p))
    assert charts.bit_texts(W, 0)[k].endswith(f"{'on' if z[k] else 'off'}, {100 * max(p[k], 0.5):.0f} % sure")


def test_title_and_story_come_before_the_atoms_and_checksums_last(tmp_path):
    X, _, _ = boolcp.datasets.make_boolean_cp((6, 7, 8), 1, noise=0.1, random_state=0)
    model = boolcp.BMP(1, random_state=0).fit(X)
    provenance = boolcp.io.results.make_provenance(model, data=X) | {
        "data": {"source": "rat_7.nwb", "fingerprint": "f00d"}
    }
    page = written(model, tmp_path, provenance=provenance)
    text = "".join(page.words)
    assert "rat_7" in page.words, "the title is the name of the recording alone"
    text = text[text.index("What was found") :]
    order = [
        "What was found",
        "One atom explains",
        "The atoms",
        "The fit",
        "The data",
        "f00d",
        "How it was made",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_entries_are_sorted_by_condition_in_charts_and_nothing_else_changes(rng):
    W = labelled_atoms(rng)
    orders = ordering.group_orders(W)
    assert list(orders) == [2] and sorted(orders[2]) == list(range(30))
    S = ordering.reordered(W, 2, orders[2])
    np.testing.assert_allclose(S.to_tensor(), W.to_tensor()[:, :, orders[2]])
    assert [(band.name, band.start, band.stop) for band in ordering.bands(S, 2)] == [
        ("none", 0, 10),
        ("propofol", 10, 20),
        ("ketamine", 20, 30),
    ]
    assert (
        ordering.bands(W, 2) == []
        and S.labels.extra["correct"][1].tolist() == W.labels.extra["correct"][1][orders[2]].tolist()
    )
    chart = charts.boolean_chart(S, 0)
    assert chart["data"][0]["z"][0].tolist() == [0] * 10 + [1] * 10 + [0] * 10
    assert [note["text"] for note in chart["layout"]["annotations"]] == ["none (10)", "propofol (10)", "ketamine (10)"]
    colors = [shape["fillcolor"] for shape in chart["layout"]["shapes"]]
    assert len(set(colors)) == 3 and plotly_reads(chart)
    block = replace(W.atoms[1], factors=None, block=rng.standard_normal((20, 30)))
    B = replace(W, atoms=(block,), weights=np.ones(1))
    np.testing.assert_allclose(ordering.reordered(B, 2, orders[2]).to_tensor(), B.to_tensor()[:, :, orders[2]])


def test_signs_agree_between_overview_and_card(rng):
    W = labelled_atoms(rng)
    for mode in range(3):
        for chart in charts.together_charts(W, mode).values():
            for trace in chart["data"]:
                k = trace["meta"]["atom"]
                if W.atoms[k].mode == mode:
                    continue
                card = plotting.real_columns(W, k)[mode][:, 0]
                shown = np.ravel(trace["z"] if trace["type"] == "heatmap" else trace["y"])
                np.testing.assert_allclose(shown, card / np.abs(card).max(), rtol=1e-12)


def test_lines_and_bars_of_a_card_have_the_color_of_the_atom(rng):
    W = labelled_atoms(rng)
    W = replace(W, labels=replace(W.labels, extra={}))  # no positions: bars for channels
    seen = set()
    for k, color in enumerate(charts.atom_colors(W.n_atoms)):
        for mode in set(range(3)) - {W.atoms[k].mode}:
            for trace in charts.real_chart(W, k, mode)["data"]:
                assert trace["marker" if trace["type"] == "bar" else "line"]["color"] == color
                seen.add(trace["type"])
            ax = plotting.plot_real(W, k, mode, color=color)
            drawn = [patch.get_facecolor() for patch in ax.patches] or [ax.lines[0].get_color()]
            assert {matplotlib.colors.to_hex(one).upper() for one in drawn} == {color}
    assert seen == {"bar", "scatter"}


@pytest.mark.parametrize("n_atoms", [1, 5, 7, 8, 40])
def test_no_two_atoms_have_one_color(n_atoms):
    assert len(set(charts.atom_colors(n_atoms))) == n_atoms


@pytest.mark.parametrize("n_groups", [2, 7, 8, 12])
def test_no_two_groups_have_one_color_and_none_is_black_or_that_of_an_atom(n_groups):
    colors = charts.group_colors(n_groups)
    assert len(set(colors)) == len(colors) == n_groups and "#000000" not in colors
    assert not set(colors) & {*charts.atom_colors(7), *charts.atom_colors(n_groups), "#0072B2", "#F0E442"}


def test_no_mean_is_minus_zero(tmp_path, rng):
    W = labelled_atoms(rng)
    drug = W.labels.extra["drug"][1]
    column = np.where(drug == "ketamine", 1.0, np.where(drug == "none", -0.001, 0.5))
    W = replace(W, atoms=(*W.atoms[:2], replace(W.atoms[2], factors=(W.atoms[2].factors[0], column[:, None]))))
    assert "0.00 ± 0.00" in written(W, tmp_path).tables[1][3]
    assert boolcp.compare_conditions(W, "drug").summary().splitlines()[-1].split()[2:5] == ["0.00", "0.50", "1.00"]


def test_bars_of_conditions_have_their_numbers_and_spread(rng):
    W = labelled_atoms(rng)
    means = plotting.condition_means(W, "trial", "drug")
    chart = charts.groups_chart(means, is_boolean=True)
    bars = {trace["name"]: trace for trace in chart["data"]}
    assert list(bars) == ["none (10)", "propofol (10)", "ketamine (10)"] and bars["propofol (10)"]["y"] == [100]
    full = bars["propofol (10)"]["error_y"]
    assert full["array"][0] == pytest.approx(0) and full["arrayminus"][0] == pytest.approx(100 * (1 - 0.7225), abs=0.1)
    points = charts.groups_chart(means, is_boolean=False)["data"]
    values = [trace["y"][0] for trace in points if trace["meta"]["atom"] == 1]
    np.testing.assert_allclose(values, means.mean[1])
    assert plotly_reads(chart) and all(trace["error_y"]["array"][0] > 0 for trace in points)


def test_labels_for_the_search_are_all_there(rng):
    W = labelled_atoms(rng)
    held = words.search_labels(W)
    assert held["0"] == [f"E{n}" for n in range(16)] and len(held["2"]) == 30
    bits = np.frombuffer(base64.b64decode(words.packed(W.atoms[1].z)), np.uint8)
    assert [bool(bits[i >> 3] >> (i & 7) & 1) for i in range(16)] == W.atoms[1].z.tolist()


def test_many_products_are_drawn_as_their_leading_pattern(rng):
    factors = tuple(rng.standard_normal((d, 6)) for d in (7, 8))
    atom = Atom(0, [1, 0, 1, 1, 0], tuple(A / 10 for A in factors))
    W = BooleanCP((5, 7, 8), (atom,), [2.0])
    from boolcp.report import pictures

    simple, is_leading = pictures.with_leading(W, 0, 1)
    assert is_leading and simple.atoms[0].rank == 1
    U, sizes, V = np.linalg.svd(atom.dense_block())
    np.testing.assert_allclose(simple.atoms[0].dense_block(), sizes[0] * np.outer(U[:, 0], V[0]), atol=1e-6)
    few = replace(W, atoms=(replace(atom, factors=tuple(A[:, :2] for A in factors)),))
    assert pictures.with_leading(few, 0, 1) == (few, False)


def test_no_line_joins_units(rng):
    """Products along units, whose order means nothing, are points; along time they are lines."""
    labels = Labels(("trial", "unit", "time"), {"unit": np.arange(7), "time": np.arange(8) / 10})
    factors = tuple(rng.standard_normal((d, 2)) for d in (7, 8))
    W = BooleanCP((5, 7, 8), (Atom(0, [1, 0, 1, 1, 0], factors),), [2.0], labels)
    for mode, is_line in ((1, False), (2, True)):
        traces = charts.real_chart(W, 0, mode)["data"]
        assert [trace["name"] for trace in traces] == ["product 0", "product 1"]
        assert all(("lines" in trace["mode"]) == is_line for trace in traces)
        drawn = plotting.plot_real(W, 0, mode).lines[:2]
        assert all((one.get_linestyle() != "None") == is_line for one in drawn)
        assert len({(one.get_linestyle(), one.get_marker()) for one in drawn}) == 2


def test_a_head_has_an_outline_and_a_map_between_electrodes(rng):
    angle, turn = rng.uniform(0.1, 1.5, 20), rng.uniform(0, 2 * np.pi, 20)
    places = np.stack([np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn), np.cos(angle)])
    extra = {axis: ("channel", 0.09 * values) for axis, values in zip("xyz", places, strict=True)}
    names = np.array([f"E{n}" for n in range(20)])
    labels = Labels(("channel", "time"), {"channel": names}, extra=extra, name="EEG")
    factor = rng.standard_normal((20, 1))
    W = BooleanCP(
        (20, 5), (Atom(1, [1, 0, 1, 0, 1], (factor,)), Atom(0, factor[:, 0] > 0, (np.ones((5, 1)),))), [1, 1], labels
    )
    positions = plotting.positions_of(W, 0)
    np.testing.assert_allclose(np.linalg.norm(positions, axis=1), 2 * angle / np.pi, atol=1e-6)
    chart = charts.real_chart(W, 0, 0)
    image, *lines, points = chart["data"]
    assert image["type"] == "heatmap" and len(lines) == 4 and points["text"] == names.tolist()
    side = image["x0"] + image["dx"] * np.arange(image["z"].shape[1])
    nearest = image["z"][tuple(np.abs(side[:, None] - positions[:, i]).argmin(axis=0) for i in (1, 0))]
    column = plotting.real_columns(W, 0)[0][:, 0]
    assert np.corrcoef(nearest, column)[0, 1] > 0.9
    assert [trace["type"] for trace in charts.boolean_chart(W, 1)["data"]] == ["scatter"] * 5
    assert plotly_reads(chart)
    flat = replace(W, labels=replace(labels, name="ECoG"))
    assert len(charts.real_chart(flat, 0, 0)["data"]) == 1, "no head around a cortex"


def test_a_map_of_the_head_is_empty_far_from_all_electrodes():
    turn = np.linspace(0, np.pi, 12)
    front = np.stack([np.cos(turn), np.sin(turn)], axis=1) * np.tile([[0.6], [0.9]], (6, 1))
    side, image = plotting.head.interpolate(front, np.arange(12.0))
    far = np.min([np.hypot(*np.meshgrid(side - x, side - y)) for x, y in front], axis=0)
    inside = np.hypot(*np.meshgrid(side, side)) <= 1
    assert np.isnan(image[far > 0.5]).all() and np.isfinite(image[inside & (far < 0.5)]).all()
    assert 0.1 < np.mean(far[inside] > 0.5) < 0.9


def test_a_title_names_all_files(rng):
    W = labelled_atoms(rng)
    for source, title in (("awake.t1.mat", "awake"), ("awake.mat and 2 more", "awake and 2 more")):
        assert words.title_of(W, {"data": {"source": source}}) == title


def test_a_page_of_a_file_without_names_has_plain_words(tmp_path, rng):
    """The array of a .npy file has no quantity, no unit and modes that are only counted."""
    np.save(tmp_path / "session7.npy", rng.standard_normal((6, 7, 8)))
    X = boolcp.open_tensor(tmp_path / "session7.npy")
    model = boolcp.BMP(1, random_state=0).fit(X)
    report.write_report(model, tmp_path / "report.html", provenance=make_provenance(model, data=X))
    page = Page((tmp_path / "report.html").read_text())
    text = " ".join("".join(page.words).split())
    assert text.startswith("session7 - boolcp")
    assert "6 x 7 x 8, in 1 atom" in text and "% of the variance of the data" in text
    mode = model.decomposition_.atoms[0].mode
    assert f"{(6, 7, 8)[mode]} entries of mode {mode}" in text
    assert not any(odd in text for odd in ("arbitrary", "array", "Quantity"))
    W = model.decomposition_
    on = replace(W, atoms=(replace(W.atoms[0], z=np.arange(W.shape[mode]) < 2),))
    assert story.card_text(on, 0, {}).startswith("On at 0, 1.")
    check = SimpleNamespace(structure=[0.5] * 3, lag_correlation=[0.0, 0.9, 0.0], is_noise=True)
    assert "neighbors along mode 1 are correlated" in story.tell(W, {}, {}, check)[-1]
    assert boolcp.stability(X, reference=W, n_runs=1, random_state=0).over == "2 fits to halves along mode 2"
    volts = replace(W, labels=replace(W.labels, value_unit="µV"))
    assert words.subtitle_of(volts).startswith("size (µV), ")
    assert plotting.mode_labels.value_text(volts) == "size (µV)"


def test_the_story_tells_of_the_background():
    recording = boolcp.datasets.simulate_recording(random_state=0)
    W = boolcp.BMP(3, certify=False, random_state=0).fit(recording.X).decomposition_
    n_entries = 32 * 200 * 60
    for share, more in ((0.3, " Whether"), (0.8, " The background has 80 % as many degrees of freedom as")):
        found = replace(W.background, degrees_of_freedom=share * n_entries)
        told = f"real structure of rank {found.rank} of at most 32 beside the atoms, explains another"
        W = replace(W, background=found)
        assert f"{told} {100 * found.share:.0f} %.{more}" in " ".join(story.tell(W, {}, {}))
    half = replace(W, background=replace(found, n_observed=n_entries // 2))
    assert "The background has 160 %" in " ".join(story.tell(half, {}, {}))
    pairs = dict(words.describe_fit(W, {}))
    assert (
        pairs["Background"].startswith(f"rank {found.rank} along mode 0, ") and "Relative error, atoms alone" in pairs
    )
    assert pictures.fit_figures(W, [0.9])[0]["caption"].endswith("the circle is the result, without its background")
    alone = replace(W, background=None)
    assert "background" not in " ".join(story.tell(alone, {}, {}))


@pytest.mark.parametrize(
    ("structure", "lag", "is_large", "told"),
    [
        (0.9, 0.02, False, "The residual looks like white noise."),
        (0.9, -0.53, False, "No pattern stands out of the residual, but neighbors along time are correlated (-0.53)."),
        (1.5, -0.53, False, "The residual is not white noise: structure remains, most along trial."),
        (1.5, 0.02, True, "The residual is not white noise: structure remains, most along trial."),
        (0.9, 0.02, True, "Beside such a background, the residual does not tell whether a pattern is missing."),
    ],
)
def test_the_story_tells_what_the_residual_can_tell(structure, lag, is_large, told):
    names = ("channel", "time", "trial")
    check = SimpleNamespace(structure=(0.5, 0.6, structure), lag_correlation=(0.01, lag, 0.0))
    check.is_noise = structure <= 1
    assert story._leftover(BooleanCP((2, 2, 2), labels=Labels(names)), check, is_large) == told


def test_the_page_of_a_matrix_speaks_of_two_modes(tmp_path, rng):
    W = BooleanCP((9, 20), (Atom(0, np.arange(9) < 4, (rng.standard_normal((20, 1)),)),), [2.0])
    residual = boolcp.residuals.residual_check(W.to_tensor() + np.outer(np.ones(9), np.arange(20.0)), W)
    text = "".join(written(W, tmp_path, residual=residual).words)
    assert "structure remains. An atom" in " ".join(text.split())  # along both modes alike
    assert "and has real sizes along the other. The matrix is the sum of its atoms and what they leave." in text


def test_the_story_says_that_a_test_found_nothing(rng):
    W = labelled_atoms(rng)[1:]  # one atom on in nearly all channels, one in a time: neither knows the drug
    extra = W.labels.extra | {"speed": ("trial", rng.permutation(np.linspace(0.1, 0.7, 30)))}
    W = replace(W, labels=replace(W.labels, extra=extra))
    asked = {"tests": {"drug": {}, "speed": {}}}
    tests = tested.find_tests(W, asked)
    told = " ".join(story.tell(W, asked, tests))
    for name, what in (("drug", "differs clearly by drug"), ("speed", "clearly follows speed")):
        assert f"No atom {what} (smallest {tested.p_words(tests[name].p_adjusted.min())})." in told
    assert "No atom" not in " ".join(story.tell(W, {}, tests)), "nobody asked"


def test_a_peak_is_that_of_all_products_and_has_its_sign(rng):
    W = labelled_atoms(rng)
    profile, channel = np.full(20, 0.01), np.full(16, 0.01)
    profile[7], channel[5] = 1.0, -1.0
    one = replace(W.atoms[0], factors=(channel[:, None], profile[:, None]))
    flat = np.column_stack([0.2 * np.ones(20), profile])  # the leading product is flat, their sum is not
    two = replace(W.atoms[0], factors=(np.column_stack([np.ones(16), 3 * channel]), flat))
    for atom, weight, value in ((one, 3.0, "-3"), (one, -3.0, "+3"), (two, 2.0, "-5.6")):
        told = story.peak_text(replace(W, atoms=(atom, *W.atoms[1:]), weights=[weight, -2.0, 1.5]), 0)
        assert told == f"Its pattern is strongest at E5 and 0.055 s ({value} µV)."
    numbered = replace(W.labels, coords=W.labels.coords | {"channel": np.arange(1, 17)})  # no names, but not an order
    for weight, value in ((3.0, "-3"), (1234.0, "-1234"), (3e6, "-3e+06")):
        large = replace(W, atoms=(one, *W.atoms[1:]), weights=[weight, -2.0, 1.5], labels=numbered)
        assert story.peak_text(large, 0) == f"Its pattern is strongest at channel 6 and 0.055 s ({value} µV)."


def test_values_at_a_peak_are_those_of_the_whole_atom(rng):
    """One end of a range is not the value of the atom: which end is larger may be a matter of rounding."""
    W, profile = labelled_atoms(rng), np.full(20, 0.01)
    profile[7] = 1.0
    channel = np.linspace(-1, 1, 16)
    for turn in (1 - 1e-12, 1 + 1e-12):
        turned = channel * np.where(channel > 0, turn, 1)
        one = replace(W.atoms[0], factors=(turned[:, None], profile[:, None]))
        two = replace(one, factors=tuple(np.column_stack([A / 2, A]) for A in one.factors))
        for atom, size in ((one, "3"), (two, "3.75"), (replace(one, factors=None, block=one.dense_block()), "3")):
            told = story.peak_text(replace(W, atoms=(atom, *W.atoms[1:])), 0)
            assert told == f"Its pattern is strongest at 0.055 s (-{size} to +{size} µV over channels)."
    rising = replace(W.atoms[0], factors=(np.linspace(0.0123456, 1, 16)[:, None], profile[:, None]))
    assert "(+0.04 to +3 µV over channels)" in story.peak_text(replace(W, atoms=(rising, *W.atoms[1:])), 0)
    pair = np.where(np.arange(16) == 4, 1.0, np.where(np.arange(16) == 9, -0.97, 0.01))
    atom = replace(W.atoms[0], factors=(pair[:, None], profile[:, None]))
    told = story.peak_text(replace(W, atoms=(atom, *W.atoms[1:])), 0)
    assert told == "Its pattern is strongest at E4, E9 and 0.055 s (-2.91 to +3 µV)."


def test_a_peak_is_one_place_of_the_atom(rng):
    """The strongest channel and the strongest time of an atom of rank two need not meet, and two peaks are none."""
    W, block = labelled_atoms(rng), np.full((16, 20), 0.01)
    block[5, 3], block[:, 12] = 5.0, block[:, 12] + 1.5  # channel 5 is large at one time, all others at another
    for atom in (Atom(2, W.atoms[0].z, block=block), Atom(2, W.atoms[0].z, (np.eye(16), block.T))):
        told = story.peak_text(replace(W, atoms=(atom, *W.atoms[1:])), 0)
        assert told == "Its pattern is strongest at E5 and 0.023 s (+15 µV)."
    profile = np.where(np.isin(np.arange(20), (3, 12)), 1.0, 0.01)
    atom = replace(W.atoms[0], factors=(np.ones((16, 1)), profile[:, None]))
    assert story.peak_text(replace(W, atoms=(atom, *W.atoms[1:])), 0) == ""


def test_the_page_does_not_depend_on_the_products_that_an_atom_is_written_by(rng):
    """Products that are mixed, and a fit to data that differ in rounding, tell the same and draw the same."""
    W = labelled_atoms(rng)
    profiles = np.exp(-(((np.arange(20)[:, None] - [4, 11, 15]) / 2.0) ** 2))
    factors = (rng.normal([0, 3, 0], 1, (16, 3)), profiles)
    T = rng.standard_normal((3, 3))
    mixed = (factors[0] @ T, factors[1] @ np.linalg.inv(T).T)
    pages = [replace(W, atoms=(replace(W.atoms[0], factors=one), *W.atoms[1:])) for one in (factors, mixed)]
    X = pages[0].to_tensor() + 0.1 * rng.standard_normal(W.shape)
    fits = [boolcp.decompose(Y, 2, atom_rank=3, boolean_modes=[2], random_state=0) for Y in (X, X * (1 + 1e-12))]
    for one, other in (pages, [replace(fit, labels=W.labels) for fit in fits]):
        assert story.tell(one, {}, {}) == story.tell(other, {}, {})
        for first, second in zip(pictures.atom_figures(one, 0), pictures.atom_figures(other, 0), strict=True):
            assert (first["alt"], first["caption"]) == (second["alt"], second["caption"])
        for mode in (0, 1):
            cards = [charts.real_chart(V, 0, mode)["data"] for V in (one, other)]
            assert len(cards[0]) == 3
            rows = [next(iter(charts.together_charts(V, mode).values()))["data"] for V in (one, other)]
            for a, b in [*zip(*cards, strict=True), *zip(*rows, strict=True)]:
                shown = "z" if a["type"] == "heatmap" else "y"
                np.testing.assert_allclose(a[shown], b[shown], atol=1e-5 * np.abs(a[shown]).max())


def test_groups_are_in_order_and_entries_without_a_label_are_in_none(rng):
    W = labelled_atoms(rng)
    for given, names in (
        (["2", "10", ""] * 10, ("2", "10")),
        (np.tile([2, 1], 15), ("1", "2")),
        (["b", "", "a"] * 10, ("b", "a")),
    ):
        labels = replace(W.labels, extra={"kind": ("trial", np.array(given))})
        changed = replace(W, labels=labels)
        tests = tested.find_tests(changed, {})
        part = pictures.group_parts(changed, tests)[0]
        assert tests["kind"].conditions == names
        assert [head.partition(" (")[0] for head in part["heads"][3:]] == list(names)
        ends = names[::-1] if names[0] == "b" else [f"kind={name}" for name in names[::-1]]
        assert part["note"].startswith(f"Effect: {ends[0]} minus {ends[1]};")
        found = [band.name for band in ordering.bands(report.in_order(changed), 2)]
        assert found == [*names, *["no label"] * ("" in given)]


def test_one_of_many_equal_channels_is_no_peak(rng):
    W = labelled_atoms(rng)
    for n_equal, told in ((1, True), (2, True), (3, False), (8, False)):
        column = np.full(16, 0.01)
        column[:n_equal] = 1 - 0.02 * np.arange(n_equal)
        atom = replace(W.atoms[0], factors=(column[:, None], W.atoms[0].factors[1]))
        text = story.peak_text(replace(W, atoms=(atom, *W.atoms[1:])), 0)
        assert ("E0" in text) is told


def test_baselines_come_last_on_the_page(rng, tmp_path):
    report.write_report(labelled_atoms(rng), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert re.findall(r'<article class="card" id="atom-(\d)', page) == ["0", "2", "1"]
    assert "Atom 1, a baseline: on in 15 of 16 channels" in page and "atom 1</a> (baseline)</th>" in page


def test_two_of_two_atoms_are_both(rng):
    W = replace(labelled_atoms(rng)[[0, 2]], trust=Trust(p_adjusted=np.zeros(2), stability=np.array([0.1, 0.2])))
    told = story.tell(W, {}, {})
    assert ", both are significantly more than noise and none is informative. No atom" in told[1]
    assert "It is not stable: it comes back in 10 % of other fits." in told[2]


def test_each_atom_has_a_paragraph(rng):
    before, after = ["Two atoms.", "Both pass."], ["The cards below also show atom 2.", "The residual looks .."]
    parts = story.paragraphs([*before, "Atom 0 is on in ..", "Atom 1 is on in ..", *after])
    assert parts == [" ".join(before), "Atom 0 is on in ..", "Atom 1 is on in ..", " ".join(after)]


def test_units_are_not_joined_by_a_line(rng):
    W = labelled_atoms(rng)
    for name, kind in (("unit", "bar"), ("depth", "scatter")):
        labels = Labels((name, "time", "trial"), {name: np.arange(1, 17)})
        chart = charts.real_chart(replace(W, labels=labels), 0, 0)
        assert chart["data"][0]["type"] == kind
        if kind == "bar":
            np.testing.assert_array_equal(chart["data"][0]["x"], np.arange(1, 17))


def test_a_page_with_numbers_only_does_not_speak_of_conditions(tmp_path, rng):
    W = labelled_atoms(rng)
    conditions, numbers = "Conditions side by side", "Numbers that atoms may follow"
    for extra, head, other in (
        (W.labels.extra, conditions, numbers),
        ({"speed": ("trial", np.linspace(0.1, 0.7, 30))}, numbers, conditions),
    ):
        path = tmp_path / f"{len(extra)}.html"
        report.write_report(replace(W, labels=replace(W.labels, extra=extra)), path)
        text = path.read_text()
        assert head in text and other not in text and ("how many of its entries" in text) == (head == conditions)


def test_a_weak_correlation_is_called_slight(rng):
    W = labelled_atoms(rng)
    for effect, bits, real in (
        (0.8, "It is on more often where speed is larger (", "Its real part rises with speed ("),
        (-0.1, "It is on slightly more often where speed is smaller (", "Its real part falls slightly with speed ("),
    ):
        test = SimpleNamespace(
            conditions=(),
            is_boolean=np.array([True, False, False]),
            effect=np.full(3, effect),
            p_adjusted=np.full(3, 0.01),
            mode=2,
        )
        assert story.differ_text(W, 0, {"speed": test}).startswith(bits)
        assert story.differ_text(W, 1, {"speed": test}).startswith(real)


def test_bits_in_doubt_are_named_if_they_are_few(rng, monkeypatch):
    W = labelled_atoms(rng)
    known = replace(W, trust=Trust(rise=tuple(np.ones(len(atom.z)) for atom in W.atoms), sigma=0.001))
    for doubted, said in (
        ([], ""),
        (range(5), ""),
        ([4], "Bits in doubt: 4."),
        ([4, 5, 6, 20], "Bits in doubt: 4 to 6, 20."),
    ):
        sure = [np.ones(len(atom.z)) for atom in W.atoms]
        sure[0][list(doubted)] = 0.9
        monkeypatch.setattr(BooleanCP, "bit_confidence", lambda W, sure=sure: tuple(sure))
        assert story.doubt_text(known, 0) == said and story.doubt_text(W, 0) == story.doubt_text(known, 1) == ""
        assert said in story.atom_sentence(known, 0, {}) and said in story.card_text(known, 0, {})
    noise = replace(known, trust=replace(known.trust, p_adjusted=np.ones(3)))
    assert story.doubt_text(noise, 0) == ""


def test_the_story_says_that_other_atoms_fit_as_well(rng):
    W = replace(labelled_atoms(rng), trust=Trust(n_rivals=3))
    assert any("3 other solutions have a loss within 0.5 %" in sentence for sentence in story.tell(W, {}, {}))
    tested_too = replace(W, trust=replace(W.trust, stability=np.ones(3), stable_over="6 fits"))
    assert "other solutions" not in " ".join(story.tell(tested_too, {}, {}))  # stability tells which of the atoms


def test_the_story_says_that_atoms_it_leaves_out_may_be_noise(rng):
    W = labelled_atoms(rng)
    for p, told in ((1.0, "The cards below also show the other two atoms, which may be noise."), (0.001, "")):
        known = replace(W, trust=Trust(p_value=np.array([0.001, p, p]), p_adjusted=np.array([0.001, p, p])))
        assert " ".join(story.tell(known, {}, {})).count("The cards") == bool(told)
        assert told in story.tell(known, {}, {}) or not told


def test_the_story_says_which_of_its_atoms_cancel_each_other(rng):
    W = labelled_atoms(rng)
    bits = np.arange(30) < 12
    pair = (replace(W.atoms[0], z=bits), replace(W.atoms[0], z=bits & (np.arange(30) > 1)))
    W = replace(W, atoms=(*pair, W.atoms[2]), weights=[2.0, -1.5, 1.0])
    said = "Atoms 0 and 1 largely cancel each other and should not be interpreted alone."
    assert [text for text in story.tell(W, {}, {}) if "cancel" in text] == [said]
    assert story.paragraphs(story.tell(W, {}, {}))[-1] == said  # not in the paragraph of an atom
    agreeing = replace(W, weights=[2.0, 1.5, 1.0])
    assert "cancel" not in " ".join(story.tell(agreeing, {}, {}))
    noise = replace(W, trust=Trust(p_value=np.array([0.001, 1, 0.001]), p_adjusted=np.array([0.001, 1, 0.001])))
    assert "cancel" not in " ".join(story.tell(noise, {}, {}))  # atom 1 is not told of


def test_the_story_says_which_atom_the_others_cancel_together(rng, monkeypatch):
    W = boolcp.datasets.make_boolean_cp((8, 9, 10), 3, random_state=0).truth
    found = replace(boolcp.degeneracy(W), reasons=("", "largely canceled by the other atoms together", ""))
    monkeypatch.setattr(story, "degeneracy", lambda W: found)
    said = "Atom 1 is largely canceled by the other atoms together and should not be interpreted alone."
    assert [text for text in story.tell(W, {}, {}) if "cancel" in text] == [said]


def test_charts_are_sorted_by_the_column_that_was_tested(rng):
    W = labelled_atoms(rng)
    side = np.where(np.arange(30) % 3 == 0, "left", "right")
    extra = W.labels.extra | {"condition": ("trial", W.labels.extra["drug"][1]), "side": ("trial", side)}
    W = replace(W, labels=replace(W.labels, extra=extra))
    for asked, name in (([], "condition"), (["side"], "side"), (["drug"], "drug"), (["correct", "side"], "correct")):
        S = report.in_order(W, asked)
        assert ordering.group_name(S, 2) == name
        values = [str(value) for value in extra[name][1]]
        assert [band.name for band in ordering.bands(S, 2)] == list(dict.fromkeys(values))
        order = S.labels.coords["trial"]
        assert np.array_equal(S.atoms[0].z, W.atoms[0].z[order])
        assert pictures.atom_figure(S, 0, 2)["caption"].endswith(f", sorted by {name}")
        page = report.render(W, {"tests": {one: {} for one in asked}}, ())
        assert page.count(f"sorted by {name}") > 1 and page.count("sorted by ") == page.count(f"sorted by {name}")


def test_both_tables_write_small_p_values_alike(rng):
    W = labelled_atoms(rng)
    cells = pictures.test_cells(tested.find_tests(W, {})["drug"], 0)
    assert (
        cells[-1] == "<0.001"
        and words.describe_atoms(replace(W, trust=Trust(p_adjusted=np.zeros(3))))[0]["p"] == "<0.0001"
    )


def test_numbers_stay_on_one_line_with_their_units():
    for text, kept in (
        ("in 30 % of 10 fits", "in 30_% of 10 fits"),
        ("(p < 0.001), p = 0.3", "(p_<_0.001), p_=_0.3"),
        ("at 1.2 s (+3 µV), 8 to 13 Hz, 50 ms, 4 sets", "at 1.2_s (+3_µV), 8 to 13_Hz, 50_ms, 4 sets"),
        ("30 mode0 x 50 mode1, along mode 2.", "30 mode_0 x 50 mode_1, along mode_2."),
        ('mode1.npy, ["mode0"], a/mode2', 'mode1.npy, ["mode0"], a/mode2'),  # names of files and values
    ):
        assert words.unbroken(text) == kept.replace("_", words.NO_BREAK)


def test_sentences_of_the_page_do_not_break_within_numbers(rng):
    W = replace(labelled_atoms(rng), data_norm2=9.0, data_inner=[1.0, 1.0, 1.0])
    parts = re.findall(r"<(p|dd|figcaption)(?: [^>]*)?>(.*?)</\1>", report.render(W, {}, ()), re.DOTALL)
    text = " ".join(part for _, part in parts)
    assert f"{words.NO_BREAK}%" in text and f"p{words.NO_BREAK}&lt;{words.NO_BREAK}0.001" in text
    assert not re.search(r"\d %|p (&lt;|=) \d", text)
    assert '(boolcp fit <span class="word">--assess</span>, or' in text  # not broken at its hyphens


def test_neighbors_that_are_off_are_a_range(rng):
    W = labelled_atoms(rng)
    z = np.ones(30, dtype=bool)
    z[[3, 4, 5, 6, 9]] = False
    assert words.on_text(replace(W, atoms=(replace(W.atoms[0], z=z),), weights=[1.0]), 0) == "all but 3 to 6, 9"


def test_the_residual_of_counts_is_not_compared_with_normal_noise(tmp_path, rng):
    X = rng.poisson(2.0, (8, 9, 10)).astype(float)
    check = boolcp.residuals.residual_check(X, boolcp.decompose(X, 1, random_state=0))
    for loss, is_shown in (("squared", True), ("poisson", False)):
        model = boolcp.BMP(1, loss=loss, random_state=0).fit(X)
        report.write_report(model, tmp_path / f"{loss}.html", residual=check)
        text = (tmp_path / f"{loss}.html").read_text()
        assert ("excess kurtosis" in text) == ("Quantiles of the residual" in text) == is_shown


def test_sorted_entries_without_labels_keep_their_numbers(rng):
    W = labelled_atoms(rng)
    W = replace(W, labels=replace(W.labels, coords={"channel": W.labels.coords["channel"]}))
    S = report.in_order(W)
    texts = charts.bit_texts(S, 0)
    assert [text.partition(",")[0] for text in texts[:3]] == ["trial 0", "trial 3", "trial 6"]
    assert {text.partition(",")[0] for text in texts if text.endswith(": on")} == {
        f"trial {n}" for n in range(1, 30, 3)
    }
    assert charts.boolean_chart(S, 0)["layout"]["xaxis"]["ticktext"][:2] == ["0", "6"]


def test_of_columns_with_the_same_groups_the_requested_one_is_shown(rng):
    W = labelled_atoms(rng)
    drug = W.labels.extra["drug"][1]
    extra = {"condition": ("trial", drug), "drug": ("trial", drug), "code": ("trial", np.arange(30) % 3)}
    W = replace(W, labels=replace(W.labels, extra=extra))
    for asked, title in (({}, "condition"), ({"drug": {}}, "drug"), ({"code": {}}, "code")):
        parts = pictures.group_parts(W, tested.find_tests(W, {"tests": asked}))
        assert [part["title"] for part in parts] == [f"By {title} along trial"] and parts[0]["heads"][2] == "p"
