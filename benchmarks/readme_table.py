"""The table of results in README.md, from the tables in benchmarks/results: run it after a benchmark.

python benchmarks/readme_table.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS, README = ROOT / "benchmarks" / "results", ROOT / "README.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"


def cell(name, row, column):
    """Return one cell of a table of results: the row begins so, the column is a number."""
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    found = [parts for parts in rows if parts[: len(row)] == list(row)]
    if len(found) != 1:
        raise SystemExit(f"{name}.md has {len(found)} rows that begin with {row}.")
    return found[0][column]


def solved():
    """Return how many of the harder cases are solved, as the table says below it."""
    text = (RESULTS / "refine_battery.md").read_text(encoding="utf-8")
    return re.search(r"^(\d+ of \d+) solved", text, flags=re.MULTILINE)[1]


def rows():
    """Return what is asked, what boolcp answers, what others do, and the table with conditions and all other rows."""
    syn, time = ("refine_synthetic", ("Syn2", "1.0")), ("refine_time",)
    fit, disk = "Syn2, 150^3, 15 atoms", "scale_disk"
    ratio, als = f"{float(cell(*syn, 5)):.2f}", f"{float(cell(*syn, 8)):.2f}"
    yield (
        "15 atoms in noise, 150 x 150 x 150: error relative to a fit that knows the bits",
        ratio,
        f"{als} (CP-ALS, 10 starts)",
        syn,
    )
    yield "no wrong bit in it, and in harder cases", f"{cell(*syn, 7)}, {solved()}", "", ("refine_battery",)
    yield "processor seconds for that fit", cell(*time, (fit,), 1), f"{cell(*time, (fit,), 3)} (TensorLy)", time
    hidden = ("default_complete", ("ecog_raw", "63 x 38 x 50", "50%", "8"))
    peers = (
        f"{cell(*hidden, n).split()[0]} ({name})"
        for n, name in ((7, "iterated SVD"), (6, "tensortools"), (5, "TensorLy"))
    )
    yield (
        "an ECoG with half of the entries hidden, 8 atoms: error over that of the mean",
        cell(*hidden, 4).split()[0],
        ", ".join(peers),
        hidden,
    )
    default = (disk, ("complete",))
    cost = f"{cell(*default, 6)} s in {cell(*default, 2)}, {cell(*default, 4)} passes"
    yield "processor seconds for a file of 8 GB, 10 atoms, no wrong bit", cost, "", (disk,)
    yield (
        "runs in which an atom passes where nothing is on and off, four atoms, ten kinds of noise and drift",
        cell("trust", ("all ten kinds",), 1),
        "",
        ("trust",),
    )


def make_table():
    """Return the table as markdown."""
    lines = ["| | `boolcp` | others | table |", "| --- | --- | --- | --- |"]
    for what, own, others, (name, *_) in rows():
        lines.append(f"| {what} | {own} | {others} | [{name}](benchmarks/results/{name}.md) |")
    return "\n".join(lines) + "\n"


def main():
    before, begin, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(before + begin + make_table() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
