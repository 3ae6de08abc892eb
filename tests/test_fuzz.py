"""A short version of `make fuzz`."""

import os

import fuzz
import pytest
from fuzz_files import check_damaged, check_forged, check_kill
from fuzz_grid import check_cell

ONCE_FAILED = [3004783, 3009357, 4009225, 6006281]  # all of them with mean=True


@pytest.mark.parametrize(
    ("check", "seeds"),
    [
        (fuzz.check_fit, [*ONCE_FAILED, *range(100_000, 100_008)]),
        (check_damaged, range(20_000, 20_020)),
        (check_forged, range(20_000, 20_020)),
        (check_kill, range(20_000, 20_002)),
        (check_cell, range(20_000, 20_005)),
    ],
)
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_random_cases_have_no_failure(check, seeds, times):
    seeds = [*seeds, *range(200_000, 200_000 + (times - 1) * len(seeds))]
    assert fuzz.run(check, seeds) == {}


def test_a_crash_fails_its_case_and_is_not_the_end():
    failed, end = fuzz.run(lambda seed: 1 / seed < 0.4 and os._exit(seed), range(5)), "the process ended with status"
    assert failed == {0: "ZeroDivisionError: division by zero", 3: f"{end} 768", 4: f"{end} 1024"}


def test_the_oracle_notices_a_wrong_result(monkeypatch):
    """The checks can fail: here they take the atoms of a result for twice as large."""
    atom = fuzz.naive.atom
    monkeypatch.setattr("naive.atom", lambda one: 2 * atom(one))
    assert set(fuzz.run(fuzz.check_fit, range(100_001, 100_004)).values()) == {"AssertionError: inner"}
