# Each target makes what it needs: `make run` and `make test` start from a bare checkout.

PYTHON ?= $(shell python3.11 -c pass 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
# How much `make run` computes: smoke (two minutes), laptop (twenty minutes) or paper (an hour).
PRESET ?= smoke
BIN := $(VENV)/bin
BENCHMARKS := $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py))

# One stamp per set of packages, so that `make run` does not wait for the test tools.
RUN_READY := $(VENV)/.ready-run
TEST_READY := $(VENV)/.ready-test
DOCS_READY := $(VENV)/.ready-docs

.DEFAULT_GOAL := help
.PHONY: help run test lint fuzz bench docs dist clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_READY)  ## Reproduce every figure and write the page out/index.html
	$(BIN)/flowbias reproduce --preset $(PRESET) --out out

test: lint  ## Check style, types and behaviour
	HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -n 2 -q

lint: $(TEST_READY)  ## Check style and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

fuzz: $(TEST_READY)  ## Search for data that break the library: two thousand new examples a property
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n 2 -q -m hypothesis

bench: $(TEST_READY)  ## Print the comparisons with other solvers
	@for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(DOCS_READY)  ## Build the pages, run their examples: docs/_build/html/index.html
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -j 2 \
		-d docs/_build/doctrees -b html docs docs/_build/html

dist: $(TEST_READY)  ## Build wheel and sdist, and try both in empty environments
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python tests/release/try_in_empty_environment.py dist/*

clean:  ## Remove the environment, caches and build output
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf docs/_build docs/auto_examples docs/figure_checks.md
	find src tests docs -type d -name __pycache__ -prune -exec rm -rf {} +

$(RUN_READY): EXTRAS := [nets,data,sdp]
$(TEST_READY): EXTRAS := [test,dev,cluster,nets,data,explore,notebook]
$(DOCS_READY): EXTRAS := [docs,nets,data,sdp]

$(RUN_READY) $(TEST_READY) $(DOCS_READY): pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".$(EXTRAS)"
	@touch $@
