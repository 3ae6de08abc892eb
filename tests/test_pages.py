"""The written pages are true: the Python of each runs from top to bottom and prints what the page shows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    DOCS / "index.md",
    DOCS / "getting_started.md",
    *(p for name in ("guide", "fields") for p in sorted((DOCS / name).glob("*.md"))),
]
PAGES = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
assert len(PAGES) >= 10, "there are pages to run"


@pytest.mark.filterwarnings("ignore:.* filled entries were far outside")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    for name in ("mne", "tensorly"):
        if f"import {name}" in text or f"from {name}" in text:
            pytest.importorskip(name)
    names = {"__name__": "__main__"}
    for language, block in re.findall(r"^```(python|text)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
        else:
            assert capsys.readouterr().out == block
