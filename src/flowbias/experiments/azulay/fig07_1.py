"""Scale and shape of the start decide together.  [azulay2021, Figure 7.1]

    w = u+ v+ - u- v-,    alpha = |u||v|,    s = (|v|-|u|)/(|v|+|u|)              (section 7.1)

The limit depends on alpha and s through

    control = alpha (1+s^2)/(1-s^2) = sqrt(k)/4

alone. The library computes limits by that formula, so limits cannot test it: the weights themselves
do, followed to the end without any potential.

(a) the paper's figure: error against alpha for five shapes  (b) the same over many decades of both
(c) the ends of weights with the same control, on the curve of the limits
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from flowbias.datasets import SparseRegression
from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than, more_than
from flowbias.experiments.curves import edges, listed, never_above, sparse_data
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.flows import flow
from flowbias.ground.drawing import COLOURS, DEPTH_COLOURS
from flowbias.ground.typing import ArrayLike, Axes, FloatArray
from flowbias.limits import basis_pursuit, limit, limit_path, min_norm
from flowbias.models import UntiedDiagonalNet
from flowbias.theory import Reference

#: The paper's curves and its scales.
PAPER_SHAPES = (0.0, 0.5, 0.7, 0.9, 0.99)
PAPER_ALPHAS = np.geomspace(1e-5, 0.25, 20)
# Shapes whose weights are followed: either layer may be the larger one.
FOLLOWED = (0.0, 0.5, 0.9, -0.9, 0.99, 0.9999)
FLOW_RESIDUAL = 1e-8
# Population error below which a limit counts as generalizing.  [woodworth2020, Figure 1]
LOW_ERROR = 0.025
# On the plateaus neighbours differ by less than this of the error, in either direction.
LEVEL = 1e-3
ERROR_LABEL = "population error ‖w − w*‖²"


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task per data set with all its scales and shapes; then the flows on the first of them."""
    problem = picked(settings, "n", "d", "sparsity", "noise_var")
    ends = ("log10_alpha_low", "log10_alpha_high", "log10_growth_high", "per_decade")
    grid = picked(settings, *ends)
    for replicate in range(int(settings["replicates"])):
        yield "paper", {**problem, "replicate": replicate}
        yield "grid", {**problem, **grid, "replicate": replicate}
    for log10_control in str(settings["followed"]).split():
        yield "flow", {**problem, "log10_control": float(log10_control), "replicate": 0}


def compute(task: Task) -> Columns:
    """Errors of limits along the paper's curves or over the map; or where weights end."""
    return {"paper": _paper, "grid": _grid, "flow": _flow}[task.part](task, _problem(task))


def _problem(task: Task) -> SparseRegression:
    """The data set of a replicate, the same in every part."""
    keys = ("n", "d", "sparsity", "noise_var", "replicate")
    known = dict(task.settings)
    rng = Task(task.experiment, "data", tuple((key, known[key]) for key in keys)).rng()
    return sparse_data(task, rng)


def _paper(task: Task, data: SparseRegression) -> Columns:
    return _errors(data, np.array(PAPER_SHAPES), np.log10(PAPER_ALPHAS[::-1]))


def _grid(task: Task, data: SparseRegression) -> Columns:
    """Shapes at equal steps of log10 (1+s^2)/(1-s^2), so that the level lines are straight."""
    high, low = task.number("log10_alpha_high"), task.number("log10_alpha_low")
    growth, steps = task.number("log10_growth_high"), task.integer("per_decade")
    shapes = shape_of(np.linspace(0.0, growth, round(growth * steps) + 1))
    found = _errors(data, shapes, np.linspace(high, low, round((high - low) * steps) + 1))
    # What every row of the data set shares: the errors of the two extremes.
    rich, kernel = basis_pursuit(data.X, data.y).w, min_norm(data.X, data.y).w
    l1_error, l2_error = map(data.population_error, (rich, kernel))
    return {**found, "l1_error": l1_error, "l2_error": l2_error}


def _errors(data: SparseRegression, shapes: FloatArray, log10_alphas: FloatArray) -> Columns:
    """Of the limit at every shape and scale; scales fall, as warm starts like it."""
    paths = []
    for shape in shapes:
        net = UntiedDiagonalNet(scale=1.0, shape=shape)
        path = limit_path(net, data.X, data.y, log_scales=_log_scales(log10_alphas))
        bounds = [solution.certificate.error_bound for solution in path]
        paths.append((data.population_error(path.w), bounds / np.linalg.norm(path.w, axis=1)))
    error, bound = np.concatenate(paths, axis=1)
    return {
        "shape": np.repeat(shapes, log10_alphas.size),
        "log10_alpha": np.tile(log10_alphas, shapes.size),
        # To a rounding that makes equal controls of the map equal.
        "log10_control": np.round(np.add.outer(_log10_growth(shapes), log10_alphas).ravel(), 9),
        "error": error,
        "error_bound": bound,
    }


