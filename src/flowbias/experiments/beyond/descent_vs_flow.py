"""How far gradient descent ends from the limit of gradient flow, and why.

Below the step that is stable at the flow's limit the distance is proportional to the step. At depth
2 it is explained: a finite step acts like a smaller start. Above the stable step that limit repels;
descent comes to rest where the loss is flatter, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset
from flowbias.experiments.beyond.descents import (
    LARGEST_STABLE,
    RESIDUAL,
    UNSTABLE,
    compute,
    tasks,
)
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.table import Summary, Table
from flowbias.ground.look import DEPTH_COLOURS, INK
from flowbias.ground.typing import FloatArray
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Exponents are measured at steps up to this share, where the next order changes them by about as
# much.
SMALL_STEP, EXPONENT_ERROR = 0.125, 0.15
# Distances are drawn up to here: nothing rests farther than a few times the length of the limit.
TOP = 300.0
# Names of lines keep this ratio from each other.
APART = 2.3


def draw_depth_2(axes: Axes, table: Table) -> None:
    _draw(axes, table.where(depth=2), "distance", order=1)
    axes.set_ylabel("relative distance to the flow's limit")


def draw_depth_3(axes: Axes, table: Table) -> None:
    _draw(axes, table.where(depth=3), "distance", order=1)
    axes.set_ylabel("relative distance to the flow's limit")


def draw_explained(axes: Axes, table: Table) -> None:
    _draw(axes, table.where(depth=2), "explained_distance", order=2)
    axes.set_ylabel("distance to the flow's limit\nfrom the smaller start √(w₊w₋)")


def _draw(axes: Axes, rows: Table, value: str, order: int) -> None:
    """Distance against step size, one line per start, and the power of the step as dotted lines."""
    depth = int(rows["depth"][0])
    colour = DEPTH_COLOURS[depth]
    height = 0.0
    for log10_start in rows.levels("log10_start")[::-1]:
        x, median, low, high = rows.where(log10_start=log10_start).summary(value, by="share")
        seen = np.isfinite(median)
        band = Summary(x[seen], median[seen], low[seen], np.minimum(high[seen], TOP))
        draw_band(axes, band.x, band, color=colour, marker="o", markersize=4)
        name = f"$α^{depth}$ = {10.0**log10_start:.2g}"
        height = max(APART * height, median[0])
        name_line(axes, name, x[0], height, side="left", colour=colour)
        law = median[0] * (x[x <= 0.5] / x[0]) ** order
        axes.plot(x[x <= 0.5], law, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.set(xscale="log", yscale="log", xlim=(x[0] / 7.0, 2.2 * x[-1]), ylim=(None, TOP))
    _mark_restless(axes, rows)
    reference_line(axes, x=1.0, text="unstable")
    ticks = (x[0], 0.25, 1.0, 4.0)
    axes.set_xticks(ticks, [f"1/{1.0 / tick:g}" if tick < 1.0 else f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("step size h, in units of the stable step")


def _mark_restless(axes: Axes, rows: Table) -> None:
    """Crosses on top where most descents do not come to rest."""
    share, rests, _, _ = rows.summary("rests", by="share")
    lost = share[rests == 0.0]
    axes.plot(lost, np.full(lost.size, 0.15 * TOP), "x", color=INK, markersize=8)
    if lost.size:
        name_line(axes, "no rest", lost[-1], 0.15 * TOP, side="below")


def check(table: Table) -> list[Check]:
    stable = table.rows(table["share"] < 1.0)
    unstable = table.rows(table["share"] > 1.0)
    shallow = stable.where(depth=2)
    return [
        _fit(stable),
        _proportional(stable),
        _explained(shallow),
        _smaller(shallow),
        _largest_step_farthest(stable),
        _flatter(unstable),
        _elsewhere(stable, unstable),
        _diverges(table.rows(table["share"] == max(UNSTABLE))),
    ]


def _runs(rows: Table) -> Iterator[Table]:
    """The rows of each start of each problem, steps increasing."""
    names = ("depth", "replicate", "log10_start")
    keys = np.stack([rows[name] for name in names], axis=1)
    for key in np.unique(keys, axis=0):
        yield rows.rows(np.all(keys == key, axis=1))


def _fit(stable: Table) -> Check:
    worst = float(np.max(stable["residual"]))
    return Check(
        "stable-steps-fit",
        f"every descent with a stable step fits the data to a relative residual of {RESIDUAL:g}",
        f"largest residual {worst:.1e} of {len(stable)} descents",
        worst <= RESIDUAL and bool(np.all(stable["rests"] == 1.0)),
    )


def _proportional(stable: Table) -> Check:
    low, high, count = _exponents(stable, "distance")
    return Check(
        "proportional-to-step",
        "below the stable step the distance to the flow's limit is proportional to the step",
        f"exponents {low:.3f} to {high:.3f} for {count} starts, steps up to {SMALL_STEP:g}",
        low >= 1.0 - EXPONENT_ERROR and high <= 1.0 + EXPONENT_ERROR,
    )


def _explained(shallow: Table) -> Check:
    low, high, count = _exponents(shallow, "explained_distance")
    return Check(
        "explained-by-smaller-start",
        "at depth 2 descent ends where the flow from the smaller start √(w₊w₋) does, up to the "
        "square of the step",
        f"exponents {low:.3f} to {high:.3f} for {count} starts, steps up to {SMALL_STEP:g}",
        low >= 2.0 - EXPONENT_ERROR and high <= 2.0 + EXPONENT_ERROR,
    )


def _exponents(stable: Table, value: str) -> tuple[float, float, int]:
    """The least and the largest exponent of the step, over all starts of all problems."""
    small = stable.rows(stable["share"] <= SMALL_STEP)
    found = [_slope(run["share"], run[value]) for run in _runs(small)]
    return float(np.min(found)), float(np.max(found)), len(found)


def _slope(x: FloatArray, y: FloatArray) -> float:
    """The exponent of the power law through the points."""
    if not np.all((y > 0.0) & (y < np.inf)):
        return np.nan
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _smaller(shallow: Table) -> Check:
    # Thousands of steps, each rounding to 1e-16.
    largest = float(np.max(shallow["largest_start"]))
    shrinks = [float(np.max(np.diff(run["typical_start"]))) for run in _runs(shallow)]
    least = float(np.min(shallow["typical_start"]))
    return Check(
        "step-shrinks-start",
        "that start is smaller than the true one in every coordinate, and the more so the larger "
        "the step",
        f"largest coordinate {largest:.6f} of the true one, geometric mean down to {least:.3f}",
        largest <= 1.0 + 1e-11 and float(np.max(shrinks)) < 0.0,
    )


def _largest_step_farthest(stable: Table) -> Check:
    growth = [float(np.min(run["distance"][1:] / run["distance"][:-1])) for run in _runs(stable)]
    last = stable["distance"][stable["share"] == LARGEST_STABLE]
    return Check(
        "larger-step-ends-farther",
        "the larger a stable step, the farther from the flow's limit the descent ends",
        f"distance grows from step to step by {np.min(growth):.3f} at least; at {LARGEST_STABLE} "
        f"of the stable step it is {np.min(last):.1e} to {np.max(last):.2f}",
        float(np.min(growth)) > 1.0,
    )


def _flatter(unstable: Table) -> Check:
    resting = unstable["sharpness"][unstable["rests"] != 0.0]
    # At rest the sharpness is below 2/h; the residual that is left may hide its last digits.
    largest = float(np.max(resting, initial=0.0))
    return Check(
        "rest-is-flatter",
        "an unstable step comes to rest only where the loss is flat enough for it: sharpness "
        "below 2/h, less than at the flow's limit",
        f"sharpness h/2 at most {largest:.4f} in {resting.size} descents that came to rest",
        largest <= 1.0 + 1e-6 and resting.size > 0,
    )


def _elsewhere(stable: Table, unstable: Table) -> Check:
    nearest = [
        float(np.min(beyond["distance"]) / np.max(below["distance"]))
        for below, beyond in zip(_runs(stable), _runs(unstable), strict=True)
    ]
    return Check(
        "unstable-steps-end-elsewhere",
        "every unstable step ends farther from the flow's limit than every stable one",
        f"nearest: {np.min(nearest):.2f} times the largest distance of a stable step",
        float(np.min(nearest)) > 1.0,
    )


def _diverges(largest: Table) -> Check:
    share = float(np.mean(largest["diverges"]))
    return Check(
        "large-steps-diverge",
        f"at {max(UNSTABLE):g} times the stable step every descent diverges",
        f"{100.0 * share:.0f} percent of {len(largest)}",
        share == 1.0,
    )


_SIZES = {"n": 20, "d": 100, "sparsity": 3, "noise_var": 0.01}

EXPERIMENT = Experiment(
    name="descent-vs-flow",
    title="Gradient descent beside gradient flow",
    reference=Reference("flowbias", "src/flowbias/flows/descent.py"),
    summary=(
        "Gradient descent with step size h, run until it fits (n = 20, d = 100), against the exact "
        "limit of gradient flow from the same start. The unit of h is the largest step that is "
        "stable at that limit, 2 over the sharpness of the loss. Dotted: proportional to h in (a) "
        "and (b), to h² in (c). Beyond the vertical line descents bounce to a flatter place or "
        "never rest. (c) At depth 2 a finite step acts like a smaller start: descent ends close to "
        "the limit of the flow that starts at √(w₊w₋) as the descent left it."
    ),
    paper_says=(
        "The papers prove what the flow does and train with small steps. Our claim beyond them: "
        "the distance is proportional to the step, several percent at an ordinary step and a small "
        "start; unstable steps find other solutions altogether. Even et al. (2023) trace the "
        "effect at depth 2 to an effective start."
    ),
    settings={
        Preset.SMOKE: {**_SIZES, "log10_start_low": -1, "halvings": 4, "replicates": 2},
        Preset.LAPTOP: {**_SIZES, "log10_start_low": -2, "halvings": 5, "replicates": 15},
        Preset.PAPER: {**_SIZES, "log10_start_low": -2, "halvings": 5, "replicates": 51},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Depth 2", draw_depth_2),
        Panel("b", "Depth 3", draw_depth_3),
        Panel("c", "Depth 2, explained by a smaller start", draw_explained),
    ),
    check=check,
)
