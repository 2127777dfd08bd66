"""What one neuron minimizes around its start, on a grid of predictors with two coordinates.

    D(v) = q(v) - q(v0) - <grad q(v0), v - v0>,    v0 = alpha (0.6, 0.8)    [azulay2021, Theorem 2]

which is the paper's q_{delta, v0} up to a constant. alpha = |a| ||w|| is the paper's scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flowbias._typing import FloatArray
from flowbias.experiments._base import Settings, Task
from flowbias.experiments.table import Columns, Table
from flowbias.models import Neuron

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIRECTION = np.array([0.6, 0.8])
#: Largest coordinate that is drawn: the farthest start is at 2.5.
WINDOW = 4.0
LEVELS = 9
START_COLOUR = "#c0392b"
#: Lines and words on the map, which is as light on a dark page as on a light one.
ON_MAP = "#10243a"


class Start(NamedTuple):
    """Scale and shape of a start."""

    alpha: float
    shape: float

    @property
    def title(self) -> str:
        return f"α = {self.alpha:g}, s = {self.shape:g}"

    @property
    def neuron(self) -> Neuron:
        return Neuron.from_scale_shape(np.sqrt(self.alpha), self.shape, DIRECTION)


#: The paper's panels: its top row varies the shape, its bottom row the scale.
BY_SHAPE = (Start(2.0, 0.0), Start(2.0, 0.2), Start(2.0, 0.8))
BY_SCALE = (Start(0.01, 0.1), Start(1.0, 0.1), Start(2.5, 0.1))
STARTS = BY_SHAPE + BY_SCALE


def contour_tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task a panel."""
    for start in STARTS:
        yield "contour", {"alpha": start.alpha, "shape": start.shape, "side": settings["side"]}


def start_of(task: Task) -> Start:
    return Start(task.number("alpha"), task.number("shape"))


def contour(task: Task) -> Columns:
    """D on the grid, row by row."""
    side, start = task.integer("side"), start_of(task).neuron
    ticks = np.linspace(-WINDOW, WINDOW, side)
    first, second = (grid.ravel() for grid in np.meshgrid(ticks, ticks))
    points = np.stack([first, second], axis=1)
    v0 = start.predictor(start.initial_parameters())
    values = [start.potential.bregman(point, v0) for point in points]
    return {"first": first, "second": second, "value": np.array(values)}


def of_start(table: Table, start: Start) -> Table:
    return table.where(alpha=start.alpha, shape=start.shape)


def draw_contours(axes: Axes, table: Table, start: Start) -> None:
    """Level sets, equally spaced in the square root of D: circles at equal distances if D is l2."""
    from matplotlib import colormaps

    rows = of_start(table.part("contour"), start)
    side = int(np.sqrt(len(rows)))
    first, second, value = (rows[name].reshape(side, side) for name in ("first", "second", "value"))
    root = np.sqrt(np.maximum(value, 0.0))
    levels = np.linspace(0.0, float(root.max()), LEVELS + 1)
    shades = colormaps["Blues_r"](np.linspace(0.35, 0.97, LEVELS))
    axes.contourf(first, second, root, levels=levels, colors=shades)
    axes.contour(first, second, root, levels=levels[1:], colors=ON_MAP, linewidths=0.6)
    at: FloatArray = start.alpha * DIRECTION
    axes.plot(*at, marker="o", color=START_COLOUR, markersize=7, zorder=5)
    axes.set(
        aspect="equal",
        xlim=(-WINDOW, WINDOW),
        ylim=(-WINDOW, WINDOW),
        xlabel="predictor $\\tilde w_1$",
        ylabel="predictor $\\tilde w_2$",
    )
