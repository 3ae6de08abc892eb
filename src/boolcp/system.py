"""What a fit asks of the machine: memory, BLAS threads, and optional packages."""

import importlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from threading import Lock, local
from typing import Any

import numpy as np
import psutil
from threadpoolctl import ThreadpoolController

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
NEEDS = {"h5netcdf": ["h5py"], "pymatreader": ["h5py"]}  # what they import when they are used
BIG = 2**24  # entries of a tensor from which a pass over it uses several threads; not tuned


def load_extra(module: str, extra: str) -> Any:
    """Return the imported module, or raise an ImportError that says what to install."""
    try:
        for needed in NEEDS.get(module, ()):
            importlib.import_module(needed)
        return importlib.import_module(module)
    except ModuleNotFoundError as error:  # of the module, or of one that it needs
        package = (error.name or module).partition(".")[0]
        install = f"'boolcp[{extra}]'" if extra else package
        message = f"This needs the package {package!r}, which is not installed: pip install {install}."
        raise ImportError(message, name=package) from None


# memory


def read_memory(size: float | str | None) -> int:
    """Return a size in bytes from a number or a text such as "3GB", "500 MiB"; None is the available memory."""
    if size is None:
        return available_memory()
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?i?)b?\s*", size.lower())
        if match is None or match[2] not in UNITS:
            raise ValueError(f'max_memory must be a number of bytes or a text such as "3GB" or "500MiB", got {size!r}.')
        size = float(match[1]) * UNITS[match[2]]
    elif isinstance(size, bool) or (not hasattr(size, "__index__") and not isinstance(size, float)):
        raise TypeError(f'max_memory must be None, a number of bytes or a text such as "3GB", got {size!r}.')
    if not size > 0 or size == float("inf"):
        raise ValueError(f"max_memory must be above 0 and finite, got {size!r}.")
    return int(size)


def available_memory() -> int:
    """Return the bytes that a process can still allocate."""
    return int(psutil.virtual_memory().available)


def float_bytes(shape: Sequence[int], dtype: Any) -> int:
    """Return the bytes of an array in computations: float32 stays, all other numbers become float64."""
    return math.prod(shape) * (4 if str(dtype) == "float32" else 8)


def memory_text(n_bytes: float) -> str:
    """Return a number of bytes as text, such as "2.5 GB"."""
    for unit, size in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{int(n_bytes)} bytes"


def check_memory(needs: Mapping[str, float], limit: float, advice: str, *, limit_name: str = "max_memory") -> None:
    """Raise a MemoryError with the estimate if what is needed, bytes by name, is more than the limit."""
    if (total := sum(needs.values())) <= limit:
        return
    parts = [(size, name) for name, size in needs.items() if size > 0.01 * total]
    listing = ", ".join(f"{name} {memory_text(size)}" for size, name in sorted(parts, reverse=True))
    known = f"{limit_name} is {memory_text(limit)}"
    raise MemoryError(f"This fit needs about {memory_text(total)} of memory ({listing}), but {known}. {advice}")


# BLAS threads: one for the many small matrices of the search, all of them for passes over big arrays


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

    @contextmanager
    def ask(self, n_one: int = 0, n_all: int = 0) -> Iterator[None]:
        """Run a body that asks for one thread, or for all."""
        self.change(n_one, n_all)
        try:
            yield
        finally:
            self.change(-n_one, -n_all)


REQUESTS = Requests()


one_thread = partial(REQUESTS.ask, n_one=1)  # run the body with one BLAS thread: small matrices are slower with more


def enough_threads(X: np.ndarray) -> AbstractContextManager[None]:
    """Run the body, a pass over X, with all BLAS threads if X is big and no other thread works beside this one."""
    is_alone = X.size >= BIG and not getattr(REQUESTS.local, "is_shared", False)
    return REQUESTS.ask(n_all=1) if is_alone else nullcontext()


@contextmanager
def shared_thread() -> Iterator[None]:
    """Run the body in a thread that is one of several: it leaves the BLAS threads as they are."""
    before = getattr(REQUESTS.local, "is_shared", False)
    REQUESTS.local.is_shared = True
    try:
        yield
    finally:
        REQUESTS.local.is_shared = before
