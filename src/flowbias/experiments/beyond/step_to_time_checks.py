"""What descent on the flow's axis of time must show: orders of the step, rates, exactness."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check
from flowbias.experiments.beyond.timed_descents import LATE, STARTS, WEIGHT_STEPS
from flowbias.experiments.table import Table
from flowbias.ground.typing import FloatArray

# Exponents are measured at steps up to this share of the stable one, where the next order changes
# them by about as much.
SMALL_STEP, EXPONENT_ERROR = 0.0625, 0.1
# Where losses are compared.
COMPARED = 0.25


def check(table: Table) -> list[Check]:
    orders, late = table.part("order"), table.part("late")
    return [
        _check_losses(table.part("curve")),
        *_check_orders(orders),
        _check_conserved(orders),
        *_check_late(late),
        _check_weights(table.part("weights")),
    ]


def _check_losses(rows: Table) -> Check:
    """A mode that falls as (1 - x)^k, x = hλ <= 2 share, and not as e^{-xk}: x/2 of ln L off.

    Twice that is allowed: for modes that are not there from the start, and the next order.
    """
    worst = []
    for start in STARTS:
        for share in rows.levels("share")[rows.levels("share") <= COMPARED]:
            run = rows.rows((rows["start"] == start) & (rows["share"] == share))
            fall = np.maximum(-np.log(run["loss"]), 1.0)
            worst.append(np.max(np.abs(np.log(run["descent_loss"] / run["loss"])) / fall) / share)
    return Check(
        "losses-collapse",
        "at t = h × steps the loss of descent is that of the flow",
        f"ln L differs by at most {np.max(worst):.2f} h of its fall, h up to {COMPARED:g} stable "
        "steps",
        bool(np.max(worst) <= 2.0),
    )


def _check_orders(rows: Table) -> Iterator[Check]:
    for column, power, name, claim in (
        (
            "distance",
            1,
            "distance-is-of-first-order",
            "descent is at a distance proportional to the step from the flow",
        ),
        (
            "modified_distance",
            2,
            "modified-distance-is-of-second-order",
            "from the flow of L + (h/4)‖∇L‖² its distance is proportional to h²",
        ),
        (
            "drift",
            1,
            "drift-is-of-first-order",
            "descent changes the imbalance UᵀU − VᵀV, in proportion to the step",
        ),
        (
            "modified_drift",
            2,
            "modified-drift-is-of-second-order",
            "the flow of L + (h/4)‖∇L‖² changes it alike, up to the square of the step",
        ),
    ):
        slopes = np.array([_slope(run["share"], run[column]) for run in _runs(rows)])
        yield Check(
            name,
            claim,
            f"exponents {np.min(slopes):.3f} to {np.max(slopes):.3f} in {len(slopes)} problems",
            bool((np.abs(slopes - power) <= EXPONENT_ERROR).all()),
        )


def _runs(rows: Table) -> Iterator[Table]:
    """The small steps on each problem."""
    for start in STARTS:
        for replicate in rows.levels("replicate"):
            chosen = (rows["start"] == start) & (rows["replicate"] == replicate)
            yield rows.rows(chosen & (rows["share"] <= SMALL_STEP))


def _slope(x: FloatArray, y: FloatArray) -> float:
    if not ((y > 0.0) & (y < np.inf)).all():
        return np.nan
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _check_conserved(rows: Table) -> Check:
    """1e-8 is what a flow promises."""
    worst, least = float(np.max(rows["flow_drift"])), float(np.min(rows["drift"]))
    return Check(
        "flow-conserves-the-imbalance",
        "the flow itself conserves the imbalance",
        f"changes by at most {worst:.1e}; the smallest change by a descent is {least:.1e}",
        bool(worst <= 1e-8 and least > 10.0 * worst),
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
        bool((off <= error).all()),
    )
    # Of a mode with a small hλ the difference is not seen.
    large = rows.rows(~(rows["step_rate"] <= (1.0 + error) * rows["flow_rate"]))
    faster = large["rate"] / large["flow_rate"]
    most = float(np.max(faster, initial=0.0))
    yield Check(
        "descent-is-faster-late",
        "that is faster than the flow, visibly so for long steps",
        f"up to {most:.3f} times; all {len(large)} modes with a difference above {error:g}",
        bool((faster > 1.0).all() and most >= 1.05),
    )


def _check_weights(rows: Table) -> Check:
    """Rounding of a hundred steps."""
    worst = float(np.max(rows["apart"]))
    return Check(
        "width-is-free",
        "descent on a root of the Gram matrix is descent on all weights",
        f"products differ by {worst:.1e} after {np.min(rows['steps']):.0f} steps",
        bool(worst <= 1e-11 and np.min(rows["steps"]) >= min(WEIGHT_STEPS, 20)),
    )
