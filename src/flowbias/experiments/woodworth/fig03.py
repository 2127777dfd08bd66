"""Deeper networks reach the rich limit sooner.  [woodworth2020, Figure 3]

Depth D from a uniform start of scale alpha minimizes Q(w) = sum alpha^2 q_D(w / alpha^D); the paper
writes alpha^D in front of the sum, which has the same minimizer.

(a) the potentials q_D per coordinate
(b) the cost of a sparse vector relative to a dense one of equal length, Q(e_1) / Q(1/sqrt d),
    against alpha: 1 where Q is like l2, 1/sqrt d where it is like l1
(c) the largest alpha^D (the scale of the predictor's branches at the start) with population error
    <= 0.025, against the sample size, as in Figure 1
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias._look import DEPTH_COLOURS
from flowbias.experiments._base import Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.drawing import name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.fig03_checks import check
from flowbias.experiments.woodworth.sample_sizes import (
    LOG_TEN,
    draw_largest,
    draw_samples_needed,
    planted_data,
    recovery_columns,
)
from flowbias.potentials import DepthPotential, Hypentropy, Potential
from flowbias.theory import Reference, l1_approach_log_scale, sparse_to_dense_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES: Any = {2: "-", 3: (0, (5, 1.5)), 5: (0, (5, 1.5, 1, 1.5)), 10: (0, (1.2, 1.2))}
DEPTHS = tuple(DASHES)
# Accepted excess of the ratio over that of l1, for "how small must the scale be".
ACCURACIES = (0.1, 0.03, 0.01)


def potential_of(depth: int, log_scale: float) -> Potential:
    """The potential of a uniform start."""
    if depth == 2:
        return Hypentropy(log_scale=log_scale)
    return DepthPotential(depth, log_scale=log_scale)


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """The functions, the ratio, the scales where it nears that of l1; one search per data set."""
    yield "potentials", {"points": settings["points"]}
    yield "ratio", {"d": settings["d"], "points": settings["points"]}
    yield "approach", {"d": settings["d"]}
    keys = ("d", "sparsity", "noise_var", "sample_sizes", "threshold")
    for replicate in range(int(settings["replicates"])):
        yield "largest", {**{key: settings[key] for key in keys}, "replicate": replicate}


def compute(task: Task) -> Columns:
    """One part of the figure, all depths."""
    if task.part == "largest":
        return _largest(task)
    build = {"potentials": _potentials, "ratio": _ratio, "approach": _approach}[task.part]
    return Table.stack([Table.of({"depth": D, **build(task, D)}) for D in DEPTHS]).columns


def _potentials(task: Task, depth: int) -> Columns:
    z = np.linspace(-10.0, 10.0, task.integer("points"))
    return {"z": z, "q": potential_of(depth, 0.0).value_terms(z)}


def _ratio(task: Task, depth: int) -> Columns:
    powers = np.linspace(-10.0, 1.0, task.integer("points"))
    d = task.number("d")
    costs = [sparse_to_dense_cost(potential_of(depth, x * LOG_TEN), d) for x in powers]
    # The cost is per unit of l1 norm, of which the dense vector has sqrt d.
    return {"log10_scale": powers, "ratio": np.array(costs) / np.sqrt(d)}


def _approach(task: Task, depth: int) -> Columns:
    """Where the ratio exceeds that of l1 by the factor 1 + eps."""
    # Polynomial scales are not far; depth 2 needs exponential ones.
    least = -1e5 if depth == 2 else -200.0
    scales = [
        l1_approach_log_scale(
            lambda log_scale: potential_of(depth, log_scale), eps, task.number("d"), least
        )
        for eps in ACCURACIES
    ]
    return {"eps": ACCURACIES, "log10_scale": np.array(scales) / LOG_TEN}


def _largest(task: Task) -> Columns:
    sizes = [int(n) for n in task.text("sample_sizes").split()]
    data = planted_data(task, max(sizes))
    found = Table.of(recovery_columns(data, sizes, DEPTHS, task.number("threshold")))
    return found.replaced(log10_start=found["depth"] * found["log10_scale"]).columns


# --- panels ------------------------------------------------------------------------------------


def draw_potentials(axes: Axes, table: Table) -> None:
    for depth, rows in _by_depth(table.part("potentials")):
        colour = DEPTH_COLOURS[depth]
        axes.plot(rows["z"], rows["q"], color=colour)
        name_line(axes, f"D = {depth}", rows["z"][-1], rows["q"][-1], colour=colour)
    axes.set_xticks([-10, -5, 0, 5, 10])
    axes.set_xlabel("z = β / $α^D$")
    axes.set_ylabel("cost of one coordinate $q_D(z)$")


def draw_ratio(axes: Axes, table: Table) -> None:
    ratio = table.part("ratio")
    for depth, rows in _by_depth(ratio):
        scale = 10.0 ** rows["log10_scale"]
        axes.plot(scale, rows["ratio"], **_style(depth))
    axes.set(xscale="log", yscale="log")
    reference_line(axes, y=1.0, text="l2: 1")
    l1 = float(ratio["d"][0]) ** -0.5
    reference_line(axes, y=l1, text="")
    # Below the line, because above it depth 2 comes down.
    axes.annotate(
        "l1: 1/√d",
        (0.02, l1),
        (0, -3),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        va="top",
        fontsize=10,
    )
    axes.set_ylim(0.6 * l1, 1.6)
    # A legend, because from depth 3 on the lines are too close for names.
    axes.legend(frameon=False, loc="center left")
    axes.set_xlabel("scale of the start α")
    axes.set_ylabel("Q(e₁) / Q(1/√d), sparse to dense")


def draw_largest_start(axes: Axes, table: Table) -> None:
    largest = table.part("largest")
    for depth, rows in _by_depth(largest):
        limits = (-12.0, -1.0)
        draw_largest(axes, rows, "log10_start", limits=limits, open_band=False, **_style(depth))
    draw_samples_needed(axes, largest)
    # In the order of the lines, the deepest on top.
    axes.legend(frameon=False, loc="lower right", reverse=True)
    axes.set_ylabel(f"largest $α^D$ with error ≤ {largest['threshold'][0]:g}")


def _style(depth: int) -> dict[str, Any]:
    """Lines with a legend differ in their dashes as well, for print in grey."""
    colour, dashes = DEPTH_COLOURS[depth], DASHES[depth]
    return {"color": colour, "linestyle": dashes, "label": f"D = {depth}"}


def _by_depth(rows: Table) -> Iterator[tuple[int, Table]]:
    for depth in DEPTHS:
        yield depth, rows.where(depth=depth)


_COMMON: Settings = {"sparsity": 5, "noise_var": 0.01, "threshold": 0.025}
_SAMPLE_SIZES = "40 44 48 52 58 64 72 84 110 150"

EXPERIMENT = Experiment(
    name="woodworth-fig3",
    title="Depth hastens the transition to the rich limit",
    reference=Reference("woodworth2020", "Figure 3"),
    summary=(
        "The networks w+^D - w-^D of depth D all run from the least-l2 to the least-l1 solution as "
        "the scale of their start falls, but not equally fast. Panel (b) asks the potential itself "
        "how it weighs a sparse vector against a dense one, panel (c) repeats the sparse "
        "regression of Figure 1, on the same data for all depths. Bands hold the middle half of "
        "the data sets, where three quarters of them allow any scale; the error is the squared "
        "distance to the planted predictor."
    ),
    paper_says=(
        "Both extremes are the same at every depth, the transition is not: from depth 3 on the "
        "scale needed to be close to l1 is polynomial instead of exponential, so that reasonable "
        "scales suffice for sparse regression, and increasing the depth hastens it further."
    ),
    settings={
        Preset.SMOKE: {
            **_COMMON,
            "d": 200,
            "points": 161,
            "sample_sizes": "32 42 72",
            "replicates": 5,
        },
        Preset.LAPTOP: {
            **_COMMON,
            "d": 1000,
            "points": 321,
            "sample_sizes": _SAMPLE_SIZES,
            "replicates": 15,
        },
        Preset.PAPER: {
            **_COMMON,
            "d": 1000,
            "points": 641,
            "sample_sizes": _SAMPLE_SIZES,
            "replicates": 41,
        },
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Potentials of several depths", draw_potentials),
        Panel("b", "From l2 to l1", draw_ratio),
        Panel("c", "How small is small enough", draw_largest_start),
    ),
    check=check,
)
