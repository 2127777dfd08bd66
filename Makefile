# Each target makes what it needs: `make run` and `make test` start from a bare checkout.

PYTHON ?= $(shell python3.11 -c pass 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
# How much `make run` computes: smoke (minutes), laptop, paper or full; `flowbias list` shows the costs.
PRESET ?= smoke
# Whether `make run` also computes the figures of networks: NETS=1 installs PyTorch, with 2 GB of CUDA where PyPI
# has no other build. Without it they are skipped, and said to be.
NETS ?=
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
# Those that pyproject.toml names, to which the library is held before a release.
PYTHONS := $(shell sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml)
BENCHMARKS := $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py))

# What is computed by BLAS and by the vector instructions of the processor, and then judged by digits.
NUMERIC := $(addprefix tests/,potentials models limits flows theory estimators designs hardening)
# The tests of a file stay in one process, and compute what they share once.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile -q
# Two processes of tests share the cores: threads of their own would only wait for each other. In the
# second run they have them, for the sake of sums that are taken in parts.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
# The rounding of another processor: the kernel of OpenBLAS that any x86 runs, and NumPy without AVX
# (under the names of 2.4 and of those before). What a processor or a version does not know of is
# passed over by both.
OTHER_PROCESSOR := OPENBLAS_CORETYPE=Prescott \
	NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX2 FMA3 AVX512F AVX512_SKX"

# PyTorch among the packages of the tests. Of the Pythons and versions that are tried before a release
# pip may know only a build with gigabytes of CUDA: `make minima` and `make pythons` take the one for
# processors or none, and then the tests that need it skip and say so.
TORCH := nets,
CPU_TORCH := torch==$(shell sed -n 's/^torch==//p' constraints.txt)+cpu

# How many problems `make fuzz` has judged in many digits.
PROBLEMS ?= 10000

# One stamp per set of packages, so that `make run` does not wait for the test tools.
RUN_READY := $(VENV)/.ready-run
NETS_READY := $(VENV)/.ready-nets
TEST_READY := $(VENV)/.ready-test
TOOLS_READY := $(VENV)/.ready-tools
DOCS_READY := $(VENV)/.ready-docs

.DEFAULT_GOAL := help
# Two sets of packages go into one environment: never at once.
.NOTPARALLEL:
.PHONY: help run digits test suite kernel lint fuzz bench docs dist minima first-steps pythons clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_READY) $(if $(NETS),$(NETS_READY) $(if $(FLOWBIAS_OFFLINE),,digits))  ## Reproduce the figures (NETS=1: those of networks, too) and write out/index.html
	$(BIN)/flowbias reproduce --preset $(PRESET) --out out

# MNIST, 11 MB, in seconds or not at all; with FLOWBIAS_OFFLINE nothing is fetched.
digits: $(RUN_READY)
	@$(BIN)/flowbias data fetch mnist --patience 20 || \
		echo "MNIST: not at hand; the preset smoke takes made-up pictures, the others skip it."

test: lint suite kernel  ## Check style, types and behaviour

suite: $(TEST_READY)  ## Check behaviour only
	$(ONE_THREAD) HYPOTHESIS_PROFILE=ci $(PYTEST)

kernel: $(TEST_READY)  ## Repeat the numeric tests with the rounding of another processor
	$(OTHER_PROCESSOR) HYPOTHESIS_PROFILE=kernel $(PYTEST) -m "not slow" $(NUMERIC)

lint: $(TEST_READY) $(TOOLS_READY)  ## Check style and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

fuzz: $(TEST_READY)  ## Search for data that break the library, every certified answer judged in many digits
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz --problems $(PROBLEMS)
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) -m hypothesis

bench: $(TEST_READY)  ## Print the comparisons with other solvers
	@for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(DOCS_READY)  ## Build the pages, run their examples: docs/_build/html/index.html
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -j 2 \
		-d docs/_build/doctrees -b html docs docs/_build/html

dist: $(TOOLS_READY)  ## Build wheel and sdist, and try both in empty environments
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python tests/release/try_in_empty_environment.py dist/*

minima: .venv-minima.txt  ## Check behaviour with the least version of every declared package
	@$(MAKE) suite VENV=.venv-minima CONSTRAINTS=$< TORCH=

.venv-minima.txt: tests/release/minima.py pyproject.toml constraints.txt
	$(PYTHON) $< > $@

first-steps:  ## Go the first steps of newcomers in empty environments, and count them
	$(PYTHON) tests/release/first_steps.py

pythons:  ## Check behaviour on every declared Python
	@$(MAKE) --keep-going $(PYTHONS:%=suite-on-%)

# By its name or, where pyenv has it and does not select it, by its place.
suite-on-%: PYTHON = $(shell python$* -c pass 2>/dev/null && echo python$* || \
	ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$*.*/bin/python$* 2>/dev/null | tail -n 1)
suite-on-%:
	@test -n "$(PYTHON)" || { echo "python$*: must be on the PATH or in pyenv, is in neither." >&2; exit 1; }
	@$(MAKE) suite VENV=.venv-$* PYTHON=$(PYTHON) TORCH=

clean:  ## Remove the environment, caches and build output
	rm -rf $(VENV) .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf docs/_build docs/auto_examples docs/figure_checks.md docs/papers.md
	find src tests docs -type d -name __pycache__ -prune -exec rm -rf {} +

$(RUN_READY): EXTRAS := [data,sdp]
$(NETS_READY): EXTRAS := [nets]
$(TEST_READY): EXTRAS := [test,cluster,$(TORCH)data,explore,notebook]
$(TOOLS_READY): EXTRAS := [dev]
$(DOCS_READY): EXTRAS := [docs,nets,data,sdp]

# Silent where nobody looks; on a terminal large downloads show how far they are.
$(RUN_READY) $(NETS_READY) $(TEST_READY) $(TOOLS_READY) $(DOCS_READY): pyproject.toml $(CONSTRAINTS) Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $$(test -t 2 || echo --quiet) --disable-pip-version-check -c $(CONSTRAINTS) -e ".$(EXTRAS)"
	@test -n "$(TORCH)" || $(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) "$(CPU_TORCH)" || \
		echo "$(CPU_TORCH): not at hand; tests that need PyTorch skip."
	@touch $@
