"""The examples of the gallery: each is a story with pictures that runs as it stands."""

import ast
import operator
import os
import re
from pathlib import Path

import pytest

import boolcp

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))
FAST = ("plot_12_new_trials", "plot_13_maxcut")


def cases():
    for path in EXAMPLES:
        marks = [] if path.stem in FAST else [pytest.mark.slow]
        if "_recorded_" in path.stem:
            there = os.path.isdir(os.environ.get("BOOLCP_DATA", ""))
            marks.append(pytest.mark.skipif(not there, reason="BOOLCP_DATA names no folder with recordings"))
        yield pytest.param(path, id=path.stem, marks=marks)


def test_there_are_examples():
    assert len(EXAMPLES) >= 10 and set(FAST) <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_is_a_page(path):
    """A title, text between the code, and what to try next; names in text that exist as files."""
    text = path.read_text(encoding="utf-8")
    title, underline = ast.get_docstring(ast.parse(text)).splitlines()[:2]
    assert set(underline) == {"="} and len(underline) == len(title)
    assert text.count("# %%") >= 3 and "**Try next:**" in text
    for name in re.findall(r"\bboolcp((?:\.[a-zA-Z_]+)+)\(", text):
        assert operator.attrgetter(name[1:])(boolcp), name
    for name in re.findall(r"benchmarks/results/\w+\.md", text):
        assert (path.parents[1] / name).exists(), name


@pytest.mark.parametrize("path", list(cases()))
def test_runs(path, tmp_path, monkeypatch):
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    pytest.importorskip("tensorly")
    if "skimage" in path.read_text(encoding="utf-8"):
        pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    plt.close("all")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "__main__"})
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    for figure in figures:
        if not figure.get_suptitle() and len(figure.axes) == 1:
            assert figure.axes[0].get_xlabel() and figure.axes[0].get_ylabel()
    plt.close("all")
