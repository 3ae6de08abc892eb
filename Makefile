# Everything a fresh machine with Python >= 3.11 and make needs. `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/bash

.PHONY: demo test test-all lint types bench docs clean

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

# the library with its extras
$(VENV)/all.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[all]"
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

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --doctest-modules tests src/boolcp

test-all: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --doctest-modules tests src/boolcp -m "slow or not slow"

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

bench: $(VENV)/bench.stamp
	set -e; for script in benchmarks/bench_*.py; do $(BIN)/python $$script; done

# always from scratch, so that no page of a name that is gone is left
GALLERY ?= 1
docs: $(VENV)/docs.stamp
	rm -rf docs/_build docs/api docs/auto_examples
	MPLBACKEND=agg $(BIN)/python -m sphinx --fail-on-warning --quiet -D plot_gallery=$(GALLERY) -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "The pages are in docs/_build/html/index.html"

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist docs/_build docs/api docs/auto_examples docs/sg_execution_times.rst
