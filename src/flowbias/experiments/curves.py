"""Curves of a table: how figures gather them, draw them, and what they read off them.

A number that is not there is NaN, which fails every comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flowbias.datasets import SparseRegression, sparse_regression
from flowbias.experiments._base import Check, Setting, Task
from flowbias.experiments.check import at_most
from flowbias.experiments.drawing import draw_band
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.ground.typing import ArrayLike, Axes, FloatArray, Mask
from flowbias.theory import Claim

# --- from computations to columns -----------------------------------------------------------------


def sparse_data(task: Task, rng: np.random.Generator, n: int | None = None) -> SparseRegression:
    """Of the sizes that the task has, or n samples; without noise where it names none."""
    return sparse_regression(
        n=task.integer("n") if n is None else n,
        d=task.integer("d"),
        sparsity=task.integer("sparsity"),
        noise_var=float(dict(task.settings).get("noise_var", 0.0)),
        rng=rng,
    )


def as_columns(rows: Sequence[Mapping[str, float]]) -> dict[str, FloatArray]:
    """One column a name, of rows that all have the same."""
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


def stacked(parts: Mapping[Any, Columns], key: str) -> Columns:
    """One below the other, told apart by the column `key`."""
    return Table.stack(Table.of({key: name, **columns}) for name, columns in parts.items()).columns


def by_replicate(rows: Table, value: str, by: str) -> FloatArray:
    """One row of values a replicate, with `by` increasing."""
    ordered = rows.rows(np.lexsort((rows[by], rows["replicate"])))
    return np.asarray(ordered[value].reshape(rows.levels("replicate").size, -1))


def groups(rows: Table, *names: str) -> Iterator[Table]:
    """The rows of each combination of values that these columns have, in increasing order."""
    if not names:
        yield rows
        return
    for level in rows.levels(names[0]):
        yield from groups(rows.rows(rows[names[0]] == level), *names[1:])


# --- what is read off them ------------------------------------------------------------------------


def exponent(x: FloatArray, y: FloatArray) -> float:
    """Of the power law through the points; NaN without two, or where one is not on it."""
    if len(x) < 2 or not np.all((y > 0.0) & (y < np.inf)):
        return np.nan
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def first(x: FloatArray, passes: Mask) -> float:
    """The first x that passes; NaN without one."""
    return float(x[np.argmax(passes)]) if passes.any() else np.nan


def crossing(x: FloatArray, values: FloatArray, level: float) -> float:
    """The first x at which values, linear between the points, cross the level; NaN if nowhere."""
    above = values >= level
    turns = np.flatnonzero(above[1:] != above[:-1])
    if not turns.size or np.isnan(values).any():
        return np.nan
    i = int(turns[0])
    share = (level - values[i]) / (values[i + 1] - values[i])
    return float(x[i] + share * (x[i + 1] - x[i]))


def edges(centres: FloatArray) -> FloatArray:
    """Half way between neighbours, and as far beyond the first and the last."""
    if len(centres) == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    between = 0.5 * (centres[1:] + centres[:-1])
    ends = 2.0 * centres[[0, -1]] - between[[0, -1]]
    return np.concatenate([ends[:1], between, ends[1:]])


def listed(values: Iterable[Setting], form: str = ".3g") -> str:
    """Numbers in words."""
    return ", ".join(f"{value:{form}}" for value in values)


def never_above(
    name: str, claim: str, measured: str, values: ArrayLike, bound: float, *more: Claim
) -> Check:
    """A check of the largest value, which stands in `measured` where that has '{:.1e}'."""
    worst = float(np.max(values))
    return Check(name, claim, measured.format(worst), at_most(worst, bound), *more)


# --- how they are drawn ---------------------------------------------------------------------------

#: A line that has a point at each value.
DOTS: dict[str, Any] = {"marker": "o", "markersize": 4}


def draw_curve(
    axes: Axes, rows: Table, value: str, *, by: str, log10: bool = False, **style: Any
) -> Summary:
    """Median and band against `by`, or against 10 to the power of it; what was drawn."""
    curve = rows.summary(value, by=by)
    if log10:
        curve = curve._replace(x=10.0**curve.x)
    draw_band(axes, curve.x, curve, **style)
    return curve
