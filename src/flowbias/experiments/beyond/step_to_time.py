"""One step of gradient descent is a time of gradient flow: how long, and how exactly.

Descent with step h is at t = h k where the flow is, up to O(h); the flow of the modified loss
L + (h/4) ||grad L||^2 it follows up to O(h^2), and with it the imbalance, which the flow conserves
and descent does not. Late, a mode of rate λ falls at the rate log(1/(1 - h λ))/h.

(a) losses on the flow's axis of time  (b) distance from the flow  (c) drift of the imbalance
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset
from flowbias.experiments.beyond.timed_descents import (
    COMPLETION,
    LATE,
    NETWORK,
    STARTS,
    WEIGHT_STEPS,
    compute,
    tasks,
)
from flowbias.experiments.check import at_least, at_most, more_than
from flowbias.experiments.curves import DOTS, draw_curve, exponent, groups, never_above
from flowbias.experiments.drawing import name_line, say
from flowbias.experiments.table import Table
from flowbias.ground.drawing import BLUE, DEPTH_COLOURS, INK
from flowbias.ground.typing import Axes
from flowbias.theory import Reference

_SYSTEM_COLOURS = {NETWORK: BLUE, COMPLETION: DEPTH_COLOURS[3]}
# Shares of the stable step that panel (a) draws, and how: the longest is off, the others are not.
_MARKERS = {0.5: "x", 0.125: "o"}


# --- panels ------------------------------------------------------------------------------------


def draw_losses(axes: Axes, table: Table) -> None:
    rows = table.part("curve")
    for start in STARTS:
        part, colour = rows.where(start=start), _SYSTEM_COLOURS[start]
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
    say(axes, "lines: flow", 0.98, 0.77, ha="right", fontsize=11)
    words = ", ".join(
        f"{mark}: h = 1/{1.0 / share:g}" for share, mark in zip(_MARKERS, ("×", "○"), strict=True)
    )
    say(axes, words, 0.98, 0.69, ha="right", fontsize=11)
    axes.set_xlabel("time t = h × steps, in units of the flow's")
    axes.set_ylabel("loss L, relative to the first")


def _name_starts(axes: Axes, x: float, side: str) -> None:
    for height, start in ((0.93, COMPLETION), (0.85, NETWORK)):
        say(axes, start, x, height, colour=_SYSTEM_COLOURS[start], ha=side)


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
            part, colour = rows.where(start=start), _SYSTEM_COLOURS[start]
            draw_curve(axes, part, value, by="share", color=colour, linestyle=style, **DOTS)
    axes.set(xscale="log", yscale="log", xlabel="step size h, in units of the stable step")
    shares = rows.levels("share")
    ticks = shares[::2]
    axes.set_xticks(ticks, [f"1/{1.0 / tick:g}" for tick in ticks])
    axes.minorticks_off()
    _draw_powers(axes, rows, plain, modified)
    _name_starts(axes, 0.03, "left")
    say(axes, "dashed: from the flow of L + (h/4)‖∇L‖²", 0.99, 0.04, ha="right", fontsize=11)


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


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    orders, late = table.part("order"), table.part("late")
    rows = table.part("curve")
    # A mode that falls as (1 - x)^k, x = hλ <= 2 share, and not as e^{-xk}: x/2 of ln L off.
    #
    # Twice that is allowed: for modes that are not there from the start, and the next order.
    worst, longest = [], 0.25
    for start in STARTS:
        for share in rows.levels("share")[rows.levels("share") <= longest]:
            run = rows.rows((rows["start"] == start) & (rows["share"] == share))
            fall = np.maximum(-np.log(run["loss"]), 1.0)
            worst.append(np.max(np.abs(np.log(run["descent_loss"] / run["loss"])) / fall) / share)
    yield Check(
        "losses-collapse",
        "at t = h × steps the loss of descent is that of the flow",
        f"ln L differs by at most {np.max(worst):.2f} h of its fall, h up to {longest:g} stable "
        "steps",
        at_most(np.max(worst), 2.0),
    )
    yield from _check_orders(orders)
    yield from _check_late(late)
    rows = table.part("weights")
    # Rounding of a hundred steps.
    yield never_above(
        "width-is-free",
        "descent on a root of the Gram matrix is descent on all weights",
        f"products differ by {{:.1e}} after {np.min(rows['steps']):.0f} steps",
        rows["apart"],
        1e-11,
        at_least(np.min(rows["steps"]), min(WEIGHT_STEPS, 20)),
    )


def _check_orders(rows: Table) -> Iterator[Check]:
    claims = {
        "distance": "descent is at a distance proportional to the step from the flow",
        "modified_distance": "from the flow of L + (h/4)‖∇L‖² its distance is proportional to h²",
        "drift": "descent changes the imbalance UᵀU − VᵀV, in proportion to the step",
        "modified_drift": "the flow of L + (h/4)‖∇L‖² changes it alike, up to the square of the "
        "step",
    }
    for column, claim in claims.items():
        power, order = (2, "second") if column.startswith("modified") else (1, "first")
        name = f"{column.replace('_', '-')}-is-of-{order}-order"
        small = groups(rows.rows(rows["share"] <= 0.0625), "start", "replicate")
        slopes = np.array([exponent(run["share"], run[column]) for run in small])
        yield Check(
            name,
            claim,
            f"exponents {np.min(slopes):.3f} to {np.max(slopes):.3f} in {len(slopes)} problems",
            # At steps so small the next order changes exponents by about a tenth.
            at_most(np.abs(slopes - power), 0.1),
        )
    # 1e-8 is what a flow promises.
    worst, least = float(np.max(rows["flow_drift"])), float(np.min(rows["drift"]))
    yield Check(
        "flow-conserves-the-imbalance",
        "the flow itself conserves the imbalance",
        f"changes by at most {worst:.1e}; the smallest change by a descent is {least:.1e}",
        at_most(worst, 1e-8),
        more_than(least, 10.0 * worst),
    )


def _check_late(rows: Table) -> Iterator[Check]:
    """The kernel still moves by about the residual from which on rates are measured.

    It mixes modes: one that is a tenth of the largest feels ten times as much, and modes that are
    ten times as slow as others another ten times.
    """
    error = 100.0 * LATE[0]
    off = np.abs(rows["rate"] / rows["step_rate"] - 1.0)
    yield Check(
        "late-rates-are-known",
        "late, a mode of rate λ falls at the rate log(1/(1 − hλ))/h",
        f"within {np.max(off):.1e} for {len(rows)} modes between residuals {LATE[0]:g} and "
        f"{LATE[1]:g}",
        at_most(off, error),
    )
    # Of a mode with a small hλ the difference is not seen.
    large = rows.rows(~(rows["step_rate"] <= (1.0 + error) * rows["flow_rate"]))
    faster = large["rate"] / large["flow_rate"]
    most = float(np.max(faster, initial=0.0))
    yield Check(
        "descent-is-faster-late",
        "that is faster than the flow, visibly so for long steps",
        f"up to {most:.3f} times; all {len(large)} modes with a difference above {error:g}",
        more_than(faster, 1.0),
        at_least(most, 1.05),
    )


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
