"""Convergence from starts that differ in imbalance alone.

[min2021, Figure 3, and Figure 6, which shows the same]: d = 500, n = 100, m = 1, width 500, all
singular values of X are 1. U = su U0, V = sv V0 with su sv = 0.01: one product, three imbalances,
and the balanced start with the same product.

(a) the loss  (b) the loss with Theorem 3  (c) the rate -L'/L with Proposition 1
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than, true
from flowbias.experiments.curves import listed, stacked
from flowbias.experiments.drawing import name_line, say
from flowbias.experiments.min.loss_and_bounds import (
    DescentProblem,
    check_bounds,
    check_descent,
    check_drift,
    measured_descent,
    measured_flow,
    runs,
)
from flowbias.experiments.table import Columns, Table
from flowbias.ground.drawing import BLUE, DEPTH_COLOURS, RED
from flowbias.ground.typing import Axes, FloatArray
from flowbias.models import LinearNet
from flowbias.theory import Reference

#: Standard deviations of the entries of U and V; their product is the same.
SCALES = {"case 1": (0.1, 0.1), "case 2": (0.5, 0.02), "case 3": (0.05, 0.2)}
BALANCED = "balanced"
STARTS = (*SCALES, BALANCED)
TIME_STEP = 5e-4
_TIME = f"time t, in steps of {TIME_STEP:g}"
_COLOURS = {"case 1": BLUE, "case 2": RED, "case 3": DEPTH_COLOURS[5], BALANCED: DEPTH_COLOURS[4]}
# Early: until the loss has fallen to this share of the first.
EARLY = 0.01


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One replicate is one data set with one U0, V0; the flow from all starts, then descent."""
    sizes = picked(settings, "d", "n", "width")
    for replicate in range(int(settings["replicates"])):
        yield "flow", {**sizes, "points": settings["points"], "replicate": replicate}
    for start in STARTS:
        yield "descent", {**sizes, "steps": settings["steps"], "start": start}


def compute(task: Task) -> Columns:
    """The loss and its bounds along the flow; the loss of gradient descent beside that of flow."""
    data, nets = _problem(task)
    if task.part == "descent":
        return measured_descent(nets[task.text("start")], data, task.integer("steps"), samples=40)
    times = _times(task.integer("points"), task.integer("n"))
    return stacked({name: measured_flow(net, data, times) for name, net in nets.items()}, "start")


def _problem(task: Task) -> tuple[DescentProblem, dict[str, LinearNet]]:
    """[min2021, appendix A.2]."""
    rng = task.rng()
    n, d, width = (task.integer(name) for name in ("n", "d", "width"))
    left, _, right = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    X = left @ right
    planted = rng.standard_normal((d, 1)) / np.sqrt(d)
    Y = X @ planted + 0.01 * rng.standard_normal((n, 1))
    U0, V0 = rng.standard_normal((d, width)), rng.standard_normal((1, width))
    nets = {name: LinearNet(su * U0, sv * V0) for name, (su, sv) in SCALES.items()}
    su, sv = SCALES["case 1"]
    nets[BALANCED] = LinearNet.balanced(su * sv * U0 @ V0.T, X, width=width, rng=rng)
    return DescentProblem(X, Y, 2.0 / n, TIME_STEP), nets


def _times(points: int, n: int) -> FloatArray:
    """From the fastest rate of any start to what the balanced one needs; rates are of order 1/n."""
    return np.concatenate([[0.0], np.geomspace(2e-5 * n, 20.0 * n, points)])


# --- panels ------------------------------------------------------------------------------------


def _shown(table: Table) -> Iterator[tuple[str, Table]]:
    """The first data set: one run per start, as in the paper."""
    rows = table.part("flow").where(replicate=0)
    return ((start, rows.where(start=start)) for start in STARTS)


def _iterations(rows: Table) -> Any:
    return rows["t"] / TIME_STEP


