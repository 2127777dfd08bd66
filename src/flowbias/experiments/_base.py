"""What an experiment is: one figure as settings, tasks, a pure computation, panels and checks.

    tasks(settings) -> compute(task), cached -> table -> panels draw it, check(table) judges it

A panel never computes and a check never draws, so a figure can be redrawn and judged in
milliseconds from what the cache holds.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from flowbias.experiments.provenance import fingerprint_of
from flowbias.experiments.table import Columns, Table
from flowbias.ground.arguments import InputError
from flowbias.theory import Claim, Reference, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Setting = int | float | str
Settings = Mapping[str, Setting]


class Preset(StrEnum):
    """How much an experiment computes.

    >>> [preset.value for preset in fb.experiments.Preset]
    ['smoke', 'laptop', 'paper']
    """

    SMOKE = "smoke"  # seconds
    LAPTOP = "laptop"  # minutes on two cores
    PAPER = "paper"  # the paper's own settings


@dataclass(frozen=True)
class Task:
    """One unit of work. Its name says everything that it depends on.

    >>> task = fb.experiments.Task("my-experiment", "path", (("n", 10), ("replicate", 3)))
    >>> task.name, task.integer("n")
    ('my-experiment/path n=10 replicate=3', 10)
    """

    experiment: str
    part: str
    settings: tuple[tuple[str, Setting], ...]

    @property
    def name(self) -> str:
        """For example `woodworth-fig1/path d=1000 n=100 replicate=3`."""
        values = "".join(f" {key}={value!r}" for key, value in self.settings)
        return f"{self.experiment}/{self.part}{values}"

    def integer(self, key: str) -> int:
        """The setting `key`, where it is a count."""
        return int(dict(self.settings)[key])

    def number(self, key: str) -> float:
        """The setting `key`, where it is a number."""
        return float(dict(self.settings)[key])

    def text(self, key: str) -> str:
        """The setting `key`, where it is a word."""
        return str(dict(self.settings)[key])

    def rng(self) -> np.random.Generator:
        """Random numbers that depend on the task's name alone: not on order, host or process."""
        digest = hashlib.sha256(self.name.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "big"))


@dataclass(frozen=True)
class Check:
    """Something that the paper claims about its figure, and whether this table shows it.

    As a claim of `fb.theory`, of which `Check.of` makes one, it may say nothing: `silence` is why.

    >>> print(fb.experiments.Check("faster", "b is faster than a", "0.1 s and 0.2 s", holds=True))
    holds: b is faster than a (0.1 s and 0.2 s)
    """

    name: str
    claim: str
    measured: str
    holds: bool
    silence: str = ""

    def __post_init__(self) -> None:
        # NumPy's own truth values look the same and are not, for JSON among others.
        object.__setattr__(self, "holds", bool(self.holds) and not self.silence)

    @classmethod
    def of(cls, name: str, claim: Claim) -> Check:
        """A claim about what the table shows, with its numbers and its verdict."""
        measured = f"{claim.measured:.4g} {claim.kind.value} {claim.predicted:.4g}"
        silence = claim.reason if claim.verdict is Verdict.SILENT else ""
        return cls(name, claim.statement, silence or measured, claim.holds, silence)

    @property
    def verdict(self) -> Verdict:
        if self.silence:
            return Verdict.SILENT
        return Verdict.HOLDS if self.holds else Verdict.FAILS

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.claim} ({self.measured})"


@dataclass(frozen=True)
class Panel:
    """One pair of axes: `draw(axes, table)` puts the table on them and computes nothing.

    >>> [panel.title for panel in fb.experiments.EXPERIMENTS[0].panels][0]
    'Small starts generalize'
    """

    name: str
    title: str
    draw: Callable[[Axes, Table], None]


def no_stand_in(task: Task) -> str:
    """Most tasks compute with what the paper did."""
    return ""


@dataclass(frozen=True)
class Experiment:
    """One figure. `tasks` yields (part, settings) pairs from the settings of a preset.

    >>> [experiment.name for experiment in fb.experiments.EXPERIMENTS][:2]
    ['woodworth-fig1', 'woodworth-fig2']
    """

    name: str
    title: str
    reference: Reference
    #: what the figure is about, for a reader who has not seen the paper
    summary: str
    #: what the paper's caption and text say of it, in our words
    paper_says: str
    settings: Mapping[Preset, Settings]
    tasks: Callable[[Settings], Iterable[tuple[str, Settings]]]
    compute: Callable[[Task], Columns]
    panels: tuple[Panel, ...]
    check: Callable[[Table], Sequence[Check]]
    #: what a task has in the place of the paper's data ("made-up pictures"), or nothing
    stand_in: Callable[[Task], str] = no_stand_in

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.name):
            raise InputError(
                f"name: must be small letters, digits, dots and dashes, got {self.name!r}. "
                "It names files and folders: try 'my-experiment'."
            )
        if missing := [preset.value for preset in Preset if preset not in self.settings]:
            raise InputError(
                f"settings: must hold every preset, got none for {', '.join(missing)}. "
                "Give presets that should do the same the same settings."
            )
        # Now, while the file is the one that was imported.
        fingerprint_of(self.compute)

    def task_list(self, preset: Preset) -> list[Task]:
        """All tasks of a preset, in the order of the table's rows."""
        pairs = self.tasks(self.settings[preset])
        tasks = [Task(self.name, part, _frozen(settings)) for part, settings in pairs]
        names = Counter(task.name for task in tasks)
        if repeated := [name for name, count in names.items() if count > 1]:
            raise InputError(
                f"tasks: must all be different, got {repeated[0]!r} {names[repeated[0]]} times. "
                "Add a setting that tells them apart, such as replicate=i."
            )
        return tasks

    def stand_ins(self, preset: Preset) -> str:
        """What the tasks of a preset have in the place of the paper's data, or nothing."""
        named = dict.fromkeys(self.stand_in(task) for task in self.task_list(preset))
        return ", ".join(filter(None, named))

    def plot(self, table: Table) -> Figure:
        """All panels side by side."""
        from flowbias.experiments.drawing import figure_of

        return figure_of(self.panels, table)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}: {self.title} [{self.reference}])"


def _frozen(settings: Settings) -> tuple[tuple[str, Setting], ...]:
    """Settings as they stand in a name: plain values, so that 0.1 is 0.1 whoever computed it."""
    plain = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in settings.items()
    }
    for key, value in plain.items():
        if key == "part" or not isinstance(value, int | float | str):
            raise InputError(
                f"tasks: settings must be numbers or words under names other than 'part', "
                f"got {key}={value!r}. Write a list as words: '1 2 3'."
            )
    return tuple(plain.items())
