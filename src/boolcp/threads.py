"""How many threads BLAS uses: one for the many small matrices of the search, all of them for passes over big arrays."""

from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

BIG = 2**21  # entries of a tensor from which a pass over it is worth several threads


@cache
def _controller():
    controller = ThreadpoolController().select(user_api="blas")
    return controller, {lib.filepath: lib.num_threads for lib in controller.lib_controllers}


@contextmanager
def one_thread():
    """Run the body with one BLAS thread; small matrices are slower, not faster, with more."""
    controller, _ = _controller()
    with controller.limit(limits=1):
        yield