def _flow(task: Task, data: SparseRegression) -> Columns:
    """The four weight vectors from starts of one control, integrated without potential."""
    control = 10.0 ** task.number("log10_control")
    alphas = [control * (1.0 - s**2) / (1.0 + s**2) for s in FOLLOWED]
    nets = [
        UntiedDiagonalNet(scale=np.sqrt(alpha), shape=shape)
        for alpha, shape in zip(alphas, FOLLOWED, strict=True)
    ]
    ends = np.array(
        [flow(net, data.X, data.y, residual=FLOW_RESIDUAL, route="parameter").w[-1] for net in nets]
    )
    limits = np.array([limit(net, data.X, data.y).w for net in nets])
    size = float(np.linalg.norm(ends[0]))
    return {
        "shape": FOLLOWED,
        "log10_alpha": np.log10(alphas),
        "error": data.population_error(ends),
        "to_balanced": np.linalg.norm(ends - ends[0], axis=1) / size,
        "to_limit": np.linalg.norm(ends - limits, axis=1) / size,
    }


def shape_of(log10_growth: FloatArray) -> FloatArray:
    """The shape s >= 0 with (1+s^2)/(1-s^2) = 10^log10_growth."""
    growth = np.power(10.0, log10_growth)
    return np.asarray(np.sqrt((growth - 1.0) / (growth + 1.0)))


def _log10_growth(shape: ArrayLike) -> FloatArray:
    square = np.square(shape)
    return np.asarray(np.log10((1.0 + square) / (1.0 - square)))


def _log_scales(log10_alpha: FloatArray) -> FloatArray:
    """The paper's alpha is the square of the library's scale."""
    return np.asarray(0.5 * np.log(10.0) * log10_alpha)


# --- panels ------------------------------------------------------------------------------------


def draw_paper(axes: Axes, table: Table) -> None:
    """On the paper's axis, where a twentieth of it holds what happens; enlarged inside."""
    rows = table.part("paper")
    inside = axes.inset_axes((0.18, 0.12, 0.5, 0.64))
    for shape, colour in zip(PAPER_SHAPES, COLOURS, strict=False):
        curve = rows.where(shape=shape).summary("error", by="log10_alpha")
        for place in (axes, inside):
            draw_band(
                place,
                10.0**curve.x,
                curve,
                color=colour,
                marker="o",
                markersize=3,
                linewidth=1.4,
                label=f"s = {shape:g}",
            )
    inside.set(xlim=(0.0, PAPER_ALPHAS[-1] / 20.0), ylim=(0.0, None), xticks=(0.0, 0.005, 0.01))
    inside.tick_params(labelsize=9)
    axes.legend(frameon=False, loc="lower right", fontsize=10, handlelength=1.2)
    axes.set(xlim=(0.0, 1.04 * PAPER_ALPHAS[-1]), ylim=(0.0, None))
    axes.set(xlabel="scale of the start α = |u||v|", ylabel=ERROR_LABEL)


def draw_map(axes: Axes, table: Table) -> None:
    """Median error over scale and shape, with the levels of the control on top."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    shapes, log10_alpha, error = _median_map(table.part("grid"))
    # Without the lightest end of viridis, white lines stay visible everywhere.
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.8, 256)))
    growth = _log10_growth(shapes)
    mesh = axes.pcolormesh(
        edges(growth),
        10.0 ** edges(log10_alpha),
        error,
        norm=LogNorm(error.min(), max(1.0, error.max())),
        cmap=colours,
    )
    axes.set_yscale("log")
    axes.set_xlim(0.0, growth[-1])
    axes.set_ylim(10.0 ** log10_alpha[0], 10.0 ** log10_alpha[-1])
    # log10 of the controls whose level lines are drawn.
    for level in (-8.0, -6.0, -4.0, -2.0, 0.0, 2.0):
        axes.plot(growth, 10.0 ** (level - growth), color="white", linewidth=1.1)
        at = growth[-1] * (0.5 if level < log10_alpha[-1] else 0.75)
        axes.annotate(
            f"$10^{{{level:g}}}$",
            (at, 10.0 ** (level - at)),
            color="white",
            fontsize=10,
            ha="center",
            va="bottom",
        )
    ticks = np.array([0.0, 0.9, 0.99, 0.999, 0.9999])
    axes.set_xticks(_log10_growth(ticks), [f"{tick:g}" for tick in ticks])
    axes.set_xlabel("shape of the start s\n(white: lines of equal α (1+s²)/(1−s²))")
    axes.set_ylabel("scale of the start α = |u||v|")
    bar = axes.figure.colorbar(mesh, ax=axes, format="%g", label=ERROR_LABEL)
    bar.set_ticks([tick for tick in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if error.min() < tick])
    bar.minorticks_off()


def _median_map(grid: Table) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shapes, log10 of the scales, and the median error with one row per scale."""
    shapes, log10_alpha = grid.levels("shape"), grid.levels("log10_alpha")
    columns = [grid.where(shape=shape).summary("error", by="log10_alpha") for shape in shapes]
    return shapes, log10_alpha, np.stack([column.median for column in columns], axis=1)


