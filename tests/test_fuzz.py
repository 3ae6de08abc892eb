"""A short version of `make fuzz`."""

import fuzz
import pytest


@pytest.mark.slow
def test_random_fits_agree_with_plain_numpy():
    assert fuzz.run_fits(0, 150) == (150, {})


@pytest.mark.slow
def test_files_with_flipped_bytes_are_read_or_refused():
    assert fuzz.in_children("bytes", 180, 90) == (180, {})


def test_a_few_random_fits_agree_with_plain_numpy():
    assert fuzz.run_fits(100_000, 8) == (8, {})


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
    assert set(fuzz.run_fits(100_001, 3)[1].values()) == {"AssertionError: norm"}
