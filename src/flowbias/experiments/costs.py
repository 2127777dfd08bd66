"""What each preset of each figure costs: CPU seconds, as runs measured them.

`flowbias run NAME --costs FILE` and `flowbias reproduce --costs FILE` add what they measured to a
file; costs.json beside this module is such a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from flowbias.experiments import provenance
from flowbias.experiments._base import Experiment, Preset
from flowbias.experiments.record import Record
from flowbias.ground.arguments import InputError
from flowbias.ground.atomic import write_atomically

#: Where a maintainer's runs put what `flowbias list` shows.
FILE = "costs.json"


class Cost(NamedTuple):
    """CPU seconds, summed over tasks, and the machine that took them."""

    seconds: float
    machine: str


#: By the name of a figure, then by preset.
Costs = Mapping[str, Mapping[str, Cost]]


def known_costs() -> Costs:
    """Those that came with the package."""
    return _parsed(resources.files("flowbias.experiments").joinpath(FILE).read_text("utf-8"))


def note_costs(file: Path, records: Iterable[Record]) -> None:
    """Add to `file` what the records cost: whole ones at the settings of their preset."""
    costs = {name: dict(known) for name, known in _in(file).items()}
    here = f"{provenance.processor()}, {provenance.cores()} cores"
    for record in records:
        if record.complete and not record.counts.stale and not record.experiment.changes:
            for preset in same_presets(record.experiment, record.preset):
                cost = Cost(round(record.compute_seconds, 1), here)
                costs.setdefault(record.experiment.name, {})[preset] = cost
    write_atomically(file, _text(costs).encode())


def same_presets(experiment: Experiment, preset: Preset) -> list[Preset]:
    """The presets of a figure that do what this one does."""
    return [each for each in Preset if experiment.settings[each] == experiment.settings[preset]]


def total(costs: Costs, names: Sequence[str], preset: str) -> float | None:
    """Of all of these figures together; None where one was not measured."""
    found = [costs.get(name, {}).get(preset) for name in names]
    known = [cost.seconds for cost in found if cost is not None]
    return sum(known) if len(known) == len(found) else None


def _in(file: Path) -> Costs:
    try:
        return _parsed(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"costs: must be a file that a run has written, but {file} is none ({error}). "
            "Pass the name of a new file."
        ) from error


def _parsed(text: str) -> Costs:
    return {
        name: {preset: Cost(**cost) for preset, cost in known.items()}
        for name, known in json.loads(text).items()
    }


def _text(costs: Costs) -> str:
    plain = {
        name: {preset: known[preset]._asdict() for preset in Preset if preset in known}
        for name, known in sorted(costs.items())
    }
    return json.dumps(plain, indent=1) + "\n"
