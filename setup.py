"""The compiled inner loops; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent
DIRECTIVES = {
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "infer_types": True,
    "freethreading_compatible": True,
}

extensions = [
    Extension(
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts),
        [path.relative_to(ROOT).as_posix()],
        extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-ffp-contract=off"],
    )
    for path in sorted(ROOT.glob("src/boolcp/*/*.pyx"))
]
setup(ext_modules=cythonize(extensions, build_dir="build", compiler_directives=DIRECTIVES))
