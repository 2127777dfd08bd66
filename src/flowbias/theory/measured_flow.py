"""Gradient flow as the theorems mean it: in the weights, sharing nothing with what they predict.

Diagonal networks carry the pull G = -c X^T (X w - y) beside the weights. Its integral over time is
what every closed form of the papers is written in, since X^T int r = -(1/c) int G.

The factors of a product follow

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

from flowbias.flows import Trajectory, flow
from flowbias.flows.request import loss_constant
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models._base import MirrorModel, Model, Parameters
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix import MatrixProblem, MatrixRegression
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import OutsideHypothesis, expects
from flowbias.theory.claim import Tolerance
from flowbias.theory.reduced_net import LinearStart, ReducedNet, reduced_weights

# Local errors of some hundred steps add up, since nothing pulls the weights back along a set of
# solutions; near the poles of depth D >= 3 the closed forms magnify them by up to 1e3 more.
FLOW = Tolerance(
    "parameter-space flow at rtol 1e-11: some hundred local errors, magnified by up to 1e3", 1e-6
)
# Those of some hundred to thousand steps add up along the set of solutions of a product.
FACTORS = Tolerance(
    "factors followed at rtol 1e-12: up to a thousand local errors, magnified by 10", 1e-8
)
# What the local errors of some hundred steps leave of an error's logarithm, where it has fallen to
# the size of the data or of the start; below ERROR_RESOLVED of that size it is not used.
RATE = Tolerance(
    "factors followed at rtol 1e-12: a hundred local errors in the logarithm of what is left of "
    "the error, which is not used below 1e-5 of its size, over the time",
    1e-10,
)
ERROR_RESOLVED = 1e-5
# A flow of factors counts as ended where the residual is below this fraction of the one at the
# start, or of what the local error of the factors makes of it.
ENDED = 1e-11


class WithPull(Model):
    """A model that carries the integral of the pull as one more parameter, which nothing reads."""

    def __init__(self, model: Model, d: int) -> None:
        self.model, self.d = model, d

    def initial_parameters(self) -> Parameters:
        inner = self.model.initial_parameters()
        parts = [np.broadcast_to(np.asarray(part, dtype=np.float64), (self.d,)) for part in inner]
        return (*parts, np.zeros(self.d))

    def predictor(self, parameters: Parameters) -> FloatArray:
        return self.model.predictor(parameters[:-1])

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        # g is the pull itself, so that the last parameter integrates it.
        return (*self.model.parameter_gradient(parameters[:-1], g), g)


@dataclass(frozen=True)
class Snapshot:
    """Weights, predictor and integrated pull at one time of the flow."""

    t: float
    parameters: Parameters
    w: FloatArray
    pull: FloatArray  # int_0^t G


@dataclass(frozen=True)
class MeasuredFlow:
    """Snapshots at increasing times, and the constant c of the loss."""

    snapshots: tuple[Snapshot, ...]
    loss_constant: float

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]


def follow(
    model: MirrorModel,
    problem: Regression,
    t: ArrayLike | None = None,
    loss: str | float = "half",
    rtol: float = 1e-11,
) -> MeasuredFlow:
    """The flow at the times t, or at its end (relative residual `rtol`) where none are given."""
    carrier = WithPull(model, problem.X.shape[1])
    times = None if t is None else np.atleast_1d(np.asarray(t, dtype=np.float64))
    trajectory = flow(carrier, problem, t=times, loss=loss, rtol=rtol, residual=rtol)
    wanted = [trajectory.t[-1]] if times is None else times
    snapshots = tuple(_snapshot(trajectory, model, float(time)) for time in wanted)
    return MeasuredFlow(snapshots, trajectory.loss_constant)


def jacobian(model: Model, weights: Parameters, X: FloatArray) -> FloatArray:
    """Gradients of the predictions in the weights, (samples, weights)."""
    return np.stack([np.concatenate(model.parameter_gradient(weights, row)) for row in X])


def _snapshot(trajectory: Trajectory, model: Any, t: float) -> Snapshot:
    parts = trajectory.parameters(t)
    weights = parts[:-1]
    return Snapshot(t, weights, model.predictor(weights), parts[-1])


@runtime_checkable
class ProductPath(Protocol):
    """A trajectory of products, however it was computed."""

    @property
    def t(self) -> FloatArray: ...
    @property
    def M(self) -> FloatArray: ...  # noqa: N802  (the name that every such trajectory has)


expects(
    ProductPath,
    "a trajectory with times t and products M",
    "Pass fb.flow(net, X, Y, t=t), or leave it out to have the flow followed.",
)


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


expects(MeasuredFactors, "a MeasuredFactors", "Leave it out to have the flow followed.")


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
    later = np.flatnonzero((t > t[0]) & (error > ERROR_RESOLVED * size))
    if not (later.size and error[0] > ERROR_RESOLVED * size):
        raise OutsideHypothesis(
            f"t: must hold a time after t0 = {t[0]:g} at which the error is above "
            f"{ERROR_RESOLVED:g} of its size, got none: it is {error[0] / size:.2g} of it at t0. "
            "Pass earlier times."
        )
    spans = t[later] - t[0]
    rates = np.log(error[0] / error[later]) / spans
    noise = RATE.size * size * (1.0 / error[0] + 1.0 / error[later]) / spans
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
    #: local error per step: close to the least that double precision resolves
    rtol: float = 1e-12
    #: longest flow, in units of the fastest time scale at the start: beyond it creeps past a saddle
    longest: float = 1e6

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
        longest = self.longest * clock
        last = longest if times is None else float(times[-1])
        if not last <= longest:
            raise InputError(
                f"t: must be at most {longest:.3g}, {self.longest:.0e} of the fastest time scale "
                f"at the start, got {last:.3g}. Leave it out to follow to the end."
            )

        def done(_t: float, y: FloatArray) -> float:
            return self.error(y) - goal

        def rests(_t: float, y: FloatArray) -> float:
            # At a saddle: what is left of the motion, a hundred local errors, is the integrator's.
            return self.pace(y) - 1e2 * self.rtol

        done.terminal = rests.terminal = True  # type: ignore[attr-defined]
        solved = scipy.integrate.solve_ivp(
            self.derivative,
            (0.0, last),
            y0,
            method="DOP853",
            t_eval=times,
            rtol=self.rtol,
            atol=1e-2 * self.rtol * float(np.abs(self.root).max()),
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
