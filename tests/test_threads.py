"""BLAS threads: what one body asks for is not undone by another one that ends before it."""

import threading

import numpy as np
import pytest

from boolcp import threads


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
    monkeypatch.setattr(threads, "_libraries", lambda: ((found, 4),))
    monkeypatch.setattr(threads, "REQUESTS", threads.Requests())
    monkeypatch.setattr(threads, "BIG", 10)
    return found


def test_a_fit_that_ends_leaves_those_beside_it_with_one_thread(library):
    is_begun, may_end = threading.Event(), threading.Event()

    def first():
        with threads.one_thread():
            is_begun.set()
            may_end.wait(30)

    other = threading.Thread(target=first)
    other.start()
    assert is_begun.wait(30)
    with threads.one_thread():
        may_end.set()
        other.join()
        assert library.number == 1
    assert library.number == 4


def test_a_big_pass_takes_all_threads_unless_others_work_beside_it(library):
    X, small = np.zeros(10), np.zeros(9)
    with threads.one_thread():
        with threads.enough_threads(small):
            assert library.number == 1
        with threads.enough_threads(X):
            assert library.number == 4
        with threads.shared_thread(), threads.enough_threads(X):
            assert library.number == 1
        assert library.number == 1
    assert library.number == 4
