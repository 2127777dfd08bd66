"""Smoke tables, ways to spoil them, and which checks notice."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.experiments._base import Experiment, Preset, Task
from flowbias.experiments.check import Check
from flowbias.experiments.table import Table

Corruption = Callable[[Table], Table]


_KNOWN: dict[str, Table] = {}


def smoke_table(experiment: Experiment) -> Table:
    """Computed once in a process; nobody writes into it."""
    if experiment.name not in _KNOWN:
        tasks = experiment.task_list(Preset.SMOKE)
        _KNOWN[experiment.name] = Table.stack(_rows(experiment, task) for task in tasks)
        for column in _KNOWN[experiment.name].columns.values():
            column.flags.writeable = False
    return _KNOWN[experiment.name]


def _rows(experiment: Experiment, task: Task) -> Table:
    settings, columns = dict(task.settings), experiment.compute(task)
    # The runner refuses what would overwrite a setting.
    assert not set(columns) & {"part", *settings}
    return Table.of({"part": task.part, **settings, **columns})


def recorded(name: str) -> Table:
    """A table of docs/tables: what a run took long to compute."""
    file = Path(__file__).parents[2] / "docs" / "tables" / name
    with file.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    words = {"part", "data", "device", "scales"}

    def read(name: str, text: str) -> str | float:
        return text if name in words else float(text or "nan")

    return Table.of({name: [read(name, row[name]) for row in rows] for name in rows[0]})


def failing(experiment: Experiment, table: Table) -> set[str]:
    return {check.name for check in _applying(experiment, table) if not check.holds}


def names_of(experiment: Experiment, table: Table) -> set[str]:
    return {check.name for check in _applying(experiment, table)}


def _applying(experiment: Experiment, table: Table) -> list[Check]:
    """All but those that say they do not apply to these settings; those without numbers stay."""
    return [each for each in experiment.check(table) if each.silence == each.decisive.silence]


def alone_in(corruptions: list[tuple[set[str], Corruption]]) -> set[str]:
    """Checks that some corruption makes fail without any other."""
    return {name for names, _ in corruptions if len(names) == 1 for name in names}


def named(value: object) -> str:
    """The names of the checks as the name of a test."""
    return "+".join(sorted(value)) if isinstance(value, set) else ""


def mostly_nan(table: Table, column: str) -> Table:
    """NaN in two of three rows: what is left must not be enough to pass."""
    values = table[column].copy()
    values[np.arange(len(values)) % 3 > 0] = np.nan
    return table.replaced(**{column: values})


def passes_without(experiment: Experiment, table: Table, column: str) -> bool:
    """Whether a table with nothing but NaN in a column passes; not even to find it is a refusal."""
    try:
        return not failing(experiment, table.replaced(**{column: np.full(len(table), np.nan)}))
    except KeyError:
        return False


def higher(column: str, by: float) -> Corruption:
    return lambda table: table.replaced(**{column: table[column] + by})


def changed(column: str, change: Callable, **where: Any) -> Corruption:
    """Other values in the rows where each of these columns is that number or word, or passes."""

    def corrupt(table: Table) -> Table:
        rows = np.full(len(table), True)
        for key, wanted in where.items():
            rows &= wanted(table[key]) if callable(wanted) else _equal(table[key], wanted)
        assert rows.any()
        new = np.asarray(change(table[column][rows]))
        # Words may be longer than those that were there.
        values = table[column].astype(np.result_type(table[column], new))
        values[rows] = new
        return table.replaced(**{column: values})

    return corrupt


def _equal(values: np.ndarray, wanted: float | str) -> np.ndarray:
    """To the rounding of a number that was computed."""
    word = isinstance(wanted, str)
    return values == wanted if word else np.isclose(values, wanted, rtol=1e-9, atol=0.0)


def scaled(column: str, factor: float, **where: Any) -> Corruption:
    return changed(column, lambda values: factor * values, **where)


def several(*corruptions: Corruption) -> Corruption:
    def corrupt(table: Table) -> Table:
        for one in corruptions:
            table = one(table)
        return table

    return corrupt
