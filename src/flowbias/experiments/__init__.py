"""Every figure of the papers as an experiment: cached, repeatable, judged against its caption."""

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Task
from flowbias.experiments.catalogue import EXPERIMENTS
from flowbias.experiments.record import Record
from flowbias.experiments.runner import run
from flowbias.experiments.table import Table

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
