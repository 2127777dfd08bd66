"""What one neuron minimizes, by scale and shape of its start.  [azulay2021, Figure 7.2]

    D(v) = qhat(||v||) - qhat(alpha) + <z, v - v0>,    v0 = alpha (0.6, 0.8),
    qhat(x) = (x^2 - delta a^2/2)/a,    a^2 = sqrt(x^2 + delta^2/4) + delta/2,    z = -3/2 v0/a(0)

on a grid of predictors with two coordinates: Theorem 2, whose q_{delta, v0} this is up to a
constant; the paper writes 1/a as sqrt(a^2 - delta)/x. alpha = |a| ||w|| is its scale.

Checked are the statements of section 7.2 that the six panels illustrate: s -> 1 gives the l2
distance from the start, alpha -> 0 the l2 norm, alpha -> infinity the norm of

    B = I - (1 - s)^2 / (2 (1 + s^2)) u u^T,    u the orientation of the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_most, less_than, more_than
from flowbias.experiments.table import Columns, Table
from flowbias.ground.drawing import RED
from flowbias.ground.typing import Axes, FloatArray
from flowbias.models import Neuron
from flowbias.theory import Reference

DIRECTION = np.array([0.6, 0.8])
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


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """The level sets, and the same close to the larger starts."""
    yield from contour_tasks(settings)
    for start in STARTS:
        if start.alpha >= 1.0:
            yield "near", {"alpha": start.alpha, "shape": start.shape}


def compute(task: Task) -> Columns:
    """Level sets over the paper's window, or near the start."""
    if task.part == "contour":
        return contour(task)
    start = start_of(task)
    # Points within this share of alpha measure the curvature at the start; it changes by as much.
    reach = 0.35 * start.alpha * np.linspace(-1.0, 1.0, 21)
    away = np.stack([grid.ravel() for grid in np.meshgrid(reach, reach)])
    first, second = start.alpha * DIRECTION[:, None] + away[:, np.hypot(*away) <= reach[-1]]
    return {"first": first, "second": second, "value": around(start, first, second)}


