"""For tests and the examples in docstrings alike."""

import importlib.util
import shutil
import sys

import numpy
import pytest

import boolcp


@pytest.fixture(autouse=True)
def names_of_examples(doctest_namespace):
    """Give examples in docstrings what they take for granted: boolcp, np and, where it is installed, xr."""
    doctest_namespace |= {"boolcp": boolcp, "np": numpy}
    if "xr" not in doctest_namespace and importlib.util.find_spec("xarray"):
        doctest_namespace["xr"] = importlib.import_module("xarray")


@pytest.fixture(autouse=True)
def close_figures():
    """Close the figures of each test and example: matplotlib keeps them otherwise."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_terminal_summary(terminalreporter):
    """Say loudly that nothing was tested in a browser, where there is none."""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))):
        text = "NO BROWSER: reports were not tested in one; install chromium or chrome"
        terminalreporter.write_sep("!", text, red=True)
