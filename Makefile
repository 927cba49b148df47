# Needs make and Python 3.11, 3.12 or 3.13; everything else is installed into .venv by the first target that wants it.
#
#   make setup   make demo   make test   make test-unit   make test-model   make check   make bench

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.outlast-setup
MODEL_STAMP := $(VENV)/.outlast-local-model

# Tests that need no model of a real provider. A folder that is not there yet is left out.
TESTS := $(wildcard tests/unit tests/providers tests/workflows tests/replay tests/acceptance)
TYPED := $(wildcard outlast tests examples benchmarks)
PYTEST_FLAGS ?=

# The first interpreter on the PATH that really starts and has the right version (a pyenv shim may do neither).
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3 python; do \
	$$name -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$name && break; done)

.PHONY: setup demo test test-unit test-model check format lint types bench chaos clean
.DEFAULT_GOAL := setup

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]' -c constraints.txt
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "outlast needs Python 3.11, 3.12 or 3.13 on the PATH (or: make setup PYTHON=/path/to/python)" >&2; exit 1; }
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { echo "could not make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(MODEL_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,local-model]' -c constraints.txt
	@touch $@

demo: $(MODEL_STAMP)
	$(BIN)/python examples/demo.py $(DEMO_ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_FLAGS) $(TESTS)

test-unit: $(STAMP)
	$(BIN)/python -m pytest -n auto $(PYTEST_FLAGS) tests/unit

test-model: $(MODEL_STAMP)
	$(BIN)/python -m pytest $(PYTEST_FLAGS) tests/model

check: format lint types test

format: $(STAMP)
	$(BIN)/ruff format --check .

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy $(TYPED)

# Against the peers, each in an environment of its own; make bench BENCH_ARGS="peers --quick" takes three minutes, and
# BENCH_ARGS=overhead (history, imports, long_run) measures this package alone.
BENCH_ARGS ?= peers
bench: $(STAMP)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

chaos: $(STAMP)
	$(BIN)/outlast chaos --runs 200 --rubbish 10000 --seconds 1500 $(CHAOS_ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
