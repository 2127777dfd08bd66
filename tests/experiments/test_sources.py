"""What a cached result depends on: the modules behind its computation, and no others."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from flowbias.experiments import Preset
from flowbias.experiments.catalogue import LOADERS, find_experiment
from flowbias.flows.destination import Destination, destination
from flowbias.ground import sources
from flowbias.ground.sources import HANDED_IN, PACKAGE, SOURCES, Sources

FILES = {
    "__init__.py": "from flowbias.solver import solve",
    "figure.py": "from flowbias.tools import (\n    draw as paint,  # :)\n    load,\n)",
    "solver/__init__.py": (
        "from flowbias.solver.fast import solve\nfrom flowbias.solver.slow import wait"
    ),
    "solver/fast.py": "def solve():\n    from flowbias import ground",
    "solver/slow.py": "def wait(): ...",
    "ground.py": "from flowbias.ground import itself",
    "tools/__init__.py": (
        "from flowbias.tools.drawing import draw\nfrom flowbias.tools.loading import load"
    ),
    "tools/drawing.py": "def draw(): ...",
    "tools/loading.py": "from flowbias.solver import solve\ndef load(): ...",
    "other.py": "from flowbias.figure import paint",
}


@pytest.fixture
def package(tmp_path):
    for name, text in FILES.items():
        file = tmp_path / "flowbias" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "flowbias"


def test_what_is_behind_a_module(package):
    behind = Sources.of(package).behind("flowbias.figure")
    tools = {"tools", "tools.drawing", "tools.loading"}
    expected = {"figure", *tools, "solver", "solver.fast", "ground"}
    assert behind == {f"flowbias.{name}" for name in expected}


@pytest.mark.parametrize("name", FILES)
def test_a_digest_follows_what_is_behind_a_module_and_nothing_else(package, name):
    def digest() -> str:
        sources = Sources.of(package)
        return sources.digest(sources.behind("flowbias.figure"))

    before = digest()
    (package / name).write_text(FILES[name] + "\n# changed")
    changed = digest() != before
    assert changed == (name not in ("__init__.py", "solver/slow.py", "other.py"))
    (package / ".#figure.py").write_text("an editor's own file")
    assert (digest() != before) == changed


def test_a_fingerprint_follows_sources_and_versions(package, monkeypatch):
    seen = set()
    for text, version in [("1", "1"), ("2", "1"), ("2", "2")]:
        (package / "other.py").write_text(text)
        monkeypatch.setattr(sources, "SOURCES", Sources.of(package))
        monkeypatch.setattr(sources, "version_of", lambda _, version=version: version)
        sources.fingerprint.cache_clear()
        seen.add(sources.fingerprint())
    sources.fingerprint.cache_clear()
    assert len(seen) == 3


# One of each kind of computation, all quick.
TRACED = ("woodworth-fig1", "woodworth-fig5", "min-fig1", "neuron-paths", "derive-gallery")


@pytest.mark.parametrize("name", TRACED)
def test_nothing_else_runs(name):
    """The first task of a figure calls functions of the modules behind it only."""
    experiment = find_experiment(name)
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        files.add(frame.f_code.co_filename)

    task = experiment.task_list(Preset.SMOKE)[0]
    # What other tests have left unfinished is not to be finished here.
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        experiment.compute(task)
    finally:
        sys.setprofile(None)
        gc.enable()
    ran = {
        sources._module_of(Path(file), PACKAGE) for file in files if file.startswith(str(PACKAGE))
    }
    # The root only loads rooms when they are asked for.
    assert ran - {PACKAGE.name} <= SOURCES.behind(experiment.compute.__module__)
    assert len(ran) > 5


def test_what_is_handed_in_stands_behind_what_calls_it():
    """A trajectory's limit is solved for by a room that no flow imports."""
    solver = HANDED_IN[Destination.__module__]
    assert destination.limit is not None
    assert destination.limit.__module__ == solver
    assert solver in SOURCES.behind("flowbias.flows.trajectory")


def test_one_figure_is_loaded_without_the_others():
    program = """
import sys
from flowbias.experiments.catalogue import find_experiment
find_experiment("min-fig1")
print(*(name for name in sys.modules if "experiments." in name and ".fig" in name))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["flowbias.experiments.min.fig01"], run.stderr


@pytest.mark.parametrize("name", LOADERS)
def test_the_catalogue_knows_the_names(name):
    assert find_experiment(name).name == name
