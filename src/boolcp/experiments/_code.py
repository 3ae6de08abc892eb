"""By which code a row was made: a fingerprint of what computes it, the commit, the date and the versions."""

import ast
import datetime
import hashlib
import importlib
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
SILENT = (
    "boolcp.io",
    "boolcp.checks",
    "boolcp.extras",
    "boolcp.memory",
    "boolcp.threads",
    "boolcp.fit.checkpoint",
    "boolcp.fit.forgery",
    "boolcp.fit.watch",
    "boolcp.result.labels",
    "boolcp.result.summary",
    "boolcp.storage.lazy",
    "boolcp.storage.slabs",
    "boolcp.storage.sources",
)  # read, check, write: change no number
PACKAGES = ("boolcp", "numpy", "scipy", "numba", "tensorly")


def fingerprint(experiment: str, modules: Iterable[str]) -> str:
    """Return eight hexadecimal digits that change when the code behind a row does.

    That code is `run` of the experiment with what it refers to in its own file, and the modules with all that they
    import of this package at their top. Comments, docstrings and figures do not count.
    """
    digest = hashlib.sha256(_run_of(experiment).encode())
    for name in sorted(_closure(tuple(modules))):
        digest.update(_text(name).encode())
    return digest.hexdigest()[:8]


@cache
def provenance() -> dict[str, str]:
    """Return commit, date and versions of this run, as columns of a table."""
    found = [f"python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    today = datetime.datetime.now(datetime.UTC).date()
    return {"commit": commit(), "date": str(today), "versions": "; ".join(found)}


def commit() -> str:
    """Return the commit of this code, with a plus if files of it were changed since, or "released" outside a clone."""
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*"]
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "."]
    try:
        name, changed = (subprocess.run(command, capture_output=True, text=True) for command in (describe, status))
    except OSError:
        return "released"
    if name.returncode:
        return "released"
    return name.stdout.strip() + "+" * bool(changed.stdout.strip())


@cache
def _closure(modules: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the modules and of all modules of this package that they import at their top."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and not name.startswith(SILENT):
            found.add(name)
            waiting += _imports(name)
    return frozenset(found)


@cache
def _imports(name: str) -> tuple[str, ...]:
    found = []
    for node in ast.parse(_path(name).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("boolcp"):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            inside = [one for one in inner if _is_module(one)]
            found += inside + ([node.module] if len(inside) < len(inner) and node.module != "boolcp" else [])
    return tuple(found)


def _path(name: str) -> Path:
    base = ROOT.joinpath(*name.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _is_module(name: str) -> bool:
    return _path(name).is_file()


@cache
def _text(name: str) -> str:
    """Return the syntax tree of a module as text, without docstrings."""
    return ast.dump(_without_docstrings(ast.parse(_path(name).read_text(encoding="utf-8"))))


@cache
def _run_of(experiment: str) -> str:
    """Return the syntax trees of `run` and of what it refers to within its file."""
    path = importlib.import_module(experiment).__file__ or ""
    tree = _without_docstrings(ast.parse(Path(path).read_text(encoding="utf-8")))
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in ast.walk(node):
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                    defined[target.id] = node
    used: dict[str, str] = {}
    waiting = ["run"]
    while waiting:
        name = waiting.pop()
        if name in defined and name not in used:
            used[name] = ast.dump(defined[name])
            waiting += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    return "".join(used[name] for name in sorted(used))


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return tree
