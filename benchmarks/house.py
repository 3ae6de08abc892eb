"""How large the library is and how many modules and functions a fit passes through: ``python benchmarks/house.py``.

tests/test_layers.py holds these numbers below its BUDGET. Functions are those of boolcp that Python enters during one
fit, without compiled kernels and lambdas; the depth is that of the calls among them.
"""

import ast
import inspect
import re
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]


def n_lines(folder):
    """Return the number of lines of all Python and Cython files below a folder."""
    paths = [*folder.rglob("*.py"), *folder.rglob("*.pyx")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def n_questions(path):
    """Return how many public methods and attributes the protocol of a storage has."""
    bodies = [node.body for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    names = {
        getattr(part, "name", None) or ast.unparse(getattr(part, "target", part)) for body in bodies for part in body
    }
    return len({name for name in names if name.isidentifier() and not name.startswith("_")})


def n_branches(package):
    """Return how often code outside the storages asks of which kind one is."""
    kinds = "Array|Complete|Dense|Tucker|Weighted|Lazy|LazyWeighted"
    paths = [path for path in package.rglob("*.py") if path.parent.name != "storage"]
    return sum(len(re.findall(rf"isinstance\([^()]*\b({kinds})\b", path.read_text("utf-8"))) for path in paths)


def sizes(package, tests):
    """Return what the files alone tell, {what: number}."""
    folders = {path.parent for path in package.rglob("*.py")}
    return {
        "lines of src": n_lines(package),
        "lines of tests": n_lines(tests),
        "files of a folder": max(len([*folder.glob("*.py"), *folder.glob("*.pyx")]) for folder in folders),
        "questions to a storage": n_questions(package / "storage" / "protocol.py"),
        "questions about the kind of a storage": n_branches(package),
    }


def trace(call, package):
    """Return the modules, the functions and the depth of calls in boolcp during one call."""
    seen, depth, deepest = set(), 0, 0

    def watch(frame, event, argument):
        nonlocal depth, deepest
        code = frame.f_code
        if not code.co_filename.startswith(str(package)) or code.co_name.startswith("<"):
            return
        if event == "call":
            depth += 1
            deepest = max(deepest, depth)
            seen.add((code.co_filename, code.co_qualname))
        elif event == "return":
            depth -= 1

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return len({name for name, _ in seen}), len(seen), deepest


def fits(folder):
    """Yield the name and the call of each kind of fit."""
    import numpy as np
    import zarr

    import boolcp

    def fit(X, **options):
        if "background" in inspect.signature(boolcp.BMP).parameters:  # commit 34bffee has one
            options["background"] = None
        return lambda: boolcp.BMP(3, atom_rank=1, random_state=0, **options).fit(X)

    X = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0).X
    rng = np.random.default_rng(0)
    large = boolcp.datasets.make_boolean_cp((40, 45, 50), 3, noise=0.1, random_state=0).X
    stored = zarr.open_array(str(folder / "X.zarr"), mode="w", shape=large.shape, chunks=(20, 20, 20), dtype="f8")
    stored[:] = large
    yield "basic fit", fit(X)
    yield "gaps", fit(np.where(rng.random(X.shape) < 0.1, np.nan, X))
    yield "Poisson", fit(rng.poisson(np.abs(X)).astype(float), loss="poisson")
    yield "disk", fit(stored)


def traced(package):
    """Return modules, functions and depth of each kind of fit, {what: number}."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in fits(Path(folder)):
            call()  # imports and compiled kernels
            modules, functions, depth = trace(call, package)
            found |= {f"{name}: modules": modules, f"{name}: functions": functions, f"{name}: depth": depth}
    return found


def measure():
    """Return all numbers of the library that is imported, {what: number}."""
    import boolcp

    package = Path(boolcp.__file__).parent
    return sizes(package, ROOT / "tests") | traced(package)


if __name__ == "__main__":
    print(*(f"{what:24} {number:6}" for what, number in measure().items()), sep="\n")
