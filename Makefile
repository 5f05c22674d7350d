# `make demo` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check

.PHONY: help demo test quick long lint docs clean
help:
	@echo "make demo   install coterie with two extras in .venv, train on embedded data and"
	@echo "            show the result (about 2 minutes)"
	@echo "make test   install everything in .venv and run the tests on two cores (about 10 minutes;"
	@echo "            PyTorch is a download of several GB where no small CPU build is offered)"
	@echo "make quick  run the tests without those marked slow or long"
	@echo "make long   run the tests that make test leaves out: clusters and federations of"
	@echo "            processes (20 to 30 minutes)"
	@echo "make lint   run ruff and mypy"
	@echo "make docs   build the documentation in build/site/index.html"
	@echo "make clean  remove .venv and everything built"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "'$(PYTHON)' is $$($(PYTHON) --version 2>&1); expected Python 3.11 or newer." \
	            "Pass PYTHON=/path/to/python3.11."; exit 1; }
	@echo "==> creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@$(PIP) install --upgrade pip

.venv/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing coterie with the extras report and secagg"
	@$(PIP) install -c constraints.txt -e '.[report,secagg]'
	@touch $@

.venv/.all: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing coterie with every extra and the development tools"
	@echo "    (includes PyTorch: several GB where no small CPU build is offered)"
	@$(PIP) install -c constraints.txt -e '.[all,dev]'
	@touch $@ .venv/.core

demo: .venv/.core
	@echo "==> training FedFast on a thousand synthetic users"
	@$(BIN)/coterie run fedfast --dataset synthetic
	@echo "==> next: . .venv/bin/activate && coterie --help"

# A third process works while tests of the other two wait for servers, browsers and files.
test: .venv/.all
	@echo "==> running all tests except those of make long"
	@$(BIN)/python -m pytest -m "not long" -n 3

long: .venv/.all
	@echo "==> running the long tests: clusters and federations of processes (20 to 30 minutes)"
	@$(BIN)/python -m pytest -m long

quick: .venv/.all
	@$(BIN)/python -m pytest

lint: .venv/.all
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: .venv/.all
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "==> build/site/index.html"

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
