# make demo   set up, then run the main job end to end and hold the answer against reality
# make test   set up, then run all checks and tests
# make check  what CI runs: formatting, linting, types, import contracts, tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check lint clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: check

check: lint
	$(BIN)/python -m pytest -q -n auto

lint: $(VENV)/.tools
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Foretell needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV) || (echo "On Debian and Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.tools: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# whose models tests read: beside, because its own dependencies would bring another PyTorch, and others trip over it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps \
	    --target $(VENV)/torchvision --upgrade torchvision
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
