"""How large the house is and how deep a fit goes: files, lines, modules and functions that a fit passes through.

Run it on any version: ``python benchmarks/house.py [--src path/to/src]``. Functions are those of boolcp that Python
enters during one call, compiled kernels and generated code left out; the depth is that of the calls among them.
"""

import argparse
import ast
import sys
import tempfile
from pathlib import Path

SEARCHES = {"greedy_atom_search", "add_greedy", "find_atom", "advance", "_advance", "search", "find", "exchange"}
REMEMBERS = {"steps", "checkpoint", "watch"}


def functions(source):
    """Yield the functions of all files."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield path, node


def called(node):
    """Return the names of what is called below a node."""
    calls = [child.func for child in ast.walk(node) if isinstance(child, ast.Call)]
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}


def adds_atoms(node):
    """Return True if a loop of a function searches an atom and appends it to an estimate."""
    loops = [child for child in ast.walk(node) if isinstance(child, ast.For | ast.While)]
    return any(called(loop) & SEARCHES and called(loop) & {"append", "do", "add", "extend"} for loop in loops)


def remembers(node):
    """Return True if a signature takes what remembers steps."""
    arguments = node.args.args + node.args.kwonlyargs
    return any(argument.arg in REMEMBERS for argument in arguments)


def measure(source):
    """Return what the files alone tell, {what: number}."""
    package = source / "boolcp"
    found = list(functions(package))
    in_fit = [node for path, node in found if not {"cli", "baselines", "experiments", "io"} & set(path.parts)]
    annotated = [node for _, node in found if node.returns is not None]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py"))
    return {
        "files in the root": len(list(package.glob("*.py"))),
        "lines of src": lines,
        "functions": len(found),
        "functions with annotated results": len(annotated),
        "loops that add an atom": sum(adds_atoms(node) for node in in_fit),
        "signatures with checkpoint arguments": sum(remembers(node) for node in in_fit if node.name != "fit"),
    }


def trace(call, package):
    """Return the modules, the functions and the depth of calls in boolcp during one call."""
    seen, depth, deepest = set(), 0, 0

    def watch(frame, event, argument):
        nonlocal depth, deepest
        code = frame.f_code
        if not code.co_filename.startswith(package) or code.co_name.startswith("<"):
            return
        if event == "call":
            depth += 1
            deepest = max(deepest, depth)
            seen.add((code.co_filename, code.co_qualname))
        elif event == "return":
            depth -= 1

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len({name for name, _ in seen}), len(seen), deepest


def cases(folder):
    """Yield the name and the call of each kind of fit."""
    import dask.array
    import numpy as np

    import boolcp
    from boolcp.cli import main

    X = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, noise=0.1, random_state=0).X
    gaps = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    np.save(folder / "X.npy", X)
    large = dask.array.from_array(
        boolcp.datasets.make_boolean_cp((40, 45, 50), 3, noise=0.1, random_state=0).X, chunks=20
    )
    command = ["fit", str(folder / "X.npy"), "-k", "3", "--out", str(folder / "out"), "--force"]
    yield "basic fit", lambda: boolcp.BMP(3, atom_rank=1, random_state=0).fit(X)
    yield "missing entries", lambda: boolcp.BMP(3, atom_rank=1, random_state=0).fit(gaps)
    yield '"auto"', lambda: boolcp.BMP(3, atom_rank="auto", random_state=0).fit(X)
    yield "dask", lambda: boolcp.BMP(3, atom_rank=1, random_state=0).fit(large)
    yield "`boolcp fit`", lambda: main(command)


def show():
    """Print all numbers as a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    source = options.parse_args().src.resolve()
    sys.path.insert(0, str(source))
    import dask

    print("| what | number |\n| --- | --- |")
    for what, number in measure(source).items():
        print(f"| {what} | {number} |")
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="synchronous"):
        for name, call in cases(Path(folder)):
            call()  # imports and compiled kernels
            modules, n_functions, depth = trace(call, str(source / "boolcp"))
            print(f"| {name}: modules / functions / depth | {modules} / {n_functions} / {depth} |")


if __name__ == "__main__":
    show()
