"""The examples run, their checks hold, and their pictures say what they show."""

import runpy
import sys
from pathlib import Path

import pytest

from flowbias.experiments import run
from flowbias.experiments.progress import Silence

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Half a minute together: cross-validation, torch. `make docs` runs them.
LONG = {"plot_08_estimator_against_lasso", "plot_09_derive_a_bias", "plot_10_lazy_or_rich"}
SCRIPTS = [script for script in sorted(EXAMPLES.glob("plot_*.py")) if script.stem not in LONG]


@pytest.fixture
def own_experiment(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import own_experiment

    yield own_experiment.EXPERIMENT
    del sys.modules["own_experiment"]


@pytest.fixture
def pyplot():
    """Pictures without a window, closed afterwards."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with mpl.rc_context({"backend": "agg"}):
        yield plt
    plt.close("all")


def test_own_experiment(own_experiment, tmp_path):
    record = run(own_experiment, preset="smoke", jobs=1, cache=tmp_path, progress=Silence())
    assert record.holds
    assert record.plot().axes[0].get_xlabel() == "scale of the start"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_draws_a_picture_with_labels(script, pyplot):
    plt = pyplot
    runpy.run_path(str(script))
    axes = [axes for number in plt.get_fignums() for axes in plt.figure(number).axes]
    assert axes
    for one in axes:
        assert one.get_xlabel() or one.get_ylabel() or one.get_title(), script.name
        assert one.has_data()
    # Shared axes are labelled once, so one of each kind is all that every picture has.
    assert any(one.get_xlabel() for one in axes)
    assert any(one.get_ylabel() for one in axes)
