# Two commands do everything on a machine that has Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test quick long lint docs clean
help:
	@echo "make demo   own .venv, install coterie with its report extra, train on embedded data, show the result (about 2 minutes)"
	@echo "make test   own .venv, install everything, run the tests on two cores (about 9 minutes; PyTorch is a download of several GB where no small CPU build is offered)"
	@echo "make quick  the same without the tests marked slow"
	@echo "make long   what make test leaves out: clusters and federations of processes (about 20 minutes)"
	@echo "make lint   ruff and mypy"
	@echo "make docs   the site, in build/site/index.html"
	@echo "make clean  remove the environment and everything built"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Coterie needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Pass PYTHON=/path/to/python3.11."; exit 1; }
	@echo "==> creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip

.venv/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing coterie and its report extra"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report]'
	@touch $@

.venv/.all: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing coterie with every extra and the development tools (PyTorch included: several GB where no small CPU build is offered)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@ .venv/.core

demo: .venv/.core
	@echo "==> training FedFast across the devices of a thousand made-up people"
	@$(BIN)/coterie run fedfast --dataset synthetic

test: .venv/.all
	@echo "==> running every test but those of make long"
	@$(BIN)/python -m pytest -m "not long" -n 2

long: .venv/.all
	@echo "==> running what takes minutes, clusters and federations of processes among it: about half an hour"
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
