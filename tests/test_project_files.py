"""The files around the code agree with it and with each other."""

import os
import platform
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import flowbias
from tests.release.minima import canonical, pinned

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]
FEATURES = ("nets", "cluster", "sdp", "data", "explore", "notebook")
ALL_EXTRAS = (*FEATURES, "test", "dev", "docs")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_written_once():
    """The build reads it from the source; a second copy in pyproject.toml could disagree."""
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    source = SETTINGS["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{flowbias.__version__}"' in read(source)


def test_the_citation_and_the_changelog_name_this_version():
    cited = re.search(r"^version: (\S+)$", read("CITATION.cff"), re.MULTILINE)
    assert cited[1] == flowbias.__version__
    newest = re.search(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)
    assert newest[1] == flowbias.__version__


def test_one_license_everywhere():
    assert PROJECT["license"] == "BSD-3-Clause"
    assert "license: BSD-3-Clause" in read("CITATION.cff")
    assert read("LICENSE").startswith("BSD 3-Clause License")


@pytest.mark.parametrize("extra", ALL_EXTRAS)
def test_extra_exists(extra):
    assert EXTRAS[extra]


@pytest.mark.parametrize("group", ["core", *ALL_EXTRAS])
def test_what_ci_installs_is_pinned(group):
    requirements = PROJECT["dependencies"] if group == "core" else EXTRAS[group]
    assert {canonical(r) for r in requirements} <= pinned().keys()


def test_optional_packages_are_not_core():
    core = {canonical(r) for r in PROJECT["dependencies"]}
    optional = {canonical(r) for extra in FEATURES for r in EXTRAS[extra]}
    assert not core & optional


@pytest.mark.parametrize(
    "target",
    [
        *("help", "run", "test", "suite", "kernel", "lint", "fuzz", "bench", "docs", "dist"),
        *("minima", "pythons", "clean"),
    ],
)
def test_makefile_has_target(target):
    assert re.search(rf"^{target}:.*## \S", read("Makefile"), re.MULTILINE)


def installed_for(ready: str) -> set[str]:
    pattern = rf"^\$\({ready}_READY\): EXTRAS := \[(.*)\]$"
    return set(re.search(pattern, read("Makefile"), re.MULTILINE)[1].split(","))


def test_whoever_makes_the_figures_installs_what_they_need():
    needed = {"nets", "data", "sdp"}
    assert installed_for("DOCS") >= needed
    # PyTorch, which is large, only for those who ask for the figures that need it.
    assert installed_for("RUN") == needed - {"nets"}
    assert installed_for("NETS") == {"nets"}
    makes = re.search(r"^run: (.*?)  ##", read("Makefile"), re.MULTILINE)[1]
    assert makes == "$(RUN_READY) $(if $(NETS),$(NETS_READY) $(if $(FLOWBIAS_OFFLINE),,digits))"


@pytest.mark.parametrize(
    ("words", "fetched"),
    [(("NETS=1",), True), ((), False), (("NETS=1", "FLOWBIAS_OFFLINE=1"), False)],
)
def test_pictures_are_fetched_only_for_networks_and_never_offline(words, fetched):
    environment = {key: os.environ[key] for key in os.environ if key != "FLOWBIAS_OFFLINE"}
    told = subprocess.run(
        ["make", "--dry-run", "run", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ("data fetch mnist --patience" in told) == fetched
    assert "flowbias reproduce" in told


def test_ci_calls_make_test_and_nothing_else():
    shebang, options, to_root, *commands = read(".ci/run").splitlines()
    assert (shebang, options) == ("#!/usr/bin/env bash", "set -euo pipefail")
    assert to_root.startswith("cd ")
    assert commands == ["make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def variable(name: str) -> str:
    """What the Makefile sets a variable to, in one line."""
    makefile = read("Makefile").replace("\\\n", "")
    return re.search(rf"^{name} := (.*)$", makefile, re.MULTILINE)[1]


def test_make_test_includes_the_other_processor():
    needs = re.search(r"^test: (.*?)  ##", read("Makefile"), re.MULTILINE)[1]
    assert needs.split() == ["lint", "suite", "kernel"]
    folders = re.fullmatch(r"\$\(addprefix tests/,(.*)\)", variable("NUMERIC"))[1].split()
    assert [folder for folder in folders if not (ROOT / "tests" / folder).is_dir()] == []


ARITHMETIC = """
import numpy, scipy.linalg, threadpoolctl
from numpy._core._multiarray_umath import __cpu_features__
print({blas["architecture"] for blas in threadpoolctl.threadpool_info()})
print([name for name in ("X86_V3", "X86_V4", "AVX512_SKX") if __cpu_features__.get(name)])
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other kernels")
def test_the_other_processor_is_another():
    settings = dict(word.split("=") for word in shlex.split(variable("OTHER_PROCESSOR")))
    other, features = subprocess.run(
        [sys.executable, "-c", ARITHMETIC],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    # threadpoolctl says Katmai for what was asked for as Prescott: they are one kernel.
    assert other in ("{'Katmai'}", "{'Prescott'}")
    assert features == "[]"


@pytest.mark.parametrize("key", ["woodworth2020", "min2021", "azulay2021"])
def test_papers_are_cited(key):
    assert f"cited in the code as {key}" in read("CITATION.cff")


def test_types_are_shipped():
    assert (ROOT / "src" / "flowbias" / "py.typed").is_file()


def test_all_extras_are_known_here():
    assert set(EXTRAS) == set(ALL_EXTRAS)


def test_no_address_is_invented():
    """The project is known by its name: it has no home that a link could lead to."""
    assert "urls" not in PROJECT
