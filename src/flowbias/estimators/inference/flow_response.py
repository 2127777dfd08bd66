"""The derivative in y of the predictor at a finite time, and its degrees of freedom.

With nu the dual along the flow, tau = g c t its clock and H(tau) = A diag(w'(z(tau))) A^T,

    d nu/d tau = b - A w(nu)     =>     S = d nu/db :   dS/d tau = I - H(tau) S,    S(0) = 0
    dw/db = W A^T S,     d(A w)/db = H S,     degrees of freedom = trace(H S)

0 at the start, the rank of X in the limit. S is followed by the exponential midpoint rule, exact
where H stands still (the kernel regime): with H = V diag(h) V^T at the middle of a step,
S + V diag((1 - exp(-h step)) / h) V^T (I - H S). Steps are halved until two halves agree with the
whole; their difference is then extrapolated away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg

from flowbias.estimators.inference.weighted_rows import weighted_rows
from flowbias.flows.coordinates import HasClock
from flowbias.flows.integrate import fit_model, flow
from flowbias.flows.request import loss_constant
from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.typing import FloatArray

GramAt: TypeAlias = Callable[[float], FloatArray]


@dataclass(frozen=True, eq=False)
class FlowResponse:
    """The predictor w at time t, its derivative (d, n) in y, and trace d(fitted)/dy."""

    t: float
    w: FloatArray
    dw_dy: FloatArray
    degrees_of_freedom: float


def flow_response(
    model: HasClock,
    X: Any,
    y: Any = None,
    *,
    t: float,
    loss: str | float = "half",
    fit_intercept: bool = False,
) -> FlowResponse:
    """First-order answer of the flow at time t to changes of y.

    Parameters
    ----------
    model : a diagonal network at its start
    X, y : the data, or a `Regression` in place of X
    t : the time
    loss : as for `flow`
    fit_intercept : whether the flow is that of the centred data; the intercept's own degree of
        freedom counts then

    Returns
    -------
    FlowResponse with dw_dy and degrees_of_freedom

    Raises
    ------
    InputError for data or a model that cannot be used

    >>> model = fb.DiagonalNet(depth=2, scale=1.0)
    >>> response = fb.estimators.flow_response(model, [[1.0, 2.0]], [1.0], t=0.01)
    >>> response.dw_dy.shape, 0.0 < response.degrees_of_freedom < 1.0
    ((2, 1), True)
    """
    time = _read_time(t)
    rows = weighted_rows(X, y, fit_intercept)
    if not rows.moves:
        n, d = rows.X.shape
        still = model.potential.grad_dual(np.zeros(d) + model.shift)
        return FlowResponse(time, still, np.zeros((d, n)), float(fit_intercept))
    problem = rows.problem
    trajectory = flow(model, problem, t=[time], loss=loss)
    fit, potential = fit_model(model, problem), model.potential
    rate = float(model.mirror_rate) * loss_constant(loss, len(problem.y))
    if not time * rate < np.inf:
        raise InputError(
            f"t: must be a time that is a double on the clock of the flow too, got {time:g} at "
            f"rate {rate:g}. At t = inf the flow is at its limit: uncertainty(model, X, y)."
        )

    def curvature(tau: float) -> FloatArray:
        return potential.hess_dual(potential.grad(trajectory.at(min(tau / rate, time))))

    def gram(tau: float) -> FloatArray:
        return np.asarray((fit.rows * curvature(tau)) @ fit.rows.T)

    S = _followed(gram, time * rate, len(fit.target))
    moves = curvature(time * rate)[:, None] * (fit.rows.T @ S)
    degrees = float(np.einsum("ij,ji->", fit.rows, moves)) + float(fit_intercept)
    dw_dy = moves if fit.lift is None else moves @ fit.lift.T
    return FlowResponse(time, trajectory.w[-1], np.asarray(dw_dy), degrees)


def _followed(
    gram: GramAt, end: float, size: int, agreement: float = 1e-4, shortest: float = 2.0**-100
) -> FloatArray:
    """S at `end`, by steps as long as two halves agree with the whole.

    `agreement` is relative to S: after extrapolation the error is smaller by about as much again.
    No step is shorter than `shortest` of the whole.
    """
    S, at, step = np.zeros((size, size)), 0.0, end
    while at < end:
        whole = _advanced(S, gram(at + 0.5 * step), step)
        half = _advanced(S, gram(at + 0.25 * step), 0.5 * step)
        half = _advanced(half, gram(at + 0.75 * step), 0.5 * step)
        off = float(np.linalg.norm(half - whole)) / (float(np.linalg.norm(half)) or 1.0)
        if off > agreement and step > shortest * end:
            step *= 0.5
            continue
        # The rule is of second order: two halves leave a quarter of the whole's error.
        S, at = half + (half - whole) / 3.0, at + step
        step = min(2.0 * step, end - at) if off < 0.1 * agreement else min(step, end - at)
    return S


def _advanced(S: FloatArray, H: FloatArray, step: float) -> FloatArray:
    values, vectors = scipy.linalg.eigh(H)
    tiny = np.finfo(np.float64).tiny  # below it 1 - exp(-x) is x
    stiff = values * step
    gained = np.where(stiff > tiny, -np.expm1(-stiff) / np.maximum(stiff, tiny), 1.0) * step
    return S + (vectors * gained) @ (vectors.T @ (np.eye(len(H)) - H @ S))


def _read_time(t: Any) -> float:
    value = as_float(t)
    if value is None or not 0.0 <= value < np.inf:
        raise InputError(
            f"t: must be a finite time >= 0, got {shown(t)}. "
            "At t = inf the flow is at its limit: uncertainty(model, X, y)."
        )
    return value
