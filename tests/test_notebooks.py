"""The notebooks: each is a story that runs from its first cell to its last, kept without output."""

import json
import os
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
NAMES = {"first_steps", "eeg_conditions", "large_file"}


def cells(path, kind):
    """Return the text of the cells of a kind."""
    content = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in content if cell["cell_type"] == kind]


def test_there_are_three():
    assert {path.stem for path in NOTEBOOKS} == NAMES
    index = (NOTEBOOKS[0].parent / "index.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"({name}.ipynb)" in index and re.search(rf"^{name}$", index, flags=re.MULTILINE)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_kept_without_output_and_its_links_lead_somewhere(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 4 and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    text = "\n".join(cells(path, "markdown"))
    assert text.startswith("# ") and "**Next:**" in text
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert (path.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, tmp_path, monkeypatch, capsys):
    """The build of the pages runs them in a kernel; here the last line of a cell is not shown."""
    for package in ("mne", "dask", "matplotlib", "pandas", "jinja2", "itables", "h5netcdf"):
        pytest.importorskip(package)
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in cells(path, "code"):
        exec(compile(cell, str(path), "exec"), names)
    plt.close("all")
    said = {
        "first_steps": "share of wrong bits: 0.0",
        "eeg_conditions": "30 of 30 left",
        "large_file": "same bits True, wrong bits 0 of 24",
    }
    assert said[path.stem] in capsys.readouterr().out
    assert not os.listdir(tmp_path), "a notebook leaves no file where it is run"
