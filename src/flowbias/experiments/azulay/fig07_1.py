"""Scale and shape of the start decide together.  [azulay2021, Figure 7.1]

The limit depends on alpha = |u||v| and s = (|v|-|u|)/(|v|+|u|) through

    control = alpha (1+s^2)/(1-s^2) = sqrt(k)/4

alone: it is that of the tied network with scale^2 = control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowbias._look import DEPTH_COLOURS
from flowbias._typing import FloatArray
from flowbias.experiments._base import Check, Experiment, Panel, Preset
from flowbias.experiments.azulay.scale_and_shape import FLOW_RESIDUAL, compute, tasks
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.table import Table
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Population error below which a limit counts as generalizing.  [woodworth2020, Figure 1]
LOW_ERROR = 0.025
# log10 of the control below which the limit is rich, and above which it is the kernel's. Between
# them lies the transition of this problem (n = 100, d = 1000, sparsity 5).
RICH_BELOW, KERNEL_ABOVE = -7.0, 0.0
# Both limits are certified to 1e-10, and 1 - s = 1e-4 leaves twelve digits of the control.
SAME_LIMIT = 1e-10
# Shapes that are named, by tick or by marker.
NAMED_SHAPES = (0.0, 0.9, 0.99, 0.999, 0.9999)
MARKERS = "os^Dv"
ERROR_LABEL = "population error ‖w − w*‖²"


def draw_map(axes: Axes, table: Table) -> None:
    """Median error over scale and shape, with the levels of the control on top."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    shapes, log10_alpha, error = _median_map(table.part("grid"))
    # Without the lightest end of viridis, white lines stay visible everywhere.
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.8, 256)))
    mesh = axes.pcolormesh(
        _borders(_imbalance(shapes)),
        10.0 ** _borders(log10_alpha),
        error,
        norm=LogNorm(error.min(), max(1.0, error.max())),
        cmap=colours,
    )
    axes.set_yscale("log")
    axes.set_xlim(0.0, _imbalance(shapes[-1:])[0])
    axes.set_ylim(10.0 ** log10_alpha[0], 10.0 ** log10_alpha[-1])
    lines = table.part("level")
    for level in lines.levels("log10_control"):
        line = lines.where(log10_control=level)
        _draw_level(axes, level, _imbalance(line["shape"]), 10.0 ** line["log10_alpha"])
    ticks = np.array([0.0, 0.5, *NAMED_SHAPES[1:]])
    ticks = ticks[ticks <= shapes[-1] + 1e-4]
    axes.set_xticks(_imbalance(ticks), [f"{tick:g}" for tick in ticks])
    axes.set_xlabel("shape of the start s\n(white: lines of equal α (1+s²)/(1−s²))")
    axes.set_ylabel("scale of the start α = |u||v|")
    bar = axes.figure.colorbar(mesh, ax=axes, format="%g", label=ERROR_LABEL)
    bar.set_ticks([tick for tick in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if error.min() < tick])
    bar.minorticks_off()


def _borders(centres: FloatArray) -> FloatArray:
    """Half way between neighbours, and as far beyond the first and the last."""
    between = 0.5 * (centres[1:] + centres[:-1])
    ends = 2.0 * centres[[0, -1]] - between[[0, -1]]
    return np.concatenate([ends[:1], between, ends[1:]])


