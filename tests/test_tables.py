"""Numbers in pages are those of the tables, and tables that are older than the code say so."""

import importlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
common = pytest.importorskip("common", reason="the benchmarks are not there")
quotes, reproduce = importlib.import_module("quotes"), importlib.import_module("reproduce")
COMMAND = "python benchmarks/bench_truth.py"


def test_pages_quote_the_tables_and_old_tables_say_so():
    assert not quotes.changes(), "run python benchmarks/quotes.py"


def test_every_table_is_quoted_and_has_its_command():
    pages = *quotes.PAGES, *(common.ROOT / "examples").glob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    made = {one.path.stem for one in reproduce.TABLES}
    stems = {path.stem for path in [*quotes.RESULTS.iterdir(), *quotes.FIGURES.iterdir()]} - {"fuzz", "golden"}
    assert stems == made and stems <= set(quotes.quoted_tables(text)), "quote a table, or delete it"


def test_the_stamp_is_that_of_code_that_is_used_not_of_words():
    files = {path.stem for path in common.dependencies("benchmarks/bench_truth.py")}
    assert files >= {"bench_truth", "real_data", "bmp", "sweep", "_kernels"} and not files & {"sessions", "mapping"}
    code = 'def f(x):\n    """Return x."""\n    return x\n'
    same = '# why\ndef f(x):\n    """Return x,\n\n    again."""\n\n    return x  # x\n'
    assert common.stripped(code) == common.stripped(same) != common.stripped(code.replace("return x", "return 2 * x"))


def test_a_table_of_other_code_is_marked_once(tmp_path):
    now = common.fingerprint("benchmarks/bench_truth.py")
    new, old = (f"# Title\n\nMade by `{COMMAND}` (code {code}).\n\n| a |\n" for code in (now, "0123456789"))
    marked, path = quotes.marked(old), tmp_path / "old.md"
    assert quotes.marked(new) == new and marked.count(common.OLD) == 1 and quotes.marked(marked) == marked
    assert quotes.marked(marked.replace("0123456789", now)) == new
    assert path.write_text(old + new) and quotes.old_commands(path) == [COMMAND]


def test_a_run_that_was_ended_continues_with_rows_of_this_code(tmp_path):
    seen, path = [], tmp_path / "toy.csv"

    def run(job):
        seen.append(job["seed"])
        yield {"value": 1 / job["seed"]}

    with pytest.raises(ZeroDivisionError):
        common.collect(run, [{"seed": 1}, {"seed": 0}], path, COMMAND)
    rows = common.collect(run, [{"seed": 1}, {"seed": 2}], path, COMMAND)
    assert seen == [1, 0, 2] and [row["value"] for row in rows] == ["1", "0.5"] and common.is_made(path, COMMAND)
    path.write_text(path.read_text().replace(common.fingerprint("benchmarks/bench_truth.py"), "0"))
    assert common.collect(run, [{"seed": 1}], path, COMMAND) and seen[3:] == [1]
