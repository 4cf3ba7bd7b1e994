# Vignette. `make` lists the targets; `make run` and `make test` set up all they need.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := .venv/bin/python
STAMP := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast lint check-pins bench bench-responsiveness eval-mini eval-modes clean

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
include bundle.mk

run: setup native ## Open the application with the embedded model
	$(PY) app.py

test: setup native ## Run all test tiers: C kernels (sanitisers, qemu, Bochs), fast, native, browser
	@bash dev/run_tests.sh

test-fast: setup ## The fast tier only (no compiler, no browser)
	$(PY) -m pytest -m "not native and not browser and not arm64"

lint: setup ## Check style
	$(PY) -m ruff check .

check-pins: setup ## Resolve the pins for Linux and macOS on Python 3.11 to 3.13
	@for version in 3.11 3.12 3.13; do for platform in x86_64-unknown-linux-gnu aarch64-apple-darwin; do \
	  MACOSX_DEPLOYMENT_TARGET=14.0 $(PY) -m uv pip compile --quiet --no-header --no-annotate \
	    --python-version $$version --python-platform $$platform --only-binary :all: \
	    --constraint constraints.txt requirements.txt --output-file /dev/null \
	  && echo "$$version $$platform resolves" || exit 1; done; done

# BENCH=quick takes two minutes; BENCH_ARGS="--only linear --no-fail" measures one part.
BENCH ?= full
bench: setup native build/native/bench/limits ## Measure the kernels against peers and limits (results belong in SPEED.md)
	OMP_WAIT_POLICY=PASSIVE $(PY) -m dev.bench.report --size $(BENCH) $(BENCH_ARGS)

bench-responsiveness: setup native ## Measure how quickly the page answers while a clip is rendered
	$(PY) -m dev.bench.responsiveness --clicks 40

eval-mini: setup native ## Score the embedded model on held-out compositions, and Q8_0 against float32 weights
	$(PY) -m dev.mini.eval_mini --paired 64

eval-modes: setup native ## Compare accuracy modes and weight formats on the embedded model, clip by clip
	$(PY) -m dev.mini.eval_modes

clean: ## Remove build results (keeps .venv)
	rm -rf build dist .pytest_cache .ruff_cache
