"""The README is true: its Python runs as it stands, its commands and names exist, its links lead somewhere."""

import importlib
import re
from pathlib import Path

import pytest
from test_docstrings import listed_names

import boolcp

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")


def blocks(text, language):
    """Return the fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text):
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("code", blocks(README, "python"), ids=lambda code: code.splitlines()[-1][:40])
def test_python_runs_as_it_stands(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})


def test_there_is_python_to_run_and_not_much_to_read():
    assert blocks(README, "python") and len(README.split()) < 900


def test_what_the_first_lines_say_is_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(blocks(README, "python")[0], names)
    shown = capsys.readouterr().out
    assert "\n0.0\n" in shown and blocks(README, "text")[0] in shown
    assert names["z"].dtype == bool and names["W"].atoms[2].mode == 2
    assert names["recording"].X.shape == (32, 200, 60)


def test_commands_exist():
    from typer.main import get_command

    from boolcp.cli.commands import app

    commands = get_command(app).commands
    lines = [line for block in blocks(README, "console") for line in block.splitlines()]
    used = re.findall(r"boolcp (\w+) ", "\n".join([*lines, *re.findall(r"`(boolcp [^`]*)`", README)]))
    assert len(used) >= 5 and set(used) <= set(commands)
    targets = re.findall(r"make (\w+)", "\n".join(lines))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets and all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_the_first_screen_says_what_why_and_for_whom():
    first = README.partition("## ")[0]
    assert len(first) < 3000 and README.count("![") == 1 and "![" in first
    assert all(words in first for words in ("atoms", "**Why Boolean?**", "**For whom?**"))


def test_the_table_names_what_there_is():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    table = page.partition("## By task")[2].partition("\n## ")[0]
    homes = [boolcp, boolcp.BMP, boolcp.BooleanCP, *(getattr(boolcp, name) for name in boolcp._MODULES)]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")][2:]
    names = [name for cell in cells for name in re.findall(r"`([^`]*)`", cell) if not name.startswith("boolcp ")]
    assert len(names) > 30
    for name in names:
        first, *rest = name.partition("(")[0].split(".")
        found = [getattr(home, first) for home in homes if hasattr(home, first)]
        fields = boolcp.BooleanCP.__dataclass_fields__
        assert found or first in fields, name
        for part in rest:
            assert any(hasattr(one, part) for one in found), name


def test_the_api_page_lists_all_that_is_public():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed, modules = set(listed_names()), set(re.findall(r"automodule:: boolcp\.([\w.]+)", page))
    public = {f"boolcp.{name}" for name in boolcp._HOMES}
    for name in boolcp._MODULES:
        module = getattr(boolcp, name)
        names = getattr(module, "__all__", None) or [
            one
            for one, value in vars(module).items()
            if one[0] != "_" and value.__class__.__name__ == "function" and value.__module__ == module.__name__
        ]
        public |= {f"{module.__name__}.{one}" for one in names if one not in boolcp._HOMES}
    assert modules == set(boolcp._MODULES.values())
    assert public <= listed, public - listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_that_pages_name_exists(page):
    """`module.name`, and `file.py`: `name`, `name`."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)\.(\w+)`", text)
    for stem, names in re.findall(r"`(?:\w+/)*(\w+)\.py`: ((?:`\w+`(?:, )?)+)", text):
        named += [(stem, name) for name in re.findall(r"\w+", names)]
    for stem, name in named:
        files = list(Path(boolcp.__file__).parent.rglob(f"{stem}.py"))
        modules = [".".join(file.relative_to(ROOT / "src").with_suffix("").parts) for file in files]
        is_there = any(hasattr(importlib.import_module(module), name) for module in modules)
        assert is_there or not modules or name in ("py", "md", "csv", "log"), f"{stem}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked.read_text(encoding="utf-8")), target


def test_every_page_is_in_a_table_of_contents():
    """Else `make docs` stops with a warning."""
    docs = ROOT / "docs"
    listed = {docs / "index.md"}
    for page in PAGES[3:]:
        for block in blocks(page.read_text(encoding="utf-8"), "{toctree}"):
            entries = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{entry}.md").resolve() for entry in entries}
            assert len(entries) == len(set(entries)), f"{page.name} lists a page twice"
    missing = [page.name for page in PAGES[3:] if page.resolve() not in {one.resolve() for one in listed}]
    assert not missing, f"{missing} need a line in docs/guide/index.md, docs/how.md or docs/index.md"
