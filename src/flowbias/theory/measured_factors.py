"""Gradient flow on the factors U and V of a product, sharing nothing with Gram or closed forms.

    U' = -c R V,   V' = -c R^T U,   R = sum_n r_n X_n,   r = measurements of U V^T less the target

For a two-layer linear network R = X^T (X U V^T - Y) and ||r|| = ||E||_F [min2021 (3)]. A target
that no product reaches is replaced by its projection. int ||r|| dt is carried along: distances from
the invariant set grow at most by its exponential [min2021, (E.11)].

The factors are the narrow ones of the model (`root`): any with the same Gram matrix follow the
same path up to a rotation of the hidden units, so that norms and products are those of width k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.integrate

from flowbias.flows.loss import loss_constant
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix._base import MatrixProblem
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.theory.conditions import OutsideHypothesis
from flowbias.theory.reduced_net import LinearStart, ReducedNet, reduced_weights

# Local error per step: close to the least that double precision resolves.
RTOL = 1e-12
# Local errors of some hundred to thousand steps add up along the set of solutions.
FACTORS_TOLERANCE = 1e-8
FACTORS_ORIGIN = "factors followed at rtol 1e-12: up to a thousand local errors, magnified by 10"
# What the local errors of some hundred steps leave of an error's logarithm, where it has fallen to
# the size of the data or of the start; below this share of that size it is not used.
NOISE, RESOLVED = 1e2 * RTOL, 1e-5
RATE_ORIGIN = (
    "factors followed at rtol 1e-12: a hundred local errors in the logarithm of what is left of "
    "the error, which is not used below 1e-5 of its size, over the time"
)
# A flow counts as ended where the residual is below this fraction of the one at the start, or of
# what the local error of the factors makes of it.
ENDED = 1e-11
# A flow rests, at a saddle, where it moves at less than this fraction of what its residual could
# make it do: a hundred local errors, so that what is left of the motion is the integrator's.
RESTS = 1e-10
# Longest flow, in units of the fastest time scale at the start: beyond it it creeps past a saddle.
LONGEST = 1e6


@runtime_checkable
class ProductPath(Protocol):
    """A trajectory of products, however it was computed."""

    @property
    def t(self) -> FloatArray: ...
    @property
    def M(self) -> FloatArray: ...  # noqa: N802  (the name that every such trajectory has)


@dataclass(frozen=True)
class MeasuredFactors:
    """Narrow [U; V] at increasing times, (len(t), d1 + d2, columns); U has `rows` rows."""

    t: FloatArray
    Z: FloatArray
    rows: int
    #: ||r|| at each time
    error: FloatArray
    #: int_0^t ||r|| at each time
    error_integral: FloatArray
    loss_constant: float = 1.0

    @property
    def U(self) -> FloatArray:  # noqa: N802  (the papers' name)
        """First factor, (len(t), d1, columns)."""
        return self.Z[:, : self.rows]

    @property
    def V(self) -> FloatArray:  # noqa: N802  (the papers' name)
        """Second factor, (len(t), d2, columns)."""
        return self.Z[:, self.rows :]

    @property
    def M(self) -> FloatArray:  # noqa: N802  (the name that every trajectory of products has)
        """Products U V^T, (len(t), d1, d2)."""
        return np.asarray(self.U @ self.V.transpose(0, 2, 1))

    @property
    def movement(self) -> FloatArray:
        """||[U; V](t) - [U; V](0)||_F at each time."""
        return np.asarray(np.linalg.norm(self.Z - self.Z[0], axis=(1, 2)))

    def reduced(self, problem: MatrixRegression) -> Iterator[ReducedNet]:
        """What the data sees of a network, at each time."""
        return (reduced_weights(U, V, problem) for U, V in zip(self.U, self.V, strict=True))


def follow_factors(
    model: LiftedModel, problem: MatrixProblem, t: ArrayLike | None = None, loss: Any = "sum"
) -> MeasuredFactors:
    """The flow at t = 0 and the times t; where none are given, at its own steps to the end."""
    measured = model.lifted_problem(problem)
    c = loss_constant(loss, len(problem.target))
    rows = measured.matrices.reshape(len(problem.target), -1)
    top = float(np.linalg.norm(rows, 2))
    return _Flow(model.root, measured, c, model.rate, top).followed(t)


def follow_weights(
    net: LinearStart, problem: MatrixRegression, t: ArrayLike | None = None, loss: Any = "half"
) -> MeasuredFactors:
    """The same for a two-layer linear network, of which no more than a `root` is asked."""
    c = loss_constant(loss, len(problem.X))
    return _Flow(net.root, problem, c, 1.0, float(problem.spectrum.root[0])).followed(t)


def measured_or_followed(
    measured: MeasuredFactors | None, model: LiftedModel, problem: MatrixProblem, loss: Any
) -> MeasuredFactors:
    """A flow that was followed already, or the flow to its end."""
    return follow_factors(model, problem, loss=loss) if measured is None else measured


def lifted_pull(R: FloatArray, Z: FloatArray) -> FloatArray:
    """[[0, R], [R^T, 0]] Z."""
    rows = R.shape[0]
    return np.vstack([R @ Z[rows:], R.T @ Z[:rows]])


class MeasuredRate(NamedTuple):
    """The least mean rate -ln(error(t)/error(t0))/(t - t0) over later times, and its accuracy."""

    value: float
    atol: float

    def silence(self, promised: float) -> str:
        """Why a promised rate says nothing: there is none, or the times are too short to see it."""
        if not promised > 0.0:
            return f"the rate promised here is {promised:.3g}: the error need not fall"
        if promised <= self.atol:
            return f"the times given resolve rates of {self.atol:.2g}, not {promised:.2g}"
        return ""


def measured_rate(t: FloatArray, error: FloatArray, size: float) -> MeasuredRate:
    """Of an error at the times t, the first of them t0, that is known relative to `size`."""
    later = np.flatnonzero((t > t[0]) & (error > RESOLVED * size))
    if not (later.size and error[0] > RESOLVED * size):
        raise OutsideHypothesis(
            f"t: must hold a time after t0 = {t[0]:g} at which the error is above {RESOLVED:g} of "
            f"its size, got none: it is {error[0] / size:.2g} of it at t0. Pass earlier times."
        )
    spans = t[later] - t[0]
    rates = np.log(error[0] / error[later]) / spans
    noise = NOISE * size * (1.0 / error[0] + 1.0 / error[later]) / spans
    worst = int(np.argmin(rates + noise))
    return MeasuredRate(float(rates[worst]), float(noise[worst]))


class _Flow(NamedTuple):
    """[U; V] and int ||r|| in one vector, and the right-hand side on it."""

    root: FloatArray
    problem: MatrixProblem
    c: float
    #: 1, or 2 where both factors are one and the same
    rate: float
    #: sqrt(Lambda): the largest singular value of the measurements
    top: float

    def factors(self, y: FloatArray) -> FloatArray:
        return y[:-1].reshape(self.root.shape)

    def residual(self, Z: FloatArray) -> FloatArray:
        rows = self.problem.shape[0]
        return self.problem.residual(Z[:rows] @ Z[rows:].T)

    def error(self, y: FloatArray) -> float:
        return float(np.linalg.norm(self.residual(self.factors(y))))

    def derivative(self, _t: float, y: FloatArray) -> FloatArray:
        Z = self.factors(y)
        r = self.residual(Z)
        moved = -self.c * self.rate * lifted_pull(self.problem.adjoint(r), Z)
        return np.append(moved.ravel(), np.linalg.norm(r))

    def pace(self, y: FloatArray) -> float:
        """||Z'|| over sqrt(Lambda) ||r|| ||Z||, which it cannot exceed."""
        Z = self.factors(y)
        r = self.residual(Z)
        largest = self.top * float(np.linalg.norm(r) * np.linalg.norm(Z))
        pull = float(np.linalg.norm(lifted_pull(self.problem.adjoint(r), Z)))
        return pull / largest if largest > 0.0 else 1.0  # zero error is an end, not a saddle

    def followed(self, t: ArrayLike | None) -> MeasuredFactors:
        y0 = np.append(self.root.ravel(), 0.0)
        unit = self.top * float(np.linalg.norm(self.root, 2) ** 2)
        first = self.error(y0)
        goal = ENDED * max(first, unit)
        if t is None and first <= goal:
            return self._measured(np.zeros(1), y0[:, None])
        clock = 1.0 / (self.c * self.top * (unit + first))  # one over the fastest rate
        times = None if t is None else _times(t)
        last = LONGEST * clock if times is None else float(times[-1])

        def done(_t: float, y: FloatArray) -> float:
            return self.error(y) - goal

        def rests(_t: float, y: FloatArray) -> float:
            return self.pace(y) - RESTS

        done.terminal = rests.terminal = True  # type: ignore[attr-defined]
        solved = scipy.integrate.solve_ivp(
            self.derivative,
            (0.0, last),
            y0,
            method="DOP853",
            t_eval=times,
            rtol=RTOL,
            atol=1e-2 * RTOL * float(np.abs(self.root).max()),
            first_step=min(1e-2 * clock, last),  # the integrator's own guess may overshoot by far
            events=(done, rests) if times is None else None,
        )
        reached = times is not None or bool(solved.t_events and solved.t_events[0].size)
        if not (solved.success and reached):
            # A first step that fails leaves no state at all.
            t_end, end = (solved.t[-1], solved.y[:, -1]) if np.size(solved.t) else (0.0, y0)
            raise OutsideHypothesis(
                f"model: must start where the flow reaches zero error, got ||r|| = "
                f"{self.error(end):.3g} at t = {t_end:.3g} ({solved.message}). "
                "The start is at or near a saddle; enlarge it or widen the model."
            )
        return self._measured(solved.t, solved.y)

    def _measured(self, t: FloatArray, y: FloatArray) -> MeasuredFactors:
        Z = np.stack([self.factors(column) for column in y.T])
        error = np.array([self.error(column) for column in y.T])
        return MeasuredFactors(t, Z, self.problem.shape[0], error, y[-1], self.c)


def _times(t: ArrayLike) -> FloatArray:
    times = np.unique(np.concatenate([[0.0], np.atleast_1d(np.asarray(t, dtype=np.float64))]))
    if not (times[0] >= 0.0 and np.isfinite(times[-1]) and len(times) > 1):
        raise InputError(
            f"t: must hold finite times > 0, got {t!r}. Leave it out to follow to the end."
        )
    return times
