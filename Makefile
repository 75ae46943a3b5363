# Every target is a few lines that can be run by hand. PIP_ARGS reaches pip, for instance
# make quickstart PIP_ARGS="--index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple"

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: setup test test-all check lint types format quickstart smoke clean

setup: $(INSTALLED)

$(INSTALLED): setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable ".[dev]"
	touch $@

test: setup
	$(BIN)/python -m pytest --numprocesses 2

test-all: setup
	$(BIN)/python -m pytest --numprocesses 2 -m ""

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

check: lint types test

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

quickstart: setup
	BIN=$(BIN) sh data/quickstart/quickstart.sh

# What a user gets: a fresh environment without the development tools.
smoke:
	rm -rf build/smoke && $(PYTHON) -m venv build/smoke
	build/smoke/bin/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) .
	cd build && smoke/bin/nmt-cli --help && smoke/bin/nmt-cli recipes list

clean:
	rm -rf $(VENV) build prepared runs
