"""The loss along the flow of a linear network, its rate, and what imbalance guarantees of both.

    L(t) <= exp(-c lr(S) c(0) t) L(0)                                   [min2021, Theorem 3]
    -L'/L >= c lr(S) {imbalance, singular values of U1 V^T}             [min2021, Proposition 1]

The loss is (c/2) ||Y - X U V^T||^2, here always with a reachable Y, so that L* = 0. What must be
true of every flow is checked here: no bound crossed, the imbalance conserved, descent close by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flowbias.experiments._base import Check
from flowbias.experiments.check import at_most
from flowbias.experiments.curves import never_above
from flowbias.experiments.table import Columns, Table
from flowbias.flows import flow, gradient_descent
from flowbias.flows.lifted.trajectory import LiftedTrajectory
from flowbias.ground.typing import FloatArray
from flowbias.models import LinearNet
from flowbias.problems.matrix import MatrixRegression
from flowbias.theory.reduced_net import at, reduced_weights, singular_values, weights_of

# Losses below this share of the first are not drawn: the residual is then 1e-6 of what it was, and
# still has six digits or more.
RESOLVED = 1e-12


@dataclass(frozen=True)
class DescentProblem:
    """Data, the constant c of the loss and the step of the paper's gradient descent."""

    X: FloatArray
    Y: FloatArray
    loss_constant: float
    step: float


def measured_flow(net: LinearNet, data: DescentProblem, times: FloatArray) -> Columns:
    """Loss and rate at the times (from 0 on) at which the loss is resolved, with both bounds."""
    trajectory = flow(net, data.X, data.Y, t=times, loss=data.loss_constant)
    kept = np.flatnonzero(trajectory.loss >= RESOLVED * trajectory.loss[0])
    problem = MatrixRegression(data.X, data.Y)
    start = reduced_weights(*weights_of(net), problem)
    guaranteed = data.loss_constant * start.guaranteed_rate()
    imbalance, bottom, (r, m) = start.imbalance, start.conditioning[1], start.target.shape

    def rate_bound(M: FloatArray) -> float:
        values = singular_values(problem.spectrum.P1.T @ M)
        return data.loss_constant * bottom * imbalance.rate_factor(at(values, m), at(values, r))

    t = trajectory.t[kept]
    return {
        "t": t,
        "loss": trajectory.loss[kept],
        "loss_bound": trajectory.loss[0] * np.exp(-guaranteed * t),
        "rate": [_rate(trajectory, data, int(i)) for i in kept],
        "rate_bound": [rate_bound(trajectory.M[i]) for i in kept],
        "level": imbalance.level,
        "spread_plus": imbalance.spread_plus,
        "spread_minus": imbalance.spread_minus,
        "margin": at(singular_values(start.target), m) - float(np.linalg.norm(start.error)),
        "drift": trajectory.imbalance_drift,
    }


def _rate(trajectory: LiftedTrajectory, data: DescentProblem, i: int) -> float:
    """-L'/L: the squared gradient c^2 (<R, U U^T R> + <R, R V V^T>), R = X^T (Y - X M), over L."""
    error = data.Y - data.X @ trajectory.M[i]
    R, G = data.X.T @ error, trajectory.gram(i)
    d = len(R)
    squared = float(np.sum(R * (G[:d, :d] @ R)) + np.sum(R * (R @ G[d:, d:])))
    return 2.0 * data.loss_constant * squared / float(np.sum(error**2))


def measured_descent(net: LinearNet, data: DescentProblem, steps: int, samples: int) -> Columns:
    """Gradient descent beside the flow: the loss of both after the same time, step by step."""
    run = gradient_descent(
        net,
        data.X,
        data.Y,
        step_size=data.step,
        max_steps=steps,
        loss=data.loss_constant,
        # Below it no loss is resolved: residuals start at about 1, or above it.
        residual=1e-7,
    )
    shown = np.unique(np.linspace(0, steps, samples + 1).astype(int))
    shown = shown[shown <= run.steps]
    losses = run.loss_at(shown)
    resolved = losses >= RESOLVED * losses[0]
    shown, losses = shown[resolved], losses[resolved]
    trajectory = flow(net, data.X, data.Y, t=shown * data.step, loss=data.loss_constant)
    return {"t": shown * data.step, "descent_loss": losses, "loss": trajectory.loss}


# --- what must be true of every flow ----------------------------------------------------------


def runs(rows: Table) -> Iterator[Table]:
    """One flow after the other, in the order of the rows."""
    begins = np.flatnonzero(rows["t"] == 0.0)
    for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
        yield rows.rows(np.arange(begin, end))


def check_bounds(rows: Table) -> Iterator[Check]:
    """No bound is crossed anywhere."""
    for column, bound, sign, name, claim in (
        ("loss", "loss_bound", 1.0, "theorem-3", "the loss stays below the bound of Theorem 3"),
        ("rate", "rate_bound", -1.0, "proposition-1", "the rate stays above Proposition 1"),
    ):
        excess = sign * (rows[column] / rows[bound] - 1.0)
        yield Check(
            f"{name}-never-crossed",
            claim,
            f"{column}/bound − 1 is at {'most' if sign > 0 else 'least'} "
            f"{sign * float(np.max(excess)):.1e} over {len(rows)} points",
            # What integration at rtol 1e-10 and rounding may add, relatively.
            at_most(excess, 1e-6),
        )


def check_drift(rows: Table) -> Check:
    """1e-8 is what a flow promises."""
    claim = "the imbalance UᵀU − VᵀV is the same at all times"
    words = "largest relative change {:.1e}"
    return never_above("imbalance-is-conserved", claim, words, rows["drift"], 1e-8)


def check_descent(rows: Table, tolerance: float) -> Check:
    """Steps s at a rate l change a loss exp(-l t) by exp(-l^2 s t/4): the share l s/4 of ln L."""
    # Relative to how far the loss has fallen, in powers of e; at the start nothing has.
    ways = list(runs(rows))
    way = np.concatenate([np.log(part["loss"][0] / part["loss"]) for part in ways])
    fallen = np.concatenate([np.log(part["loss"] / part["descent_loss"]) for part in ways])
    apart = float(np.max(np.abs(fallen) / np.maximum(way, 1.0)))
    return Check(
        "descent-follows-the-flow",
        "gradient descent with the paper's step is the flow, one step taking the time of its size",
        f"ln L differs by at most {apart:.1e} of the fall of ln L so far",
        at_most(apart, tolerance),
    )
