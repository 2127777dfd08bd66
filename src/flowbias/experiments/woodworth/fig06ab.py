"""ReLU networks on the circle leave the kernel regime as the scale of their start falls.

[woodworth2020, Figure 6 (a, b); B.2]: depths 2, 3 and 5, against the depth-adjusted scale alpha^D.

(a) test error of the trained network  (b) how far its tangent features have turned

The paper's text calls alpha = 1 the uniform He start as it comes out of the box. He's rule draws
from U(-a, a) with a = sqrt(6 / n_in); what comes out of torch's box for a `Linear` layer is sqrt(6)
times smaller, alpha^D = 6^(-D/2). Both are computed and marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from flowbias.experiments._base import Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.torch_task import torch_device
from flowbias.experiments.woodworth.circle_networks import (
    Circle,
    by_flow_and_descent,
    draw_circles,
    network,
)
from flowbias.experiments.woodworth.fig06ab_checks import DEPTHS, check, default_level
from flowbias.ground.look import DEPTH_COLOURS
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task trains some data sets at all scales: one batch of networks a depth."""
    keys = ("levels", "replicates", "rounds", "flow_steps", "step_size", "descent_steps")
    for group in range(int(settings["groups"])):
        yield "sweep", {**{key: settings[key] for key in keys}, "group": group}


def compute(task: Task) -> Columns:
    """Every network of the task, trained."""
    circles = draw_circles(task.rng(), task.integer("replicates"))
    with torch_device() as device:
        parts = [Table.of(_at_depth(task, depth, circles, device)) for depth in DEPTHS]
    return Table.stack(parts).columns


def _at_depth(task: Task, depth: int, circles: list[Circle], device: object) -> Columns:
    levels = sorted([*map(float, task.text("levels").split()), default_level(depth)])
    pairs = [(i, level) for i in range(len(circles)) for level in levels]
    starts = [network(depth, level, circles[i].seed, device) for i, level in pairs]
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
    axes.set(xscale="log", yscale="log")
    _draw_depths(axes, table, "rmse", label_at=1.75)
    reference_line(axes, y=float(np.median(table["zero_rmse"])), text="zero predictor")
    axes.annotate(
        _how(table), (0.98, 0.03), xycoords="axes fraction", ha="right", va="bottom", fontsize=9
    )
    axes.set_ylabel("test RMSE")


def draw_grad_distance(axes: Axes, table: Table) -> None:
    axes.set(xscale="log", ylim=(-0.02, 1.0))
    _draw_depths(axes, table, "grad_distance", label_at=-3.0)
    reference_line(axes, x=1.0, text="He's rule, α = 1")
    axes.annotate(
        "◯ torch's own start", (0.98, 0.6), xycoords="axes fraction", ha="right", fontsize=10
    )
    axes.set_ylabel("grad distance of tangent features")


def _draw_depths(axes: Axes, table: Table, column: str, label_at: float) -> None:
    for depth in DEPTHS:
        rows, colour = table.where(depth=depth), DEPTH_COLOURS[depth]
        curve = rows.summary(column, by="log10_level")
        draw_band(axes, 10.0**curve.x, curve, color=colour)
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
    return f"{sets} data sets, doubled networks, {way}"


_LEVELS = "-4 -3.5 -3 -2.5 -2 -1.5 -1 -0.5 0 0.5 1 1.5 2"

EXPERIMENT = Experiment(
    name="woodworth-fig6ab",
    title="ReLU networks leave the kernel regime as their start shrinks",
    reference=Reference("woodworth2020", "Figure 6 (a, b)"),
    summary=(
        "Networks of depths 2, 3 and 5 with 30 units a layer learn a teacher of three units from "
        "ten points of the circle, whose labels have size 1. They are doubled, so that they start "
        "at zero whatever the scale. The grad distance is one minus the cosine between the "
        "tangent features before and after training. The paper takes gradient descent at step "
        "0.01 on one data set; here gradient flow on several (smoke and laptop; descent follows "
        "where units slide along their switches), or descent at that step (paper). Bands hold the "
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
        Preset.PAPER: {
            # Below 1e-3 descent at this step needs millions of steps to leave the start at depth 5.
            "levels": "-3 -2.5 -2 -1.5 -1 -0.5 0 0.5 1 1.5 2",
            "groups": 20,
            "replicates": 4,
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
)
