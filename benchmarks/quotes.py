"""Put the numbers of tables into README, docs and paper, and mark tables that are older than the code.

A page quotes a number, a table or a sentence between two comments, and this script fills in what is between them:

    <!--speed::Syn2,_150^3,_K_=_15;boolcp::one_start-->0.25<!--end-->   a cell: table, first cells of its row, column
    <!--table::truth::1-->..<!--end-->                                  the second table of benchmarks/results/truth.md
    <!--state-->..<!--end-->                                            of which code the tables of this page are

Spaces are written as underscores. A fourth part of a cell is a format such as .2f or the number of a word, a fifth the
number of the first table of the page that counts.
`python benchmarks/quotes.py` after a change of tables or code; tests/test_tables.py fails where it has not been run.
`python benchmarks/quotes.py --check` changes nothing, and fails while a table is older than the code that makes it.
"""

import re
import sys
from functools import cache

from common import OLD, RESULTS, ROOT, heads, is_current, table

FIGURES = ROOT / "docs" / "reproduction"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "paper" / "paper.md"]
QUOTE = re.compile(r"<!--([\w:.;,^'()=*+%/-]+)-->(.*?)<!--end-->", flags=re.DOTALL)
NAMED = re.compile(r"(?:results/|reproduction/|`)(\w+)\.(?:md|csv)\b")


# tables


def paths():
    """Return the tables by name."""
    found = [*RESULTS.glob("*.md"), *RESULTS.glob("*.csv"), *FIGURES.glob("*.csv")]
    return {path.name: path for path in sorted(found) if heads(path.read_text(encoding="utf-8"))}


def place_of(name):
    """Return the page of a table, which is Markdown if there is one, else CSV."""
    places = RESULTS / f"{name}.md", RESULTS / f"{name}.csv", FIGURES / f"{name}.csv"
    return next(path for path in places if path.exists())


def old_commands(path):
    """Return the commands of a page, or of its sections, that other code than the present has made."""
    return [command for command, stamp in heads(path.read_text(encoding="utf-8")) if not is_current(command, stamp)]


def marked(text):
    """Return a table whose heads of other code are followed by a line that says so."""
    lines = []
    for line in text.split("\n"):
        if line.lstrip("# ") == OLD:
            if lines and not lines[-1]:
                lines.pop()
            continue
        lines.append(line)
        found = heads(line)
        if found and not is_current(*found[0]):
            lines += [f"# {OLD}"] if line.startswith("#") else ["", OLD]
    return "\n".join(lines)


@cache
def grids(name):
    """Return head and rows of each table of a page of results."""
    found, inside = [], False
    for line in place_of(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not inside:
            found.append((cells, []))
        elif set(cells) != {"---"}:
            found[-1][1].append(cells)
        inside = True
    return found


def cell(name, row, column, how="", first="0"):
    """Return one cell, of the first table that has it: the row begins so, the column is named or begins so."""
    wanted = row.split(";")
    for head, rows in grids(name)[int(first) :]:
        names = [one.replace(" ", "_") for one in head]
        columns = [n for n, one in enumerate(names) if one.startswith(column)]
        columns = [names.index(column)] if column in names else columns
        for cells in rows:
            if columns and [one.replace(" ", "_") for one in cells[: len(wanted)]] == wanted:
                return shaped(cells[columns[0]], how)
    raise KeyError(f"{name} has no row {row!r} with a column {column!r}")


def shaped(text, how):
    """Return the text of a cell, its first word, or its first number in a format."""
    if how.startswith("."):
        return format(float(re.search(r"-?[\d.]+(?:e-?\d+)?", text)[0]), how)
    return text.split()[int(how)] if how else text


# pages


def quoted_tables(text):
    """Return the names of the tables that a page quotes or names."""
    names = {path.stem for path in paths().values()}
    quoted = {part for spec, _ in QUOTE.findall(text) for part in spec.split("::")[:2]}
    return sorted(names & (quoted | set(NAMED.findall(text))))


def state(text):
    """Return of which code the tables of a page are."""
    names = quoted_tables(text)
    old = [name for name in names if old_commands(place_of(name))]
    if not old:
        return f"All {len(names)} tables are of the present code."
    if len(old) == len(names):
        return f"All {len(names)} tables were measured with an older version of the code: each names its commit."
    return f"Measured with an older version of the code: {', '.join(f'`{name}`' for name in old)}."


def whole(name, number="0"):
    """Return a table of a page of results."""
    head, rows = grids(name)[int(number)]
    return f"\n{table(head, rows)}\n"


def filled(text):
    """Return a page with what it quotes as the tables have it."""

    def fill(found):
        name, *rest = found[1].split("::")
        if name == "state":
            value = state(text)
        else:
            value = whole(*rest) if name == "table" else cell(name, *rest)
        return f"<!--{found[1]}-->{value}<!--end-->"

    if re.search(r"^<!--(?!table|end)\w", text, flags=re.MULTILINE):
        raise ValueError("A quote begins a line, where Markdown takes it for HTML: move a word before it.")
    return QUOTE.sub(fill, text)


def changes():
    """Return the files that do not say what they should, {path: text}: tables without their mark, pages."""
    found = {path: (path.read_text(encoding="utf-8"), marked) for path in paths().values()}
    found |= {path: (path.read_text(encoding="utf-8"), filled) for path in PAGES}
    after = {path: (text, how(text)) for path, (text, how) in found.items()}
    return {path: new for path, (text, new) in after.items() if new != text}


def update():
    """Mark tables, fill pages, and say which files have changed."""
    for path, text in changes().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT), flush=True)


def check():
    """Return what is wrong for a release: tables that are older than the code, files that do not have their numbers."""
    old = [
        f"older than the code: {name}: {command}" for name, path in paths().items() for command in old_commands(path)
    ]
    return old + [f"run benchmarks/quotes.py, which changes {path.relative_to(ROOT)}" for path in changes()]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit("\n".join(check()) or None)
    update()
