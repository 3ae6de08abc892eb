"""Numbers in the pages that come from tables: each is followed by a comment that says from where.

0.0161<!-- fig1: dataset=Syn0; task=denoise; method=CP; n_atoms=3; metric=rmse -->       the mean of these rows
0.03<!-- fig1: how=max; dataset=Syn2; .. -->                                             or min, max, sum, count
1.24<!-- refine_synthetic: Syn0 | 1.0; CP-ALS, 10 starts, median ratio -->               a row and a column
41<!-- fact: lfmmix_ahead -->                                                            a function below

python benchmarks/quotes.py            # lists the numbers that differ from their tables
python benchmarks/quotes.py --write    # and puts those of the tables in their place
"""

import argparse
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from boolcp.experiments import fig4_boolean_maps, per_mode, theory
from boolcp.experiments._methods import BLOCKS, DEFAULT, PUBLISHED, PUBLISHED_RANK_ONE, RANK_ONE

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "paper").glob("*.md"))]
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
QUOTE = re.compile(rf"({NUMBER})((?: %|\*\*)?<!-- (\w+): ([^>]*?) -->)")
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end of table -->)", flags=re.DOTALL)
FIG1_ORDER = (DEFAULT, "SUSTain", BLOCKS, "CP", "Tucker", "LFMmix", PUBLISHED, "LFM", PUBLISHED_RANK_ONE)
HOW = {"mean": np.mean, "min": np.min, "max": np.max, "sum": np.sum, "count": len, "median": np.median}


def quotes(text):
    """Return (number as written, table, what of it) for each number of a page with such a comment."""
    return [(match[1], match[3], match[4]) for match in QUOTE.finditer(text)]


def look_up(table, what):
    """Return the number that a comment names."""
    if table == "fact":
        name, *arguments = [part.strip() for part in what.split(";")]
        return float(globals()[name](*arguments))
    if (ROOT / "docs" / "reproduction" / f"{table}.csv").is_file():
        return of_rows(read(table), [part.strip() for part in what.split(";")])
    return of_cell(table, *(part.strip() for part in what.split(";")))


@cache
def read(name):
    """Return a table of the reproduction, all but the values as text."""
    table = pd.read_csv(ROOT / "docs" / "reproduction" / f"{name}.csv", dtype=str)
    return table.astype({"value": float})


def of_rows(table, parts):
    """Return the mean, or what `how` says, of the values of the rows that the other parts name."""
    how = "mean"
    for part in parts:
        key, _, value = part.partition("=")
        if key == "how":
            how = value
        else:
            table = table[table[key] == value]
    if table.empty:
        raise LookupError(f"no row has {parts}")
    return float(HOW[how](table["value"]))


