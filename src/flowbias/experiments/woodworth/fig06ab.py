"""ReLU networks on the circle leave the kernel regime as the scale of their start falls.

[woodworth2020, Figure 6 (a, b); B.2]: depths 2, 3 and 5, against the depth-adjusted scale alpha^D.

(a) test error of the trained network  (b) how far its tangent features have turned

The paper's text calls alpha = 1 the uniform He start as it comes out of the box. He's rule draws
from U(-a, a) with a = sqrt(6 / n_in); what comes out of torch's box for a `Linear` layer is sqrt(6)
times smaller, alpha^D = 6^(-D/2). Both are computed and marked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Experiment, Panel, Task, needs_torch, torch_device
from flowbias.experiments.check import Check, at_least, at_most, less_than, within
from flowbias.experiments.curves import by_replicate, crossing
from flowbias.experiments.drawing import draw_band, name_line, reference_line, say
from flowbias.experiments.settings import Preset, Settings, picked
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.circle_networks import (
    Circle,
    by_depth,
    by_flow_and_descent,
    draw_circles,
    network,
    single_network,
)
from flowbias.ground.drawing import DEPTH_COLOURS
from flowbias.ground.typing import Axes, FloatArray
from flowbias.theory import Reference

DEPTHS = (2, 3, 5)
NETWORKS = {"doubled": network, "single": single_network}


def default_level(depth: int) -> float:
    """log10 of alpha^D for torch's own start, alpha = 1 / sqrt(6)."""
    return -0.5 * depth * math.log10(6.0)


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task trains some data sets at all scales: one batch of networks a depth."""
    keys = ("levels", "replicates", "rounds", "flow_steps", "step_size", "descent_steps")
    for group in range(int(settings["groups"])):
        for networks in NETWORKS:
            run = picked(settings, *keys)
            yield "sweep", {**run, "group": group, "networks": networks}


def compute(task: Task) -> Columns:
    """Every network of the task, trained."""
    # Doubled and single networks have the same data sets and the same starts.
    common = Task(task.experiment, task.part, task.settings[:-1])
    circles = draw_circles(common.rng(), task.integer("replicates"))
    with torch_device() as device:
        parts = [Table.of(_at_depth(task, depth, circles, device)) for depth in DEPTHS]
    return Table.stack(parts).columns


def _at_depth(task: Task, depth: int, circles: list[Circle], device: object) -> Columns:
    levels = sorted([*task.numbers("levels"), default_level(depth)])
    pairs = [(i, level) for i in range(len(circles)) for level in levels]
    make = NETWORKS[task.text("networks")]
    starts = [make(depth, level, circles[i].seed, device) for i, level in pairs]
    trained = by_flow_and_descent(
        starts,
        [circles[i] for i, _ in pairs],
        rounds=task.integer("rounds"),
        flow_steps=task.integer("flow_steps"),
        step_size=task.number("step_size"),
        descent_steps=task.integer("descent_steps"),
    )
    zero = [float(np.sqrt(np.mean(circles[i].y_test ** 2))) for i, _ in pairs]
    first = task.integer("group") * len(circles)
    return {
        "depth": depth,
        "replicate": [first + i for i, _ in pairs],
        "log10_level": [level for _, level in pairs],
        **trained._asdict(),
        "zero_rmse": zero,
        "device": str(device),
    }


# --- panels ------------------------------------------------------------------------------------


def draw_error(axes: Axes, table: Table) -> None:
    axes.set(xscale="log", yscale="log", ylabel="test RMSE")
    _draw_depths(axes, table, "rmse", label_at=1.75)
    reference_line(axes, y=float(np.median(table["zero_rmse"])), text="zero predictor")
    say(axes, _how(table), 0.98, 0.03, ha="right", va="bottom", fontsize=9)


def draw_grad_distance(axes: Axes, table: Table) -> None:
    axes.set(xscale="log", ylim=(-0.02, 1.0), ylabel="grad distance of tangent features")
    _draw_depths(axes, table, "grad_distance", label_at=-3.0)
    reference_line(axes, x=1.0, text="He's rule, α = 1")
    say(axes, "◯ torch's own start", 0.98, 0.6, ha="right", fontsize=10)


def _draw_depths(axes: Axes, table: Table, column: str, label_at: float) -> None:
    for depth in DEPTHS:
        rows, colour = table.where(depth=depth, networks="doubled"), DEPTH_COLOURS[depth]
        curve = rows.summary(column, by="log10_level")
        draw_band(axes, 10.0**curve.x, curve, color=colour)
        printed = table.where(depth=depth, networks="single").summary(column, by="log10_level")
        axes.plot(10.0**printed.x, printed.median, color=colour, linewidth=1.2, linestyle="--")
        at = int(np.argmin(np.abs(curve.x - default_level(depth))))
        axes.plot(
            10.0 ** curve.x[at],
            curve.median[at],
            marker="o",
            markersize=8,
            markerfacecolor="none",
            markeredgewidth=1.8,
            color=colour,
        )
        at = int(np.argmin(np.abs(curve.x - label_at)))
        name_line(
            axes, f"D = {depth}", 10.0 ** curve.x[at], curve.median[at], side="above", colour=colour
        )
    axes.set_xlabel(r"scale of the start, depth-adjusted $\alpha^D$")


def _how(table: Table) -> str:
    sets = table.levels("replicate").size
    way = "gradient flow" if table["flow_steps"][0] else f"step {table['step_size'][0]:g}"
    return f"{sets} data sets, {way}\nsolid: doubled networks, dashed: single ones, as printed"


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What the caption and appendix B say about the two panels, and what single networks do.

    Those are as printed and show none of the claims about large scales: asked of doubled ones.
    """
    table, printed = table.where(networks="doubled"), table.where(networks="single")
    return [
        *_check_error(table),
        *_check_turning(table),
        *_usual_starts(table),
        *_as_printed(printed),
    ]


