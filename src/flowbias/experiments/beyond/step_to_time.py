"""One step of gradient descent is a time of gradient flow: how long, and how exactly.

Descent with step h is at t = h k where the flow is, up to O(h); the flow of the modified loss
L + (h/4) ||grad L||^2 it follows up to O(h^2), and with it the imbalance, which the flow conserves
and descent does not. Late, a mode of rate λ falls at the rate log(1/(1 - h λ))/h.

(a) losses on the flow's axis of time  (b) distance from the flow  (c) drift of the imbalance
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowbias.experiments._base import Experiment, Panel, Preset
from flowbias.experiments.beyond.step_to_time_checks import check
from flowbias.experiments.beyond.timed_descents import (
    COMPLETION,
    NETWORK,
    STARTS,
    compute,
    tasks,
)
from flowbias.experiments.drawing import draw_band, name_line
from flowbias.experiments.table import Table
from flowbias.ground.look import BLUE, DEPTH_COLOURS, INK
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {NETWORK: BLUE, COMPLETION: DEPTH_COLOURS[3]}
# Shares of the stable step that panel (a) draws, and how: the longest is off, the others are not.
_MARKERS = {0.5: "x", 0.125: "o"}


# --- panels ------------------------------------------------------------------------------------


def draw_losses(axes: Axes, table: Table) -> None:
    rows = table.part("curve")
    for start in STARTS:
        part, colour = rows.where(start=start), _COLOURS[start]
        finest = part.where(share=float(part["share"].min()))
        axes.plot(finest["t"], finest["loss"], color=colour)
        for share, marker in _MARKERS.items():
            run = part.where(share=share)
            axes.plot(
                run["t"],
                run["descent_loss"],
                marker,
                color=colour,
                markersize=6,
                markerfacecolor="none",
            )
    low = float(rows["loss"].min())
    axes.set(yscale="log", xlim=(0.0, 1.02), ylim=(0.3 * low, 3.0))
    _name_starts(axes, 0.98, "right")
    _say(axes, (0.98, 0.77), "lines: flow")
    words = ", ".join(
        f"{mark}: h = 1/{1.0 / share:g}" for share, mark in zip(_MARKERS, ("×", "○"), strict=True)
    )
    _say(axes, (0.98, 0.69), words)
    axes.set_xlabel("time t = h × steps, in units of the flow's")
    axes.set_ylabel("loss L, relative to the first")


def _name_starts(axes: Axes, x: float, side: str) -> None:
    for height, start in ((0.93, COMPLETION), (0.85, NETWORK)):
        _say(axes, (x, height), start, _COLOURS[start], side=side, fontweight="bold")


def _say(
    axes: Axes,
    place: tuple[float, float],
    text: str,
    colour: str = INK,
    *,
    side: str = "right",
    fontweight: str = "normal",
) -> None:
    axes.annotate(
        text,
        place,
        xycoords="axes fraction",
        ha=side,
        color=colour,
        fontsize=11,
        fontweight=fontweight,
    )


def draw_distances(axes: Axes, table: Table) -> None:
    _draw_orders(axes, table, "distance", "modified_distance")
    axes.set_ylabel("largest distance, relative")


def draw_drifts(axes: Axes, table: Table) -> None:
    _draw_orders(axes, table, "drift", "modified_drift")
    axes.set_ylabel("largest change of UᵀU − VᵀV, relative")


def _draw_orders(axes: Axes, table: Table, plain: str, modified: str) -> None:
    """One line per start, solid from the flow and dashed from the modified one."""
    rows = table.part("order")
    for start in STARTS:
        for value, style in ((plain, "-"), (modified, "--")):
            curve = rows.where(start=start).summary(value, by="share")
            draw_band(
                axes,
                curve.x,
                curve,
                color=_COLOURS[start],
                marker="o",
                markersize=4,
                linestyle=style,
            )
    axes.set(xscale="log", yscale="log")
    shares = rows.levels("share")
    ticks = shares[::2]
    axes.set_xticks(ticks, [f"1/{1.0 / tick:g}" for tick in ticks])
    axes.minorticks_off()
    _draw_powers(axes, rows, plain, modified)
    _name_starts(axes, 0.03, "left")
    _say(axes, (0.99, 0.04), "dashed: from the flow of L + (h/4)‖∇L‖²")
    axes.set_xlabel("step size h, in units of the stable step")


def _draw_powers(axes: Axes, rows: Table, plain: str, modified: str) -> None:
    """Dotted guides: the first power above the plain lines, the second below the modified."""
    shares = rows.levels("share")
    small = shares[shares <= 0.25]
    tops = [rows.where(start=start).summary(plain, by="share").median[0] for start in STARTS]
    lows = [rows.where(start=start).summary(modified, by="share").median[0] for start in STARTS]
    for first, power, name, side in (
        (2.0 * max(tops), 1, "∝ h", "above"),
        (0.5 * min(lows), 2, "∝ h²", "below"),
    ):
        guide = first * (small / small[0]) ** power
        axes.plot(small, guide, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
        k = len(small) // 2
        name_line(axes, name, small[k], guide[k], side=side)


EXPERIMENT = Experiment(
    name="step-to-time",
    title="A step of descent is a time of the flow",
    reference=Reference("flowbias", "src/flowbias/flows/lifted/descent.py"),
    summary=(
        "Gradient descent with step size h beside gradient flow at the time t = h × steps, for a "
        "linear network Y ~ UVᵀ/√(mk) from standard normal weights (20 × 5, width k = 100) and a "
        "matrix completion (10 × 10, 60 entries, k = 10⁶, α²k = 0.1). The unit of h is the stable "
        "step, 2 over the sharpness of the loss. (b), (c) Largest distance over all times, solid: "
        "from the flow; dashed: from the flow of L + (h/4)‖∇L‖². Bands hold the middle half of "
        "the problems."
    ),
    paper_says=(
        "The papers prove what the flow does and train with small steps. Our claim beyond them: "
        "for products of matrices the difference is of first order in the step, and known: up to "
        "second order, descent follows the flow of a loss that also penalizes its gradient (as "
        "Barrett and Dherin 2021 have it for any model), which moves the imbalance, too."
    ),
    settings={
        Preset.SMOKE: {"halvings": 6, "replicates": 1},
        Preset.LAPTOP: {"halvings": 7, "replicates": 11},
        Preset.PAPER: {"halvings": 8, "replicates": 31},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "One axis of time", draw_losses),
        Panel("b", "The flow, and a better one", draw_distances),
        Panel("c", "What the flow conserves", draw_drifts),
    ),
    check=check,
)
