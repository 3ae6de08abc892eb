# Everything a fresh machine with Python >= 3.11 and make needs. `make demo` and `make test` set up .venv by themselves, and
# compile the inner loops: by the C compiler that is there, else by that of the package ziglang.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/bash

COMPILER := $(firstword $(foreach name,$(firstword $(CC)) gcc clang,$(shell command -v $(name))))
ZIG = $(CURDIR)/$(shell ls $(VENV)/lib/python3*/site-packages/ziglang/zig)
COMPILE = $(if $(COMPILER),CC="$(if $(shell command -v $(firstword $(CC))),$(CC),$(COMPILER))",CC="$(ZIG) cc -mcpu=baseline" LDSHARED="$(ZIG) cc -shared")

.PHONY: demo test golden test-all test-versions test-extras test-lowest coverage fuzz lint types reproduce tables docs clean

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
ifeq ($(COMPILER),)
	@echo "There is no C compiler (cc, gcc, clang): taking that of the package ziglang"
	$(BIN)/python -m pip install --quiet ziglang
endif
	@touch $@

# the library with its extras, again when an inner loop has changed
$(VENV)/all.stamp: $(VENV)/pip.stamp pyproject.toml setup.py $(wildcard src/boolcp/*/*.pyx)
	$(COMPILE) $(BIN)/python -m pip install --quiet --editable ".[all]"
	@touch $@

# plus what tests, lint and types need
$(VENV)/dev.stamp: $(VENV)/all.stamp
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/bench.stamp: $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

$(VENV)/docs.stamp: $(VENV)/all.stamp
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

demo: $(VENV)/all.stamp
	$(BIN)/boolcp demo --force

# two processes, each with whole files: tests of a file share what they set up. FAST=1 runs a selection that imports every
# room and takes a few minutes: make test-versions FAST=1, make test-lowest FAST=1
SELECTION := tests/test_layers.py tests/test_metrics.py tests/test_datasets.py tests/result tests/fit/test_kernels.py \
  tests/fit/test_mean.py tests/trust/test_verdict.py tests/storage tests/io/test_io.py tests/io/test_io_results.py \
  tests/plotting/test_plotting.py tests/cli/test_cli.py tests/report/test_report.py
TESTS := -m pytest --numprocesses 2 --dist loadfile --doctest-modules $(if $(FAST),$(SELECTION),tests src/boolcp)
test: $(VENV)/dev.stamp
	$(BIN)/python $(TESTS)

test-all: $(VENV)/dev.stamp
	$(BIN)/python $(TESTS) -m "slow or not slow"

# random fits against plain numpy, all kinds of fit, storage and damage, damaged files, killed fits: 20 minutes; resumes by fuzz.json
fuzz: $(VENV)/dev.stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz.py

# lines that no test runs
coverage: $(VENV)/dev.stamp
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run $(TESTS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --show-missing --skip-covered

# every Python that is there, on the path or of pyenv, each in an environment of its own
PYENV_ROOT ?= $(HOME)/.pyenv
test-versions:
	set -e; for version in 3.11 3.12 3.13 3.14; do found=""; \
	  for python in python$$version $$(ls -d $(PYENV_ROOT)/versions/$$version.*/bin/python 2>/dev/null); do \
	    if $$python -c "" 2>/dev/null; then found=$$python; break; fi; done; \
	  if [ -n "$$found" ]; then $(MAKE) test PYTHON=$$found VENV=.venv-$$version; else echo "no Python $$version"; fi; done

# wheel and source; the wheel outside the clone without extras, with each alone and with all of them, and its demo
EXTRAS := plot files dask mne all
test-extras: $(VENV)/pip.stamp
	rm -rf dist
	$(BIN)/python -m pip install --quiet "build>=1.2" uv
	$(COMPILE) $(BIN)/python -m build --outdir dist
	set -e; uv=$(CURDIR)/$(BIN)/uv; here=$$(mktemp -d); trap 'rm -rf "$$here"' EXIT; cp tests/try_wheel.py "$$here"; wheel=$$(ls $(CURDIR)/dist/*.whl); \
	for extra in "" $(EXTRAS); do \
	  "$$uv" venv --quiet --clear --python $(PYTHON) "$$here/venv"; \
	  "$$uv" pip install --quiet --python "$$here/venv" "$$wheel$${extra:+[$$extra]}"; \
	  (cd "$$here" && MPLBACKEND=agg PYTHONPATH= "$$here/venv/bin/python" try_wheel.py $$extra); done; \
	(cd "$$here" && PYTHONPATH= "$$here/venv/bin/boolcp" demo --force)

# the lowest versions of all direct dependencies
test-lowest: $(VENV)/pip.stamp
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	$(COMPILE) .venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable ".[all]"
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --group test
	.venv-lowest/bin/python $(TESTS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

# losses, bits and times of about fifty fits beside the table that is kept: a few minutes, status 1 if one is worse
golden: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/golden.py

# every table and figure that a page quotes, two at a time, those of this code are kept: about two hours on two free cores.
# Recordings come from the folder BOOLCP_DATA. QUICK=1: figures and theorems on small tensors, in a folder of their own
JOBS ?= 2
reproduce: $(VENV)/bench.stamp
ifdef QUICK
	set -e; for name in fig3 fig4 theory fig2 fig1; do $(BIN)/python reproduction/$$name.py --quick --jobs $(JOBS) -o .reproduce/quick; done
else
	$(BIN)/python benchmarks/reproduce.py --jobs $(JOBS)
endif

# status 1 while a table is older than the code that makes it: a change of words alone makes none old
tables: $(VENV)/all.stamp
	$(BIN)/python benchmarks/quotes.py --check

# always from scratch, so that no page of a name that is gone is left
GALLERY ?= 1
NOTEBOOKS ?= 1
docs: $(VENV)/docs.stamp
	rm -rf docs/_build docs/api docs/auto_examples
	MPLBACKEND=agg NOTEBOOKS=$(NOTEBOOKS) $(BIN)/python -m sphinx --fail-on-warning --quiet -D plot_gallery=$(GALLERY) -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "The pages are in docs/_build/html/index.html"

clean:
	rm -rf $(VENV) .venv-* .pytest_cache .mypy_cache .ruff_cache build dist docs/_build docs/api docs/auto_examples docs/sg_execution_times.rst
	rm -f src/boolcp/*/*.so