def _medians(table: Table, column: str) -> dict[int, tuple[FloatArray, FloatArray]]:
    curves = {}
    for depth in DEPTHS:
        rows = table.where(depth=depth)
        # NaN in any data set makes the median NaN, which fails every comparison.
        median = np.median(by_replicate(rows, column, "log10_level"), axis=0)
        curves[depth] = rows.levels("log10_level"), median
    return curves


def _check_error(table: Table) -> Iterator[Check]:
    # Training RMSE, of labels of size 1, that counts as fitted.
    fitted = 0.01
    share = float(np.mean(table["train_rmse"] <= fitted))
    reached = float(np.mean(table["train_rmse"] <= 1.01e-5))
    yield Check(
        "trained-to-zero",
        "the networks fit the ten points",
        f"{share:.0%} to a training RMSE of {fitted:g}, {reached:.0%} to the paper's loss of 1e-9",
        at_least(share, 0.9),
    )
    ratio, flat, worst = {}, {}, {}
    for depth in DEPTHS:
        error = by_replicate(table.where(depth=depth), "rmse", "log10_level")
        ratio[depth] = float(np.median(error[:, 0] / error[:, -1]))
        flat[depth] = float(np.median(np.abs(error[:, -2] / error[:, -1] - 1.0)))
        worst[depth] = float(np.median(error, axis=0).max())
    yield Check(
        "small-starts-generalize",
        "leaving the kernel regime lowers the test error",
        f"smallest over largest scale, median of the data sets: {by_depth(ratio, '.2f')}",
        at_most(list(ratio.values()), 0.75),
    )
    yield Check(
        "error-plateau-in-the-kernel-regime",
        "in the kernel regime the test error no longer depends on the scale",
        f"between the two largest scales it changes by {by_depth(flat, '.1%')}",
        at_most(list(flat.values()), 0.05),
    )
    zero = float(np.median(table["zero_rmse"]))
    yield Check(
        "better-than-zero",
        "at every scale the networks are better than predicting zero (ours: they are doubled)",
        f"largest median RMSE {by_depth(worst, '.2f')}; zero has {zero:.2f}",
        less_than(list(worst.values()), 0.9 * zero),
    )


def _check_turning(table: Table) -> Iterator[Check]:
    curves = _medians(table, "grad_distance")
    ends = {depth: (turned[0], turned[-1]) for depth, (_, turned) in curves.items()}
    yield Check(
        "kernel-regime-at-large-scales",
        "at large scales tangent features stay as they were",
        f"grad distance {by_depth({d: e[1] for d, e in ends.items()}, '.1e')}",
        at_most([last for _, last in ends.values()], 1e-3),
    )
    rise = {depth: float(np.max(np.diff(turned))) for depth, (_, turned) in curves.items()}
    yield Check(
        "grad-distance-monotone",
        "the grad distance falls as the scale grows",
        f"largest rise between neighbouring scales {max(rise.values()):.1e}",
        # What rounding in medians of neighbouring scales, and a unit that switches late, may add.
        at_most(list(rise.values()), 0.01),
    )
    half = {
        depth: crossing(levels, turned, 0.5 * turned[0])
        for depth, (levels, turned) in curves.items()
    }
    powers = {depth: 10.0**value for depth, value in half.items()}
    yield Check(
        "transition",
        "there is a transition: at small scales features turn far, half as far near alpha^D = 0.1",
        f"from {by_depth({d: e[0] for d, e in ends.items()}, '.2f')}; half of it at alpha^D = "
        + by_depth(powers, ".2g"),
        at_least([first for first, _ in ends.values()], 0.4),
        *within(list(half.values()), -2.5, 0.0),
    )


