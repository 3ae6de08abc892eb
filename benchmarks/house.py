"""How large the house is and how deep a fit goes: files, lines, modules and functions that a fit passes through.

Run it on any version: ``python benchmarks/house.py [--src path/to/src]``. Functions are those of boolcp that Python
enters during one call, compiled kernels and generated code left out; the depth is that of the calls among them.
``--old path/to/src`` compares with that version and writes results/house.md: sizes, completion, a fit that never ended.
``--rank-one`` compares losses, bits and times of atoms of rank one instead, and writes results/house_rank_one.md.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import time
import tokenize
import warnings
from pathlib import Path

SEARCHES = {"greedy_atom_search", "add_greedy", "find_atom", "advance", "_advance", "search", "find", "exchange"}
REMEMBERS = {"steps", "checkpoint", "watch"}
BATTERY = [  # shape, atoms, other options than noise=1
    ((60, 60, 60), 9, {"p": 0.1}),
    ((30, 40, 50), 9, {}),
    ((20, 20, 20), 15, {}),
    ((40, 40, 40), 9, {"noise": 3.0}),
    ((10, 400, 60), 6, {"p": 0.3}),
    ((20, 20, 20, 20), 12, {}),
]
N_TURNS = 3


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


def n_code(path):
    """Return the number of lines with code: no blank lines, comments and docstrings."""
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
    skipped.add(tokenize.ENDMARKER)
    lines = {n for token in tokens if token.type not in skipped for n in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


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
        "of these code, without docstrings and comments": sum(n_code(path) for path in package.rglob("*.py")),
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


def rank_one():
    """Return the loss and the share of wrong bits of fits with atoms of rank one, by name."""
    import boolcp
    from boolcp.datasets import load_syn, make_boolean_cp

    tensors = {
        f"Syn{n}, seed {seed}": (load_syn, (n,), seed, (3, 9, 15)[n]) for n in range(3) for seed in (901, 902, 903)
    }
    for shape, n_atoms, more in BATTERY:
        name = " x ".join(map(str, shape)) + "".join(f", {key} {value}" for key, value in more.items())
        for seed in (5, 6):
            tensors[f"{name}, seed {seed}"] = (
                (lambda *a, more=more, **o: make_boolean_cp(*a, **(o | more))),
                (shape, n_atoms),
                seed,
                n_atoms,
            )
    found = {}
    for name, (make, arguments, seed, n_atoms) in tensors.items():
        X, _, truth = make(*arguments, noise=1.0, random_state=seed)
        W = boolcp.BMP(n_atoms, atom_rank=1, random_state=0).fit(X).decomposition_
        found[name] = float(((X - W.to_tensor()) ** 2).sum()), boolcp.metrics.hamming_error(W, truth)
    return found


def undetermined(X, truth):
    """Return the entries of blocks that are observed in no slice where their atom is on; rank one determines them."""
    import numpy as np

    found = np.zeros(X.shape, dtype=bool)
    for atom in truth.atoms if truth is not None else ():
        unseen = np.isnan(np.moveaxis(X, atom.mode, 0)[atom.z]).all(axis=0)
        np.moveaxis(found, atom.mode, 0)[atom.z] |= unseen
    return found


def completion():
    """Return the relative error on the missing entries of noiseless tensors and the atoms found, by case and number."""
    import numpy as np

    import boolcp
    from boolcp.datasets import make_boolean_cp

    constant = np.full((9, 9), 3.0)
    gaps = np.where(np.random.default_rng(0).random(constant.shape) < 0.1, np.nan, constant)
    tensors = {"9 x 9, constant": (gaps, constant, None, (1, 2, 5), [{}])}
    X, clean, _ = make_boolean_cp((30, 40), 2, missing=0.2, random_state=0)
    tensors["30 x 40, 2 atoms"] = X, clean, None, (2, 5, 10), [{}]
    for seed in range(3):
        X, clean, truth = make_boolean_cp((12, 13, 14), 2, missing=0.2, random_state=seed)
        ranks = [{}, *({"atom_rank": rank} for rank in (1, 2, None, "auto"))]
        tensors[f"12 x 13 x 14, 2 atoms, seed {seed}"] = X, clean, truth, (2, 3, 5), ranks
    found = {}
    for name, (X, clean, truth, numbers, options) in tensors.items():
        for option in options:
            row = []
            for n_atoms in numbers:
                model = boolcp.BMP(n_atoms, random_state=0, **option).fit(X)
                filled, n_found = model.complete(X), model.decomposition_.n_atoms
                known = np.isnan(X) & ~np.isnan(filled)
                has_blocks = option.get("atom_rank", 1) in (2, None)
                sure = known & ~undetermined(X, truth) if has_blocks else known
                size = np.linalg.norm(clean[known])
                errors = [np.linalg.norm((filled - clean)[part]) / size for part in (known, sure)]
                text = f"{errors[0]:.1e}" if sure.sum() == known.sum() else "{:.1e}, determined {:.1e}".format(*errors)
                row.append(f"{text} (K = {n_atoms}: {n_found})")
            found[name + "".join(f", {key}={value!r}" for key, value in option.items())] = row
    return found


def endless():
    """Return the atoms and the processor seconds of a fit that never ended in the first version."""
    import numpy as np

    import boolcp

    mask = np.random.default_rng(0).random((3, 3, 3, 3)) > 0.3
    begin = time.process_time()
    W = boolcp.decompose(np.ones((3, 3, 3, 3)), 40, mask=mask, compression=False, random_state=541)
    return W.n_atoms, time.process_time() - begin


def passed_through(source):
    """Return the modules, functions and depth of each kind of fit, by name."""
    import dask

    found = {}
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="synchronous"):
        for name, call in cases(Path(folder)):
            call()  # imports and compiled kernels
            found[f"{name}: modules / functions / depth"] = " / ".join(map(str, trace(call, str(source / "boolcp"))))
    return found


def syn2_seconds():
    """Return the least processor seconds of three fits to Syn2, for three seeds."""
    import boolcp

    found = []
    for seed in (901, 902, 903):
        X = boolcp.datasets.load_syn(2, noise=1.0, random_state=seed).X
        seconds = []
        for _ in range(4):  # the first may compile
            begin = time.process_time()
            boolcp.BMP(15, atom_rank=1, random_state=0).fit(X)
            seconds.append(time.process_time() - begin)
        found.append(min(seconds[1:]))
    return found


def run(source, *what):
    """Return numbers of a version, measured in a process of its own."""
    command = [sys.executable, __file__, "--src", str(source), *what]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(printed.splitlines()[-1])  # the command prints before


def compare(old, new, known):
    """Measure two versions and write their table; `known` is what --json printed for the old one."""
    from common import table, write

    after = run(new, "--json")
    before = run(old, "--json") if known is None else json.loads(known.read_text().splitlines()[-1])
    parts = ["# The house, before and after", f"Before: commit {before['commit']}."]
    rows = [[what, before["size"].get(what, "-"), number] for what, number in after["size"].items()]
    parts.append(table(["what", "before", "after"], rows))
    text = "The first version had no losses other than squares, no weights, no background, no sketches, no checks of\n"
    parts.append(f"{text}forged files and fewer readers: the two numbers of lines are not of the same library.")
    text = "Relative error on the missing entries (K asked for: K found), and on those that the data determine:\n"
    text += "of a block of rank 2 or a dense one, entries that are observed in no slice where its atom is on are free."
    parts.append(f"## Completion without noise\n\n{text}")
    rows = [
        [name, "; ".join(before.get("completion", {}).get(name, ["-"])), "; ".join(row)]
        for name, row in after["completion"].items()
    ]
    parts.append(table(["tensor", "before", "after"], rows))
    n_atoms, seconds = after["endless"]
    call = "decompose(np.ones((3, 3, 3, 3)), 40, mask=.., compression=False, random_state=541)"
    parts.append(f"## A fit that never ended\n\n`{call}` ends with {n_atoms} atom(s) after {seconds:.1f} s.")
    write("house.md", "python benchmarks/house.py --old path/to/src", parts)


def compare_rank_one(old, new):
    """Measure atoms of rank one in two versions, and write their table."""
    from common import table, write

    before, after = (run(source, "--json", "--rank-one") for source in (old, new))
    parts = ["# Atoms of rank one, complete data, before and after", f"Before: commit {before['commit']}."]
    rows = []
    for name, (loss, wrong) in after["rank one"].items():
        first, first_wrong = before["rank one"][name][:2]
        rows.append([name, f"{abs(loss - first) / first:.1e}", f"{first_wrong:.4f}", f"{wrong:.4f}"])
    parts.append(table(["tensor", "relative difference of the losses", "wrong bits before", "after"], rows))
    turns = [[run(source, "--times") for source in (old, new)] for _ in range(N_TURNS)]  # the machine may be busy
    parts.append("Processor seconds for Syn2, the least of three fits in each process, by turns:")
    rows = []
    for seed in range(3):
        old_s, new_s = (min(turn[k][seed] for turn in turns) for k in range(2))
        rows.append([901 + seed, f"{old_s:.2f}", f"{new_s:.2f}", f"{new_s / old_s:.2f}"])
    parts.append(table(["seed", "before", "after", "after / before"], rows))
    write("house_rank_one.md", "python benchmarks/house.py --rank-one --old path/to/src", parts)


def show():
    """Print all numbers as a table, or compare two versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--old", type=Path, help="the src of a different version")
    parser.add_argument("--known", type=Path, help="what --json printed for that version")
    parser.add_argument("--rank-one", action="store_true", help="atoms of rank one: losses, bits and times")
    parser.add_argument("--times", action="store_true", help="print seconds for a comparison")
    parser.add_argument("--json", action="store_true", help="print everything for a comparison")
    options = parser.parse_args()
    source = options.src.resolve()
    if options.old is not None and options.rank_one:
        compare_rank_one(options.old.resolve(), source)
        return
    if options.old is not None:
        compare(options.old.resolve(), source, options.known)
        return
    sys.path.insert(0, str(source))
    warnings.simplefilter("ignore")
    if options.times:
        print(json.dumps(syn2_seconds()))
        return
    version = ["git", "-C", str(source), "describe", "--always", "--dirty=+", "--exclude=*"]
    named = {"commit": subprocess.run(version, capture_output=True, text=True).stdout.strip()}
    if options.json and options.rank_one:
        print(json.dumps(named | {"rank one": rank_one()}))
        return
    size = measure(source) | passed_through(source)
    if options.json:
        is_first = not (source / "boolcp" / "fit").is_dir()
        ended = None if is_first else endless()
        print(json.dumps(named | {"size": size, "completion": completion(), "endless": ended}))
        return
    print("| what | number |\n| --- | --- |")
    for what, number in size.items():
        print(f"| {what} | {number} |")


if __name__ == "__main__":
    show()