def draw_collapse(axes: Axes, table: Table) -> None:
    """Where followed weights end, on the exact limits of balanced starts: one data set."""
    grid, flows = table.part("grid").where(replicate=0), table.part("flow")
    exact = grid.where(shape=0.0)
    axes.plot(10.0 ** exact["log10_alpha"], exact["error"], color=DEPTH_COLOURS[2], linewidth=5.0)
    axes.lines[0].set_alpha(0.55)
    for shape, marker in zip(FOLLOWED, "os^vD*", strict=True):
        points = flows.where(shape=shape)
        axes.plot(
            10.0 ** points["log10_control"],
            points["error"],
            linestyle="none",
            marker=marker,
            markersize=6.5,
            markerfacecolor="none",
            markeredgewidth=1.1,
            color=DEPTH_COLOURS[3],
            label=f"s = {shape:g}",
        )
    axes.set(xscale="log", yscale="log", xlabel="α (1+s²)/(1−s²) = √k/4", ylabel=ERROR_LABEL)
    axes.set_ylim(0.4 * exact["error"].min(), 1.6 * exact["error"].max())
    reference_line(axes, y=float(grid["l2_error"][0]), text="least l2 norm")
    # Below its line, since the curve comes down to it.
    reference_line(axes, y=float(grid["l1_error"][0]), text="least l1 norm", below=True)
    middle = int(np.argmin(np.abs(exact["error"] - 0.3)))
    name_line(
        axes,
        "exact limit, s = 0",
        10.0 ** exact["log10_alpha"][middle],
        exact["error"][middle],
        side="left",
        colour=DEPTH_COLOURS[2],
    )
    axes.legend(
        title="weights followed",
        loc="lower right",
        bbox_to_anchor=(1.0, 0.14),
        frameon=False,
        fontsize=10,
    )


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """What the caption and section 7.1 say of the figure."""
    grid, flows = table.part("grid"), table.part("flow")
    shapes, log10_alpha, error = _median_map(grid)
    bounds = np.concatenate([table.part(part)["error_bound"] for part in ("paper", "grid")])
    rows = table.part("paper")
    # Medians; the smallest scale is where shapes differ most.
    curves = [rows.where(shape=s).summary("error", by="log10_alpha").median for s in PAPER_SHAPES]
    growth = min(float(np.min(later / earlier)) for earlier, later in pairwise(curves))
    first = [float(curve[0]) for curve in curves]
    yield Check(
        "papers-curves-are-ordered",
        "at each of the paper's scales the error grows with s, and close to s = 1 even the "
        "smallest of them is not rich",
        f"least growth from curve to curve: factor {growth:.5f}; errors at α = "
        f"{PAPER_ALPHAS[0]:g}: {listed(first)}",
        at_least(growth, 1.0 - LEVEL),
        less_than(first[0], LOW_ERROR),
        more_than(first[-1], 2.0 * LOW_ERROR),
    )
    yield from _regimes(grid)
    growth = float(np.min(error[:, 1:] / error[:, :-1]))
    rich_at_first = error[:, 0] < LOW_ERROR
    # From the smallest scale up, errors at the last shape where s = 0 is still rich.
    last = error[rich_at_first, -1]
    smallest, largest = (float(last[0]), float(last.max())) if last.size else (np.nan, np.nan)
    yield Check(
        "shape-towards-kernel",
        "at every scale the error grows with s, and scales that are rich at s = 0 leave the rich "
        "regime as s goes to 1, unless α is smaller still",
        f"least growth from one shape to the next: factor {growth:.5f}; where s = 0 is rich, "
        f"error up to {largest:.3g} at s = {shapes[-1]:.4g}, and {smallest:.3g} at "
        f"α = 1e{log10_alpha[0]:g}",
        at_least(growth, 1.0 - LEVEL),
        more_than(largest, 10.0 * LOW_ERROR),
        less_than(smallest, LOW_ERROR),
    )
    excess = float(np.max(error[:, 0] / error.min(axis=1)))
    yield Check(
        "balanced-is-best",
        "the balanced start s = 0 has the least error of all shapes, at every scale",
        f"error at s = 0 over the least error of its row: at most {excess:.6f}",
        at_most(excess, 1.0 + LEVEL),
    )
    yield from _one_quantity(flows)
    yield never_above(
        "certified",
        "every limit of the curves and of the map is proved to eight digits",
        f"largest relative error bound {{:.1e}} of {bounds.size}",
        bounds,
        1e-8,
    )


