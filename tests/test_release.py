"""What a release needs: one version, what conda needs, pinned actions, and a list of what has to be filled in."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from try_wheel import BRINGS

import boolcp

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHIPPED = re.compile(r"\.(md|toml|yml|yaml|cff|py|sh)$|^Makefile$")


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("conda/recipe.yaml", r'^  version: "(\S+)"$'),
        ("CHANGELOG.md", r"^## \[(\S+)\]"),
    ],
)
def test_the_version_is_the_same_everywhere(path, pattern):
    assert re.search(pattern, text(path), re.MULTILINE)[1] == boolcp.__version__.removesuffix(".dev0")


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = re.findall(r"^    - (\S+) (>=\S+)$", text("conda/recipe.yaml"), re.MULTILINE)
    needed = {*PROJECT["project"]["dependencies"], f"python{PROJECT['project']['requires-python']}"}
    assert {f"{name}{version}" for name, version in recipe} == needed


def test_every_extra_is_tried_alone_and_every_tested_python_is_named():
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert extras == set(re.search(r"^EXTRAS := (.+)$", text("Makefile"), re.MULTILINE)[1].split()) == set(BRINGS)
    tested = re.search(r"python: \[(.+)\]", text(".github/workflows/ci.yml"))[1].replace('"', "").split(", ")
    named = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if "Python :: 3." in name]
    assert set(named) <= set(tested)


def test_actions_are_pinned_and_call_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE))
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [path.stem for path in workflows] == ["ci", "release"]
    for path in workflows:
        content = path.read_text(encoding="utf-8")
        uses = re.findall(r"uses: (\S+)", content)
        assert uses and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name) for name in uses), path.name
        called = {word for line in re.findall(r"run: make (.+)", content) for word in line.split()}
        assert called <= targets, called - targets


def test_pages_name_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE))
    for page in ("CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"):
        for line in re.findall(r"`make ([a-z -]+)`", text(page)):
            assert set(line.split()) <= targets, (page, line)


def test_nobody_and_no_address_is_invented():
    """Fields that need an address are left out, and a release fails while one page says that some are missing."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a clone")
    own = {Path(__file__).relative_to(ROOT).as_posix(), ".github/workflows/release.yml"}
    names = [name for name in listed.stdout.split("\n") if SHIPPED.search(name) and name not in own]
    assert not [name for name in names if (ROOT / name).is_file() and "example.org" in text(name)]
    assert "FILL-IN" in text(".github/workflows/release.yml") and "urls" not in PROJECT["project"]


def test_floors_agree():
    groups = [g for group in PROJECT["dependency-groups"].values() for g in group if isinstance(g, str)]
    extras = [name for group in PROJECT["project"]["optional-dependencies"].values() for name in group]
    hooks = re.findall(r'"([\w-]+>=[\d.]+)"', text(".pre-commit-config.yaml"))
    floors = {}
    for line in (*PROJECT["project"]["dependencies"], *extras, *groups, *hooks):
        name, sign, floor = re.fullmatch(r"([\w-]+)(?:\[.*\])?(>=)?([\d.]*)(?:,.*)?", line).groups()
        if sign:
            assert floors.setdefault(name, floor) == floor, line


def test_messages_name_extras_that_exist():
    extras = {*PROJECT["project"]["optional-dependencies"], ""}
    for path in (ROOT / "src").rglob("*.py"):
        named = re.findall(r'load_extra\([\w".]+, "(\w*)"\)', path.read_text(encoding="utf-8"))
        named += re.findall(r"'boolcp\[(\w+)\]'", path.read_text(encoding="utf-8"))
        assert set(named) <= extras, path


@pytest.mark.parametrize("package", ["pandas", "h5py", "xarray"])
def test_a_missing_package_is_named_with_its_extra(package, tmp_path):
    """Also one that only a package of the extra needs; a fit needs none."""
    code = "import sys; from importlib.machinery import PathFinder as P; find = P.find_spec.__func__\n"
    code += f"P.find_spec = classmethod(lambda c, n, *a: None if n.split('.')[0] == '{package}' else find(c, n, *a))\n"
    code += f"import boolcp; W = boolcp.decompose([[1, 2], [3, 4.5]], 1); W.save({str(tmp_path / 'W.nc')!r})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"package '{package}', which is not installed: pip install 'boolcp[files]'" in found.stderr


def test_a_fit_needs_no_sysconf():
    """Windows has none."""
    code = "import os, psutil, sklearn, joblib; del os.sysconf; import boolcp; "
    code += "print(boolcp.decompose(boolcp.datasets.load_syn(0, random_state=0).X, 1, random_state=0).n_atoms)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "1", found.stderr