def draw_loss(axes: Axes, table: Table) -> None:
    """Until case 1, the slowest with a guarantee, has all but a hundredth of its loss behind it."""
    end = 0.0
    # Fastest first, from the top: the order of the curves from left to right.
    heights = dict(zip(("case 2", "case 3", "case 1", BALANCED), (0.9, 0.8, 0.7, 0.6), strict=True))
    for start, rows in _shown(table):
        x = 1e-3 * _iterations(rows)
        axes.plot(x, rows["loss"], color=_COLOURS[start])
        end = x[rows["loss"] > EARLY * rows["loss"][0]][-1] if start == "case 1" else end
        text = (
            start if start == BALANCED else f"{start}: {SCALES[start][0]:g}, {SCALES[start][1]:g}"
        )
        say(axes, text, 0.98, heights[start], colour=_COLOURS[start], ha="right")
    axes.set(xlim=(0.0, end), ylim=(0.0, None))
    axes.set(xlabel=f"{_TIME}, thousands", ylabel="loss L = ‖Y − XUVᵀ‖²/n")


# Where the name of a line stands: the share of the first loss, and the side.
_PLACES = {"case 1": (1e-7, "left"), "case 2": (1e-11, "right"), "case 3": (1e-8, "right")}


def draw_log_loss(axes: Axes, table: Table) -> None:
    end = 0.0
    for start, rows in _shown(table):
        x, loss = 1e-3 * _iterations(rows), rows["loss"] / rows["loss"][0]
        colour = _COLOURS[start]
        axes.plot(x, loss, color=colour)
        if start == BALANCED:
            k = int(np.searchsorted(x, 0.5 * end))
            name_line(axes, start, x[k], loss[k], side="above", colour=colour)
            continue
        bound = rows["loss_bound"] / rows["loss"][0]
        axes.plot(x, bound, color=colour, linewidth=1.2, linestyle="--")
        share, side = _PLACES[start]
        k = min(int(np.searchsorted(-loss, -share)), len(x) - 1)
        # Lines fall: off them is above on their right, below on their left.
        off = {"right": 3.0, "left": 0.3}[side]
        name_line(axes, start, x[k], off * loss[k], side=side, colour=colour)
        end = max(end, x[-1])
    axes.set(yscale="log", xlim=(0.0, 0.8 * end), ylim=(1e-12, 3.0))
    say(axes, "dashed: Theorem 3", 0.98, 0.04, ha="right")
    axes.set(xlabel=f"{_TIME}, thousands", ylabel="loss L, relative to the first")


def draw_rate(axes: Axes, table: Table) -> None:
    for start, rows in _shown(table):
        # Time 0 has no place on a logarithmic axis.
        x, bound = _iterations(rows), rows["rate_bound"]
        axes.plot(x[1:], rows["rate"][1:], color=_COLOURS[start])
        axes.plot(x[1:], bound[1:], color=_COLOURS[start], linewidth=1.2, linestyle="--")
        name_line(axes, start, x[-1], rows["rate"][-1], colour=_COLOURS[start])
    axes.set(xscale="log", yscale="log", xlabel=_TIME, ylabel="rate −L′/L")
    axes.set_xlim(right=40.0 * float(x[-1]))  # room for the names
    say(axes, "dashed: Proposition 1", 0.98, 0.98, ha="right", va="top")


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """What the caption and section 5.2 say about the figure."""
    rows = table.part("flow")
    first = rows.rows(rows["t"] == 0.0)
    apart = 0.0
    for replicate in first.levels("replicate"):
        losses = first.where(replicate=replicate)["loss"]
        apart = float(np.maximum(apart, np.max(np.abs(losses / losses[0] - 1.0))))
    complete = len(first) == len(STARTS) * first.levels("replicate").size
    yield Check(
        "one-product",
        "all starts have the same product U Vᵀ, hence the same loss at time 0",
        f"first losses differ by at most {apart:.1e}",
        at_most(apart, 1e-10),
        true(complete),
    )
    yield from check_bounds(rows)
    # Times to a hundredth of the first loss, and levels, start by start.
    ordered, faster = True, []
    for replicate in rows.levels("replicate"):
        parts = [rows.where(replicate=replicate, start=start) for start in STARTS]
        parts.sort(key=lambda part: float(part["level"][0]))
        times = np.array([_time_to(part, 0.01) for part in parts])
        levels = np.array([part["level"][0] for part in parts])
        # Levels of different starts differ by far more than rounding; balance is exact to it.
        in_order = (np.diff(times) < 0.0).all() and (np.diff(levels) > 0.1 * levels[1:]).all()
        ordered &= bool(in_order and parts[0]["start"][0] == BALANCED)
        faster.append(times[0] / times)
    median = np.median(faster, axis=0)
    yield Check(
        "imbalance-speeds-up",
        "the higher the level of imbalance, the faster; the balanced start is the slowest",
        f"in order of the level, the loss falls to 1% {listed(median)} times as fast as from "
        "balance",
        true(ordered),
    )
    yield from _guarantees(rows)
    yield check_drift(rows)
    yield check_descent(table.part("descent"), TIME_STEP * float(np.max(rows["rate"])))


