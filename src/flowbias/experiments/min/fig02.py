"""Width turns random starts into imbalanced ones, and the bounds on the rate into good ones.

[min2021, Figure 2; section 5.1]: L = (1/2) ||Y - U V^T/sqrt(m h)||^2 with U (20 x h), V (m x h)
standard normal: X = I/sqrt(m h), so that all of D/(m h) enters the rates (Remark 13). Section 5.1
has m = 5 outputs; appendix A.1 (Figures 4 and 5) has m = 10 and says what Y and the step are.

(a) the spectrum of D/(m h)  (b) the loss with Theorem 3  (c) the rate with Proposition 1
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from flowbias._look import BLUE, DEPTH_COLOURS, INK, RED
from flowbias.experiments._base import Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.drawing import name_line
from flowbias.experiments.min.fig02_checks import NARROW, STEP, WIDE, WIDTHS, check
from flowbias.experiments.min.loss_and_bounds import Regression, measured_descent, measured_flow
from flowbias.experiments.table import Columns, Table
from flowbias.models import LinearNet
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIME = f"time t, in steps of {STEP:g}"
_COLOURS = {30: RED, 100: DEPTH_COLOURS[10], 300: DEPTH_COLOURS[5], 1000: BLUE}


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Each replicate is a start and a target: its spectrum and its flow, or its descent."""
    sizes = {key: settings[key] for key in ("n", "m")}
    for width in WIDTHS:
        for replicate in range(int(settings["replicates"])):
            which: Settings = {**sizes, "width": width, "replicate": replicate}
            yield "spectrum", which
            yield "flow", {**which, "points": settings["points"]}
        yield "descent", {**sizes, "width": width, "steps": settings["steps"]}


def compute(task: Task) -> Columns:
    """Eigenvalues of D/(m h), the loss and its bounds, or gradient descent beside the flow."""
    n, m, width = (task.integer(name) for name in ("n", "m", "width"))
    rng = task.rng()
    net = LinearNet.gaussian(n, m, width=width, scale=1.0, rng=rng)
    Y = np.sqrt(0.1) * rng.standard_normal((n, m))
    data = Regression(np.eye(n) / np.sqrt(m * width), Y, 1.0, STEP)
    if task.part == "descent":
        return measured_descent(net, data, task.integer("steps"), samples=40)
    if task.part == "spectrum":
        return _spectrum(net, 1.0 / (m * width))
    times = np.concatenate([[0.0], np.geomspace(STEP, 1e5 * STEP, task.integer("points"))])
    return measured_flow(net, data, times)


def _spectrum(net: LinearNet, factor: float) -> Columns:
    """All quantities scaled by 1/(m h)."""
    imbalance = net.imbalance()
    return {
        "index": np.arange(1, len(imbalance.eigenvalues) + 1),
        "eigenvalue": factor * imbalance.eigenvalues,
        "level": factor * imbalance.level,
        "spread_plus": factor * imbalance.spread_plus,
        "spread_minus": factor * imbalance.spread_minus,
        # Of the product U V^T/sqrt(m h): n in the mean, whatever the width.
        "start_size": factor * float(np.sum(net.product**2)),
    }


# --- panels ------------------------------------------------------------------------------------


def draw_spectrum(axes: Axes, table: Table) -> None:
    rows = table.part("spectrum").where(replicate=0)
    n, m = int(rows["n"][0]), int(rows["m"][0])
    for width, marker, x in ((NARROW, "o", n + m + 2.0), (WIDE, "s", n + m + 7.0)):
        shown, colour = rows.where(width=width), _COLOURS[width]
        values = shown["eigenvalue"]
        axes.plot(shown["index"], values, marker, color=colour, markersize=4.5)
        _draw_gaps(axes, x, (values[0], values[n - 1], values[-m], values[-1]), colour)
    top = float(np.max(rows["eigenvalue"]))
    for width, height in ((NARROW, 0.9), (WIDE, 0.8)):
        name_line(axes, f"h = {width}", 0.4 * n, height * top, colour=_COLOURS[width])
    axes.plot([0.0, n + m + 1.0], [0.0, 0.0], color=INK, linewidth=0.9, linestyle=":")
    axes.set_xlim(0.0, n + m + 12.0)
    axes.set_xlabel("eigenvalue, from the largest")
    axes.set_ylabel("eigenvalues of D/(mh), D = UᵀU − VᵀV")


