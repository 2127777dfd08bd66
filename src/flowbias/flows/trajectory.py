"""What `flow` returns: the predictor over time, and how it relates to its limit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flowbias.flows.coordinates import FlowCoordinates
from flowbias.flows.destination import LimitT, TowardsLimit
from flowbias.flows.fit import Quality, ReachableFit
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import Panel, course, curves, positive_times, time_axis
from flowbias.ground.html import coefficients
from flowbias.ground.typing import ArrayLike, Axes, FloatArray
from flowbias.models._base import Parameters
from flowbias.potentials import Provides
from flowbias.potentials.scale import read_real
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, SolveError

if TYPE_CHECKING:
    from flowbias.flows.driver import Curve


OUT_OF_TIME = (
    "its clock is at the end of the doubles; multiply X and y by a common factor u, for the same "
    "flow in a time u^2 times shorter"
)


class FlowStatus(Enum):
    """How a flow ended; a failure carries its remedy."""

    CONVERGED = "converged: relative residual {residual:.1e} at t = {t:.4g}"
    AT_REST = (
        "at rest since t = {t:.4g}: what is left of the residual, relatively {residual:.1e}, is "
        "rounding"
    )
    FOLLOWED = "followed to t = {t:.4g}: relative residual {residual:.1e}"
    TIED = (
        "followed to t = {t:.4g}: relative residual {residual:.1e}, but columns {tied} of X wake "
        "together, and how they share what they fit is below the rounding of so small a start; "
        "limit(model, X, y) tells"
    )
    STOPPED = (
        "stopped at t = {t:.4g} with relative residual {residual:.1e}, in the row that fits worst "
        "{worst:.1e} of its own size: {reason}. Loosen residual, change rtol, or take "
        "limit(model, X, y), which does not integrate"
    )

    @property
    def ok(self) -> bool:
        return self is not FlowStatus.STOPPED


class FlowError(SolveError):
    """A flow that could not be followed to its end; `trajectory` holds what there is."""

    @property
    def trajectory(self) -> Any:
        return self.solution


@dataclass(frozen=True)
class FlowStats:
    """What a trajectory cost; evaluations of the right-hand side and of its Jacobian."""

    seconds: float
    steps: int
    evaluations: int
    jacobians: int


@dataclass(frozen=True, eq=False, repr=False)
class BaseTrajectory(TowardsLimit[LimitT]):
    """A flow at times t: what those of all models share."""

    t: FloatArray
    status: FlowStatus
    stats: FlowStats
    model: Any
    problem: Any
    loss_constant: float

    raises: ClassVar[type[SolveError]] = FlowError
    #: what is said of a flow that was not followed to its end
    stopped: ClassVar[str] = FlowStatus.STOPPED.value

    if TYPE_CHECKING:  # fields of some, properties of others

        @property
        def route(self) -> str:
            """In which coordinates the flow was followed."""

        @property
        def t_end(self) -> float:
            """How far the flow was followed; infinite where it has come to rest."""

        @property
        def failure(self) -> str | None:
            """Why the flow was not followed to its end."""

    @property
    @abstractmethod
    def w(self) -> FloatArray:
        """Predictors, one per time."""

    @abstractmethod
    def _predictors(self, times: FloatArray) -> FloatArray:
        """One per time, all of which are within the flow."""

    @property
    @abstractmethod
    def _misfits(self) -> FloatArray:
        """Predictions less their targets, a row per time."""

    @property
    @abstractmethod
    def _numbers(self) -> Mapping[str, Any]:
        """What the words of a status are about, beside the time."""

    @property
    def _end(self) -> FloatArray:
        return np.asarray(self.w[-1])

    @cached_property
    def loss(self) -> FloatArray:
        """(c/2) ||prediction - target||^2 at each t."""
        return np.asarray(0.5 * self.loss_constant * np.sum(np.square(self._misfits), axis=1))

    def at(self, t: ArrayLike) -> FloatArray:
        """The predictor at any time up to t_end: one for one time, else one per time."""
        times = read_real("t", t, "Pass times within the flow.")
        w = self._predictors(self._within(times.ravel()))
        return np.reshape(w, (*times.shape, *w.shape[1:]))

    def _within(self, times: FloatArray) -> FloatArray:
        """Times that the flow has passed."""
        # The last time itself, back from internal time, may round to just beyond the end.
        bad = times[~((times >= 0.0) & (times <= self.t_end * (1.0 + 1e-12)))]
        if bad.size:
            raise InputError(
                f"t: must lie in [0, {self.t_end:.6g}], got {bad[0]:.6g}. "
                "Call flow(..., t=[...]) with a later last time."
            )
        return times

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        words = self.stopped if self.status is FlowStatus.STOPPED else self.status.value
        reason = (self.failure or OUT_OF_TIME).rstrip(".")
        return words.format(t=self.t[-1], reason=reason, **self._numbers)

    def _over_time(
        self, values: FloatArray, *, label: str, symbol: str, first: int = 0
    ) -> tuple[Panel, Panel]:
        """Columns of `values` and the loss against time, on logarithmic axes."""
        kept = positive_times(self.t)

        def over_time(axes: Axes) -> None:
            curves(axes, self.t[kept], values[kept], symbol=symbol, first=first)
            axes.set_ylabel(label)
            axes.set_title(f"{self.status.name}, {self.route}")
            time_axis(axes, self.t)

        def loss_over_time(axes: Axes) -> None:
            course(axes, self.t[kept], self.loss[kept], label="loss")
            time_axis(axes, self.t)

        return over_time, loss_over_time

    @abstractmethod
    def _looks(self) -> Mapping[str, str | float]:
        """What only this kind of flow has, and what its end looks like."""

    def _facts(self) -> Mapping[str, str | float | None]:
        return {
            "route": self.route,
            "times": f"{len(self.t)}, from {self.t[0]:.4g} to {self.t[-1]:.4g}",
            "loss": f"{self.loss[0]:.4g} at the first, {self.loss[-1]:.4g} at the last",
            **self._looks(),
            "steps": f"{self.stats.steps}",
            "evaluations": f"{self.stats.evaluations}",
            "seconds": f"{self.stats.seconds:.3g}",
        }

    def _about(self) -> str:
        """What only this kind of flow has, in a line."""
        return ""

    def _lines(self) -> tuple[str, ...]:
        return (
            f"route={self.route}, {self._about()}{len(self.t)} times,",
            f"steps={self.stats.steps}, evaluations={self.stats.evaluations}, "
            f"seconds={self.stats.seconds:.3g}",
        )


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(BaseTrajectory[Solution]):
    """Gradient flow from a model on a problem, at times t; w[i] is the predictor at t[i].

    >>> trajectory = fb.flow(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> trajectory.at(trajectory.t[-1]).round(3), trajectory.limit.w.round(3)
    (array([0.067, 0.467]), array([0.067, 0.467]))
    """

    problem: Regression
    _states: FloatArray = field(repr=False)
    _coordinates: FlowCoordinates = field(repr=False)
    _fit: ReachableFit = field(repr=False)
    _curve: Curve = field(repr=False)

    @property
    def route(self) -> str:
        """In which coordinates the flow was followed."""
        return self._coordinates.name

    @cached_property
    def w(self) -> FloatArray:
        """Predictors, (len(t), d)."""
        return self._coordinates.predictor(self._states)

    @property
    def _misfits(self) -> FloatArray:
        return np.asarray(self.w @ self.problem.X.T - self.problem.y)

    @cached_property
    def residual(self) -> FloatArray:
        """||X w - P y|| / ||P y|| at each t, P y the part of y that the model can fit."""
        return self._fit.residual(self.w)

    @cached_property
    def dual(self) -> FloatArray | None:
        """nu at each t, (len(t), n), with grad Q(w) = shift + X^T nu; None on other routes."""
        return self._coordinates.dual(self._states)

    @property
    def t_end(self) -> float:
        """How far the flow was followed; infinite where it has come to rest."""
        if self._curve.settled:
            return np.inf
        return float(self._coordinates.times(np.array([self._curve.end]))[0])

    @cached_property
    def elapsed(self) -> FloatArray:
        """Time since the t before, the first since 0; where t is rounded, what it no longer tells.

        Deep networks from tiny starts wake after t = scale^(2 - depth) and then move within a time
        of about 1: their t repeats there, and `at(t)` is what comes after the jump.
        """
        readings = self._readings
        if readings is None:
            return np.diff(self.t, prepend=0.0)
        return self._coordinates.durations(readings)

    @property
    def _readings(self) -> FloatArray | None:
        """Internal times of the states; None where they were asked for by t."""
        readings = np.array(self._curve.times)
        return readings if len(readings) == len(self.t) else None

    def _predictors(self, times: FloatArray) -> FloatArray:
        return self._coordinates.predictor(self._states_at(times))

    def parameters(self, t: float) -> Parameters:
        """The weights at one time, signs included."""
        if Provides.PARAMETERS not in self.model.provides:
            raise InputError(
                f"model: must provide PARAMETERS, got {self.model!r}, which is a potential alone. "
                "Pass a network, for instance DiagonalNet."
            )
        times = self._within(np.array([t], dtype=np.float64))
        return self._coordinates.parameters(self._states_at(times)[0])

    @cached_property
    def conserved_drift(self) -> float:
        """Largest relative change over t of what gradient flow conserves."""
        start = np.asarray(self.model.conserved(self.parameters(0.0)))
        # Negative powers of a tiny weight overflow; there is nothing to compare then.
        finite = np.isfinite(start)
        size = np.abs(start[finite]).max(initial=0.0) or 1.0
        later = (self.model.conserved(self._coordinates.parameters(s)) for s in self._states)
        return float(max(np.abs((q - start)[finite]).max(initial=0.0) for q in later) / size)

    @property
    def failure(self) -> str | None:
        return self._curve.failure

    @property
    def _numbers(self) -> Mapping[str, Any]:
        tied: tuple[int, ...] = ()
        if self.status is FlowStatus.TIED:
            tied = self._coordinates.undecided(self._curve.states)
        return {
            "residual": self._last.residual,
            "worst": self._last.shares.max(),
            "tied": ", ".join(str(i) for i in tied),
        }

    @property
    def _last(self) -> Quality:
        # Of one state, because printing a trajectory should not compute all of it.
        return self._fit.quality(self._coordinates.predictor(self._states[-1]))

    def _states_at(self, times: FloatArray) -> FloatArray:
        return self._curve(self._coordinates.readings(times))

    def _panels(self) -> tuple[Panel, ...]:
        """Coefficients and loss over time."""
        return self._over_time(self.w, label="coefficient  w", symbol="w")

    def _looks(self) -> Mapping[str, str | float]:
        return coefficients(self.w[-1])