def _time_to(part: Table, share: float) -> float:
    reached = part["loss"] <= share * part["loss"][0]
    return float(part["t"][np.argmax(reached)]) if reached.any() else np.nan


def _guarantees(rows: Table) -> Iterator[Check]:
    # A bound is reasonably good where it accounts for half of the rate. (Balanced starts with m = 1
    # are never below that: the rate is 2 s (1 + cos^2), the bound 2 s.)
    good = 0.5
    share = rows["rate_bound"] / rows["rate"]
    first = np.concatenate([np.full(len(part), part["loss"][0]) for part in runs(rows)])
    early = (rows["loss"] > EARLY * first) & (rows["start"] == "case 2")
    least = float(np.min(share[~early]))
    yield Check(
        "proposition-1-is-good",
        "Proposition 1 is reasonably close to the rate, except early in case 2",
        f"elsewhere at least {least:.0%} of the rate (good: from {good:.0%} on)",
        at_least(least, good),
    )
    first_shares = share[early & (rows["t"] == 0.0)]
    most = float(np.max(first_shares)) if first_shares.size else np.nan
    yield Check(
        "case-2-is-not-bounded-well-early",
        "at the start of case 2 the bound is far below the rate",
        f"at most {most:.0%} of the rate at time 0",
        less_than(most, good),
    )
    margin = float(np.max(rows["margin"][rows["t"] == 0.0]))
    balanced = runs(rows.rows(rows["start"] == BALANCED))
    falls = [np.max(1.0 - part["loss_bound"] / part["loss_bound"][0]) for part in balanced]
    guaranteed = float(np.max(falls))
    yield Check(
        "no-margin-no-bound-for-balance",
        "a random product has no margin, so Theorem 3 says nothing about the balanced start",
        f"largest margin {margin:.2g}; the bound on the balanced loss falls by {guaranteed:.1e}",
        # A level of rounding size is not exactly zero.
        less_than(margin, 0.0),
        at_most(guaranteed, 1e-9),
    )


EXPERIMENT = Experiment(
    name="min-fig3",
    title="Imbalance speeds up convergence",
    reference=Reference("min2021", "Figures 3 and 6"),
    summary=(
        "Linear regression by a two-layer linear network Y ~ XUVᵀ with 500 features, 100 samples "
        "and 500 hidden units; all singular values of X are 1. The starts U = s₁U₀, V = s₂V₀ have "
        "the same product and differ in their imbalance UᵀU − VᵀV, which gradient flow conserves: "
        "case 1 has (s₁, s₂) = (0.1, 0.1), case 2 (0.5, 0.02), case 3 (0.05, 0.2). The fourth "
        "start has the same product and no imbalance. One run per start is drawn."
    ),
    paper_says=(
        "The higher the level of imbalance, the faster the loss falls; the balanced start is the "
        "slowest, and has no guarantee, since a random product has no margin. The lower bound on "
        "the rate is reasonably good but for case 2 early in training."
    ),
    settings={
        Preset.SMOKE: {
            "d": 200,
            "n": 40,
            "width": 200,
            "replicates": 2,
            "points": 50,
            "steps": 4000,
        },
        Preset.LAPTOP: {
            "d": 500,
            "n": 100,
            "width": 500,
            "replicates": 5,
            "points": 150,
            "steps": 40_000,
        },
        Preset.PAPER: {"replicates": 21, "points": 200, "steps": 200_000},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Same product, different speed", draw_loss),
        Panel("b", "Imbalance guarantees a rate", draw_log_loss),
        Panel("c", "The rate and its lower bound", draw_rate),
    ),
    check=check,
)
