"""BLAS threads: what one body asks for is not undone by another one that ends before it."""

import threading

import numpy as np
import pytest

from boolcp import system


class Library:
    """A BLAS library with four threads."""

    def __init__(self):
        self.number = 4

    def get_num_threads(self):
        return self.number

    def set_num_threads(self, number):
        self.number = number


@pytest.fixture
def library(monkeypatch):
    found = Library()
    monkeypatch.setattr(system, "_libraries", lambda: ((found, 4),))
    monkeypatch.setattr(system, "REQUESTS", system.Requests())
    monkeypatch.setattr(system, "BIG", 10)
    return found


def test_a_fit_that_ends_leaves_those_beside_it_with_one_thread(library):
    is_begun, may_end = threading.Event(), threading.Event()

    def first():
        with system.one_thread():
            is_begun.set()
            may_end.wait(30)

    other = threading.Thread(target=first)
    other.start()
    assert is_begun.wait(30)
    with system.one_thread():
        may_end.set()
        other.join()
        assert library.number == 1
    assert library.number == 4


def test_a_big_pass_takes_all_threads_unless_others_work_beside_it(library):
    X, small = np.zeros(10), np.zeros(9)
    with system.one_thread():
        with system.enough_threads(small):
            assert library.number == 1
        with system.enough_threads(X):
            assert library.number == 4
        with system.shared_thread(), system.enough_threads(X):
            assert library.number == 1
        assert library.number == 1
    assert library.number == 4
