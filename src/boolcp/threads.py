"""How many threads BLAS uses: one for the many small matrices of the search, all of them for passes over big arrays."""

from contextlib import contextmanager
from functools import cache, wraps

from threadpoolctl import ThreadpoolController

BIG = 2**24  # entries of a tensor from which a pass over it is worth several threads


@cache
def _libraries():
    """Return the BLAS libraries in use and how many threads each had before anybody here limited it."""
    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    return tuple((lib, lib.num_threads) for lib in controllers)


@contextmanager
def _threads(choose):
    libraries = _libraries()
    before = [lib.get_num_threads() for lib, _ in libraries]
    try:
        for (lib, all_threads), now in zip(libraries, before, strict=True):
            lib.set_num_threads(choose(all_threads, now))
        yield
    finally:
        for (lib, _), now in zip(libraries, before, strict=True):
            lib.set_num_threads(now)


def one_thread():
    """Run the body with one BLAS thread; small matrices are slower, not faster, with more."""
    return _threads(lambda all_threads, now: 1)


def pass_over_data(method):
    """Let a storage's method use all BLAS threads when its array is big."""

    @wraps(method)
    def wrapped(self, *args):
        if self._array.size < BIG:
            return method(self, *args)
        with _threads(lambda all_threads, now: all_threads):
            return method(self, *args)

    return wrapped
