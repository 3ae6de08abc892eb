"""BLAS threads: one for the many small matrices of the search, all of them for passes over big arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

BIG = 2**24  # entries of a tensor from which a pass over it uses several threads; not tuned


@cache
def _libraries() -> tuple[tuple[Any, int], ...]:
    """Return the BLAS libraries in use and how many threads each had before boolcp limited it."""
    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    return tuple((lib, lib.num_threads) for lib in controllers)


class Requests:
    """How many bodies ask for one BLAS thread, and how many for all of them, in all threads of this process.

    The number is one of the process, so the first body that ends must not undo what the others ask for: then these
    would round differently from one run to the next.
    """

    def __init__(self) -> None:
        self.lock, self.n_one, self.n_all, self.before = Lock(), 0, 0, list[int]()
        self.local = local()  # `is_shared`: this thread is one of several that work at the same time

    def change(self, n_one: int = 0, n_all: int = 0) -> None:
        """Count bodies that begin (1) or end (-1), and set the number of threads."""
        with self.lock:
            libraries = _libraries()
            if not (self.n_one or self.n_all):
                self.before = [lib.get_num_threads() for lib, _ in libraries]
            self.n_one, self.n_all = self.n_one + n_one, self.n_all + n_all
            for (lib, all_threads), before in zip(libraries, self.before, strict=True):
                lib.set_num_threads(all_threads if self.n_all else 1 if self.n_one else before)


REQUESTS = Requests()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the body with one BLAS thread; small matrices are slower, not faster, with more."""
    REQUESTS.change(n_one=1)
    try:
        yield
    finally:
        REQUESTS.change(n_one=-1)


@contextmanager
def enough_threads(X: np.ndarray) -> Iterator[None]:
    """Run the body, a pass over X, with all BLAS threads if X is big and no other thread works beside this one."""
    is_more = X.size >= BIG and not getattr(REQUESTS.local, "is_shared", False)
    if is_more:
        REQUESTS.change(n_all=1)
    try:
        yield
    finally:
        if is_more:
            REQUESTS.change(n_all=-1)


@contextmanager
def shared_thread() -> Iterator[None]:
    """Run the body in a thread that is one of several: it leaves the BLAS threads as they are."""
    before = getattr(REQUESTS.local, "is_shared", False)
    REQUESTS.local.is_shared = True
    try:
        yield
    finally:
        REQUESTS.local.is_shared = before
