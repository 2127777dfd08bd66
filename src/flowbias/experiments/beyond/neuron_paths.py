"""Where gradient flow from one neuron goes, drawn on what it minimizes.

One equation <x, v> = y in two coordinates. The limit is the point of that line where the potential
around the start is least [azulay2021, Theorem 2]; the flow gets there along a curve of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.azulay.fig07_2 import (
    BY_SCALE,
    BY_SHAPE,
    ON_MAP,
    STARTS,
    NeuronStart,
    around,
    contour,
    contour_tasks,
    draw_contours,
    of_start,
    start_of,
)
from flowbias.experiments.check import at_most, less_than, true
from flowbias.experiments.table import Columns, Table
from flowbias.flows import flow
from flowbias.ground.typing import Axes, FloatArray
from flowbias.limits import limit, min_norm
from flowbias.results.solution import Status
from flowbias.theory import Reference

ROW, OUTPUT = np.array([[2.0, -1.0]]), np.array([3.5])
PATH_COLOUR, LIMIT_COLOUR = "#d98200", "#117733"
#: Largest coordinate that is drawn: the farthest start is at 2.5.
WINDOW = 4.0


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """The level sets, and one path a panel."""
    yield from contour_tasks(settings)
    for start in STARTS:
        yield "path", {"alpha": start.alpha, "shape": start.shape}


def compute(task: Task) -> Columns:
    """Level sets, or the flow's path with its limit."""
    return contour(task) if task.part == "contour" else path(task)


def path(task: Task) -> Columns:
    """The predictor along the flow, its limit, and the least point of the line by search."""
    start = start_of(task)
    neuron = start.neuron
    followed = flow(neuron, ROW, OUTPUT, residual=1e-10)
    solution = limit(neuron, ROW, OUTPUT)
    least = min_norm(ROW, OUTPUT).w
    along = np.array([-ROW[0, 1], ROW[0, 0]]) / np.linalg.norm(ROW[0])
    line = least + _ticks()[:, None] * along
    searched = line[int(np.argmin(around(start, *line.T)))]
    return {
        "first": followed.w[:, 0],
        "second": followed.w[:, 1],
        "limit_first": solution.w[0],
        "limit_second": solution.w[1],
        "searched_first": searched[0],
        "searched_second": searched[1],
        "least_first": least[0],
        "least_second": least[1],
        "certified": float(solution.status is Status.CERTIFIED),
    }


def _ticks() -> FloatArray:
    """Points of the line on which the least is looked for, from the fit of least norm."""
    return np.linspace(-2.0 * WINDOW, 2.0 * WINDOW, 2001)


def _point(rows: Table, name: str) -> tuple[float, float]:
    return float(rows[f"{name}_first"][0]), float(rows[f"{name}_second"][0])


def _apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    return float(np.hypot(one[0] - other[0], one[1] - other[1]))


def draw(axes: Axes, table: Table, start: NeuronStart) -> None:
    """Level sets, the line of fits, the path, its limit, and the fit of least norm."""
    draw_contours(axes, table, start)
    rows = of_start(table.part("path"), start)
    across = np.array([-WINDOW, WINDOW])
    axes.plot(across, (ROW[0, 0] * across - OUTPUT[0]) / -ROW[0, 1], color=ON_MAP, linewidth=1.4)
    axes.plot(rows["first"], rows["second"], color=PATH_COLOUR, linewidth=2.4)
    least, limit_point = _point(rows, "least"), _point(rows, "limit")
    axes.plot(*least, marker="D", color=ON_MAP, markersize=6, fillstyle="none", zorder=5)
    axes.plot(*limit_point, marker="*", color=LIMIT_COLOUR, markersize=15, zorder=6)
    axes.annotate("least norm", least, (8, -13), color=ON_MAP, textcoords="offset points")
    axes.annotate("limit", limit_point, (10, 3), color=ON_MAP, textcoords="offset points")


def check(table: Table) -> Iterator[Check]:
    """The flow ends at the least point of the line; which point that is, scale and shape decide."""
    distances = []
    for start in STARTS:
        rows = of_start(table.part("path"), start)
        end = float(rows["first"][-1]), float(rows["second"][-1])
        distances.append(_apart(end, _point(rows, "limit")))
    yield Check(
        "flow-reaches-limit",
        "the flow ends where the limit says",
        f"distance at most {max(distances):.1e}",
        # Flow and limit have a relative residual of 1e-10.
        less_than(distances, 1e-8),
    )
    spacing = float(np.ptp(_ticks())) / (len(_ticks()) - 1)
    distances = [_off(table, start, "searched") for start in STARTS]
    yield Check(
        "limit-is-least",
        "the limit is the point of the line where the potential around the start is least",
        f"at most {max(distances):.1e} from the least of points {spacing:.1e} apart",
        at_most(distances, spacing),
    )
    certified = table.part("path")["certified"]
    yield Check(
        "certified",
        "every limit is certified",
        f"{np.mean(certified):.0%} of the rows",
        true(certified == 1.0),
    )
    nearest = _off(table, BY_SCALE[0], "least")
    others = [_off(table, start, "least") for start in (*BY_SHAPE, *BY_SCALE[1:])]
    yield Check(
        "scale-decides",
        "from a small start the limit is nearly the fit of least norm; from large ones it is not",
        f"distance {nearest:.3f} from α = 0.01, at least {min(others):.2f} from the others",
        less_than(nearest, 0.2 * min(others)),
    )


def _off(table: Table, start: NeuronStart, other: str) -> float:
    rows = of_start(table.part("path"), start)
    return _apart(_point(rows, "limit"), _point(rows, other))


EXPERIMENT = Experiment(
    name="neuron-paths",
    title="The way of one neuron",
    reference=Reference("azulay2021", "Theorem 2"),
    summary=(
        "Gradient flow (orange) from one linear neuron to the line of predictors that fit one "
        "equation, on the level sets of what it minimizes. It ends (star) at the least point of "
        "the line, which is near the fit of least norm (diamond) only from small starts."
    ),
    paper_says=(
        "The limit minimizes the potential around the start among all predictors that fit; the "
        "figure is not in the paper."
    ),
    settings={
        Preset.SMOKE: {"window": WINDOW, "side": 41},
        Preset.LAPTOP: {"side": 121},
        Preset.PAPER: {"side": 241},
    },
    tasks=tasks,
    compute=compute,
    panels=tuple(
        Panel(name, start.title, partial(draw, start=start))
        for name, start in zip("abcdef", STARTS, strict=True)
    ),
    check=check,
)
