"""What figures need beyond the package, and whether it is here."""

import pytest

from flowbias.experiments import EXPERIMENTS, Preset
from flowbias.experiments.record import NEEDS, Package, command_for, missing


def test_every_need_of_every_figure_is_known():
    for experiment in EXPERIMENTS:
        for preset in Preset:
            for task in experiment.task_list(preset)[:50]:
                assert set(experiment.needs(task)) <= set(NEEDS)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("woodworth-fig1", set()),
        ("woodworth-fig6c", {"torch", "MNIST"}),
        ("woodworth-fig8", {"torch", "CIFAR-10"}),
        ("woodworth-iclr-fig5", {"cvxpy"}),
        ("derive-gallery", {"torch"}),
    ],
)
def test_what_a_figure_computes_with_is_what_it_needs(name, needs):
    (experiment,) = [each for each in EXPERIMENTS if each.name == name]
    tasks = experiment.task_list(Preset.LAPTOP)
    assert {need for task in tasks for need in experiment.needs(task)} == needs


def test_one_command_gets_all_that_is_missing():
    wanted = ["torch", "MNIST", "cvxpy", "CIFAR-10", "torch"]
    assert command_for(wanted) == (
        "pip install 'flowbias[nets,sdp]' && flowbias data fetch mnist cifar10"
    )
    assert command_for(["MNIST"]) == "flowbias data fetch mnist"


def test_what_is_not_there_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWBIAS_DATA", str(tmp_path))
    monkeypatch.setitem(NEEDS, "torch", Package("numpy", "nets"))
    monkeypatch.setitem(NEEDS, "cvxpy", Package("no_such_package", "sdp"))
    assert missing(["torch", "cvxpy", "MNIST", "cvxpy"]) == ("cvxpy", "MNIST")
