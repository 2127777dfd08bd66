"""What an experiment is: one figure as settings, tasks, a pure computation, panels and checks.

    tasks(settings) -> compute(task), cached -> table -> panels draw it, check(table) judges it

A panel never computes and a check never draws, so a figure can be redrawn and judged in
milliseconds from what the cache holds.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.experiments.cache import fingerprint_of
from flowbias.experiments.check import Check
from flowbias.experiments.settings import (
    AllowedValues,
    Preset,
    Setting,
    Settings,
    all_presets,
    allowed_in,
    numbers,
    picked,
    read_changes,
)
from flowbias.experiments.table import Columns, Table
from flowbias.ground.arguments import InputError
from flowbias.ground.threads import SharedHold
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import Axes, Figure
from flowbias.theory import Reference

#: What a figure is made of.
__all__ = [
    "Check",
    "Experiment",
    "Panel",
    "Preset",
    "Setting",
    "Settings",
    "Task",
    "checkpoint_at",
    "checkpoint_file",
    "needs_torch",
    "numbers",
    "picked",
    "torch_device",
]


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

    def numbers(self, key: str) -> list[float]:
        """The setting `key`, where it is a list of numbers."""
        return numbers(dict(self.settings), key)

    def rng(self, *, apart_from: Collection[str] = ()) -> np.random.Generator:
        """Random numbers that depend on the task's name alone: not on order, host or process.

        Settings in `apart_from` do not count: tasks that differ in them alone have the same data.
        """
        counting = tuple(pair for pair in self.settings if pair[0] not in apart_from)
        name = replace(self, settings=counting).name
        digest = hashlib.sha256(name.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "big"))


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


def needs_nothing(task: Task) -> tuple[str, ...]:
    """Most tasks need nothing that does not come with the package."""
    return ()


def needs_torch(task: Task) -> tuple[str, ...]:
    """Of tasks that train networks or derive what others have not."""
    return ("torch",)


@dataclass(frozen=True)
class Experiment:
    """One figure. `tasks` yields (part, settings) pairs from the settings of a preset.

    What a preset does not give in `settings` is as in the preset before it.

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
    check: Callable[[Table], Iterable[Check]]
    #: what a task has in the place of the paper's data ("made-up pictures"), or nothing
    stand_in: Callable[[Task], str] = no_stand_in
    #: what a task needs beyond the package, by its name in `record.NEEDS`
    needs: Callable[[Task], Sequence[str]] = needs_nothing
    #: by setting: the words that it is made of
    choices: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: what smoke has instead where the paper's data are at hand: stand-ins are for want of them
    genuine: Settings = field(default_factory=dict)
    #: what is not as in the presets
    changes: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.name):
            raise InputError(
                f"name: must be small letters, digits, dots and dashes, got {self.name!r}. "
                "It names files and folders: try 'my-experiment'."
            )
        object.__setattr__(self, "settings", all_presets(self.settings))
        # Now, while the file is the one that was imported.
        fingerprint_of(self.compute)

    @property
    def allowed(self) -> dict[str, AllowedValues]:
        """What each setting may be."""
        return allowed_in(self.settings, self.choices)

    def varied(self, changes: Mapping[str, Any]) -> Experiment:
        """The same figure at other settings, in every preset: `varied({"sparsity": 10})`."""
        read = read_changes(self.allowed, changes)
        known = (*self.settings.values(), self.genuine)
        differ = {
            name: value
            for name, value in read.items()
            if any(settings.get(name, value) != value for settings in known)
        }
        settings = {preset: {**self.settings[preset], **differ} for preset in self.settings}
        genuine = {name: differ.get(name, value) for name, value in self.genuine.items()}
        changes = {**self.changes, **differ}
        return replace(self, settings=settings, genuine=genuine, changes=changes)

    @property
    def on_genuine_data(self) -> Experiment:
        """The same figure with what its preset smoke has where the paper's data are at hand."""
        smoke = {**self.settings[Preset.SMOKE], **self.genuine}
        return replace(self, settings={**self.settings, Preset.SMOKE: smoke}, genuine={})

    @property
    def label(self) -> str:
        """Its name and what is not as in the presets: `woodworth-fig1 sparsity=10`."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.changes.items())])

    @property
    def file_name(self) -> str:
        """What its files are called: changed settings do not overwrite those of a preset."""
        name = re.sub(r"[^A-Za-z0-9.=+-]+", "_", self.label)
        # Beside an ending and a folder; systems allow 255 in all.
        if len(name) <= 120:
            return name
        return f"{name[:100]}_{hashlib.sha256(self.label.encode()).hexdigest()[:16]}"

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
        return f"Experiment({self.label!r}: {self.title} [{self.reference}])"


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


# --- where a task computes, and where it keeps what it has so far ---------------------------------

# How many threads torch had before any task: one that begins while another runs would find 1.
_BEFORE_TASKS: SharedHold[int] = SharedHold(
    take=lambda: int(require_torch().get_num_threads()), give_back=lambda threads: None
)


@contextmanager
def torch_device() -> Iterator[str]:
    """The GPU where there is one; otherwise one thread, since tasks run side by side already.

    `one_thread_in_every_pool` does not reach a torch that a task is the first to load.
    """
    torch = require_torch()
    with _BEFORE_TASKS.held() as before:
        # A number for each thread that calls torch, so each of them sets and restores its own.
        torch.set_num_threads(1)
        try:
            yield "cuda" if torch.cuda.is_available() else "cpu"
        finally:
            torch.set_num_threads(before)


# Where the task that is being computed may keep its checkpoint; None outside of a run.
_CHECKPOINT: ContextVar[Path | None] = ContextVar("checkpoint", default=None)


def checkpoint_file() -> Path | None:
    """A file beside the task's place in the cache, which a run that was interrupted finds again.

    It is gone once the task is done.
    """
    return _CHECKPOINT.get()


@contextmanager
def checkpoint_at(file: Path | None) -> Iterator[None]:
    """Let what is computed here keep its checkpoint in `file`."""
    token = _CHECKPOINT.set(file)
    try:
        yield
    finally:
        _CHECKPOINT.reset(token)
