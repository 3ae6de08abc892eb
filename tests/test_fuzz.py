"""A short version of `make fuzz`."""

import os

import fuzz
import fuzz_files
import pytest


@pytest.mark.slow
def test_random_fits_agree_with_plain_numpy():
    assert fuzz.run_cases(fuzz.check_fit, range(200_000, 200_300)) == (300, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "count"),
    [(fuzz_files.check_damaged, 170), (fuzz_files.check_forged, 150), (fuzz_files.check_kill, 5)],
    ids=["flipped", "forged", "killed"],
)
def test_files_are_read_or_refused_and_killed_fits_resume(check, count):
    assert fuzz.run_forked(fuzz.run_cases, check, range(10_000, 10_000 + count)) == (count, {})


def test_a_few_random_fits_agree_with_plain_numpy():
    assert fuzz.run_cases(fuzz.check_fit, range(100_000, 100_008)) == (8, {})
    once_failed = [3004783, 3009357, 4009225, 6006281]  # all of them with mean=True
    assert fuzz.run_cases(fuzz.check_fit, once_failed) == (4, {})


def test_a_few_damaged_and_forged_files_are_read_or_refused():
    for check in (fuzz_files.check_damaged, fuzz_files.check_forged):
        assert fuzz.run_cases(check, range(20_000, 20_020)) == (20, {})


def test_a_crash_is_a_failure_and_not_the_end():
    with pytest.raises(AssertionError, match="ended with status"):
        fuzz.run_forked(os._exit, 3)
    assert fuzz.run_forked(sum, [1, 2]) == 3


def test_the_oracle_notices_a_wrong_result(monkeypatch):
    """The checks can fail: a result whose weights are doubled is found out."""
    from dataclasses import replace

    from boolcp import BMP

    fit = BMP.fit

    def doubled(self, X, **options):
        model = fit(self, X, **options)
        model.decomposition_ = replace(model.decomposition_, data_norm2=2 * model.decomposition_.data_norm2)
        return model

    monkeypatch.setattr(BMP, "fit", doubled)
    assert set(fuzz.run_cases(fuzz.check_fit, range(100_001, 100_004))[1].values()) == {"AssertionError: norm"}
