# Every target is a few lines that can be run by hand. PIP_ARGS is passed to pip, for instance
# make quickstart PIP_ARGS="--index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple"

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

PEERS := build/benchmark-venv
NEWEST := build/newest-torch-venv

# Compiled modules are kept, even if the environment says otherwise: the tests and the quickstart start
# many processes, which would each compile the modules again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup test test-all check lint types format quickstart benchmark gpu site dist smoke clean

setup: $(INSTALLED)

$(INSTALLED): setup.py pyproject.toml $(wildcard *.txt) $(wildcard nmt_cli/model/compiled/*.[ch])
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 10) and sys.exit("Error: nmt-cli needs Python 3.10 or newer, and $(PYTHON) is %d.%d; name another one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable ".[dev]"
	touch $@

# Many tests wait for the processes that they start, so three at a time suit two cores.
test: setup
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal

# With the programs that models are exported to, those of the how-tos, and the rules of OpenAPI; then
# with the newest torch and Triton, in an environment of its own.
test-all: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable ".[ctranslate2,huggingface,ja,ko]" "ray[data]" openapi-spec-validator translate-toolkit
	-npm install --silent --prefix build/npm libretranslate@1.0.1
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal -m ""
	$(PYTHON) -m venv $(NEWEST)
	grep --invert-match --extended-regexp "^(torch|triton)==" constraints.txt > $(NEWEST)/constraints.txt
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --constraint $(NEWEST)/constraints.txt --editable ".[dev]"
	$(NEWEST)/bin/python -m pytest --numprocesses 3 --dist worksteal

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

# The documentation as a web site, in build/site.
site: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# A source distribution in dist/, with a man page of each command, and wheels that zig compiles from it:
# for x86-64 and for ARM, and for all Linux systems with glibc 2.28 or later.
dist: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable ".[dist]"
	rm -rf docs/man dist build/dist && $(BIN)/click-man nmt-cli --target docs/man
	$(BIN)/python -m build --quiet --sdist
	mkdir -p build/dist && tar -xzf dist/nmt_cli-*.tar.gz -C build/dist --strip-components 1
	set -e; for machine in x86_64 aarch64; do \
	    export _PYTHON_HOST_PLATFORM=linux-$$machine; \
	    export CC="$(abspath $(BIN))/python -m ziglang cc -target $$machine-linux-gnu.2.28"; \
	    $(BIN)/python -m build --quiet --wheel --outdir dist build/dist \
	        --config-setting=--build-option=--plat-name=manylinux_2_28_$$machine; \
	    $(BIN)/auditwheel show dist/nmt_cli-*_$$machine.whl; \
	done

# See tests/benchmarks/README.md. ARGS="--quick" is a trial; ARGS="--only speed --shapes S" a part.
benchmark: setup $(PEERS)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable ".[ctranslate2]"
	$(BIN)/python -m tests.benchmarks.run --peers $(PEERS)/bin/python $(ARGS)

# eole is installed without its dependencies, because training needs few of them. If this fails, the
# benchmark goes on, and the table has the error in the line of eole.
$(PEERS)/.installed: tests/benchmarks/peers.txt tests/benchmarks/eole.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --requirement tests/benchmarks/peers.txt
	-$(PEERS)/bin/python -m pip install --quiet --no-deps $(PIP_ARGS) --requirement tests/benchmarks/eole.txt
	touch $@

# What a machine with a GPU can show in eight minutes, in tests/benchmarks/results/. It sets nothing up:
# without .venv it uses PYTHON, which needs torch, pytest and what nmt-cli depends on.
gpu:
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) -m tests.gpu.run $(ARGS)

# What a user gets: a fresh environment without the development tools.
smoke:
	rm -rf build/smoke && $(PYTHON) -m venv build/smoke
	build/smoke/bin/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) .
	cd build && smoke/bin/nmt-cli --help && smoke/bin/nmt-cli recipes list

clean:
	rm -rf $(VENV) build dist docs/man prepared runs
