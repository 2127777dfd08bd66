"""What one neuron minimizes around its start, on a grid of predictors with two coordinates.

    D(v) = qhat(||v||) - qhat(alpha) + <z, v - v0>,    v0 = alpha (0.6, 0.8),
    qhat(x) = (x^2 - delta a^2/2)/a,    a^2 = sqrt(x^2 + delta^2/4) + delta/2,    z = -3/2 v0/a(0)

[azulay2021, Theorem 2], whose q_{delta, v0} this is up to a constant; the paper writes 1/a as
sqrt(a^2 - delta)/x. alpha = |a| ||w|| is its scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flowbias.experiments._base import Settings, Task
from flowbias.experiments.table import Columns, Table
from flowbias.ground.look import RED
from flowbias.ground.typing import FloatArray
from flowbias.models import Neuron

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIRECTION = np.array([0.6, 0.8])
LEVELS = 9
#: Lines and words on the map, which is as light on a dark page as on a light one.
ON_MAP = "#10243a"


class NeuronStart(NamedTuple):
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
BY_SHAPE = (NeuronStart(2.0, 0.0), NeuronStart(2.0, 0.2), NeuronStart(2.0, 0.8))
BY_SCALE = (NeuronStart(0.01, 0.1), NeuronStart(1.0, 0.1), NeuronStart(2.5, 0.1))
STARTS = BY_SHAPE + BY_SCALE


def contour_tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task a panel."""
    grid = {key: settings[key] for key in ("window", "side")}
    for start in STARTS:
        yield "contour", {"alpha": start.alpha, "shape": start.shape, **grid}


def start_of(task: Task) -> NeuronStart:
    return NeuronStart(task.number("alpha"), task.number("shape"))


def contour(task: Task) -> Columns:
    """D on the grid up to the window's coordinate, row by row."""
    window = task.number("window")
    ticks = np.linspace(-window, window, task.integer("side"))
    first, second = (grid.ravel() for grid in np.meshgrid(ticks, ticks))
    return {"first": first, "second": second, "value": around(start_of(task), first, second)}


def around(start: NeuronStart, first: FloatArray, second: FloatArray) -> FloatArray:
    """D at all points at once."""
    x, y = start.alpha * DIRECTION
    delta = start.neuron.potential.delta
    a0, q0 = _outer_weight_and_qhat(delta, np.array(start.alpha))
    _, q = _outer_weight_and_qhat(delta, np.hypot(first, second))
    return np.asarray(q - q0 - 1.5 * (x * (first - x) + y * (second - y)) / a0)


def _outer_weight_and_qhat(delta: float, length: FloatArray) -> tuple[FloatArray, FloatArray]:
    squared = np.hypot(length, 0.5 * delta) + 0.5 * delta
    a = np.sqrt(squared)
    # Where a = 0 there is no predictor, and qhat is 0.
    return a, np.divide(length**2 - 0.5 * delta * squared, a, out=np.zeros_like(a), where=a > 0.0)


def of_start(table: Table, start: NeuronStart) -> Table:
    return table.where(alpha=start.alpha, shape=start.shape)


def draw_contours(axes: Axes, table: Table, start: NeuronStart) -> None:
    """Level sets, equally spaced in the square root of D: circles at equal distances if D is l2."""
    from matplotlib import colormaps

    rows = of_start(table.part("contour"), start)
    side, window = int(np.sqrt(len(rows))), float(rows["window"][0])
    first, second, value = (rows[name].reshape(side, side) for name in ("first", "second", "value"))
    root = np.sqrt(np.maximum(value, 0.0))
    levels = np.linspace(0.0, float(root.max()), LEVELS + 1)
    shades = colormaps["Blues_r"](np.linspace(0.35, 0.97, LEVELS))
    axes.contourf(first, second, root, levels=levels, colors=shades)
    axes.contour(first, second, root, levels=levels[1:], colors=ON_MAP, linewidths=0.6)
    at: FloatArray = start.alpha * DIRECTION
    axes.plot(*at, marker="o", color=RED, markersize=7, zorder=5)
    axes.set(
        aspect="equal",
        xlim=(-window, window),
        ylim=(-window, window),
        xlabel="predictor $\\tilde w_1$",
        ylabel="predictor $\\tilde w_2$",
    )
    # The same numbers on both axes, whatever room each has.
    axes.set_yticks(axes.get_xticks())
