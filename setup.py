"""The compiled inner loops; everything else is in pyproject.toml."""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

NAMES = ("fit/_kernels", "program/_kernels", "storage/_row_kernels")
FLAGS = [] if sys.platform == "win32" else ["-O3", "-g0", "-ffp-contract=off"]  # off: machines round alike
DIRECTIVES = {
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "infer_types": True,
    "freethreading_compatible": True,
}

kernels = [
    Extension(f"boolcp.{name.replace('/', '.')}", [f"src/boolcp/{name}.pyx"], extra_compile_args=FLAGS)
    for name in NAMES
]
setup(ext_modules=cythonize(kernels, build_dir="build", compiler_directives=DIRECTIVES))
