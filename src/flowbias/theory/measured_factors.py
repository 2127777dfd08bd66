"""Gradient flow on the factors U and V of a product, for any measurements of it.

    U' = -c R V,   V' = -c R^T U,   R = sum_n r_n X_n,   r = measurements of U V^T less the target

The factors are the narrow ones of the model (`root`): any with the same Gram matrix follow the
same path up to a rotation of the hidden units, so that norms and products are those of width k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.integrate

from flowbias._typing import ArrayLike, FloatArray
from flowbias.flows.loss import loss_constant
from flowbias.matrix_problem import MatrixProblem
from flowbias.models.lifted import LiftedModel
from flowbias.problem import InputError

# Local error per step: close to the least that double precision resolves.
RTOL = 1e-12
# Local errors of some hundred to thousand steps add up along the set of solutions.
FACTORS_TOLERANCE = 1e-8
FACTORS_ORIGIN = "factors followed at rtol 1e-12: up to a thousand local errors, magnified by 10"
# A flow counts as ended where the residual is below this fraction of the one at the start, or of
# what the local error of the factors makes of it.
ENDED = 1e-11
# Longest flow, in units of the fastest time scale at the start: beyond it the start is a saddle.
LONGEST = 1e8


@dataclass(frozen=True)
class MeasuredFactors:
    """Narrow [U; V] at increasing times, (len(t), d1 + d2, columns), and residuals (len(t), N)."""

    t: FloatArray
    Z: FloatArray
    residual: FloatArray
    rows: int
    loss_constant: float

    @property
    def products(self) -> FloatArray:
        """Products U V^T, (len(t), d1, d2)."""
        return np.asarray(self.Z[:, : self.rows] @ self.Z[:, self.rows :].transpose(0, 2, 1))

    @property
    def error(self) -> FloatArray:
        """||r|| at each time."""
        return np.asarray(np.linalg.norm(self.residual, axis=1))

    @property
    def movement(self) -> FloatArray:
        """||[U; V](t) - [U; V](0)||_F at each time."""
        return np.asarray(np.linalg.norm(self.Z - self.Z[0], axis=(1, 2)))


def measured_or_followed(
    measured: MeasuredFactors | None, model: LiftedModel, problem: MatrixProblem, loss: Any
) -> MeasuredFactors:
    """A flow that was followed already, or the flow to its end."""
    return follow_factors(model, problem, loss=loss) if measured is None else measured


def lifted_pull(R: FloatArray, Z: FloatArray) -> FloatArray:
    """[[0, R], [R^T, 0]] Z."""
    rows = R.shape[0]
    return np.vstack([R @ Z[rows:], R.T @ Z[:rows]])


def follow_factors(
    model: LiftedModel, problem: MatrixProblem, t: ArrayLike | None = None, loss: Any = "sum"
) -> MeasuredFactors:
    """The flow at t = 0 and the times t; where none are given, at its own steps to the end."""
    measured = model.lifted_problem(problem)
    c = loss_constant(loss, len(problem.target))
    shape, rows = model.root.shape, model.shape[0]

    def residual(y: FloatArray) -> FloatArray:
        Z = y.reshape(shape)
        return measured.residual(Z[:rows] @ Z[rows:].T)

    def derivative(_t: float, y: FloatArray) -> FloatArray:
        pull = measured.adjoint(residual(y))
        return -c * model.rate * lifted_pull(pull, y.reshape(shape)).ravel()

    start = model.root.ravel()
    unit = _largest_measurement(measured) * float(np.linalg.norm(model.gram, 2))
    goal = ENDED * max(float(np.linalg.norm(residual(start))), unit)

    def done(_t: float, y: FloatArray) -> float:
        return float(np.linalg.norm(residual(y))) - goal

    done.terminal = True  # type: ignore[attr-defined]
    if t is None and done(0.0, start) <= 0.0:
        return MeasuredFactors(np.zeros(1), model.root[None], residual(start)[None], rows, c)
    clock = 1.0 / (c * _largest_measurement(measured) * unit)  # one over the fastest rate
    times, end = None, LONGEST * clock
    if t is not None:
        times = _times(t)
        end = float(times[-1])
    solved = scipy.integrate.solve_ivp(
        derivative,
        (0.0, end),
        start,
        method="DOP853",
        t_eval=times,
        rtol=RTOL,
        atol=1e-2 * RTOL * float(np.abs(start).max()),
        first_step=min(1e-2 * clock, end),  # the integrator's own guess may overshoot by far
        events=done if t is None else None,
    )
    if not solved.success or (t is None and solved.status != 1):
        raise InputError(
            f"model: must start where the flow reaches zero error, got ||r|| = "
            f"{np.linalg.norm(residual(solved.y[:, -1])):.3g} at t = {solved.t[-1]:.3g} "
            f"({solved.message}). The start is at or near a saddle; enlarge it or widen the model."
        )
    Z = solved.y.T.reshape(-1, *shape)
    residuals = np.stack([residual(y) for y in solved.y.T])
    return MeasuredFactors(solved.t, Z, residuals, rows, c)


def _largest_measurement(problem: MatrixProblem) -> float:
    """sqrt(Lambda): the largest singular value of the measurements."""
    return float(np.linalg.norm(problem.matrices.reshape(len(problem.target), -1), 2))


def _times(t: ArrayLike) -> FloatArray:
    times = np.unique(np.concatenate([[0.0], np.atleast_1d(np.asarray(t, dtype=np.float64))]))
    if not (times[0] >= 0.0 and np.isfinite(times[-1]) and len(times) > 1):
        raise InputError(
            f"t: must hold finite times > 0, got {t!r}. Leave it out to follow to the end."
        )
    return times
