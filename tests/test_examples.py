"""The examples run, and their checks hold."""

import sys
from pathlib import Path

import pytest

from flowbias.experiments import run
from flowbias.experiments.progress import Silence

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def own_experiment(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import own_experiment

    yield own_experiment.EXPERIMENT
    del sys.modules["own_experiment"]


def test_own_experiment(own_experiment, tmp_path):
    record = run(own_experiment, preset="smoke", jobs=1, cache=tmp_path, progress=Silence())
    assert record.holds
    assert record.plot().axes[0].get_xlabel() == "scale of the start"
