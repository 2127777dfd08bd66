"""Sparse regression: which limit generalizes, and how small the start must be for it.

[woodworth2020, Figure 1]: y = <w_true, x> + noise with a sparse w_true, depth 2, uniform start.

(a) population error of the limit against the scale of the start
(b) how far its l1 and l2 norms exceed the least possible ones
(c) the largest scale with population error <= 0.025, against the sample size
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from flowbias._look import BLUE, RED
from flowbias.datasets import SparseRegression
from flowbias.experiments._base import Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.largest_scale import optimality
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.experiments.woodworth.fig01_checks import check
from flowbias.experiments.woodworth.sample_sizes import (
    LOG_TEN,
    draw_largest,
    draw_samples_needed,
    planted_data,
    population_error,
    recovery_columns,
)
from flowbias.limits import basis_pursuit, limit_path, min_norm
from flowbias.models import DiagonalNet
from flowbias.problem import Regression
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One replicate is one data set: along all scales, or searched at growing sample sizes."""
    problem = {key: settings[key] for key in ("d", "sparsity", "noise_var")}
    along = {"n": settings["path_n"], "per_decade": settings["per_decade"]}
    for replicate in range(int(settings["path_replicates"])):
        yield "path", {**problem, **along, "replicate": replicate}
    search = {key: settings[key] for key in ("sample_sizes", "threshold")}
    for replicate in range(int(settings["replicates"])):
        yield "largest", {**problem, **search, "replicate": replicate}


def compute(task: Task) -> Columns:
    """The limits along the scales, or the largest scales that generalize."""
    if task.part == "path":
        return _along_scales(planted_data(task, task.integer("n")), task.integer("per_decade"))
    sizes = [int(n) for n in task.text("sample_sizes").split()]
    return recovery_columns(planted_data(task, max(sizes)), sizes, (2,), task.number("threshold"))


def _along_scales(data: SparseRegression, per_decade: int) -> Columns:
    problem = Regression(data.X, data.y)
    rich, kernel = basis_pursuit(problem), min_norm(problem)
    powers = np.linspace(1.0, -8.0, 9 * per_decade + 1)
    path = limit_path(DiagonalNet(2, 1.0), problem, log_scales=powers * LOG_TEN)
    certificates = [solution.certificate for solution in (*path, rich, kernel)]
    return {
        "log10_scale": powers,
        "error": [population_error(w, data.w_true) for w in path.w],
        "excess_l1": np.abs(path.w).sum(axis=1) - np.abs(rich.w).sum(),
        "excess_l2": np.linalg.norm(path.w, axis=1) - np.linalg.norm(kernel.w),
        "l1_error": population_error(rich.w, data.w_true),
        "l2_error": population_error(kernel.w, data.w_true),
        "optimality": max(map(optimality, certificates)),
        "error_bound": max(certificate.error_bound for certificate in certificates),
    }


# --- panels ------------------------------------------------------------------------------------


def draw_error(axes: Axes, table: Table) -> None:
    path = table.part("path")
    curve = path.summary("error", by="log10_scale")
    draw_band(axes, 10.0**curve.x, curve, color=BLUE)
    axes.set(xscale="log", yscale="log", ylim=(None, 1.6))
    reference_line(axes, y=float(np.median(path["l2_error"])), text="least l2 norm")
    l1_error = float(np.median(path["l1_error"]))
    reference_line(axes, y=l1_error, text="")
    # On the right, because on the left the curve runs into its limit.
    axes.annotate(
        "least l1 norm",
        (0.98, l1_error),
        (0, 3),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=10,
    )
    axes.set_xlabel("scale of the start α")
    axes.set_ylabel("population error ‖β − β*‖²")


def draw_excess(axes: Axes, table: Table) -> None:
    path = table.part("path")
    axes.set(xscale="log", yscale="log", ylim=(1e-4, 20.0))
    for norm, colour, side in (("l1", BLUE, "right"), ("l2", RED, "above")):
        curve = path.summary(f"excess_{norm}", by="log10_scale")
        # Zero, where the extreme is reached, has no place on a logarithmic axis.
        curve = Summary(curve.x, *(np.maximum(values, 1e-9) for values in curve[1:]))
        draw_band(axes, 10.0**curve.x, curve, color=colour)
        at = int(np.searchsorted(curve.x, -4.0))
        place = 10.0 ** (curve.x[at] + 0.3), curve.low[at]
        name_line(axes, f"{norm} norm", *place, side=side, colour=colour)
    axes.set_xlabel("scale of the start α")
    axes.set_ylabel("norm of the limit − least norm")


def draw_largest_scale(axes: Axes, table: Table) -> None:
    rows = table.part("largest")
    draw_largest(axes, rows, "log10_scale", limits=(-10.0, 0.0), color=BLUE)
    draw_samples_needed(axes, rows)
    axes.set_ylabel(f"largest α with error ≤ {rows['threshold'][0]:g}")


_COMMON: Settings = {"sparsity": 5, "noise_var": 0.01, "threshold": 0.025}
_SAMPLE_SIZES = "40 44 48 52 56 60 66 72 80 100 120 150 200"

EXPERIMENT = Experiment(
    name="woodworth-fig1",
    title="The scale of the start decides what is learned",
    reference=Reference("woodworth2020", "Figure 1"),
    summary=(
        "Sparse regression with far fewer samples than features. Every predictor considered fits "
        "the data exactly; gradient flow on the depth-2 network w₊² − w₋² picks one by the scale "
        "of its start. The population error is that of a new sample less the noise, which is the "
        "squared distance to the planted predictor. Bands hold the middle half of the data sets."
    ),
    paper_says=(
        "As the scale falls, the limit moves from the least-l2 solution, which does not "
        "generalize, to the least-l1 solution, which does. The largest scale that still "
        "generalizes is extremely small where the samples just suffice for the least-l1 solution, "
        "and much larger with only a few samples more."
    ),
    settings={
        Preset.SMOKE: {
            **_COMMON,
            "d": 250,
            "path_n": 60,
            "per_decade": 4,
            "path_replicates": 3,
            "sample_sizes": "34 40 46 70 100",
            "replicates": 5,
        },
        Preset.LAPTOP: {
            **_COMMON,
            "d": 1000,
            "path_n": 100,
            "per_decade": 6,
            "path_replicates": 9,
            "sample_sizes": _SAMPLE_SIZES,
            "replicates": 15,
        },
        Preset.PAPER: {
            **_COMMON,
            "d": 1000,
            "path_n": 100,
            "per_decade": 6,
            "path_replicates": 31,
            "sample_sizes": _SAMPLE_SIZES,
            "replicates": 51,
        },
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Small starts generalize", draw_error),
        Panel("b", "From least l2 to least l1 norm", draw_excess),
        Panel("c", "How small is small enough", draw_largest_scale),
    ),
    check=check,
)
