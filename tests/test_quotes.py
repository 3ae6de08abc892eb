"""The numbers that the pages quote are those of the tables, with the code, commit and date that made each row."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
TABLES = sorted((ROOT / "docs" / "reproduction").glob("*.csv"))


@pytest.fixture(scope="module")
def quotes():
    spec = importlib.util.spec_from_file_location("quotes", ROOT / "benchmarks" / "quotes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_are_those_of_the_tables(quotes):
    n_quotes = 0
    for page in quotes.PAGES:
        text = page.read_text(encoding="utf-8")
        n_quotes += len(quotes.quotes(text))
        assert quotes.wrong(text) == [], f"{page.name}: run python benchmarks/quotes.py --write, and read the sentences"
    assert n_quotes > 80


def test_every_comment_is_understood(quotes):
    """A comment of this kind that follows no number would never be compared."""
    for page in quotes.PAGES:
        text = page.read_text(encoding="utf-8")
        named = [table.stem for table in TABLES] + ["fact"]
        assert sum(text.count(f"<!-- {name}:") for name in named) == sum(
            table in named for _, table, _ in quotes.quotes(text)
        ), page.name


def test_a_wrong_number_is_found_and_put_right(quotes):
    text = "It is **9.99**<!-- fig1: dataset=Syn0; task=denoise; method=Tucker; n_atoms=3; metric=rmse --> here."
    ((number, now, _),) = quotes.wrong(text)
    assert number == "9.99" and now == "0.02"
    assert quotes.wrong(quotes.corrected(text)) == []


@pytest.mark.parametrize(
    ("value", "like", "text"), [(0.01634, "0.0163", "0.0163"), (2.26e-8, "1e-7", "2e-8"), (12.6, "3", "13")]
)
def test_numbers_keep_their_digits(quotes, value, like, text):
    assert quotes.written(value, like) == text


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_row_says_what_made_it(path):
    table = pd.read_csv(path, dtype=str)
    assert {"commit", "date", "versions", "code"} <= set(table.columns)
    assert table[["commit", "date", "versions"]].notna().all(axis=None)