def _draw_level(axes: Axes, level: float, x: FloatArray, alpha: FloatArray) -> None:
    """One level line with its value, written where the line crosses the middle of the map."""
    low, high = sorted(axes.get_ylim())
    inside = (alpha >= low) & (alpha <= high)
    axes.plot(x[inside], alpha[inside], color="white", linewidth=1.1)
    middle = np.flatnonzero(inside)[inside.sum() // 2]
    text = axes.text(x[middle], alpha[middle], f"$10^{{{level:g}}}$", color="white", fontsize=10)
    text.set(ha="center", va="bottom", clip_on=True)


def _imbalance(shape: FloatArray) -> FloatArray:
    """log10(|v|/|u|): where a shape stands on the axis, so that 0.9 and 0.9999 are told apart."""
    return np.asarray(np.log10((1.0 + shape) / (1.0 - shape)))


def _median_map(grid: Table) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shapes, log10 of the scales, and the median error with one row per scale."""
    shapes, log10_alpha = grid.levels("shape"), grid.levels("log10_alpha")
    columns = [grid.where(shape=shape).summary("error", by="log10_alpha") for shape in shapes]
    return shapes, log10_alpha, np.stack([column.median for column in columns], axis=1)


def draw_collapse(axes: Axes, table: Table) -> None:
    """Every point of the map against its control, on the curve of the tied network."""
    grid = table.part("grid")
    tied = grid.summary("tied_error", by="log10_control")
    draw_band(axes, 10.0**tied.x, tied, color=DEPTH_COLOURS[2], linewidth=5.0, alpha=0.55)
    for wanted, marker in zip(NAMED_SHAPES, MARKERS, strict=True):
        shapes = grid.levels("shape")
        shape = shapes[np.argmin(np.abs(_imbalance(shapes) - _imbalance(np.array(wanted))))]
        points = grid.where(shape=shape).summary("error", by="log10_control")
        axes.plot(
            10.0**points.x,
            points.median,
            linestyle="none",
            marker=marker,
            markersize=5.5,
            markerfacecolor="none",
            markeredgewidth=1.1,
            color=DEPTH_COLOURS[3],
            label=f"s = {shape:.4g}",
        )
    axes.set(xscale="log", yscale="log", ylim=(0.6 * tied.median.min(), 1.6 * tied.median.max()))
    rich, kernel = (float(np.median(grid[name])) for name in ("l1_error", "l2_error"))
    reference_line(axes, y=kernel, text="least l2 norm")
    reference_line(axes, y=rich, text="")
    # On the right, since the points are on the left.
    place = axes.get_yaxis_transform()
    axes.text(0.98, rich, "least l1 norm", transform=place, ha="right", va="bottom", fontsize=10)
    middle = len(tied.x) // 2
    name_line(
        axes,
        "tied network",
        10.0 ** tied.x[middle],
        tied.median[middle],
        side="left",
        colour=DEPTH_COLOURS[2],
    )
    axes.legend(title="untied network", loc="center right", frameon=False, fontsize=10)
    axes.set_xticks([1e-10, 1e-5, 1.0, 1e5])
    axes.minorticks_off()
    axes.set_xlabel("α (1+s²)/(1−s²) = √k/4")
    axes.set_ylabel(ERROR_LABEL)


def check(table: Table) -> list[Check]:
    grid = table.part("grid")
    shapes, log10_alpha, error = _median_map(grid)
    return [
        *_regimes(grid),
        _towards_kernel(shapes, log10_alpha, error),
        _balanced_best(error),
        _one_quantity(grid),
        _sign_does_not_matter(table.part("sign")),
        _weights_themselves(table.part("flow")),
        _certified(grid),
    ]


def _regimes(grid: Table) -> tuple[Check, Check]:
    control, error, _, _ = grid.summary("error", by="log10_control")
    rich_error = float(np.max(error[control <= RICH_BELOW]))
    l1_error = float(np.median(grid["l1_error"]))
    share = (grid["error"] / grid["l2_error"])[grid["log10_control"] >= KERNEL_ABOVE]
    low, high = float(np.min(share)), float(np.max(share))
    return (
        Check(
            "rich-where-control-is-small",
            f"low error, below {LOW_ERROR} and twice that of least l1 norm, wherever "
            f"α(1+s²)/(1−s²) <= 1e{RICH_BELOW:g}, and only below 1e-3",
            f"largest median error {rich_error:.4f}, of least l1 norm {l1_error:.4f}; low up to "
            f"1e{_last_low(control, error):.2g}",
            rich_error < LOW_ERROR
            and rich_error < 2.0 * l1_error
            and _last_low(control, error) < -3.0,
        ),
        Check(
            "kernel-where-control-is-large",
            "the error of the kernel (least l2 norm), within 1 percent, wherever α(1+s²)/(1−s²) "
            f">= 1e{KERNEL_ABOVE:g}",
            f"{low:.4f} to {high:.4f} times the kernel's error",
            low >= 0.99 and high <= 1.01,
        ),
    )


def _last_low(control: FloatArray, error: FloatArray) -> float:
    """log10 of the largest control with low error; NaN if there is none."""
    low = control[error < LOW_ERROR]
    return float(low.max()) if low.size and np.isfinite(error).all() else np.nan


def _towards_kernel(shapes: FloatArray, log10_alpha: FloatArray, error: FloatArray) -> Check:
    # On the plateaus neighbours differ by less than 1e-3 of the error, in either direction.
    growth = float(np.min(error[:, 1:] / error[:, :-1]))
    rich_at_first = error[:, 0] < LOW_ERROR
    # From the smallest scale up, errors at the last shape where s = 0 is still rich.
    last = error[rich_at_first, -1]
    smallest, largest = (float(last[0]), float(last.max())) if last.size else (np.nan, np.nan)
    return Check(
        "shape-towards-kernel",
        "at every scale the error grows with s, and scales that are rich at s = 0 leave the rich "
        "regime as s goes to 1, unless α is smaller still",
        f"least growth from one shape to the next: factor {growth:.5f}; where s = 0 is rich, "
        f"error up to {largest:.3g} at s = {shapes[-1]:.4g}, and {smallest:.3g} at "
        f"α = 1e{log10_alpha[0]:g}",
        growth >= 0.999 and largest > 10.0 * LOW_ERROR and smallest < LOW_ERROR,
    )


def _balanced_best(error: FloatArray) -> Check:
    # The tolerance is again that of the plateaus.
    excess = float(np.max(error[:, 0] / error.min(axis=1)))
    return Check(
        "balanced-is-best",
        "the balanced start s = 0 has the least error of all shapes, at every scale",
        f"error at s = 0 over the least error of its row: at most {excess:.6f}",
        excess <= 1.001,
    )


def _one_quantity(grid: Table) -> Check:
    worst = float(np.max(grid["tied_distance"]))
    # Errors are down to 1e-2, a square of distances: two digits less.
    drift = float(np.max(np.abs(grid["error"] / grid["tied_error"] - 1.0)))
    return Check(
        "one-quantity-decides",
        "scale and shape act through α(1+s²)/(1−s²) alone: every limit is that of the tied "
        "network with scale² equal to it",
        f"largest relative distance between the two limits {worst:.1e}, of {len(grid)}; errors "
        f"agree to {drift:.1e}",
        worst <= SAME_LIMIT and drift <= 100.0 * SAME_LIMIT,
    )


def _sign_does_not_matter(sign: Table) -> Check:
    worst = float(np.max(sign["sign_distance"]))
    return Check(
        "sign-of-shape",
        "s and -s, which exchange the two layers, have the same limit",
        f"largest relative distance {worst:.1e}",
        worst <= SAME_LIMIT,
    )


def _weights_themselves(flows: Table) -> Check:
    # The flow stops at this residual, which on ten Gaussian rows w follows within a small factor.
    allowed = 100.0 * FLOW_RESIDUAL
    worst = float(np.max(flows["flow_distance"]))
    return Check(
        "weights-integrated",
        "so do the weights themselves: integrated without any potential, on a small problem, the "
        "two layers end at that tied limit",
        f"largest relative distance {worst:.1e} of {len(flows)} flows",
        worst <= allowed,
    )


def _certified(grid: Table) -> Check:
    worst = float(np.max(grid["error_bound"]))
    return Check(
        "certified",
        "every limit of the map is proved to eight digits",
        f"largest relative error bound {worst:.1e}",
        worst <= 1e-8,
    )


_PAPER = {
    "n": 100,
    "d": 1000,
    "sparsity": 5,
    "noise_var": 0.01,
    "log10_alpha_low": -11,
    "log10_alpha_high": 1,
    "log10_growth_high": 4,
}

EXPERIMENT = Experiment(
    name="azulay-fig7-1",
    title="Population error over scale and shape of the start",
    reference=Reference("azulay2021", "Figure 7.1"),
    summary=(
        "A diagonal network of two separate layers learns a sparse predictor (n = 100, d = 1000). "
        "Its start has a scale α = |u||v| and a shape s, which is 0 where both layers are equally "
        "large and 1 where one of them vanishes beside the other. The map shows the population "
        "error (expected squared error on new samples, less the noise) of the exact limit of "
        "gradient flow. White lines join starts with the same α(1+s²)/(1−s²), the quantity that "
        "is predicted to decide; in panel (b) every point of the map stands at that quantity."
    ),
    paper_says=(
        "Small errors belong to the rich regime, large ones to the kernel regime. As the shape "
        "approaches 1 the network goes to the kernel regime, or half way there, even from very "
        "small scales; what counts is the joint limit of α/(1−s²). Balanced starts, s = 0, "
        "generalize best."
    ),
    settings={
        Preset.SMOKE: {**_PAPER, "per_decade": 1, "replicates": 3},
        Preset.LAPTOP: {**_PAPER, "per_decade": 2, "replicates": 21},
        Preset.PAPER: {**_PAPER, "per_decade": 3, "replicates": 51},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Error over scale and shape", draw_map),
        Panel("b", "One quantity decides", draw_collapse),
    ),
    check=check,
)
