"""For tests and the examples in docstrings alike."""

import sys

import pytest


@pytest.fixture(autouse=True)
def close_figures():
    """Close the figures of each test and example: matplotlib keeps them otherwise."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
