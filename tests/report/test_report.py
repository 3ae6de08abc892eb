"""The report: one offline page whose words, tables and charts hold the numbers of the decomposition."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pytest
from samples import as_tested

import boolcp
from boolcp.cli import WRONG_INPUT, main
from boolcp.io import FileError
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels
from boolcp.result.trust import Trust

pytest.importorskip("jinja2")
pytest.importorskip("itables")

from boolcp.io.results import make_provenance
from boolcp.plotting.maps import interpolate
from boolcp.plotting.mode_labels import groups_of, positions_of
from boolcp.plotting.patterns import bit_values, real_columns
from boolcp.report import charts, conditions, held_script, script_hash, words, write_report

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
    def text(self):
        return " ".join("".join(self.words).split())

    def charts(self):
        """The charts that Plotly is given, by their text alternative."""
        pairs = zip(self.attributes("script"), self.scripts, strict=True)
        found = [json.loads(text) for known, text in pairs if known == {"type": "application/json"}]
        alts = [known["aria-label"] for known in self.attributes("div") if known.get("class") == "plot"]
        return dict(zip(alts, found, strict=True))

    def attributes(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def written(W, tmp_path, **options):
    path = tmp_path / "report.html"
    write_report(W, path, force=True, **options)
    return Page(path.read_text(encoding="utf-8"))


def numbers(held):
    """Return the array that Plotly reads."""
    if not isinstance(held, dict):
        return np.array(held)
    array = np.frombuffer(base64.b64decode(held["bdata"]), dtype=f"<{held['dtype']}")
    return array.reshape([int(d) for d in held["shape"].split(", ")]) if "shape" in held else array


def plotly_reads(chart):
    """Let Plotly check every property of a chart; it raises at what it does not know."""
    graph_objects = pytest.importorskip("plotly.graph_objects")
    return bool(graph_objects.Figure({name: chart[name] for name in ("data", "layout")}).data)


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


def sentence(W, k, tests):
    """Return the sentence of one atom, as the page puts it together."""
    (row,) = (row for row in words.describe_atoms(W, tests) if row["number"] == k)
    return f"Atom {k} is {row['text']}. {row['plain']}{'.' * bool(row['plain'])}".strip()


def with_atom(W, **changes):
    """Return W with a changed first atom."""
    return replace(W, atoms=(replace(W.atoms[0], **changes), *W.atoms[1:]))


def with_extra(W, **extra):
    """Return W with other additional coordinates along trials."""
    return replace(W, labels=replace(W.labels, extra={name: ("trial", values) for name, values in extra.items()}))


@pytest.fixture(scope="module")
def model():
    X, _, _ = boolcp.datasets.make_boolean_cp((12, 14, 16), 3, noise=0.3, random_state=0)
    return boolcp.BMP(3, random_state=7).fit(X)


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    return written(model, tmp_path_factory.mktemp("page"))


# the page


def test_the_table_has_the_numbers_of_the_atoms_in_their_order(model, tmp_path):
    W = model.decomposition_[[2, 0]]
    page = written(W, tmp_path)
    head, *rows = page.tables[0]
    assert head == ["atom", "along", "on", "sure bits", "alone", "unique", "certificate"]
    for k, row in enumerate(rows):
        atom = W.atoms[k]
        assert row[:3] == [f"atom {k}", f"mode {atom.mode}", f"{atom.n_ones} of {len(atom.z)}"]
        assert f"its weight {W.weights[k]:.4g}." in page.text
        *percents, proved = [float(cell.split()[0]) / 100 for cell in row[3:]]
        sure = np.mean(W.bit_confidence()[k] >= 0.95)
        assert percents == pytest.approx([sure, W.explained_alone()[k], W.explained_unique()[k]], abs=6e-4)
        assert 0 <= atom.certificate - proved < 1.001e-3  # what is proved is rounded down


def test_the_page_is_self_contained_and_its_charts_have_texts(page):
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"link", "iframe", "object", "base", "img"}
    assert not any("src" in attributes for attributes in page.attributes("script"))
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert all(attributes.get(name, "#").startswith("#") for name in ("src", "href", "srcset", "action"))
    plots = [attributes for attributes in page.attributes("div") if attributes.get("class") == "plot"]
    assert len(plots) > 9 and all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    style = "".join(page.styles)
    assert "prefers-color-scheme: dark" in style and "@import" not in style
    assert all(address.startswith("data:") for address in re.findall(r"url\(['\"]?(.{5})", style))
    policy = page.attributes("meta")[4]["content"]
    kinds = [attributes.get("type") for attributes in page.attributes("script")]
    (glue,) = [text for kind, text in zip(kinds, page.scripts, strict=True) if kind is None]  # the only one that runs
    assert policy.startswith("default-src 'none'") and script_hash(glue) in policy
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
    code = next(word for word in page.words if word.startswith("boolcp.BMP("))
    assert "random_state=7" in code and "n_atoms=3" in code and code.endswith(".fit(X)")
    again = eval(code.removesuffix(".fit(X)"), {"boolcp": boolcp})
    assert again.get_params() == model.get_params()
    assert f"{100 * model.decomposition_.explained():.2f} %" in page.text and np.__version__ in page.text
    errors = ", ".join(f"{step.relative_error:.4f}" for step in model.history_)
    assert any(errors in alt for alt in page.charts())


def test_the_page_needs_no_matplotlib(tmp_path):
    code = """if True:
    import sys
    sys.modules["matplotlib"] = None  # as if it were not installed
    import numpy as np, boolcp
    from boolcp.result.labels import Labels
    labels = Labels(("day", "b"), {"day": np.array("2020-01-01", dtype="M8[D]") + np.arange(6)})
    W = boolcp.datasets.make_boolean_cp((6, 7), 2, random_state=0).truth
    boolcp.BooleanCP(W.shape, W.atoms, W.weights, labels).report(sys.argv[1])
    """
    subprocess.run([sys.executable, "-c", code, tmp_path / "report.html"], check=True)
    assert "2020-01-04" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_labels_are_text(tmp_path, rng):
    evil = "<script>alert(1)</script>"
    names = np.array([evil, '"><img src=x>', "$\\frac$", "a & b"])
    labels = Labels((evil, "time", "c"), {evil: names}, {"time": "<b>"}, {evil: ("c", np.arange(5))}, evil)
    vectors = tuple(rng.standard_normal((d, 1)) for d in (6, 5))
    W = BooleanCP((4, 6, 5), (Atom(0, [1, 0, 1, 0], vectors),), [1.0], labels)
    page = written(W, tmp_path, provenance={"command": f"boolcp fit '{evil}'", evil: evil, "versions": {evil: evil}})
    assert len(page.attributes("script")) == len(page.charts()) + 4
    assert not page.attributes("b") and not page.attributes("img")
    assert evil not in "".join(page.scripts) and "&lt;script&gt;" in json.dumps(list(page.charts().values()))
    assert f"boolcp fit '{evil}'" in page.text and f"{evil}, $\\frac$." in page.text


@pytest.mark.parametrize(
    ("shape", "atom_rank"),
    [((8, 9), 1), ((8, 9), "block"), ((6, 7, 8), 2), ((6, 7, 8), "block"), ((5, 6, 4, 3), "block")],
)
def test_any_order_and_rank(shape, atom_rank, tmp_path):
    X, _, _ = boolcp.datasets.make_boolean_cp(shape, 1, noise=0.1, random_state=0)
    page = written(boolcp.BMP(1, atom_rank=atom_rank, random_state=0).fit(X).decomposition_, tmp_path)
    assert len(page.attributes("article")) == 1
    has_image = len(shape) > 2 and atom_rank != 1
    assert sum("real part, " in alt and " by " in alt for alt in page.charts()) == int(has_image)
    assert all(plotly_reads(chart) for chart in page.charts().values())
    other = "s. The tensor" if len(shape) > 2 else ". The matrix"
    assert f"has real sizes along the other{other} is the sum of its atoms and noise." in page.text


def test_missing_entries_and_slices_without_data(tmp_path):
    X, _, _ = boolcp.datasets.make_boolean_cp((10, 11, 12), 2, noise=0.1, missing=0.3, random_state=0)
    X[:, 4] = np.nan
    with pytest.warns(UserWarning):
        W = boolcp.BMP(2, random_state=0).fit(X).decomposition_
    page = written(W, tmp_path)
    assert "some; the fit is over the observed ones" in page.text
    assert "Without any data, mode 14" in page.text and "nan" not in page.text
    strips = [chart for alt, chart in page.charts().items() if "along mode 1, on" in alt]
    assert all(numbers(chart["data"][0]["z"])[0, 4] == 0.5 for chart in strips)  # gray


def test_truths_and_empty_decompositions_have_a_page(tmp_path):
    truth = boolcp.datasets.make_boolean_cp((5, 6), 2, random_state=0).truth
    page = written(truth, tmp_path)  # shares of no data, and the notes on them, are left out
    assert [len(row) for row in page.tables[0][:3]] == [3] * 3 and "alone" not in page.text
    assert "2 atoms make up this tensor; not tested against noise yet." in page.text
    empty = written(BooleanCP((2, 3)), tmp_path)
    assert "No atom was found." in empty.text and "There are none." in empty.text


def test_a_page_of_a_large_decomposition_is_small(tmp_path, rng):
    shape = (128, 3000, 100)
    x, y = rng.standard_normal((2, 128))
    labels = Labels(("channel", "time", "trial"), extra={"x": ("channel", x), "y": ("channel", y)})
    atoms = [Atom(0, rng.random(128) < 0.5, block=rng.standard_normal(shape[1:])) for _ in range(3)]
    for n in (0, 1, 1, 2, 2):
        others = tuple(rng.standard_normal((d, 1)) for m, d in enumerate(shape) if m != n)
        atoms.append(Atom(n, rng.random(shape[n]) < 0.5, others))
    W = BooleanCP(shape, tuple(atoms), np.ones(8), labels)
    written(W, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 7e6


def test_equal_decompositions_have_equal_pages_and_pages_are_not_lost(tmp_path):
    W = boolcp.datasets.make_boolean_cp((5, 6), 1, random_state=0).truth
    path = tmp_path / "report.html"
    W.report(path)
    first = path.read_bytes()
    with pytest.raises(FileError, match="exists already"):
        W.report(path)
    with pytest.raises(TypeError, match="BooleanCP"):
        write_report(3, path, force=True)
    assert path.read_bytes() == first
    W.report(path, force=True)
    assert path.read_bytes() == first and [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_command_writes_the_page_beside_the_result(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, _, _ = boolcp.datasets.make_boolean_cp((6, 7, 60), [0, 0, 1], noise=0.1, random_state=0)
    np.save("data.npy", X)
    fit = ["fit", "data.npy", "-k", "1", "-o", "out", "--assess"]
    monkeypatch.setattr("sys.argv", ["boolcp", *fit])
    assert main(fit) == 0
    capsys.readouterr()
    assert main(["report", "out"]) == 0 and capsys.readouterr().out.split() == ["out/report.html"]
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert boolcp.io.load_provenance("out/decomposition.nc")["data"]["fingerprint"] in page.text
    assert "By the command boolcp fit data.npy -k 1 " in page.text
    assert "; all passed all tests." in page.text and "Residual, root mean square" in page.text
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


def test_a_page_of_a_file_without_names_has_plain_words(tmp_path, rng):
    """The array of a .npy file has no quantity, no unit and modes that are only counted."""
    np.save(tmp_path / "session7.npy", rng.standard_normal((6, 7, 8)))
    X = boolcp.open_tensor(tmp_path / "session7.npy")
    model = boolcp.BMP(1, random_state=0).fit(X)
    provenance = make_provenance(model, data=X)
    page = written(model, tmp_path, provenance=provenance)
    assert page.text.startswith("session7 - boolcp") and "6 x 7 x 8, in 1 atom" in page.text
    mode = model.decomposition_.atoms[0].mode
    assert f"{(6, 7, 8)[mode]} entries of mode {mode}" in page.text
    assert not any(odd in page.text for odd in ("arbitrary", "array", "size ("))
    order = ["What was found", "1 atom explains", "The atoms", "The fit", "The data", provenance["data"]["fingerprint"]]
    places = [page.text.rindex(part) for part in [*order, "How it was made"]]
    assert places == sorted(places)


# json


def test_json_and_labels_stay_text():
    held = json.loads(charts.to_json({"</script>": ["<!--", 1 / 3, np.float32(2), np.int64(3), True, None]}))
    assert held == {"</script>": ["<!--", 0.33333333, 2, 3, True, None]} and "<" not in charts.to_json("</script>")
    assert held_script("a", "1 < 2") == {"name": "a", "type": "text/plain", "text": "1 < 2"}
    held = held_script("a", '"<SCRIPT>"')
    assert held["type"] == "application/json" and "<" not in held["text"] and json.loads(held["text"]) == '"<SCRIPT>"'
    assert charts.plain("<b>%{x}&</b>") == "&lt;b&gt;&#37;{x}&amp;&lt;/b&gt;"


@pytest.mark.parametrize(
    "values",
    [np.array([[1.5, np.nan], [2, -3]]), np.arange(4), np.array([True, False]), 1.6e9 + np.arange(5) / 1000],
    ids=["nan", "integers", "bits", "times far from zero"],
)
def test_typed_arrays_hold_the_numbers(values):
    np.testing.assert_array_equal(numbers(json.loads(charts.to_json(values))), values)


# words


def test_the_words_say_what_is_so(rng, tmp_path):
    W = labelled_atoms(rng)
    tests = conditions.find_tests(W, {})
    assert words.headline(W, {}) == "2 atoms and 1 baseline make up this tensor; not tested against noise yet."
    assert words.subtitle_of(W) == "EEG (µV), 16 channels x 20 time points x 30 trials, in 2 atoms and 1 baseline"
    told = "Atom 0 is on in 10 of 30 trials: 10 of 10 propofol, 0 of 10 none and 0 of 10 ketamine trials (p < 0.001)"
    assert sentence(W, 0, tests).startswith(told)
    assert sentence(W, 1, tests).startswith("Atom 1 is a baseline, on in 15 of 16 channels: all but E3")
    assert sentence(W, 2, tests).startswith("Atom 2 is on in 8 of 20 time points: 0 to 0.055 s")
    always = with_atom(W, z=W.atoms[0].z | True)
    assert sentence(always, 0, {}).startswith("Atom 0 is a baseline, on in all 30 trials")
    many = with_extra(W, day=np.array([f"day {n % 6}" for n in range(30)]))
    week = with_atom(many, z=np.arange(30) % 6 < 2)
    text = sentence(week, 0, conditions.find_tests(week, {}))
    assert ": 5 of 5 day 0, 5 of 5 day 1 and 0 of 20 other trials (p < 0.001)" in text
    page = written(W, tmp_path)
    assert all(sentence(W, k, tests) in page.text for k in range(3))
    for source, title in (("awake.t1.mat", "awake"), ("awake.mat and 2 more", "awake and 2 more")):
        assert words.title_of(W, {"data": {"source": source}}) == title


def test_where_an_atom_is_on_is_told_in_runs(rng):
    z = np.array([1, 1, 1, 0, 1, 0, 0, 1, 1], dtype=bool)
    labels = Labels(("time", "c"), {"time": np.arange(9) / 10}, {"time": "s"})

    def told(z, labels=labels):
        return words.on_text(BooleanCP((len(z), 2), (Atom(0, z, (np.ones((2, 1)),)),), [1.0], labels), 0)

    assert told(z) == "0 to 0.2, 0.4, 0.7, 0.8 s"
    assert told(z | True) == "all 9 time points" and told(z & False) == "nowhere"
    named = Labels(("channel", "c"), {"channel": np.array(["FPz", "Fz", "Cz", "T8", "CP5", "Pz", "O1", "Oz", "O2"])})
    assert told(z, named) == "FPz, Fz, Cz, CP5, Oz, O2"
    assert told(np.arange(9) != 3, named) == "all but T8"
    times = Labels(("time", "c"), {"time": np.arange(9) / 128 - 1}, {"time": "s"})
    assert told(z, times) == "-1 to -0.984, -0.969, -0.945, -0.938 s"
    assert told(~np.isin(np.arange(30), [3, 4, 5, 6, 9]), None) == "all but 3 to 6, 9"
    assert told(np.tile([True] * 5 + [False], 100), None).endswith("174 to 178 and 350 more")  # entries, not runs


def test_conditions_are_named_only_if_a_test_finds_them(rng):
    W = labelled_atoms(rng)
    half = with_atom(W, z=np.isin(np.arange(30), [1, 4, 7, 10, 0, 2]))  # 4 of 10 propofol trials, 1 of 10 others
    tests = conditions.find_tests(half, {})
    assert tests["drug"].effect[0] == pytest.approx(0.3) and tests["drug"].p_adjusted[0] > 0.05
    assert "propofol" not in sentence(half, 0, tests)
    drug = (W.labels.extra["drug"][1] == "ketamine") + 0.1
    real = replace(W.atoms[2], factors=(W.atoms[2].factors[0], drug[:, None]))
    moved = replace(W, atoms=(*W.atoms[:2], real))
    text = sentence(moved, 2, conditions.find_tests(moved, {}))
    assert "; larger in ketamine than in none trials (p < 0.001)" in text


@pytest.mark.parametrize(("sign", "size"), [(1, "large"), (-1, "small")])
def test_atoms_that_follow_a_number_say_so_if_asked(sign, size, rng, tmp_path):
    W = labelled_atoms(rng)
    W = with_extra(W, speed=sign * W.atoms[0].z + 0.01 * rng.standard_normal(30))
    assert conditions.find_tests(W, {}) == {}, "many different numbers are no conditions"
    asked = {"tests": {"speed": {}}}
    said = f"; on more often where speed is {size} (rank correlation {sign * 0.82:+.2f}, p < 0.001)"
    assert said in sentence(W, 0, conditions.find_tests(W, asked))
    page = written(W, tmp_path, provenance=asked)
    assert "Numbers that atoms may follow" in page.text and "Conditions side by side" not in page.text
    assert page.tables[1][:2] == [
        ["atom", "what", "rank correlation", "p"],
        ["atom 0", "bits", f"{sign * 0.82:+.2f}", "<0.001"],
    ]


def test_tests_that_were_asked_for_are_the_only_ones_and_all_count_for_false_discoveries(rng, tmp_path):
    W = labelled_atoms(rng)
    every, asked = conditions.find_tests(W, {}), conditions.find_tests(W, {"tests": {"correct": {"blocks": "drug"}}})
    codes = np.arange(30) % 3
    coded = with_extra(W, code=codes, again=codes, n=np.arange(30))
    assert list(conditions.find_tests(coded, {})) == ["code"]  # repeated numbers are conditions, once; a count is not
    assert list(every) == ["drug", "correct"] and list(asked) == ["correct"] and "3 blocks" in asked["correct"].scheme
    p = np.concatenate([test.p_value for test in every.values()])
    naive = np.minimum.accumulate((p[(order := np.argsort(p))] * 6 / np.arange(1, 7))[::-1])[::-1]
    together = np.concatenate([test.p_adjusted for test in every.values()])[order]
    np.testing.assert_allclose(together, np.minimum(naive, 1))
    test = conditions.find_tests(W[1:], {})["drug"]  # neither knows the drug
    smallest = f"No atom differs clearly by drug (smallest {conditions.p_words(test.p_adjusted.min())})."
    assert smallest in written(W[1:], tmp_path).text
    assert "how often a mean of" in conditions.test_note(replace(test, scheme="permutations of means"), "drug")


def test_a_peak_is_named_if_it_stands_out(rng):
    W = labelled_atoms(rng)
    profile, channel = np.full(20, 0.01), np.full(16, 0.01)
    profile[7], channel[5] = 1.0, -1.0
    factors = (channel[:, None], profile[:, None])
    numbered = replace(W.labels, coords=W.labels.coords | {"channel": np.arange(1, 17)})  # no names, but not an order
    for weight, labels, told in (
        (3.0, W.labels, "E5 and 0.055 s (3 µV)"),
        (-1234.0, numbered, "channel 6 and 0.055 s (1234 µV)"),
        (3e6, numbered, "channel 6 and 0.055 s (3e+06 µV)"),
    ):
        one = replace(with_atom(W, factors=factors), weights=[weight, -2.0, 1.5], labels=labels)
        assert words.peak_text(one, 0) == f"strongest at {told}"
    flat = with_atom(W, factors=(np.ones((16, 1)), np.where(np.isin(np.arange(20), (3, 12)), 1, 0.01)[:, None]))
    assert words.peak_text(flat, 0) == "", "two peaks are none"
    for n_equal, is_told in ((1, True), (2, True), (3, False), (8, False)):
        column = np.full(16, 0.01)
        column[:n_equal] = 1 - 0.02 * np.arange(n_equal)
        text = words.peak_text(with_atom(W, factors=(column[:, None], W.atoms[0].factors[1])), 0)
        assert ("E0" in text) is is_told


@pytest.mark.parametrize(
    ("replication", "p", "told"),
    [
        ([1, 0.9, 0.8], None, "all passed all tests"),
        ([1, 0.9, 0.2], [0.001, 0.3, 0.3], "2 of 3 passed all tests"),
        ([0, 0.1, 0.2], None, "0 of 3 passed all tests"),
        (None, None, "not tested against noise yet"),
    ],
)
def test_the_headline_tells_of_trust(replication, p, told, rng):
    W = labelled_atoms(rng)
    z = np.arange(16) % 2 == 0  # an atom that is on in nearly all channels is no news
    W = replace(W, atoms=(W.atoms[0], replace(W.atoms[1], z=z), W.atoms[2]))
    W = W if replication is None else as_tested(W, replication, p)
    assert words.headline(W, {}).endswith(f"; {told}.")
    for k, verdict in enumerate(boolcp.verdicts(W)):  # one sentence says how an atom may be read
        text = sentence(W, k, {})
        assert ("It passes all tests" in text) == verdict.passes
        assert ("do not interpret it" in text) == (verdict.replicates is False)


def test_one_sentence_says_how_an_atom_may_be_read(rng):
    W = as_tested(labelled_atoms(rng))
    for changes, told in (
        ({}, "It passes all tests: it comes back in parts of the data, and it is on or off rather than graded."),
        ({"on_off": np.full(3, 2.0)}, "nothing shows two groups, on and off: its strength may be graded."),
        ({"has_runs": np.ones(3, dtype=bool)}, "neighboring trials are alike: a slow state or drift."),
        ({"on_off": None, "stands_out": np.zeros(3, dtype=bool)}, "rather than graded was not tested."),
    ):
        assert sentence(replace(W, trust=replace(W.trust, **changes)), 0, {}).endswith(told)
    W = as_tested(replace(W, atoms=(replace(W.atoms[1], z=np.arange(16) < 8), *W.atoms[1:])))
    W = replace(W, trust=replace(W.trust, has_runs=np.ones(3, dtype=bool)))
    assert sentence(W, 0, {}).endswith("neighboring channels are alike: not independent.")


def test_atoms_that_pass_come_first_and_show_their_amplitudes(rng, tmp_path):
    W = as_tested(labelled_atoms(rng), [0.1, 1.0, 1.0])
    seen = tuple(atom.z + 0.1 * rng.standard_normal(len(atom.z)) for atom in W.atoms)
    W = replace(W, trust=replace(W.trust, amplitude=seen))
    page = written(W, tmp_path)
    assert [card["id"] for card in page.attributes("article")] == ["atom-2", "atom-0", "atom-1"]
    assert [row[0] for row in page.tables[0][1:]] == ["atom 2", "atom 0", "atom 1"] and "d'" in page.tables[0][0]
    bars, off, on = next(c for name, c in page.charts().items() if name.startswith("Atom 2, amplitude"))["data"]
    assert numbers(bars["y"]).sum() == len(seen[2]) and off["name"] == "off"
    assert numbers(on["x"])[np.argmax(numbers(on["y"]))] == pytest.approx(1, abs=0.05)
    assert "1 of 3 passed all tests" in page.text and "No atom passes" not in page.text
    none = written(as_tested(W, [0.1, 0.1, 0.1]), tmp_path)
    assert none.text.count("No atom passes all tests. Try next: a baseline") == 1 and "Unique" not in none.text


def test_sentences_say_which_atoms_cancel_each_other(rng):
    W = labelled_atoms(rng)
    bits = np.arange(30) < 12
    pair = (replace(W.atoms[0], z=bits), replace(W.atoms[0], z=bits & (np.arange(30) > 1)))
    W = replace(W, atoms=(*pair, W.atoms[2]), weights=[2.0, -1.5, 1.0])
    told = [sentence(W, k, {}) for k in range(3)]
    assert "cancel" in told[0] and "cancel" in told[1] and "cancel" not in told[2]


@pytest.mark.parametrize(
    ("structure", "lag", "told"),
    [
        (0.9, 0.02, "The residual looks like white noise."),
        (0.9, -0.53, "No pattern is left in the residual, but neighbors along time are correlated (-0.53)."),
        (1.5, -0.53, "Structure is left in the residual, most along trial."),
    ],
)
def test_remarks_tell_of_the_residual(structure, lag, told):
    W = BooleanCP((2, 2, 2), labels=Labels(("channel", "time", "trial")))
    check = SimpleNamespace(structure=(0.5, 0.6, structure), lag_correlation=(0.01, lag, 0.0), is_noise=structure <= 1)
    assert words.remarks(W, check) == [told]


def test_remarks_tell_of_rivals_missing_atoms_and_the_mean(rng):
    W = replace(labelled_atoms(rng), trust=Trust(n_rivals=3))
    assert "3 other solutions have a loss within 0.5 %" in words.remarks(W, None)[0]
    tested = as_tested(W)
    assert words.remarks(tested, None) == []  # replication tells which of the atoms
    asked = replace(tested, trust=replace(tested.trust, n_asked=5))
    assert words.remarks(asked, None)[0].startswith("5 atoms were requested")
    tested = replace(tested, mean=np.zeros((16, 20, 1)))
    (remark,) = words.remarks(tested, None)
    assert remark.startswith("Mean over trial fitted apart from the atoms")


def test_units_missing_entries_residual_and_replication_are_shown(tmp_path):
    xarray = pytest.importorskip("xarray")
    X, _, _ = boolcp.datasets.make_boolean_cp((12, 13, 14), 2, noise=0.5, missing=0.1, random_state=0)
    X = xarray.DataArray(X, dims=("channel", "time", "trial"), name="ECoG", attrs={"units": "uV"})
    model = boolcp.BMP(2, random_state=0).fit(X)
    check = boolcp.residuals.residual_check(X, model.decomposition_)
    boolcp.save(model, tmp_path / "result.nc", data=X)
    W, provenance = boolcp.load(tmp_path / "result.nc"), boolcp.io.load_provenance(tmp_path / "result.nc")
    W = as_tested(W)
    page = written(W, tmp_path, provenance=provenance, residual=check)
    n_missing = int(np.isnan(X.values).sum())
    assert f"{n_missing} of {X.size} ({100 * n_missing / X.size:.1f} %)" in page.text and "ECoG (uV)" in page.text
    assert f"{np.sqrt(np.nanmean(X.values**2)):.4g} uV" in page.words and "of the observed entries; " in page.text
    assert f"channel {check.structure[0]:.3f}, time " in page.text
    assert page.tables[0][0][3:6] == ["verdict", "sure bits", "replication"]
    assert [row[5] for row in page.tables[0][1:]] == ["100 %"] * 2
    assert "share of 6 fits that find its pattern again" in page.text
    assert ": on, 100 % sure" in "".join(page.scripts)
    assert all(plotly_reads(chart) for chart in page.charts().values())


def test_the_residual_of_counts_is_not_compared_with_normal_noise(tmp_path, rng):
    X = rng.poisson(2.0, (8, 9, 10)).astype(float)
    check = boolcp.residuals.residual_check(X, boolcp.decompose(X, 1, random_state=0))
    for loss, is_shown in (("squared", True), ("poisson", False)):
        page = written(boolcp.BMP(1, loss=loss, random_state=0).fit(X), tmp_path, residual=check)
        known = {"excess kurtosis" in page.text, "alone" in page.tables[0][0], "> 100 %" not in page.text}
        assert known == {is_shown}


def test_numbers_stay_on_one_line_with_their_units():
    for text, kept in (
        ("in 30 % of 10 fits", "in 30_% of 10 fits"),
        ("(p < 0.001), p = 0.3", "(p_<_0.001), p_=_0.3"),
        ("at 1.2 s (+3 µV), 8 to 13 Hz, 50 ms, 4 sets", "at 1.2_s (+3_µV), 8 to 13_Hz, 50_ms, 4 sets"),
        ("30 mode0 x 50 mode1, along mode 2.", "30 mode_0 x 50 mode_1, along mode_2."),
        ('mode1.npy, ["mode0"], a/mode2', 'mode1.npy, ["mode0"], a/mode2'),  # names of files and values
    ):
        assert words.unbroken(text) == kept.replace("_", words.NO_BREAK)


def test_baselines_come_last_and_labels_for_the_search_are_all_there(rng, tmp_path):
    W = labelled_atoms(rng)
    page = written(W, tmp_path)
    assert [card["id"] for card in page.attributes("article")] == ["atom-0", "atom-2", "atom-1"]
    held = words.search_labels(W)
    assert held["0"] == [f"E{n}" for n in range(16)] and len(held["2"]) == 30
    for row in page.attributes("tr")[1:4]:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(row["data-bits"]), np.uint8), bitorder="little")
        z = W.atoms[int(row["data-atom"])].z
        assert bits[: len(z)].tolist() == z.tolist()


# charts


def test_the_numbers_of_a_card_are_those_of_the_atom(rng, tmp_path):
    W = replace(labelled_atoms(rng), labels=None)
    shown = written(W, tmp_path).charts()
    for k, atom in enumerate(W.atoms):
        product = np.ones(())
        for mode in range(3):
            alt = f"Atom {k} along mode {mode}, on" if mode == atom.mode else f"Atom {k}, real part along mode {mode},"
            ((trace,),) = [chart["data"] for name, chart in shown.items() if name.startswith(alt)]
            product = np.multiply.outer(product, numbers(trace["z"])[0] if mode == atom.mode else numbers(trace["y"]))
            assert mode == atom.mode or trace["line"]["color"] == charts.atom_colors(3)[k]
        np.testing.assert_allclose(product, W[[k]].to_tensor(), atol=1e-5)


def test_the_overview_has_the_signs_of_the_cards(rng):
    W = labelled_atoms(rng)
    seen = set()
    for figure in charts.together_figures(W):
        mode = next(n for n, name in enumerate(W.dims) if figure["caption"].startswith(name))
        for trace in json.loads(figure["chart"])["data"]:
            k = trace["meta"]["atom"]
            seen.add((k, mode))
            drawn = np.ravel(numbers(trace["z"] if trace["type"] == "heatmap" else trace["y"]))
            card = W.atoms[k].z if W.atoms[k].mode == mode else real_columns(W, k)[mode][:, 0]
            np.testing.assert_allclose(drawn, card / np.abs(card).max(), atol=1e-6)
    assert len(seen) == 9


def test_bits_in_doubt_are_gray_and_follow_their_entries(rng):
    X, _, _ = boolcp.datasets.make_boolean_cp((14, 10, 12), 1, noise=4, random_state=3)
    W = boolcp.decompose(X, 1, boolean_modes=[0], random_state=0)
    p, z = W.bit_confidence()[0], W.atoms[0].z
    assert (p < 0.9).any(), "some bits are in doubt"
    values = bit_values(W, 0)
    np.testing.assert_allclose(values[p > 0.5], np.where(z, p, 1 - p)[p > 0.5])
    assert (values[z] >= 0.5).all() and (values[~z] <= 0.5).all(), "a bit never has the color of the other state"
    assert charts.atom_figures(W, 0)[0]["caption"] == "mode 0: yellow on, blue off, gray uncertain"
    order = rng.permutation(14)
    np.testing.assert_allclose(bit_values(conditions.permuted(W, 0, order), 0), values[order])
    k = int(np.argmin(p))
    assert charts.bit_texts(W, 0)[k].endswith(f"{'on' if z[k] else 'off'}, {100 * max(p[k], 0.5):.0f} % sure")


def test_very_long_lines_keep_their_extremes_and_the_page_says_so(tmp_path, rng):
    column = rng.standard_normal(50_001)
    kept = charts.kept_points(column)
    assert len(kept) <= charts.MAX_POINTS and {column.argmin(), column.argmax()} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all() and len(charts.kept_points(column[:20_000])) == 20_000
    W = BooleanCP((3, 50_001), (Atom(0, [1, 0, 1], (column[:, None],)),), [1.0])
    assert "mode 1: real part (smallest and largest of each 6 points)" in written(W, tmp_path).words


def test_large_images_are_means_of_neighbors(rng):
    image = rng.standard_normal((101, 700))
    small, steps = charts.averaged(image)
    assert small.size <= charts.MAX_CELLS < image.size
    rows, columns = range(0, 101, steps[0]), range(0, 700, steps[1])
    naive = [[image[i : i + steps[0], j : j + steps[1]].mean() for j in columns] for i in rows]
    np.testing.assert_allclose(small, naive)
    np.testing.assert_array_equal(charts.averaged(image[:9, :9])[0], image[:9, :9])


def test_conditions_areas_and_states_are_compared(tmp_path, rng):
    labels = Labels(
        ("channel", "state", "trial"),
        {"state": np.array(["awake", "asleep"]), "channel": np.array([f"c{i}" for i in range(20)])},
        extra={"condition": ("trial", np.array(["b", "a", "b", "b"])), "onset": ("trial", np.arange(4.0))},
    )
    assert groups_of(BooleanCP((20, 2, 4), labels=labels)) == [(1, "state"), (2, "condition")]
    factors = (rng.standard_normal((20, 1)), np.array([[1.0], [-0.001]]))
    page = written(BooleanCP((20, 2, 4), (Atom(2, [1, 1, 0, 0], factors),), [1.0], labels), tmp_path)
    assert page.tables[1] == [
        ["atom", "what", "awake (1)", "asleep (1)"],
        ["atom 0", "mean of the real part", "1.00", "0.00"],  # not minus zero
    ]
    assert page.tables[2] == [
        ["atom", "what", "effect", "AUC", "p", "b (3)", "a (1)"],
        ["atom 0", "share of ones", "+67 points", "0.83", "1.00", "1 of 3 (33 %)", "1 of 1 (100 %)"],
    ]


def test_bars_of_conditions_have_their_numbers_and_spread(rng, tmp_path):
    W = labelled_atoms(rng)
    shown = written(W, tmp_path).charts()
    alt = "share of ones by drug; the numbers are in the table"
    bars = {trace["name"]: trace for trace in shown[alt]["data"]}
    assert list(bars) == ["none (10)", "propofol (10)", "ketamine (10)"]
    assert bars["propofol (10)"]["x"] == ["atom 0"] and numbers(bars["propofol (10)"]["y"]) == [100]
    points = shown["mean of the real part by drug; lines: s.d.; the numbers are in the table"]["data"]
    for trace, name in zip(points, ("none", "propofol", "ketamine"), strict=True):
        part = W.labels.extra["drug"][1] == name
        columns = [column / np.abs(column).max() for column in (real_columns(W, k)[2][:, 0] for k in (1, 2))]
        np.testing.assert_allclose(numbers(trace["y"]), [column[part].mean() for column in columns], atol=1e-6)
        spread = [column[part].std(ddof=1) for column in columns]
        np.testing.assert_allclose(numbers(trace["error_y"]["array"]), spread, atol=1e-6)


def test_entries_are_sorted_by_condition_in_charts_and_nothing_else_changes(rng):
    W = labelled_atoms(rng)
    S = conditions.in_order(W)
    order = S.labels.coords["trial"]
    np.testing.assert_allclose(S.to_tensor(), W.to_tensor()[:, :, order])
    names = [("none", 0, 10), ("propofol", 10, 20), ("ketamine", 20, 30)]
    assert conditions.bands(S, 2) == names and conditions.bands(W, 2) == []
    assert S.labels.extra["correct"][1].tolist() == W.labels.extra["correct"][1][order].tolist()
    figure = charts.atom_figures(S, 0)[2]
    chart = json.loads(figure["chart"])
    assert numbers(chart["data"][0]["z"])[0].tolist() == [0] * 10 + [1] * 10 + [0] * 10
    assert figure["caption"] == "trial: yellow on, blue off, sorted by drug"
    assert [name for _, name in figure["legend"]] == ["none (10)", "propofol (10)", "ketamine (10)"]
    assert [shape["fillcolor"] for shape in chart["layout"]["shapes"]] == [color for color, _ in figure["legend"]]
    block = BooleanCP(W.shape, (Atom(0, W.atoms[1].z, block=rng.standard_normal((20, 30))),), [1.0], W.labels)
    np.testing.assert_allclose(conditions.in_order(block).to_tensor(), block.to_tensor()[:, :, order])
    image = charts.atom_figures(conditions.in_order(block), 0)[3]
    assert image["caption"] == "real part, time by trial, sorted by drug"
    bare = replace(W, labels=replace(W.labels, coords={}))  # entries without labels keep their numbers
    on = {text.partition(",")[0] for text in charts.bit_texts(conditions.in_order(bare), 0) if text.endswith(": on")}
    assert on == {f"trial {n}" for n in range(1, 30, 3)}


def test_charts_are_sorted_by_the_column_that_was_tested(rng, tmp_path):
    W = labelled_atoms(rng)
    drug, correct = (W.labels.extra[name][1] for name in ("drug", "correct"))
    side = np.where(np.arange(30) % 3 == 0, "left", "right")
    W = with_extra(W, drug=drug, correct=correct, condition=drug, side=side)
    for asked, name in (([], "condition"), (["side"], "side"), (["drug"], "drug"), (["correct", "side"], "correct")):
        S = conditions.in_order(W, asked)
        values = [str(value) for value in W.labels.extra[name][1]]
        assert conditions.group_name(S, 2) == name
        assert [band[0] for band in conditions.bands(S, 2)] == list(dict.fromkeys(values))
        page = written(W, tmp_path, provenance={"tests": {one: {} for one in asked}})
        assert page.text.count(f"sorted by {name}") > 1
        assert page.text.count("sorted by ") == page.text.count(f"sorted by {name}")
        assert f"By {name} along trial" in page.text  # of columns with the same groups, the requested one


@pytest.mark.parametrize(
    ("given", "names"),
    [(["2", "10", ""] * 10, ["2", "10"]), (np.tile([2, 1], 15), ["1", "2"]), (["b", "", "a"] * 10, ["b", "a"])],
)
def test_groups_are_in_order_and_entries_without_a_label_are_in_none(given, names, rng, tmp_path):
    W = with_extra(labelled_atoms(rng), kind=np.array(given))
    page = written(W, tmp_path)
    assert [head.partition(" (")[0] for head in page.tables[1][0][5:]] == names
    ends = names[::-1] if names[0] == "b" else [f"kind={name}" for name in names[::-1]]
    assert f"Effect: {ends[0]} minus {ends[1]};" in page.text
    found = [band[0] for band in conditions.bands(conditions.in_order(W), 2)]
    assert found == [*names, *["no label"] * ("" in given)]


def test_the_page_does_not_depend_on_the_products_that_an_atom_is_written_by(rng):
    W = labelled_atoms(rng)
    profiles = np.exp(-(((np.arange(20)[:, None] - [4, 11, 15]) / 2.0) ** 2))
    factors, T = (rng.normal([0, 3, 0], 1, (16, 3)), profiles), rng.standard_normal((3, 3))
    pages = [with_atom(W, factors=one) for one in (factors, (factors[0] @ T, factors[1] @ np.linalg.inv(T).T))]
    assert sentence(pages[0], 0, {}) == sentence(pages[1], 0, {})
    for first, second in zip(*(charts.atom_figures(V, 0) for V in pages), strict=True):
        assert (first["alt"], first["caption"]) == (second["alt"], second["caption"])
        for a, b in zip(*(json.loads(one["chart"])["data"] for one in (first, second)), strict=True):
            shown = "z" if a["type"] == "heatmap" else "y"
            np.testing.assert_allclose(numbers(a[shown]), numbers(b[shown]), atol=1e-5)


def test_products_are_drawn_one_by_one_or_as_their_leading_pattern(rng):
    """Along units, whose order means nothing, they are points; along time they are lines."""
    labels = Labels(("trial", "unit", "time"), {"unit": np.arange(7), "time": np.arange(8) / 10})
    factors = tuple(rng.standard_normal((d, 6)) for d in (7, 8))
    for rank in (1, 2, 6):
        atom = Atom(0, [1, 0, 1, 1, 0], tuple(A[:, :rank] for A in factors))
        figures = charts.atom_figures(BooleanCP((5, 7, 8), (atom,), [2.0], labels), 0)
        for figure, is_line in zip(figures[1:3], (False, True), strict=True):
            traces = json.loads(figure["chart"])["data"]
            assert len(traces) == (rank if rank <= 2 else 1)
            assert ("leading pattern" in figure["caption"]) == (rank == 6)
            assert all((trace["type"] == "scatter" and "lines" in trace["mode"]) == is_line for trace in traces)
            assert len({(trace.get("line", {}).get("dash"), str(trace["marker"])) for trace in traces}) == len(traces)


def test_a_head_has_an_outline_and_a_map_between_electrodes(rng):
    angle, turn = rng.uniform(0.1, 1.5, 20), rng.uniform(0, 2 * np.pi, 20)
    places = np.stack([np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn), np.cos(angle)])
    extra = {axis: ("channel", 0.09 * values) for axis, values in zip("xyz", places, strict=True)}
    names = np.array([f"E{n}" for n in range(20)])
    labels = Labels(("channel", "time"), {"channel": names}, extra=extra, name="EEG")
    factor = rng.standard_normal((20, 1))
    atoms = (Atom(1, [1, 0, 1, 0, 1], (factor,)), Atom(0, factor[:, 0] > 0, (np.ones((5, 1)),)))
    W = BooleanCP((20, 5), atoms, [1, 1], labels)
    positions = positions_of(W, 0)
    np.testing.assert_allclose(np.linalg.norm(positions, axis=1), 2 * angle / np.pi, atol=1e-6)
    chart = json.loads(charts.atom_figures(W, 0)[0]["chart"])
    image, *lines, points = chart["data"]
    assert image["type"] == "heatmap" and len(lines) == 4 and points["text"] == names.tolist()
    side, z = numbers(image["x"]), numbers(image["z"])
    nearest = z[tuple(np.abs(side[:, None] - positions[:, i]).argmin(axis=0) for i in (1, 0))]
    assert np.corrcoef(nearest, real_columns(W, 0)[0][:, 0])[0, 1] > 0.9 and plotly_reads(chart)
    bits = json.loads(charts.atom_figures(W, 1)[0]["chart"])["data"]
    assert [trace["type"] for trace in bits] == ["scatter"] * 6  # the outline, lines between neighbors, electrodes
    flat = replace(W, labels=replace(labels, name="ECoG"))
    assert len(json.loads(charts.atom_figures(flat, 0)[0]["chart"])["data"]) == 1, "no head around a cortex"


def test_a_map_of_the_head_is_empty_far_from_all_electrodes():
    turn = np.linspace(0, np.pi, 12)
    front = np.stack([np.cos(turn), np.sin(turn)], axis=1) * np.tile([[0.6], [0.9]], (6, 1))
    side, image = interpolate(front, np.arange(12.0))
    far = np.min([np.hypot(*np.meshgrid(side - x, side - y)) for x, y in front], axis=0)
    inside = np.hypot(*np.meshgrid(side, side)) <= 1
    assert np.isnan(image[far > 0.5]).all() and np.isfinite(image[inside & (far < 0.5)]).all()
    assert 0.1 < np.mean(far[inside] > 0.5) < 0.9


@pytest.mark.parametrize("n", [1, 2, 7, 8, 12, 40])
def test_no_two_atoms_or_groups_have_one_color(n):
    atoms, groups = charts.atom_colors(n), charts.atom_colors(n, *charts.GROUP_COLORS)
    assert len(set(atoms)) == len(set(groups)) == n and "#000000" not in groups
    assert not set(groups) & {*charts.atom_colors(7), *atoms, "#0072B2", "#F0E442"}
