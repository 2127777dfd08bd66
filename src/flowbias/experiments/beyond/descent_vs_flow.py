"""How far gradient descent ends from the limit of gradient flow, and why.

    theta <- theta - h J^T X^T r,    stable at the flow's limit for h < 2 / sharpness there

Below the stable step the distance is proportional to the step. At depth 2 it is explained: a step
multiplies w+ and w- by 1 + x and 1 - x, x = 2 h G, G = -X^T r: it moves log(w+/w-) by 2x + O(h^3),
as the flow does, but shrinks w+ w- by 1 - x^2, where the flow conserves it. So descent ends, up to
O(h^2), at the flow's limit from the smaller start sqrt(w+ w-). [Even et al. 2023, (S)GD over
Diagonal Linear Networks] Above the stable step that limit repels; descent comes to rest where the
loss is flatter, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from flowbias.datasets import SparseRegression
from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.check import at_least, at_most, less_than, more_than, true, within
from flowbias.experiments.curves import (
    as_columns,
    exponent,
    groups,
    never_above,
    sparse_data,
    stacked,
)
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.flows import gradient_descent
from flowbias.flows.descent import Descent, DescentStatus
from flowbias.ground.drawing import DEPTH_COLOURS, INK
from flowbias.ground.typing import Axes, FloatArray
from flowbias.limits import limit
from flowbias.models import DiagonalNet
from flowbias.models._base import Parameters
from flowbias.theory import Reference

# Steps as shares of the stable one, besides its halves: just below it, above it, far above it.
LARGEST_STABLE = 0.9
UNSTABLE = (1.1, 1.3, 1.6, 2.2, 5.0)
# Relative residual at which a descent has come to rest: far below every distance that is drawn.
RESTING_RESIDUAL = 1e-10
# Distances are drawn up to here: nothing rests farther than a few times the length of the limit.
TOP = 300.0


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task per depth and problem, all starts and steps of it."""
    rest = {name: value for name, value in settings.items() if name != "replicates"}
    for depth in (2, 3):
        for replicate in range(int(settings["replicates"])):
            yield "descent", {**rest, "depth": depth, "replicate": replicate}


def compute(task: Task) -> Columns:
    data = sparse_data(task, task.rng())
    halves = 0.5 ** np.arange(task.integer("halvings"), 0, -1)
    shares = [*halves, LARGEST_STABLE, *UNSTABLE]
    depth = task.integer("depth")
    # log10 of alpha^D: the size of the D-th power of a weight at the start.
    log10_starts = np.linspace(0.0, task.number("log10_start_low"), 3)
    nets = {log: DiagonalNet(depth=depth, scale=10.0 ** (log / depth)) for log in log10_starts}
    parts = {log: _descents(net, data, shares) for log, net in nets.items()}
    return stacked(parts, "log10_start")


def _descents(net: DiagonalNet, data: SparseRegression, shares: list[float]) -> Columns:
    """One row per step size, from one start."""
    flow_limit = limit(net, data.X, data.y)
    at_limit = net.parameters(flow_limit.shift + data.X.T @ flow_limit.dual)
    stable_step = 2.0 / _sharpness(net, data.X, at_limit)
    rows = [_descent(net, data, flow_limit.w, share, stable_step) for share in shares]
    return {"share": np.array(shares), **as_columns(rows)}


def _descent(
    net: DiagonalNet, data: SparseRegression, flow_limit: FloatArray, share: float, stable: float
) -> dict[str, float]:
    """Where a descent ends; infinitely far where it does not come to rest."""
    # Unstable descents that are still moving after so many steps count as restless.
    steps = 200_000 if share < 1.0 else 5_000
    run = gradient_descent(
        net, data.X, data.y, step_size=share * stable, max_steps=steps, residual=RESTING_RESIDUAL
    )
    if run.status is not DescentStatus.CONVERGED:
        measures = ("residual", "distance", "sharpness")
        row = {"rests": 0.0, **dict.fromkeys(measures, np.inf)}
    else:
        row = {
            "rests": 1.0,
            "residual": float(run.residual[-1]),
            "distance": _distance(run.w, flow_limit),
            # In units of the largest one at which this step is stable.
            "sharpness": 0.5 * run.step_size * _sharpness(net, data.X, run.parameters),
        }
    row["diverges"] = float(run.status is DescentStatus.DIVERGED)
    return {**row, **_smaller_start(run, data)} if net.depth == 2 else row


def _smaller_start(run: Descent, data: SparseRegression) -> dict[str, float]:
    """The start that explains where a depth-2 descent ended, and how well it does."""
    if run.status is not DescentStatus.CONVERGED:
        return {"explained_distance": np.inf, "largest_start": np.inf, "typical_start": np.inf}
    w_plus, w_minus = run.parameters
    start = np.sqrt(np.abs(w_plus * w_minus))
    explained = limit(DiagonalNet(depth=2, scale=1.0, w0=start), data.X, data.y)
    relative = start / run.model.scale
    return {
        "explained_distance": _distance(run.w, explained.w),
        "largest_start": float(relative.max()),
        "typical_start": float(np.exp(np.mean(np.log(relative)))),
    }


def _sharpness(net: DiagonalNet, X: FloatArray, parameters: Parameters) -> float:
    """Largest eigenvalue of X diag(metric) X^T: that of the loss's Hessian where X w = y."""
    return float(np.linalg.norm((X * net.metric(parameters)) @ X.T, 2))


def _distance(w: FloatArray, target: FloatArray) -> float:
    return float(np.linalg.norm(w - target) / np.linalg.norm(target))


