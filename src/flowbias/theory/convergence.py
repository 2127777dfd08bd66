"""Gradient flow reaches the fit: what the papers assume, proved and with rates.

[woodworth2020, Theorems 1 and 3] and [azulay2021, Theorem 1] start from a limit of zero error. For
diagonal networks that is a fact: docs/theory/overview.md, section 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.flows.loss import loss_constant
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits import limit
from flowbias.models import DiagonalNet
from flowbias.models._base import MirrorModel
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Kind, Reference, Statement, beyond_the_papers
from flowbias.theory.conditions import OutsideHypothesis, positive, unbiased_log_start
from flowbias.theory.measured_flow import FLOW_ORIGIN, FLOW_TOLERANCE, follow

_REFERENCE = beyond_the_papers("2 Convergence")


@checked
def zero_error(
    model: MirrorModel, X: Any, y: Any, t: ArrayLike, loss: str | float = "half"
) -> tuple[Claim, ...]:
    """||P r(t)|| <= ||P r(0)|| exp(-c lambda t): the flow reaches the (least-squares) fit.

    lambda is the least non-zero eigenvalue of X diag(m) X^T, m the least value of the metric J J^T
    that the conserved quantities allow: 8 |w+ w-| at depth 2, sqrt k untied, and at an unbiased
    start of any depth the metric of the start itself. P projects on the range of X. The papers
    assume zero error [woodworth2020, Theorems 1 and 3]; that it is reached is ours.

    >>> model = fb.DiagonalNet(depth=2, scale=0.5)
    >>> all(claim.holds for claim in fb.theory.zero_error(model, [[1.0, 2.0]], [1.0], t=[0.5, 2.0]))
    True
    """
    problem = Regression(X, y)
    measured = follow(model, problem, t, loss)
    fitted = _on_range(problem.X, problem.y)
    rate = measured.loss_constant * _least_eigenvalue(problem.X, least_metric(model))
    start = np.broadcast_to(np.asarray(model.initial), problem.X.shape[1:])
    at_start = float(np.linalg.norm(problem.X @ start - fitted))
    return tuple(
        Claim(
            "zero error",
            measured=float(np.linalg.norm(problem.X @ at.w - fitted)),
            predicted=at_start * float(np.exp(-rate * at.t)),
            kind=Kind.UPPER,
            reference=_REFERENCE,
            statement="the residual decays at least at the rate of the least tangent kernel",
            tolerance_origin=FLOW_ORIGIN,
            rtol=FLOW_TOLERANCE,
            atol=FLOW_TOLERANCE * (at_start + float(np.linalg.norm(fitted))),
        )
        for at in measured.snapshots
    )


def least_metric(model: MirrorModel) -> FloatArray:
    """Least value of the metric J J^T, per coordinate, along any flow from this start."""
    potential: Any = model.potential
    if Provides.EXPONENTIAL_DUAL in model.provides:
        # g w'(z) = g rate (e^(log_plus + rate z) + e^(log_minus - rate z)): AM >= GM.
        size = np.exp(0.5 * potential.log_plus + 0.5 * potential.log_minus)
        unit = float(np.exp(potential.log_unit))
        return np.asarray(2.0 * model.mirror_rate * unit * potential.rate * size)
    depth = float(potential.depth)
    # D^2 (w+^(2D-2) + w-^(2D-2)) is convex in w+-^(2-D), whose sum is conserved: least when equal.
    with np.errstate(divide="ignore"):
        reach = np.exp((2.0 - depth) * potential.log_plus) / 2.0
        reach = reach + np.exp((2.0 - depth) * potential.log_minus) / 2.0
        return np.asarray(2.0 * depth**2 * reach ** (-(2.0 * depth - 2.0) / (depth - 2.0)))


@checked
def loss_gap(
    model: MirrorModel, X: Any, y: Any, t: ArrayLike, loss: str | float = "half"
) -> tuple[Claim, ...]:
    """L(w(t)) - L(v) <= D_Q(v, w(0)) / (g t) for every v, here the limit itself.

    D_Q is the Bregman divergence of the potential and g the rate of the mirror flow. It needs no
    lower bound of the metric, so that it holds where coordinates keep one sign as well.

    >>> model = fb.DiagonalNet(depth=2, scale=0.5)
    >>> all(claim.holds for claim in fb.theory.loss_gap(model, [[1.0, 2.0]], [1.0], t=[0.5, 2.0]))
    True
    """
    problem = Regression(X, y)
    positive("t", float(np.min(t)), "At t = 0 the statement is empty.")
    measured = follow(model, problem, t, loss)
    target = limit(model, problem).w
    start = np.broadcast_to(np.asarray(model.initial), target.shape)
    divergence = model.potential.bregman(target, start) / model.mirror_rate
    half = 0.5 * measured.loss_constant
    least = half * float(np.sum((problem.X @ target - problem.y) ** 2))
    at_start = half * float(np.sum((problem.X @ start - problem.y) ** 2))
    return tuple(
        Claim(
            "loss gap",
            measured=half * float(np.sum((problem.X @ at.w - problem.y) ** 2)) - least,
            predicted=divergence / at.t,
            kind=Kind.UPPER,
            reference=_REFERENCE,
            statement="the loss falls to its least value like 1/t from any start",
            tolerance_origin=FLOW_ORIGIN,
            rtol=FLOW_TOLERANCE,
            atol=FLOW_TOLERANCE * at_start,
        )
        for at in measured.snapshots
    )


@checked
def escape_from_the_saddle(
    model: DiagonalNet, X: Any, y: Any, loss: str | float = "half"
) -> tuple[Claim, Claim]:
    """At depth 2 the loss halves after a time of the order of ln(1/alpha), no more and no less.

        asinh((1 - 1/sqrt 2) ||y||/(2 sum ||x_i|| a_i^2))/(4 c max ||x_i|| ||y||)  <=  time
        time  <=  2 D_Q(w(inf), 0)/(g L(0)),     a = alpha w0,

    from |w_i| <= 2 a_i^2 sinh(4 c ||x_i|| ||y|| t) and from `loss_gap`; y is the part that can be
    fitted, and L counts from its least value. The paper says that the time grows
    [woodworth2020, section 4]; both sides are asinh or ln of 1/alpha^2 times what the data is.

    >>> model = fb.DiagonalNet(depth=2, scale=1e-4)
    >>> all(c.holds for c in fb.theory.escape_from_the_saddle(model, [[1.0, 2.0]], [1.0]))
    True
    """
    problem = Regression(X, y)
    if model.depth != 2:
        raise OutsideHypothesis(
            f"model: must have depth 2, got {model.depth:g}. Deeper networks leave the saddle "
            "after a power of 1/scale."
        )
    squares = np.exp(2.0 * unbiased_log_start(model, problem.X.shape[1]))
    c = loss_constant(loss, len(problem.y))
    fitted, columns = _on_range(problem.X, problem.y), np.linalg.norm(problem.X, axis=0)
    size = positive("y", float(np.linalg.norm(fitted)), "With nothing to fit nothing moves.")
    reach = (1.0 - np.sqrt(0.5)) * size / (2.0 * float(columns @ squares))
    early = float(np.arcsinh(reach)) / (4.0 * c * float(columns.max()) * size)
    target = limit(model, problem).w
    divergence = model.potential.bregman(target, np.zeros_like(target)) / model.mirror_rate
    late = 2.0 * divergence / (0.5 * c * size**2)
    shares = [
        float(np.sum((problem.X @ at.w - fitted) ** 2)) / size**2
        for at in follow(model, problem, [early, late], loss).snapshots
    ]
    stated = Statement(
        Reference("woodworth2020", "section 4"),
        "from a small start at depth 2 the saddle holds the flow for a time like ln(1/alpha)",
        FLOW_ORIGIN,
    )
    return (
        stated.at_least("still near the saddle", shares[0], 0.5, atol=FLOW_TOLERANCE),
        stated.at_most("away from the saddle", shares[1], 0.5, atol=FLOW_TOLERANCE),
    )


def _on_range(X: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(X @ np.linalg.lstsq(X, y)[0])


def _least_eigenvalue(X: FloatArray, weights: FloatArray) -> float:
    """Least eigenvalue of X diag(weights) X^T on the range of X."""
    rank = int(np.linalg.matrix_rank(X))
    values = np.linalg.svd(X * np.sqrt(weights), compute_uv=False)
    return float(values[rank - 1] ** 2)
