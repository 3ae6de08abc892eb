"""What benchmarks and reproduction share: the head of a table, its stamp, jobs that are resumed, timing, markdown.

Every table begins with ``Made by `command` (commit .., code .., ..)``. *code* is a fingerprint of what the table was
computed with: the script with the modules beside it that it imports, and the modules of boolcp that any of these
imports, without comments and docstrings.
"""

import ast
import csv
import datetime
import hashlib
import importlib.util
import io
import os
import platform
import re
import subprocess
import time
import tokenize
import warnings
import zlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import joblib
import numpy as np
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGE = ROOT / "src" / "boolcp"
DISPLAY = ("cli", "report", "plotting")  # folders that no number depends on
SHOWN = {("result", above) for above in ("io", "trust", *DISPLAY)} | {("bmp", "trust")}  # methods no table calls
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OLD = "Measured with an older version of the code."


# the stamp of a table


def stripped(text):
    """Return the lines of Python code that are left without comments, docstrings and empty lines."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            start, end = node.body[0].lineno, node.body[0].end_lineno
            lines[start - 1 : end] = [""] * (end - start + 1)
    return [line.rstrip() for line in lines if line.strip()]


@cache
def digest(path):
    """Return a hash of the code of a file; Cython counts with its docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    lines = stripped(text) if path.suffix == ".py" else text.splitlines()
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def with_imports(path, found=()):
    """Return a script and the modules beside it, or here, that it imports, directly or not; not this one."""
    found = (*found, path)
    names = re.findall(r"^(?:from|import) (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name in names:
        here, other = Path(__file__).parent / f"{name}.py", path.parent / f"{name}.py"
        other = other if other.exists() else here
        if other.exists() and other not in found and name != "common":
            found = with_imports(other, found)
    return found


def imported(text):
    """Return the full names of what Python code imports, or takes by a dot from what it imports."""
    tree, own = ast.parse(text), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = "" if isinstance(node, ast.Import) else f"{node.module}."
            own |= {alias.asname or alias.name: start + alias.name for alias in node.names}
    dotted = [ast.unparse(node).partition(".") for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return set(own.values()) | {f"{own[first]}.{rest}" for first, _, rest in dotted if first in own}


@cache
def homes():
    """Return the full names of what boolcp and its packages pass on, {"boolcp.BMP": "boolcp.bmp", ..}."""
    spec = importlib.util.spec_from_file_location("boolcp_names", PACKAGE / "__init__.py")
    names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names)
    found = {f"boolcp.{name}": f"boolcp.{home}" for name, home in (names._HOMES | names._MODULES).items()}
    for path in PACKAGE.glob("*/__init__.py"):
        for name in imported(path.read_text(encoding="utf-8")):
            found[f"boolcp.{path.parent.name}.{name.rpartition('.')[2]}"] = name
    return found


@cache
def used(path):
    """Return the files of boolcp whose names a file uses; a compiled module has the ending .pyx."""
    found = set()
    for name in imported(path.read_text(encoding="utf-8")):
        while public := max((each for each in homes() if f"{name}.".startswith(f"{each}.")), key=len, default=""):
            if f"{homes()[public]}.".startswith(f"{public}."):  # a room, or a function named like its module
                break
            name = name.replace(public, homes()[public], 1)
        parts = name.split(".")
        places = [PACKAGE.joinpath(*parts[1:n]) for n in range(2, len(parts) + 1) if parts[0] == "boolcp"]
        found |= {each for place in places for each in (place.with_suffix(".py"), place.with_suffix(".pyx"))}
    found = {each for each in found if each.exists()} | {PACKAGE / "storage" / "__init__.py"}
    own = room(path)
    return {each for each in found if (own, room(each)) not in SHOWN and room(each) not in DISPLAY}


def room(path):
    """Return the folder or module of boolcp that a file lies in; "" outside of it."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py") if path.is_relative_to(PACKAGE) else ""


def dependencies(script):
    """Return the files that a script, relative to the repository, computes its table with, sorted."""
    found = set(with_imports(ROOT / script))
    todo = list(found)
    while todo:
        path = todo.pop()
        new = (used(path) if path.suffix == ".py" else set()) - found
        found |= new
        todo += new
    return sorted(found)


@cache
def fingerprint(script):
    """Return the stamp of the code that a script, relative to the repository, computes its table with."""
    words = [f"{path.relative_to(ROOT).as_posix()} {digest(path)}" for path in dependencies(script)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:10]


@cache
def commit():
    """Return the last commit that has changed what tables are computed with, and a plus if files are changed."""
    code = ("src", "benchmarks/*.py", "reproduction/*.py", *(f":(exclude)src/boolcp/{name}" for name in DISPLAY))

    def git(*words):
        command = ["git", "-C", str(ROOT), *words, "--", *code]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    return (git("log", "-1", "--format=%h") or "unknown") + "+" * bool(git("status", "--short"))


def environment(*packages):
    """Return one line with date, cores, Python and versions."""
    found = []
    for name in ("boolcp", "numpy", "scipy", *packages):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    today = f"{datetime.datetime.now(datetime.UTC).date()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{today}, {', '.join(found)}"


def made(command, *packages):
    """Return the line that says how a table was made."""
    script = next(word for word in command.split() if word.endswith(".py"))
    return f"Made by `{command}` (commit {commit()}, code {fingerprint(script)}, {environment(*packages)})."


def heads(text):
    """Return the command and the stamp, "" without one, of each head of a table."""
    found = re.findall(r"^(?:# )?Made by `([^`]*)` ?(.*)$", text, flags=re.MULTILINE)
    return [(command, (re.findall(r"code (\w+)", rest) or [""])[0]) for command, rest in found]


def is_current(command, stamp):
    """Return whether a stamp is that of the present code."""
    script = next((word for word in command.split() if word.endswith(".py")), "")
    return (ROOT / script).is_file() and stamp == fingerprint(script)


def is_made(path, command):
    """Return whether the present code has made the table, or the section of it, that a command makes."""
    found = heads(path.read_text(encoding="utf-8")) if path.exists() else []
    return any(one == command and is_current(one, stamp) for one, stamp in found)


# tables


def table(head, rows):
    """Return a markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def write(name, command, parts, *packages):
    """Write and print a page of results made of text parts."""
    title, *rest = parts
    page = "\n\n".join([title, made(command, *packages), *rest]) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(page, encoding="utf-8")
    print(page, flush=True)


def write_section(name, titles, command, parts, *packages):
    """Write and print one section of a page; `titles` are those of the page and of all its sections, in order."""
    (first, *others), (title, *rest) = titles, parts
    place = RESULTS / name
    before = place.read_text(encoding="utf-8").rstrip() if place.exists() else ""
    sections = dict(re.findall(r"^## ([^\n]*)\n\n(.*?)(?=\n\n## |\Z)", before, flags=re.S | re.M))
    sections[title] = "\n\n".join([made(command, *packages), *rest])
    kept = [f"## {each}\n\n{sections[each]}" for each in others if each in sections]
    place.write_text("\n\n".join([f"# {first}", *kept]) + "\n", encoding="utf-8")
    print(f"## {title}\n\n{sections[title]}\n", flush=True)


def spread(values, digits=3):
    """Return mean and standard deviation as text."""
    values = np.asarray(values, dtype=float)
    return f"{values.mean():.{digits}g} ± {values.std(ddof=1):.1g}" if len(values) > 1 else f"{values[0]:.{digits}g}"


# jobs


def seed_of(*words):
    """Return a seed that depends only on the words, so that a row is the same in every run."""
    return zlib.crc32("|".join(map(str, words)).encode())


def read_rows(path):
    """Return the rows of a table in CSV as dicts of text, none if there is no table."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def collect(run, plan, path, command, *, jobs=1, packages=()):
    """Compute the rows that `run` yields for each job of the plan, keep them in a CSV file, and return them.

    A job and a row are dicts. Until all jobs are done the rows are in a file with the ending .part, with which a run
    that was ended continues; rows of other code are computed again.
    """
    part, head = path.with_suffix(".part"), made(command, *packages)
    names = [tuple(str(value) for value in job.values()) for job in plan]
    done, columns = {}, list(plan[0])
    for place in (path, part):
        if is_made(place, command):
            for row in read_rows(place):
                columns += [key for key in row if key not in columns]
                done.setdefault(tuple(row[key] for key in plan[0]), []).append(row)
    todo = [job for name, job in zip(names, plan, strict=True) if name not in done]
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    for job, rows in parallel(joblib.delayed(rows_of)(run, job) for job in todo):
        found = [{key: text_of(value) for key, value in (job | row).items()} for row in rows]
        columns += [key for row in found for key in row if key not in columns]
        done[tuple(str(value) for value in job.values())] = found
        save_rows(part, head, columns, [row for name in names for row in done.get(name, [])])
        print(f"{path.stem}: {sum(name in done for name in names)} of {len(plan)}", flush=True)
    rows = [row for name in names for row in done[name]]
    save_rows(path, head, columns, rows)
    part.unlink(missing_ok=True)
    return rows


def text_of(value):
    """Return a value of a table as text, numbers with eight digits."""
    return f"{value:.8g}" if isinstance(value, float | np.floating) else str(value)


def save_rows(path, head, columns, rows):
    """Write a table in CSV as a whole, so that it never holds half a job."""
    new = path.with_suffix(".new")
    with new.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {head}\n")
        writer = csv.DictWriter(file, list(dict.fromkeys(columns)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(new, path)


def rows_of(run, job):
    """Return a job and its rows, computed with one thread of linear algebra and without warnings."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return job, list(run(job))


# time


def timed(function, *args, **options):
    """Return the result of a call and its seconds."""
    start = time.perf_counter()
    result = function(*args, **options)
    return result, time.perf_counter() - start


def on_processor(function, *args, **options):
    """Return the result of a call with one BLAS thread and its processor seconds."""
    with threadpool_limits(1):
        start = time.process_time()
        result = function(*args, **options)
        return result, time.process_time() - start


def processor_time(function, n_repeats=3):
    """Return the least processor time of several runs with one BLAS thread, in seconds."""
    return min(on_processor(function)[1] for _ in range(n_repeats))


def best_time(function, n_repeats=3):
    """Return the shortest of several runs, in seconds."""
    return min(timed(function)[1] for _ in range(n_repeats))


def count_starts(model, X, **options):
    """Fit a model and return how many starts its search made, the pursuit included."""
    seen = []
    model.fit(X, callback=lambda progress: seen.append(progress.stage), **options)
    return 1 + sum(stage in ("search", "observed") for stage in seen)