def _draw_gaps(
    axes: Axes, x: float, values: tuple[float, float, float, float], colour: str
) -> None:
    """Bars from l_1 to l_n (spread), to the m-th from below (level), to the last (spread)."""
    for upper, lower, text, thick in zip(
        values[:-1], values[1:], ("Δ₊", "level", "Δ₋"), (1.2, 4.0, 1.2), strict=True
    ):
        axes.plot([x, x], [lower, upper], color=colour, linewidth=thick, marker="_")
        axes.annotate(
            text,
            (x, 0.5 * (lower + upper)),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=10,
        )


def _shown(table: Table) -> Iterator[tuple[int, Table]]:
    """The first start: one run per width, as in the paper."""
    rows = table.part("flow").where(replicate=0)
    return ((width, rows.where(width=width)) for width in WIDTHS)


def draw_loss(axes: Axes, table: Table) -> None:
    for width, rows in _shown(table):
        x, first = rows["t"] / STEP, rows["loss"][0]
        axes.plot(x, rows["loss"] / first, color=_COLOURS[width])
        bound = rows["loss_bound"] / first
        axes.plot(x, bound, color=_COLOURS[width], linewidth=1.2, linestyle="--")
    axes.set(yscale="log", xlim=(0.0, 1000.0), ylim=(1e-8, 30.0))
    axes.annotate("dashed: Theorem 3", (0.98, 0.95), xycoords="axes fraction", ha="right")
    _name_widths(axes)
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss L, relative to the first")


def draw_rate(axes: Axes, table: Table) -> None:
    least = np.inf
    for width, rows in _shown(table):
        # Time 0 has no place on a logarithmic axis.
        x, rate, bound = rows["t"][1:] / STEP, rows["rate"][1:], rows["rate_bound"][1:]
        axes.plot(x, rate, color=_COLOURS[width])
        axes.plot(x, bound, color=_COLOURS[width], linewidth=1.2, linestyle="--")
        name_line(axes, f"h = {width}", x[-1], rate[-1], colour=_COLOURS[width])
        least = min(least, float(np.min(bound)))
    # Room for the names and for a line of text.
    axes.set(xscale="log", yscale="log", xlim=(0.7, 1e5), ylim=(0.6 * least, None))
    axes.annotate("dashed: Proposition 1", (0.98, 0.03), xycoords="axes fraction", ha="right")
    axes.set_xlabel(_TIME)
    axes.set_ylabel("rate −L′/L")


def _name_widths(axes: Axes) -> None:
    for k, width in enumerate(WIDTHS):
        axes.annotate(
            f"h = {width}",
            (0.04, 0.04 + 0.08 * k),
            xycoords="axes fraction",
            color=_COLOURS[width],
            fontweight="bold",
            fontsize=11,
        )


SUMMARY = (
    "Matrix factorization Y ~ UVᵀ/√(mh) with 20 × {m} targets from standard normal weights of "
    "width h. The imbalance D = UᵀU − VᵀV is conserved; its spectrum (a) gives the level and the "
    "spreads Δ₊, Δ₋ that bound how fast the loss falls (b, c). One run per width is drawn. "
    "The late bound of the narrow network is much better than the early one, as the paper says, "
    "yet we would not call it good: how much of the rate it accounts for depends on the start, and "
    "is less with ten outputs than with five."
)
PAPER_SAYS = (
    "A narrow network starts with spreads above the level of imbalance: its rate starts high and "
    "falls, and the bound on it, poor at first, is reasonably good late. A wide one has a level "
    "above the spreads: its rate hardly varies, and both bounds are good."
)
PANELS = (
    Panel("a", "Width lifts the level of imbalance", draw_spectrum),
    Panel("b", "The loss and its guarantee", draw_loss),
    Panel("c", "The rate and its lower bound", draw_rate),
)


def presets(m: int) -> dict[Preset, Settings]:
    """The sizes of the paper throughout; more starts and times where there is more time."""
    sizes: Settings = {"n": 20, "m": m}
    return {
        Preset.SMOKE: {**sizes, "replicates": 2, "points": 60, "steps": 1000},
        Preset.LAPTOP: {**sizes, "replicates": 15, "points": 200, "steps": 5000},
        Preset.PAPER: {**sizes, "replicates": 51, "points": 300, "steps": 20_000},
    }


EXPERIMENT = Experiment(
    name="min-fig2",
    title="Wide starts are imbalanced",
    reference=Reference("min2021", "Figure 2"),
    summary=SUMMARY.format(m=5),
    paper_says=PAPER_SAYS,
    settings=presets(5),
    tasks=tasks,
    compute=compute,
    panels=PANELS,
    check=check,
)
