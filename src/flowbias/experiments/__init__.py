"""Every figure of the papers as an experiment: cached, repeatable, judged against its caption."""

from typing import TYPE_CHECKING, Any

from flowbias.experiments import catalogue
from flowbias.experiments._base import Check, Experiment, Panel, Preset, Task
from flowbias.experiments.record import Record
from flowbias.experiments.runner import run
from flowbias.experiments.table import Table

if TYPE_CHECKING:
    from flowbias.experiments.catalogue import EXPERIMENTS

__all__ = [
    "EXPERIMENTS",
    "Check",
    "Experiment",
    "Panel",
    "Preset",
    "Record",
    "Table",
    "Task",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "EXPERIMENTS":  # the figures are loaded for those who ask for all of them
        return catalogue.EXPERIMENTS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
