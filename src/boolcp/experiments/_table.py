"""One row per number in one CSV file, computed job by job, in parallel, and never twice by the same code."""

import ast
import datetime
import hashlib
import importlib
import os
import platform
import subprocess
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from boolcp.extras import load_extra
from boolcp.threads import one_thread

Job = dict[str, Any]  # what one call of `run` is asked for, plain values by name
Row = dict[str, Any]  # one number of the table, with what it belongs to
ROOT = Path(__file__).parents[1]
# they read, check, write: change no number
SILENT: tuple[str, ...] = ("boolcp.io", "boolcp.checks", "boolcp.extras", "boolcp.memory", "boolcp.threads")
SILENT += ("boolcp.fit.checkpoint", "boolcp.fit.forgery", "boolcp.fit.watch", "boolcp.result.labels")
SILENT += ("boolcp.result.summary", "boolcp.storage.lazy", "boolcp.storage.slabs", "boolcp.storage.sources")
PACKAGES = ("boolcp", "numpy", "scipy", "numba", "tensorly")


def seed_of(*words: object) -> int:
    """Return a seed that depends only on the words, so that a row is the same in every run."""
    return zlib.crc32("|".join(str(word) for word in words).encode())


def collect(
    run: Callable[[Job], Iterable[Row]],
    plan: list[Job],
    path: Path,
    *,
    n_jobs: int = 1,
    code: Callable[[Job], str] = lambda job: "",
    keep: bool = False,
) -> Any:
    """Return the table of the rows that `run` yields for each job of the plan, and keep it in a CSV file.

    A row of the table is the job plus what `run` yields for it. All jobs have the same keys; a job is done when the
    file has rows with its values that were made by the same `code`, or by any if `keep`. The file is replaced as a
    whole after each job, so that it never holds half a job, and also keeps rows of other plans.
    """
    pandas, joblib = load_extra("pandas", "experiments"), load_extra("joblib", "experiments")
    keys = list(plan[0])
    done = _read(pandas, path, keys)
    todo = [job for job in plan if not _is_done(done.get(_name(job, keys)), None if keep else code(job))]
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    results = parallel(joblib.delayed(_rows)(run, job, {"code": code(job), **provenance()}) for job in todo)
    for name, rows in tqdm(results, total=len(todo), desc=path.stem, disable=None):
        done[name] = rows
        _write(pandas, path, plan, keys, done)
    wanted = {_name(job, keys) for job in plan}
    table = pandas.read_csv(path, dtype={key: str for key in (*keys, "code", "commit")})
    table = table[[_name(row, keys) in wanted for row in table[keys].to_dict("records")]].reset_index(drop=True)
    for key in keys:
        if all(isinstance(job[key], int) for job in plan):
            table[key] = table[key].astype(int)
    return table


def _is_done(rows: list[Row] | None, code: str | None) -> bool:
    """Return True if there are rows of a job, made by this code unless any will do."""
    return rows is not None and (code is None or all(row.get("code", "") == code for row in rows))


def _rows(run: Callable[[Job], Iterable[Row]], job: Job, made: dict[str, str]) -> tuple[tuple[str, ...], list[Row]]:
    """Return the name of a job and its rows, computed with one BLAS thread whatever the number of processes."""
    with one_thread():
        labels = {key: str(value) for key, value in job.items()}  # as text, which survives a file unchanged
        return _name(job, list(job)), [{**labels, **row, **made} for row in run(job)]


def _name(job: Job, keys: list[str]) -> tuple[str, ...]:
    return tuple(str(job[key]) for key in keys)


def _read(pandas: Any, path: Path, keys: list[str]) -> dict[tuple[str, ...], list[Row]]:
    """Return {job: rows} of the file, empty if there is none or if it belongs to another version of the experiment."""
    if not path.exists():
        return {}
    table = pandas.read_csv(path, dtype=str, keep_default_na=False)
    if not set(keys) <= set(table.columns):
        raise ValueError(
            f"{path} is the table of a different experiment or version: remove it, or choose a different folder."
        )
    done: dict[tuple[str, ...], list[Row]] = {}
    for row in table.to_dict("records"):
        done.setdefault(_name(row, keys), []).append(row)
    return done


def _write(pandas: Any, path: Path, plan: list[Job], keys: list[str], done: dict[tuple[str, ...], list[Row]]) -> None:
    """Write all rows, the jobs of the plan first and in its order, and replace the file in one step."""
    order = [name for name in (_name(job, keys) for job in plan) if name in done]
    order += sorted(set(done) - set(order))
    table = pandas.DataFrame([row for name in order for row in done[name]])
    part = path.with_suffix(".part")
    table.to_csv(part, index=False, float_format="%.8g")
    os.replace(part, path)


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
            inside = [one for one in inner if _path(one).is_file()]
            found += inside + ([node.module] if len(inside) < len(inner) and node.module != "boolcp" else [])
    return tuple(found)


def _path(name: str) -> Path:
    base = ROOT.joinpath(*name.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


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
