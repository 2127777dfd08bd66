"""The tools of a release refuse what they must. `make dist` runs them on what it built."""

import importlib.util
import subprocess
import sys

import pytest

import flowbias
from tests.release.minima import least, minima, pinned
from tests.release.try_in_empty_environment import SMOKE, main, resources, version


def test_the_version_is_that_of_the_sources():
    assert version() == flowbias.__version__


def test_what_a_build_forgets_first_is_looked_for():
    named = set(resources())
    assert {"py.typed", "notebooks/scale_slider.js"} <= named
    assert not any(name.endswith((".py", ".pyc")) for name in named)


@pytest.mark.parametrize(
    ("built", "counted"),
    [
        ((), "0 and 0"),
        (("a.whl",), "1 and 0"),
        (("a.whl", "b.whl", "a.tar.gz"), "2 and 1"),
        (("a.tar.gz",), "0 and 1"),
    ],
)
def test_anything_but_one_wheel_and_one_sdist_is_refused(built, counted):
    with pytest.raises(SystemExit, match=rf"got {counted}\. Run `make dist`"):
        main(*built)


def test_the_sources_are_no_installation():
    """Run where flowbias is imported from its sources, the smoke test ends with an error."""
    run = subprocess.run(
        [sys.executable, SMOKE, flowbias.__version__], capture_output=True, text=True
    )
    assert run.returncode == 1
    assert "smoke test: imported from" in run.stderr


def test_a_requirement_that_fails_ends_the_smoke_test(capsys):
    spec = importlib.util.spec_from_file_location("smoke", SMOKE)
    smoke = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(smoke)
    smoke.must(True, "fine")
    assert capsys.readouterr().out == "ok: fine\n"
    with pytest.raises(SystemExit, match="smoke test: broken"):
        smoke.must(False, "broken")


def test_the_least_version_that_a_requirement_allows():
    assert least(["numpy>=2.0", "Typing_Extensions>=4.1.2"]) == {
        "numpy": "2.0",
        "typing-extensions": "4.1.2",
    }


def test_libraries_and_test_tools_are_tried_at_their_least_versions_but_for_torch():
    versions = minima()
    assert {"numpy", "dask", "cvxpy", "pytest"} <= versions.keys()
    assert "mypy" not in versions
    assert versions["torch"] == pinned()["torch"]


@pytest.mark.parametrize("requirement", ["numpy", "numpy==2.0", "numpy>=2.0,<3", "numpy>2.0"])
def test_a_requirement_without_a_least_version_is_refused(requirement):
    with pytest.raises(SystemExit, match=r"must declare name>=version, got 'numpy"):
        least([requirement])


def test_two_least_versions_of_one_package_are_refused():
    with pytest.raises(SystemExit, match=r"one least version of cvxpy, got 1\.5 and 1\.6"):
        least(["cvxpy>=1.5", "cvxpy>=1.6"])
