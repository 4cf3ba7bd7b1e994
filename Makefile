# Vignette. `make` lists the targets; `make run` and `make test` set up all they need.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := .venv/bin/python
STAMP := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast lint eval-mini clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: $(STAMP) ## Build .venv with everything the application and the tests need

$(STAMP): requirements.txt requirements-dev.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Vignette needs Python 3.11 (3.12 and 3.13 also work); found $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11."; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -c constraints.txt
	@touch $@

include native.mk

run: setup native ## Open the application with the embedded model
	$(PY) app.py

test: setup native ## Run all test tiers: fast, native, arm64 (qemu), browser
	@bash dev/run_tests.sh

test-fast: setup ## The fast tier only (no compiler, no browser)
	$(PY) -m pytest -m "not native and not browser and not arm64"

lint: setup ## Check style
	$(PY) -m ruff check .

eval-mini: setup native ## Score the embedded model on held-out compositions
	$(PY) -m dev.mini.eval_mini

clean: ## Remove build results (keeps .venv)
	rm -rf build dist .pytest_cache .ruff_cache
