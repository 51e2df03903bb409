PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CHECKED := src tests benchmarks examples $(wildcard lab docs/*.py docs/*/*.py)
# Tests that need no server, cluster or browser and take at most a few seconds each.
FAST := not slow and not slurm and not postgres and not chromium

.PHONY: help demo test check fast lint docs clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 14

demo: $(VENV)/.installed ## run the example from the first run to a verified recommendation
	$(BIN)/python examples/demo.py

test: check ## run all checks and tests, as CI does

check: lint docs
	$(BIN)/python -m pytest -q -n auto $(if $(CI),--cov)

fast: lint ## lint, and run the tests that are quick and need no server
	$(BIN)/python -m pytest -q -n auto -m "$(FAST)"

lint: $(VENV)/.tools ## check formatting, style, types and imports
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports

# not with --quiet, which would hide warnings from --strict
docs: $(VENV)/.tools ## build the documentation into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Foretell needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV) || (echo "On Debian and Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plots]'
	touch $@

$(VENV)/.tools: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# The tests read torchvision's models. It has a folder of its own: its dependencies would install another PyTorch.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps \
	    --target $(VENV)/torchvision --upgrade torchvision
	touch $@

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
