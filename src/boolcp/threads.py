"""BLAS threads: one for the many small matrices of the search, all of them for passes over big arrays."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

BIG = 2**24  # entries of a tensor from which a pass over it uses several threads; not tuned


@cache
def _libraries() -> tuple[tuple[Any, int], ...]:
    """Return the BLAS libraries in use and how many threads each had before boolcp limited it."""
    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    return tuple((lib, lib.num_threads) for lib in controllers)


@contextmanager
def _threads(choose: Callable[[int, int], int]) -> Iterator[None]:
    libraries = _libraries()
    before = [lib.get_num_threads() for lib, _ in libraries]
    try:
        for (lib, all_threads), now in zip(libraries, before, strict=True):
            lib.set_num_threads(choose(all_threads, now))
        yield
    finally:
        for (lib, _), now in zip(libraries, before, strict=True):
            lib.set_num_threads(now)


def one_thread() -> AbstractContextManager[None]:
    """Run the body with one BLAS thread; small matrices are slower, not faster, with more."""
    return _threads(lambda all_threads, now: 1)


def enough_threads(X: np.ndarray) -> AbstractContextManager[None]:
    """Run the body, a pass over X, with all BLAS threads if X is big."""
    return nullcontext() if X.size < BIG else _threads(lambda all_threads, now: all_threads)
