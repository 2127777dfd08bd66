"""Shared by all tests: how long hypothesis searches, and the problem most figures start from."""

import os

import pytest
from hypothesis import settings

from flowbias.datasets import SparseRegression, sparse_regression

# No deadline: on a busy machine the time of one example says nothing about the code.
settings.register_profile("local", deadline=None)
# The same examples on every run, so that a change, not luck, turns CI red.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
# `make fuzz`: new examples on every run, and many of them.
settings.register_profile("fuzz", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "local"))


@pytest.fixture(scope="session")
def benchmark_problem() -> SparseRegression:
    """The sparse regression problem at its default size; read-only, since every test shares it."""
    problem = sparse_regression(rng=0)
    for array in problem:
        array.flags.writeable = False
    return problem


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory) -> None:
    """Results of tests go where no user's are. Set for the processes that tests start, too."""
    os.environ["FLOWBIAS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