def of_cell(name, row, column):
    """Return the first number in one cell of a table of benchmarks/results; the row is given by its first cells."""
    lines = (ROOT / "benchmarks" / "results" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    head = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif line.strip().startswith(f"| {row} |") and column in head:
            return float(re.search(NUMBER, cells[head.index(column)])[0])
    raise LookupError(f"{name}.md has no cell {row} / {column}")


def written(value, like):
    """Return a value with as many digits as another number was written with."""
    digits = re.sub(r"e.*$", "", like).replace("-", "")
    if "e" in like:
        return re.sub(r"e([+-])0*(\d)", lambda m: f"e{m[1].strip('+')}{m[2]}", f"{value:.{max(len(digits) - 2, 0)}e}")
    return f"{value:.{len(digits.partition('.')[2])}f}"


def wrong(text):
    """Return (as written, as the table has it, where) for each number that differs."""
    found = []
    for number, table, what in quotes(text):
        now = written(look_up(table, what), number)
        if float(now) != float(number):
            found.append((number, now, f"{table}: {what}"))
    for match in BLOCK.finditer(text):
        if match[3] != globals()[match[2]]():
            found.append(("a table", "different now", match[2]))
    return found


def corrected(text):
    """Return a page with all such numbers as the tables have them."""
    text = QUOTE.sub(lambda match: written(look_up(match[3], match[4]), match[1]) + match[2], text)
    return BLOCK.sub(lambda match: match[1] + globals()[match[2]]() + match[4], text)


def markdown(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def provenance():
    """Return which commits made the rows of each table, with dates and seeds."""
    rows = []
    for path in sorted((ROOT / "docs" / "reproduction").glob("*.csv")):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        for (commit, date), part in table.groupby(["commit", "date"]):
            who = ", ".join(dict.fromkeys(part["method"])) if "method" in part else "all"
            n_seeds = part["seed"].nunique() if "seed" in part else 1
            rows.append([path.name, commit, date, n_seeds, len(part), who])
    return markdown(["table", "commit", "date", "seeds", "rows", "methods"], rows)


def fig1_denoise():
    """Return RMSE and Hamming error of the first tensor at the true number of atoms, and with 20."""
    table = read("fig1")
    table = table[table["seed"] == "0"]
    rows = []
    sets = {"Syn0": "3", "Syn1": "9", "Syn2": "15"}
    for method in FIG1_ORDER:
        row = [method.replace("SUSTain", "SUSTain-style")]
        for dataset, n_true in sets.items():
            part = table[(table["dataset"] == dataset) & (table["task"] == "denoise") & (table["method"] == method)]
            for n_atoms in (n_true, "20"):
                values = part[part["n_atoms"] == n_atoms].groupby("metric")["value"].mean()
                bits = f" ({values['hamming']:.2f})" if "hamming" in values else ""
                row.append(f"{values['rmse']:.3g}{bits}")
        rows.append(row)
    head = ["RMSE (Hamming error)", *(f"{name}, {n} atoms" for name, k in sets.items() for n in (k, 20))]
    return markdown(head, rows)


def fig2_denoise():
    """Return the denoising error of all recordings with 3 atoms."""
    cells = fig2_cells().xs("denoise", level="task").xs("3", level="n_atoms").T
    order = cells.mean(axis=1).sort_values().index
    names = list(dict.fromkeys(read("fig2")["condition"]))
    shown = cells.map(lambda value: "-" if np.isnan(value) else f"{value:.2f}")
    rows = [[name.replace("SUSTain", "SUSTain-style"), *(shown.loc[name, c] for c in names)] for name in order]
    return markdown(["denoising, 3 atoms", *names], rows)


def equal_parameters():
    """Return the lowest error within as many real parameters as three block atoms have, for each recording."""
    table = read("parameters")
    names = list(dict.fromkeys(table["condition"]))
    budget = {name: parameters_of(name, BLOCKS, "3") for name in names}
    methods = list(dict.fromkeys(table["method"]))
    rows = [["real parameters of 3 blocks", *(f"{budget[name]:.0f}" for name in names)]]
    for method in methods:
        found = [at_parameters(name, method, budget[name] + 0.5) for name in names]
        rows.append([f"{method}, within", *("-" if np.isnan(value) else f"{value:.3f}" for value in found)])
    for method in methods:
        part = table[(table["method"] == method) & (table["metric"] == "rmse")]
        rows.append([f"{method}, lowest", *(f"{part[part['condition'] == name]['value'].min():.3f}" for name in names)])
    return markdown(["denoising RMSE", *names], rows)


def equal_wins(method, other):
    """Return on how many recordings one method has a lower error than another within the parameters of 3 blocks."""
    names = list(dict.fromkeys(read("parameters")["condition"]))
    budget = [parameters_of(name, BLOCKS, "3") + 0.5 for name in names]
    pairs = [[at_parameters(name, one, n) for one in (method, other)] for name, n in zip(names, budget, strict=True)]
    return sum(own < peer for own, peer in pairs)


def lowest_wins(method, other):
    """Return on how many recordings the lowest error of one method at any number is below that of another."""
    table = read("parameters")
    table = table[table["metric"] == "rmse"].groupby(["condition", "method"])["value"].min().unstack()
    return (table[NAMES.get(method, method)] < table[NAMES.get(other, other)]).sum()


def rivals_bits():
    """Return the wrong bits of each method on the tensors of bench_rivals.py."""
    text = (ROOT / "benchmarks" / "results" / "rivals.md").read_text(encoding="utf-8")
    columns, head = {}, ["wrong bits"]
    for section in text.split("## Real parts: ")[1:]:
        title, *lines = section.splitlines()
        head.append(", ".join(title.split("; ")[:2]))
        for line in lines[3:]:
            if line.startswith("| "):
                name, bits = [cell.strip() for cell in line.split("|")[1:3]]
                columns.setdefault(name, []).append(bits)
    return markdown(head, [[name, *bits] for name, bits in columns.items() if name != "method"])


def parameters_of(condition, method, n_atoms):
    table = read("parameters")
    where = (table["condition"] == condition) & (table["method"] == method) & (table["n_atoms"] == n_atoms)
    return table[where & (table["metric"] == "parameters")]["value"].mean()


def both_readings():
    """Return RMSE and Hamming error at the true number if K-bar counts the atoms of each mode."""
    table = read("per_mode")
    table = table[table["task"] == "denoise"]
    sets = {name: n for name, n in per_mode.TRUE_ATOMS.items() if name in set(table["dataset"])}
    rows = []
    for method in FIG1_ORDER:
        row = [method.replace("SUSTain", "SUSTain-style")]
        for dataset, n_true in sets.items():
            part = table[(table["dataset"] == dataset) & (table["method"] == method)]
            values = part[part["n_atoms"] == str(n_true)].groupby("metric")["value"].mean()
            bits = f" ({values['hamming']:.2f})" if "hamming" in values else ""
            row.append(f"{values['rmse']:.3g}{bits}" if len(values) else "-")
        rows.append(row)
    return markdown(["RMSE (Hamming error)", *(f"{name}: {n} atoms" for name, n in sets.items())], rows)


# what is more than the mean of some rows


def fig2_cells():
    """Return Figure 2 as a table: a row for each recording, task and number of atoms, a column for each method."""
    table = read("fig2")
    table = table[table["metric"] == np.where(table["task"] == "denoise", "rmse", "rmse_missing")]
    return table.pivot_table(index=["condition", "task", "n_atoms"], columns="method", values="value")


def lfmmix_ahead(task="complete"):
    """Return in how many cells of Figure 2 LFMmix has a lower error than the printed algorithm."""
    cells = fig2_cells().xs(task, level="task")
    return (cells["LFMmix"] < cells[PUBLISHED]).sum()


def n_cells(task="complete"):
    """Return the number of cells of Figure 2 of one task."""
    return len(fig2_cells().xs(task, level="task"))


def fig2_margin(method, other, how="min"):
    """Return the least (or largest) lead of one method over another over all cells of Figure 2."""
    cells = fig2_cells()
    return HOW[how](cells[NAMES.get(other, other)] - cells[NAMES.get(method, method)])


NAMES = {"default": DEFAULT, "published": PUBLISHED, "rank one": RANK_ONE, "blocks": BLOCKS}


def at_parameters(condition, method, limit, metric="parameters"):
    """Return the lowest error of a method with at most so many real parameters (or degrees of freedom)."""
    table = read("parameters")
    table = table[(table["condition"] == condition) & (table["method"] == NAMES.get(method, method))]
    wide = table.pivot_table(index="n_atoms", columns="metric", values="value")
    return wide["rmse"][wide[metric] <= float(limit)].min()


def gap_share(case, bound="bound 1"):
    """Return the largest measured gap relative to a bound of Theorem 1 or 2, in percent."""
    rows = read("theory")
    rows = rows[rows["case"] == NAMES.get(case, case)]
    wide = rows.pivot_table(index=["seed", "k"], columns="metric", values="value")
    return 100 * (wide["gap"] / wide[bound]).max()


def recovered(case, what="rate"):
    """Return the share of tensors of Theorem 3 that the default recovers, in percent, or an end of its interval."""
    rows = read("theory")
    rows = rows[(rows["case"] == case) & (rows["metric"] == "recovered") & (rows["method"] == DEFAULT)]
    ends = theory.interval(rows["value"].to_numpy())
    return 100 * {"rate": rows["value"].mean(), "low": ends[0], "high": ends[1]}[what]


def exponent(method, name, what="slope"):
    """Return a fitted exponent of Theorem 4 (samples, sigma, freedom) or of the time, or its two standard errors."""
    table = read("theory")
    method = {"BMP": DEFAULT, "Eq. (3)": theory.CONVEX}.get(method, NAMES.get(method, method))
    if name == "time":
        found = theory.slope(table[(table["theorem"] == theory.TIME) & (table["case"] == method)])
    else:
        found = theory.slopes(table, method)[name]
    return found[what != "slope"]


def error_ratio(method, how):
    """Return the least or largest squared error relative to sigma^2 R (d_1 + d_2 + d_3) / S of Theorem 4."""
    rows = read("theory")
    rows = rows[(rows["theorem"] == "4") & (rows["method"] == {"BMP": DEFAULT}.get(method, theory.CONVEX))]
    wide = rows.pivot_table(index=["case", "x", "seed"], columns="metric", values="value")
    return HOW[how](wide["squared error"] / wide["sigma2 R sum d / S"])


def map_errors(method, how="sum"):
    """Return wrong bits of Figure 4 over all simulated recordings and conditions."""
    found = fig4_boolean_maps.wrong_bits(read("fig4").astype({"seed": int}))
    return HOW[how]([n for (_, _, name), (_, n) in found.items() if name == NAMES.get(method, method)])


def area_bits(condition, atom, area):
    """Return how many electrodes of an area an atom of the spectra of Figure 4 is on at."""
    return of_rows(read("fig4"), ["how=sum", "group=spectra", f"condition={condition}", f"atom={atom}", f"area={area}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, now, where in wrong(text):
            print(f"{page.relative_to(ROOT)}: {number} is {now} ({where})")
        if options.write and text != corrected(text):
            page.write_text(corrected(text), encoding="utf-8")


if __name__ == "__main__":
    main()