def contour_tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task a panel."""
    grid = picked(settings, "window", "side")
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


# --- panels ------------------------------------------------------------------------------------


def of_start(table: Table, start: NeuronStart) -> Table:
    return table.where(alpha=start.alpha, shape=start.shape)


def draw_contours(axes: Axes, table: Table, start: NeuronStart) -> None:
    """Level sets, equally spaced in the square root of D: circles at equal distances if D is l2."""
    from matplotlib import colormaps

    rows = of_start(table.part("contour"), start)
    side, window = int(np.sqrt(len(rows))), float(rows["window"][0])
    first, second, value = (rows[name].reshape(side, side) for name in ("first", "second", "value"))
    root = np.sqrt(np.maximum(value, 0.0))
    levels = np.linspace(0.0, float(root.max()), 10)
    shades = colormaps["Blues_r"](np.linspace(0.35, 0.97, len(levels) - 1))
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


# --- checks ------------------------------------------------------------------------------------


def _points(
    table: Table, start: NeuronStart, part: str = "contour"
) -> tuple[FloatArray, FloatArray]:
    rows = of_start(table.part(part), start)
    return np.stack([rows["first"], rows["second"]], axis=1), rows["value"]


def _off_quadratic(
    table: Table, start: NeuronStart, metric: FloatArray, center: FloatArray
) -> float:
    """Relative misfit of D by its best multiple of (v - center)^T metric (v - center)."""
    points, value = _points(table, start)
    away = points - center
    form = np.einsum("ij,jk,ik->i", away, metric, away)
    best = float(form @ value / (form @ form))
    return float(np.linalg.norm(value - best * form) / np.linalg.norm(value))


def _kernel_metric(start: NeuronStart) -> FloatArray:
    s = start.shape
    along = (1.0 - s) ** 2 / (2.0 * (1.0 + s**2))
    return np.eye(2) - along * np.outer(DIRECTION, DIRECTION)


def _off_radial(table: Table, start: NeuronStart) -> float:
    """What a parabola in ||v|| leaves of D on each ring around 0, relative; the worst ring."""
    points, value = _points(table, start)
    length = np.linalg.norm(points, axis=1)
    spreads = []
    window = float(np.max(points))
    for radius in (0.5 * window, 0.75 * window):
        ring = np.abs(length - radius) < 0.05 * window
        parabola = np.polynomial.Polynomial.fit(length[ring], value[ring], 2)
        left = value[ring] - parabola(length[ring])
        spreads.append(float(np.std(left) / np.mean(value[ring])))
    return max(spreads)


def _curvature_ratio(table: Table, start: NeuronStart) -> float:
    """Curvature of D at the start along its orientation, over that across, by least squares."""
    points, value = _points(table, start, "near")
    away = points - start.alpha * DIRECTION
    along, across = away @ DIRECTION, away @ np.array([-DIRECTION[1], DIRECTION[0]])
    terms = np.stack([along**2, across**2, along**3, along * across**2], axis=1)
    coefficients = np.linalg.lstsq(terms, value, rcond=None)[0]
    return float(coefficients[0] / coefficients[1])


def check(table: Table) -> Iterator[Check]:
    """What the caption and section 7.2 say."""
    # About the start, or about zero.
    distances = []
    for start in STARTS:
        points, value = _points(table, start)
        cell = 2.0 * np.max(points) / (np.sqrt(len(value)) - 1.0)
        lowest = points[np.argmin(value)]
        distances.append(float(np.abs(lowest - start.alpha * DIRECTION).max()) / cell)
        # A difference of values that are summed to 16 digits.
        is_sound = np.isfinite(value).all() and value.min() >= -1e-14 * value.max()
        distances[-1] += 0.0 if is_sound else np.inf
    yield Check(
        "least-at-start",
        "the start is the least point of its own potential",
        f"lowest grid point at most {max(distances):.2f} cells from the start",
        at_most(max(distances), 1.0),
    )
    misfits = [
        _off_quadratic(table, start, np.eye(2), start.alpha * DIRECTION) for start in BY_SHAPE
    ]
    yield Check(
        "shape-gives-distance",
        "as s grows towards 1 the potential becomes the l2 distance from the start",
        f"misfit by a multiple of it: {_at_shapes(misfits)}",
        less_than(misfits[1:], 0.8 * np.array(misfits[:-1])),
        less_than(misfits[-1], 0.05),
    )
    spreads = [_off_radial(table, start) for start in BY_SCALE]
    yield Check(
        "small-scale-gives-norm",
        "as the scale vanishes the potential depends on the l2 norm alone",
        f"spread over circles around 0: {_at_scales(spreads, '.2f')}",
        # The linear term of D is 3/2 ||w(0)|| = 0.14 against ||v||^(1/2) >= 1.4 of its gradient.
        less_than(spreads[0], 0.1),
        less_than(spreads[0], 0.3 * min(spreads[1:])),
    )
    # Where the potential is that of the tangent kernel, and where it is not.
    starts = [start for start in STARTS if start.alpha >= 1.0]
    errors = []
    for start in starts:
        s = start.shape
        predicted = 1.0 - (1.0 - s) ** 2 / (2.0 * (1.0 + s**2))
        errors.append(abs(_curvature_ratio(table, start) / predicted - 1.0))
    yield Check(
        "kernel-norm-near-start",
        "near the start the level sets are ellipses of B: 1 - (1 - s)²/(2 (1 + s²)) along u",
        f"curvature along u over that across, off by {max(errors):.3f} at most",
        # Third derivatives over 0.35, at alpha >= 1.
        less_than(max(errors), 0.1),
    )
    misfits = [
        _off_quadratic(table, start, _kernel_metric(start), start.alpha * DIRECTION)
        for start in BY_SCALE
    ]
    yield Check(
        "not-kernel-in-between",
        "at intermediate scales the potential is not that of a kernel; it comes closer as α grows",
        f"misfit by a multiple of the B-norm from the start: {_at_scales(misfits, '.3f')}",
        more_than(misfits[1], 0.05),
        less_than(misfits[2], misfits[1]),
    )


def _at_shapes(values: list[float]) -> str:
    pairs = zip(values, BY_SHAPE, strict=True)
    return ", ".join(f"{value:.3f} at s = {start.shape:g}" for value, start in pairs)


def _at_scales(values: list[float], form: str) -> str:
    pairs = zip(values, BY_SCALE, strict=True)
    return ", ".join(f"{value:{form}} at α = {start.alpha:g}" for value, start in pairs)


EXPERIMENT = Experiment(
    name="azulay-fig7-2",
    title="What one neuron minimizes",
    reference=Reference("azulay2021", "Figure 7.2"),
    summary=(
        "Level sets of the function of the predictor a w that gradient flow from one linear neuron "
        "minimizes among the predictors that fit, for starts (red) of six scales and shapes. They "
        "are equally spaced in the square root: circles at equal distances would be an l2 distance."
    ),
    paper_says=(
        "As the shape tends to 1 the function becomes the l2 distance from the start; for a small "
        "scale it is a function of the l2 norm; in between, and for intermediate scales, it is "
        "neither of these nor the norm of any kernel."
    ),
    settings={
        Preset.SMOKE: {"window": 10.0, "side": 61},
        Preset.LAPTOP: {"side": 121},
        Preset.PAPER: {"side": 161},
    },
    tasks=tasks,
    compute=compute,
    panels=tuple(
        Panel(name, start.title, partial(draw_contours, start=start))
        for name, start in zip("abcdef", STARTS, strict=True)
    ),
    check=check,
)
