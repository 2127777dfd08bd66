"""`flowbias list`: the experiments that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowbias.cli.console import columns, results, show
from flowbias.cli.machine_readable import write_json
from flowbias.cli.options import Json

if TYPE_CHECKING:
    from flowbias.experiments import Experiment


def list_experiments(json: Json = False) -> None:
    """List the experiments, with the number of tasks at each preset."""
    from flowbias.experiments import Preset
    from flowbias.experiments.catalogue import EXPERIMENTS

    if json:
        write_json({"experiments": [_entry(experiment) for experiment in EXPERIMENTS]})
        return
    presets = tuple(preset.value for preset in Preset)
    table = columns("name", *presets, "reference", "title", right=presets)
    for experiment in EXPERIMENTS:
        counts = [str(len(experiment.task_list(preset))) for preset in Preset]
        table.add_row(experiment.name, *counts, str(experiment.reference), experiment.title)
    show(table)
    results().print("\nNumbers are tasks. Run one with: flowbias run NAME --preset smoke")


def _entry(experiment: Experiment) -> dict[str, Any]:
    from flowbias.experiments import Preset

    return {
        "name": experiment.name,
        "title": experiment.title,
        "reference": str(experiment.reference),
        "tasks": {preset.value: len(experiment.task_list(preset)) for preset in Preset},
    }