def _regimes(grid: Table) -> Iterator[Check]:
    control, error, _, _ = grid.summary("error", by="log10_control")
    # log10 of the control: between them lies the transition (n = 100, d = 1000, sparsity 5).
    rich, kernel = -7.0, 0.0
    rich_error = float(np.max(error[control <= rich]))
    l1_error = float(np.median(grid["l1_error"]))
    share = (grid["error"] / grid["l2_error"])[grid["log10_control"] >= kernel]
    low, high = float(np.min(share)), float(np.max(share))
    yield Check(
        "rich-where-control-is-small",
        f"low error, below {LOW_ERROR} and twice that of least l1 norm, wherever "
        f"α(1+s²)/(1−s²) <= 1e{rich:g}, and only below 1e-3",
        f"largest median error {rich_error:.4f}, of least l1 norm {l1_error:.4f}; low up to "
        f"1e{_last_low(control, error):.2g}",
        less_than(rich_error, LOW_ERROR),
        less_than(rich_error, 2.0 * l1_error),
        less_than(_last_low(control, error), -3.0),
    )
    yield Check(
        "kernel-where-control-is-large",
        "the error of the kernel (least l2 norm), within 1 percent, wherever α(1+s²)/(1−s²) "
        f">= 1e{kernel:g}",
        f"{low:.4f} to {high:.4f} times the kernel's error",
        at_least(low, 0.99),
        at_most(high, 1.01),
    )


def _last_low(control: FloatArray, error: FloatArray) -> float:
    """log10 of the largest control with low error; NaN if there is none."""
    low = control[error < LOW_ERROR]
    return float(low.max()) if low.size and np.isfinite(error).all() else np.nan


def _one_quantity(flows: Table) -> Iterator[Check]:
    """No potential on one side of the comparison, and in the first check on neither."""
    controls = flows.levels("log10_control")
    reach = f"1e{controls[0]:g} to 1e{controls[-1]:g}"
    # On a hundred Gaussian rows of a thousand entries w follows the residual within a small factor.
    allowed = 100.0 * FLOW_RESIDUAL
    yield never_above(
        "one-quantity-decides",
        "scale and shape act through α(1+s²)/(1−s²) alone, and the sign of s not at all: followed "
        "without any potential, the weights end where those of the balanced start do",
        f"largest relative distance {{:.1e}} of {len(flows)} flows with controls {reach}",
        flows["to_balanced"],
        allowed,
    )
    yield never_above(
        "limits-are-where-weights-end",
        "the limits of the map are where the weights end",
        f"largest relative distance {{:.1e}} of {len(flows)}",
        flows["to_limit"],
        allowed,
    )


EXPERIMENT = Experiment(
    name="azulay-fig7-1",
    title="Population error over scale and shape of the start",
    reference=Reference("azulay2021", "Figure 7.1"),
    summary=(
        "A diagonal network of two separate layers learns a sparse predictor (n = 100, d = 1000). "
        "Its start has a scale α = |u||v| and a shape s, which is 0 where both layers are equally "
        "large and 1 where one of them vanishes beside the other. Panel (a) is the paper's: the "
        "population error (expected squared error on new samples, less the noise) of the exact "
        "limit of gradient flow, for five shapes. Panel (b) shows it over many decades; white "
        "lines join starts with the same α(1+s²)/(1−s²), the quantity that is predicted to decide. "
        "In (c) the weights themselves are followed on one data set, without use of any formula "
        "for the limit: shapes of either sign, one curve."
    ),
    paper_says=(
        "Small errors belong to the rich regime, large ones to the kernel regime. As the shape "
        "approaches 1 the network goes to the kernel regime, or half way there, even from very "
        "small scales; what counts is the joint limit of α/(1−s²). Balanced starts, s = 0, "
        "generalize best."
    ),
    settings={
        Preset.SMOKE: {
            "n": 100,
            "d": 1000,
            "sparsity": 5,
            "noise_var": 0.01,
            "log10_alpha_low": -11,
            "log10_alpha_high": 1,
            "log10_growth_high": 4,
            "per_decade": 1,
            "replicates": 3,
            "followed": "-3 -1",
        },
        Preset.LAPTOP: {
            "per_decade": 2,
            "replicates": 21,
            "followed": "-7 -6 -5 -4 -3 -2 -1 0 1",
        },
        Preset.PAPER: {"per_decade": 3, "replicates": 51},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Error against scale, by shape", draw_paper),
        Panel("b", "Error over scale and shape", draw_map),
        Panel("c", "One quantity decides", draw_collapse),
    ),
    check=check,
)
