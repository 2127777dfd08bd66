"""Shared by all tests: how long hypothesis searches, what to start from, a browser, no PyTorch."""

import os
import shutil
import signal
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from flowbias.datasets import SparseRegression, sparse_regression

# No deadline: on a busy machine the time of one example says nothing about the code.
settings.register_profile("local", deadline=None)
# The same examples on every run, so that a change, not luck, turns CI red.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
# `make kernel`: another rounding of examples that `ci` has been through. Rounding shows in any.
settings.register_profile("kernel", deadline=None, derandomize=True, max_examples=10)
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


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches what tests start: a background job has it ignored, and hands that down."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium that asks nobody for anything; tests that need it skip where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    quiet = (
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    )
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=list(quiet))
        yield opened
        opened.close()


# --- without PyTorch -----------------------------------------------------------------------------

# Of some Pythons only a build with gigabytes of CUDA is at hand (`make pythons`, `make minima`).
WITHOUT_TORCH = find_spec("torch") is None
NO_TORCH = "PyTorch is not installed: pip install 'flowbias[nets]'"


def _is_about_torch(message: str) -> bool:
    return WITHOUT_TORCH and ("No module named 'torch" in message or "flowbias[nets]" in message)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: Any) -> Generator[None, Any, Any]:
    """A module that imports PyTorch is skipped as a whole."""
    report = yield
    if report.failed and _is_about_torch(str(report.longrepr)):
        report.outcome, report.longrepr = "skipped", (str(collector.path), None, NO_TORCH)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, Any]:
    """So is a test, or what it is given, that asks for PyTorch on its way."""
    report = yield
    if report.failed and _is_about_torch(str(report.longrepr)):
        report.outcome, report.longrepr = "skipped", (str(item.path), None, NO_TORCH)
    return report
