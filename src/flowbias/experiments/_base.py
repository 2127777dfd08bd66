"""What an experiment is: one figure as settings, tasks, a pure computation, panels and checks.

    tasks(settings) -> compute(task), cached -> table -> panels draw it, check(table) judges it

A panel never computes and a check never draws, so a figure can be redrawn and judged in
milliseconds from what the cache holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from flowbias.experiments.table import Columns, Table
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Setting = int | float | str
Settings = Mapping[str, Setting]


class Preset(StrEnum):
    """How much an experiment computes."""

    SMOKE = "smoke"  # seconds
    LAPTOP = "laptop"  # minutes on two cores
    PAPER = "paper"  # the paper's own settings


@dataclass(frozen=True)
class Task:
    """One unit of work. Its name says everything that it depends on."""

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
    """Something that the paper claims about its figure, and whether this table shows it."""

    name: str
    claim: str
    measured: str
    holds: bool

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}: {self.claim} ({self.measured})"


@dataclass(frozen=True)
class Panel:
    """One pair of axes: `draw(axes, table)` puts the table on them and computes nothing."""

    name: str
    title: str
    draw: Callable[[Axes, Table], None]


@dataclass(frozen=True)
class Experiment:
    """One figure. `tasks` yields (part, settings) pairs from the settings of a preset."""

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

    def task_list(self, preset: Preset) -> list[Task]:
        """All tasks of a preset, in the order of the table's rows."""
        pairs = self.tasks(self.settings[preset])
        return [Task(self.name, part, tuple(settings.items())) for part, settings in pairs]

    def plot(self, table: Table) -> Figure:
        """All panels side by side."""
        from flowbias.experiments.drawing import figure_of

        return figure_of(self.panels, table)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}: {self.title} [{self.reference}])"
