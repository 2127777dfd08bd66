"""Experiments of a few milliseconds that end in every way an experiment can end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flowbias.experiments import Check, Experiment, Panel, Preset, Table, Task
from flowbias.theory import Reference

#: In the environment of a process that is to be interrupted: the file that says that it is time.
#: The process goes on when somebody has removed it.
SLOW = "FLOWBIAS_TEST_SLOW"


def tasks(settings: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [("square", {"number": number}) for number in range(settings["count"])]


def compute(task: Task) -> Mapping[str, float]:
    number = task.integer("number")
    if number == 1 and SLOW in os.environ:
        now = Path(os.environ[SLOW])
        now.touch()
        while now.exists():
            time.sleep(0.01)
    return {"square": float(number**2)}


def compute_or_fail(task: Task) -> Mapping[str, float]:
    if task.integer("number") == 1:
        raise ArithmeticError("one is too few")
    return compute(task)


def draw(axes: Any, table: Table) -> None:
    axes.plot(table["number"], table["square"])


def draw_nothing(axes: Any, table: Table) -> None:
    raise RuntimeError("no ink")


def squares_hold(table: Table) -> list[Check]:
    right = bool((table["square"] == table["number"] ** 2).all())
    return [Check("squares", "squares are squares", f"{len(table)} of them", right)]


def squares_are_small(table: Table) -> list[Check]:
    largest = float(table["square"].max())
    small = Check("small", "squares are below one", f"largest {largest:g}", largest < 1.0)
    return [*squares_hold(table), small]


def experiment(name: str, **parts: Any) -> Experiment:
    counts = {Preset.SMOKE: 3, Preset.LAPTOP: 5, Preset.PAPER: 8}
    whole: dict[str, Any] = {
        "name": name,
        "title": f"The {name} one",
        "reference": Reference("woodworth2020", "Figure 0"),
        "summary": "Squares.",
        "paper_says": "They are squares.",
        "settings": {preset: {"count": count} for preset, count in counts.items()},
        "tasks": tasks,
        "compute": compute,
        "panels": (Panel("a", "Squares", draw),),
        "check": squares_hold,
    }
    return Experiment(**{**whole, **parts})


SOUND = experiment("sound")
DOUBTFUL = experiment("doubtful", check=squares_are_small)
FAILING = experiment("failing", compute=compute_or_fail)
UNDRAWN = experiment("undrawn", panels=(Panel("a", "Squares", draw_nothing),))
#: Odd numbers are not the paper's.
MADE_UP = experiment(
    "made-up", stand_in=lambda task: "made-up numbers" if task.integer("number") % 2 else ""
)
ALL = (SOUND, DOUBTFUL, FAILING, UNDRAWN)


def loaders(*experiments: Experiment) -> dict[str, Callable[[], Experiment]]:
    """As the catalogue has them."""
    return {each.name: lambda each=each: each for each in experiments}
