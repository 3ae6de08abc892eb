"""Who may import whom, and how large the library may be: lines, files, and what a fit passes through."""

import ast
import importlib.util
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import boolcp

# Ceilings of what benchmarks/house.py measures: lower them with the code, and make room before you add. The aims are
# lines of src 19000, lines of tests 14000, files of a folder 18, questions to a storage 16; a basic fit of 22 modules,
# 160 functions and depth 12; with gaps, counts or data on disk 26 modules.
BUDGET = {
    "lines of src": 20000,
    "lines of tests": 14000,
    "files of a folder": 18,
    "questions to a storage": 16,
    "questions about the kind of a storage": 35,
    "basic fit: modules": 22,
    "basic fit: functions": 160,
    "basic fit: depth": 12,
    "gaps: modules": 24,
    "Poisson: modules": 24,
    "disk: modules": 25,
}
ROOT = Path(boolcp.__file__).parent
HOUSE = Path(__file__).parents[1] / "benchmarks" / "house.py"
LAYERS = [
    {"_version", "contractions", "checks", "system"},
    {"result", "program"},
    {"storage"},
    {"metrics", "prepare", "interop", "io", "datasets", "plotting"},  # these prepare data or read results
    {"fit"},
    {"bmp", "atomic_norm"},
    {"sessions"},
    {"trust"},
    {"report", "baselines"},
    {"cli", "__main__"},
]
# BooleanCP.certify, save, plot, report, summary, and BMP(n_atoms="auto"): they fetch, when called, what lies above
HANDLES = {("bmp", "trust"), *(("result", above) for above in ("fit", "io", "plotting", "report", "trust"))}
EXTRAS = {"matplotlib", "xarray", "tensorly", "dask", "mne", "zarr", "h5py", "netCDF4", "pandas", "pyttb", "jinja2"}
EXTRAS |= {"itables", "pynwb"}
HEAVY = EXTRAS | {"sklearn", "scipy"}
FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def imports(tree):
    """Yield the full names that the import statements among the nodes bring in."""
    for node in tree:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import(node):
    """Yield all nodes below `node` that run when the module is imported: functions are left out."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def own_module(name):
    """Return the module of boolcp that a full name lies in, or None."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


def room(module):
    """Return the room of a module: the name of the file or folder in boolcp."""
    return module.split(".")[1]


def layer(module):
    for level, rooms in enumerate(LAYERS):
        if room(module) in rooms:
            return level
    pytest.fail(f"{module} has no layer: give it one in LAYERS")


def graph(nodes):
    """Return for each module the modules of boolcp that it imports in the nodes that `nodes` yields from its tree."""
    return {
        name: {own_module(used) for used in imports(nodes(tree))} - {None, "boolcp", name}
        for name, tree in TREES.items()
        if name != "boolcp"
    }


GRAPH, AT_IMPORT = graph(ast.walk), graph(at_import)


def test_imports_never_point_upward():
    handles = {(m, used) for m in GRAPH for used in GRAPH[m] - AT_IMPORT[m] if (room(m), room(used)) in HANDLES}
    found = {(m, used) for m in GRAPH for used in GRAPH[m] if layer(used) > layer(m)} - handles
    assert not found, "each of these imports what lies above it"
    assert not GRAPH["boolcp.contractions"], "contractions stand alone"
    assert not [path for path in ROOT.rglob("*.pyx") if "boolcp" in path.read_text()], "compiled loops stand alone"


def test_imports_never_go_in_a_circle():
    rooms = {}
    for module, used in GRAPH.items():
        others = {room(name) for name in used} - {room(module)}
        rooms.setdefault(room(module), set()).update(r for r in others if (room(module), r) not in HANDLES)
    order = list(TopologicalSorter(rooms).static_order())  # raises CycleError with the circle in its message
    assert order.index("contractions") < order.index("storage") < order.index("fit")


def test_names_with_an_underscore_stay_in_their_package():
    for module, tree in TREES.items():
        for name in imports(ast.walk(tree)):
            home, _, private = name.partition("._")
            is_free = not private or not name.startswith("boolcp.") or module == home or module.startswith(f"{home}.")
            assert is_free, f"{module} imports {name}, which belongs to {home}: name it without an underscore"


def test_extras_are_imported_where_they_are_used():
    found = {m: {name.split(".")[0] for name in imports(at_import(tree))} & EXTRAS for m, tree in TREES.items()}
    assert not any(found.values()), f"import these inside the function that needs them: {found}"


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, boolcp; print(' '.join(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "boolcp" in loaded and not HEAVY & set(loaded)


def test_every_public_name_is_there():
    for name in boolcp.__all__:
        assert getattr(boolcp, name) is not None
    assert set(boolcp.__all__) <= set(dir(boolcp))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = boolcp.no_such_name


def test_the_reader_of_imports_reads_them():
    tree = ast.parse("import a.b\nfrom boolcp.result.atoms import Atom\nclass C:\n  import d\ndef f():\n  import e")
    assert set(imports(at_import(tree))) == {"a.b", "boolcp.result.atoms.Atom", "d"}
    assert own_module("boolcp.result.atoms.Atom") == "boolcp.result.atoms" and own_module("numpy.linalg") is None


# folders


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_says_what_it_is_for_and_what_enters_and_leaves(folder):
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))
    first, second = text.split("\n\n")[:2]
    assert first.endswith(".")
    assert len(re.findall(r"[.](?= |\n|$)", f"{first}\n{second}")) >= 3, "three sentences"
    assert re.search(r"\benters?\b|\bInput\b", second) and re.search(r"\bleaves?\b|\bOutput\b", second)


def test_every_layer_is_a_file_or_a_folder():
    rooms = {room(name) for name in MODULES if name != "boolcp"}
    assert set().union(*LAYERS) == rooms and sum(len(layer) for layer in LAYERS) == len(rooms)


# size


@pytest.fixture(scope="module")
def house():
    """Return what the script measures; without the extra that writes data to disk, or without the script, nothing."""
    pytest.importorskip("zarr")
    if not HOUSE.exists():
        pytest.skip("the benchmarks are not there")
    spec = importlib.util.spec_from_file_location("house", HOUSE)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.measure()


@pytest.mark.parametrize("what", BUDGET)
def test_the_library_stays_within_its_budget(house, what):
    assert house[what] <= BUDGET[what], "make room first: delete or merge what is there"
