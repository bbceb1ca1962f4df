# Needs make and Python 3.11 to 3.13: every target makes its own environment in $(VENV),
# at the versions of constraints.txt, and installs into it only what that target needs.

PYTHON      ?= python3
VENV        ?= .venv
DEMO        ?= replicax-demo
MUTANTS     ?=
PYTEST_ARGS ?= -n auto --dist loadfile
BENCH       ?= $(sort $(wildcard benchmarks/bench_*.py))

BIN     := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
INPUTS  := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test slow torch torch-tests mutants lint format types wheel docs reproduce bench dev clean distclean

help: ## this list
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)$$/  \1 \2/p' $(MAKEFILE_LIST) \
	  | while read -r target text; do printf '  %-10s %s\n' "$$target" "$$text"; done
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) DEMO=$(DEMO) PYTEST_ARGS=$(PYTEST_ARGS)"

demo: $(VENV)/.core ## sample the 25 modes; draws, summary and figures go to replicax-demo/
	$(BIN)/replicax demo --out $(DEMO)

test: $(VENV)/.test ## run the tests (PYTEST_ARGS="-n 2 -k swap" and the like)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

slow: $(VENV)/.test ## run the tests that take long
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

torch: ## run the tests of replicax.torch, in a separate environment
	@$(MAKE) --no-print-directory VENV=$(VENV)-torch torch-tests

torch-tests: $(VENV)/.test-torch
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/torch_bridge
	$(BIN)/python -m pytest -m "slow or not slow" tests/test_docs.py -k "pytorch or start"

mutants: $(VENV)/.test ## change one place at a time; a test must fail (MUTANTS="--changed main")
	$(BIN)/python tests/run_mutants.py $(MUTANTS)

lint: $(VENV)/.lint ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.lint ## fix style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.lint ## check types
	$(BIN)/pyright --pythonpath $(BIN)/python

wheel: $(VENV)/.test ## build the wheel into dist/, and test it in an empty environment
	$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps -w dist .
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

docs: $(VENV)/.docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html, or, to search the pages too, run $(BIN)/python -m http.server -d site"

reproduce: $(VENV)/.core ## run the paper's studies and write their pages into docs/results/
	$(BIN)/python -m studies all --out docs/results

bench: $(VENV)/.bench ## time replicax and other libraries (BENCH="benchmarks/bench_...py")
	@test -n "$(strip $(BENCH))" || { echo "No benchmarks/bench_*.py to run." >&2; exit 1; }
	@set -e; for script in $(BENCH); do echo "=== $$script"; $(BIN)/python "$$script"; done

dev: $(VENV)/.dev ## install everything that contributors need

clean: ## remove the output of runs, tests and builds; keep the environment
	rm -rf replicax-demo build dist site .pytest_cache .ruff_cache .hypothesis .jax_cache .mutants
	find replicax studies tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove the environment as well
	rm -rf .venv .venv-torch

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(0 if ok else \
	  "replicax needs Python 3.11 to 3.13, but $(PYTHON) is " + sys.version.split()[0] + \
	  ": write, say, make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.made $(INPUTS)
	@echo "Installing replicax into $(VENV) (the first time takes a minute or two)"
	@$(INSTALL) -e .
	@touch $@

# .test, .test-torch, .lint, .docs, .bench, .dev: replicax with the extra of that name.
$(VENV)/.%: $(VENV)/.made $(INPUTS)
	@echo "Installing replicax[$*] into $(VENV) (the first time takes a minute or two)"
	@$(INSTALL) -e '.[$*]'
	@touch $@ $(VENV)/.core