# --- panels ------------------------------------------------------------------------------------


def draw_distance(axes: Axes, table: Table, depth: int) -> None:
    _draw(axes, table.where(depth=depth), "distance", order=1)
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
        # Names keep this ratio from each other.
        height = max(2.3 * height, median[0])
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


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    stable = table.rows(table["share"] < 1.0)
    unstable = table.rows(table["share"] > 1.0)
    shallow = stable.where(depth=2)
    yield from _stable_steps(stable)
    yield from _effective_start(shallow)
    growth = [float(np.min(run["distance"][1:] / run["distance"][:-1])) for run in _runs(stable)]
    last = stable["distance"][stable["share"] == LARGEST_STABLE]
    yield Check(
        "larger-step-ends-farther",
        "the larger a stable step, the farther from the flow's limit the descent ends",
        f"distance grows from step to step by {np.min(growth):.3f} at least; at {LARGEST_STABLE} "
        f"of the stable step it is {np.min(last):.1e} to {np.max(last):.2f}",
        more_than(float(np.min(growth)), 1.0),
    )
    yield from _unstable_steps(stable, unstable)


def _runs(rows: Table) -> Iterator[Table]:
    """The rows of each start of each problem, steps increasing."""
    return groups(rows, "depth", "replicate", "log10_start")


def _stable_steps(stable: Table) -> Iterator[Check]:
    yield never_above(
        "stable-steps-fit",
        "every descent with a stable step fits the data to a relative residual of "
        f"{RESTING_RESIDUAL:g}",
        f"largest residual {{:.1e}} of {len(stable)} descents",
        stable["residual"],
        RESTING_RESIDUAL,
        true(stable["rests"] == 1.0),
    )
    yield _has_exponent(
        1.0,
        stable,
        "distance",
        "proportional-to-step",
        "below the stable step the distance to the flow's limit is proportional to the step",
    )


def _effective_start(shallow: Table) -> Iterator[Check]:
    yield _has_exponent(
        2.0,
        shallow,
        "explained_distance",
        "explained-by-smaller-start",
        "at depth 2 descent ends where the flow from the smaller start √(w₊w₋) does, up to the "
        "square of the step",
    )
    # Thousands of steps, each rounding to 1e-16.
    largest = float(np.max(shallow["largest_start"]))
    shrinks = [float(np.max(np.diff(run["typical_start"]))) for run in _runs(shallow)]
    least = float(np.min(shallow["typical_start"]))
    yield Check(
        "step-shrinks-start",
        "that start is smaller than the true one in every coordinate, and the more so the larger "
        "the step",
        f"largest coordinate {largest:.6f} of the true one, geometric mean down to {least:.3f}",
        at_most(largest, 1.0 + 1e-11),
        less_than(float(np.max(shrinks)), 0.0),
    )


def _has_exponent(order: float, stable: Table, value: str, name: str, claim: str) -> Check:
    """The exponent of the step, over all starts of all problems."""
    # Measured at steps up to this share, where the next order changes it by about as much.
    small_step, error = 0.125, 0.15
    small = stable.rows(stable["share"] <= small_step)
    found = [exponent(run["share"], run[value]) for run in _runs(small)]
    return Check(
        name,
        claim,
        f"exponents {np.min(found):.3f} to {np.max(found):.3f} for {len(found)} starts, steps up "
        f"to {small_step:g}",
        *within(found, order - error, order + error),
    )


def _unstable_steps(stable: Table, unstable: Table) -> Iterator[Check]:
    resting = unstable["sharpness"][unstable["rests"] != 0.0]
    # At rest the sharpness is below 2/h; the residual that is left may hide its last digits.
    largest = float(np.max(resting, initial=0.0))
    yield Check(
        "rest-is-flatter",
        "an unstable step comes to rest only where the loss is flat enough for it: sharpness "
        "below 2/h, less than at the flow's limit",
        f"sharpness h/2 at most {largest:.4f} in {resting.size} descents that came to rest",
        at_most(largest, 1.0 + 1e-6),
        more_than(resting.size, 0),
    )
    nearest = [
        float(np.min(beyond["distance"]) / np.max(below["distance"]))
        for below, beyond in zip(_runs(stable), _runs(unstable), strict=True)
    ]
    yield Check(
        "unstable-steps-end-elsewhere",
        "every unstable step ends farther from the flow's limit than every stable one",
        f"nearest: {np.min(nearest):.2f} times the largest distance of a stable step",
        more_than(float(np.min(nearest)), 1.0),
    )
    diverging = unstable["diverges"][unstable["share"] == max(UNSTABLE)]
    share = float(np.mean(diverging))
    yield Check(
        "large-steps-diverge",
        f"at {max(UNSTABLE):g} times the stable step every descent diverges",
        f"{100.0 * share:.0f} percent of {diverging.size}",
        at_least(share, 1.0),
    )


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
        Preset.SMOKE: {
            "n": 20,
            "d": 100,
            "sparsity": 3,
            "noise_var": 0.01,
            "log10_start_low": -1,
            "halvings": 4,
            "replicates": 2,
        },
        Preset.LAPTOP: {"log10_start_low": -2, "halvings": 5, "replicates": 15},
        Preset.PAPER: {"replicates": 51},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Depth 2", partial(draw_distance, depth=2)),
        Panel("b", "Depth 3", partial(draw_distance, depth=3)),
        Panel("c", "Depth 2, explained by a smaller start", draw_explained),
    ),
    check=check,
)