def _usual_starts(table: Table) -> Iterator[Check]:
    # Appendix B: alpha near 1 is about to enter the kernel regime.
    # A cosine distance up to which features count as hardly turned: an angle of 26 degrees.
    hardly = 0.1
    curves = _medians(table, "grad_distance")
    entered = {depth: crossing(*curve, hardly) for depth, curve in curves.items()}
    yield Check(
        "he-start-at-the-edge",
        "He's rule (alpha = 1) lies at the edge of the kernel regime",
        f"the grad distance passes {hardly:g} at alpha^D = "
        + by_depth({depth: 10.0**value for depth, value in entered.items()}, ".2g"),
        *within(list(entered.values()), -2.0, 0.5),
    )
    # The start that comes out of the box: alpha = 1/sqrt(6).
    more, lower = {}, {}
    for depth in DEPTHS:
        levels, turned = _medians(table, "grad_distance")[depth]
        error = by_replicate(table.where(depth=depth), "rmse", "log10_level")
        at, one = (int(np.argmin(np.abs(levels - x))) for x in (default_level(depth), 0.0))
        more[depth] = float(turned[at] / turned[one])
        lower[depth] = float(np.median(error[:, at] / error[:, -1]))
    yield Check(
        "default-start-outside",
        "torch's own start (alpha = 0.41) is outside the kernel regime and generalizes better",
        f"features turn {by_depth(more, '.0f')} times as far as at alpha = 1; error over that of "
        f"the kernel regime {by_depth(lower, '.2f')}",
        at_least(list(more.values()), 4.0),
        at_most(list(lower.values()), 1.0),
    )


def _as_printed(table: Table) -> Iterator[Check]:
    """Single networks: the output of the start, of the size of alpha^D, stays in the predictor."""
    zero = float(np.median(table["zero_rmse"]))
    error = {depth: float(curve[-1]) for depth, (_, curve) in _medians(table, "rmse").items()}
    yield Check(
        "as-printed-large-starts-lose-to-zero",
        "networks that are not doubled are worse at the largest scale than predicting zero (ours)",
        f"median RMSE {by_depth(error, '.1f')}; zero has {zero:.2f}",
        at_least(list(error.values()), 2.0 * zero),
    )
    turned = {depth: curve for depth, (_, curve) in _medians(table, "grad_distance").items()}
    last = {depth: float(curve[-1]) for depth, curve in turned.items()}
    kept = {depth: float(curve[-1] / curve[-2]) for depth, curve in turned.items()}
    yield Check(
        "as-printed-features-turn-at-any-large-scale",
        "their features turn however large the scale: they have the start's output to undo (ours)",
        f"grad distance {by_depth(last, '.3f')}, {by_depth(kept, '.2f')} times that of the scale "
        "before",
        at_least(list(last.values()), 1e-3),
        at_least(list(kept.values()), 0.5),
    )


_LEVELS = "-4 -3.5 -3 -2.5 -2 -1.5 -1 -0.5 0 0.5 1 1.5 2"

EXPERIMENT = Experiment(
    name="woodworth-fig6ab",
    title="ReLU networks leave the kernel regime as their start shrinks",
    reference=Reference("woodworth2020", "Figure 6 (a, b)"),
    summary=(
        "Networks of depths 2, 3 and 5 with 30 units a layer learn a teacher of three units from "
        "ten points of the circle, whose labels have size 1. Single networks, as the paper prints "
        "them (dashed), keep the output of a large start where no point is near: at α^D = 100 they "
        "err more than the zero predictor. Doubled ones (solid) start at zero whatever the scale, "
        "and show what the figure is about. The grad distance is one minus the cosine between the "
        "tangent features before and after training. The paper takes gradient descent at step "
        "0.01 on one data set; here gradient flow on several (descent follows where units slide "
        "along their switches), or descent at that step (preset full). Bands hold the "
        "middle half of the data sets. Circles mark the start that torch itself gives a layer, "
        "which is √6 times smaller than He's rule."
    ),
    paper_says=(
        "Large starts remain in the kernel regime, smaller ones leave it, and leaving it lowers "
        "the test error. The standard start is good and just about to enter the kernel regime."
    ),
    settings={
        Preset.SMOKE: {
            "levels": "-3 -2 -1 0 1.5 2",
            "groups": 1,
            "replicates": 4,
            "rounds": 1,
            "flow_steps": 60,
            "step_size": 0.05,
            "descent_steps": 0,
        },
        Preset.LAPTOP: {
            "levels": _LEVELS,
            "groups": 5,
            "replicates": 4,
            "rounds": 2,
            "flow_steps": 150,
            "step_size": 0.05,
            "descent_steps": 3000,
        },
        Preset.PAPER: {"groups": 20},
        Preset.FULL: {
            # Below 1e-3 descent at this step needs millions of steps to leave the start at depth 5.
            "levels": "-3 -2.5 -2 -1.5 -1 -0.5 0 0.5 1 1.5 2",
            "rounds": 1,
            "flow_steps": 0,
            "step_size": 0.01,
            "descent_steps": 1_000_000,
        },
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Small starts generalize", draw_error),
        Panel("b", "Large starts keep their features", draw_grad_distance),
    ),
    check=check,
    needs=needs_torch,
)
