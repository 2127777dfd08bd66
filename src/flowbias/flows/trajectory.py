"""What `flow` returns: the predictor over time, and how it relates to its limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.flows._shown import flow_panels, flow_table
from flowbias.flows.coordinates import FlowCoordinates
from flowbias.flows.destination import destination
from flowbias.flows.fit import Quality, ReachableFit
from flowbias.flows.march import Curve
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import picture
from flowbias.ground.html import coefficients
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models._base import Parameters
from flowbias.potentials import Provides
from flowbias.potentials.scale import read_real
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class FlowStatus(Enum):
    """How a flow ended; a failure carries its remedy."""

    CONVERGED = "converged: relative residual {residual:.1e} at t = {t:.4g}"
    AT_REST = (
        "at rest since t = {t:.4g}: what is left of the residual, relatively {residual:.1e}, is "
        "rounding"
    )
    FOLLOWED = "followed to t = {t:.4g}: relative residual {residual:.1e}"
    STOPPED = (
        "stopped at t = {t:.4g} with relative residual {residual:.1e}, in the row that fits worst "
        "{worst:.1e} of its own size: {reason}. Loosen residual, change rtol, or take "
        "limit(model, X, y), which does not integrate"
    )

    @property
    def ok(self) -> bool:
        return self is not FlowStatus.STOPPED


class FlowError(RuntimeError):
    """A flow that could not be followed to its end; `trajectory` holds what there is."""

    def __init__(self, message: str, trajectory: Trajectory) -> None:
        super().__init__(message)
        self.trajectory = trajectory


@dataclass(frozen=True)
class FlowStats:
    """What a trajectory cost; evaluations of the right-hand side and of its Jacobian."""

    seconds: float
    steps: int
    evaluations: int
    jacobians: int


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """Gradient flow from a model on a problem, at times t; w[i] is the predictor at t[i].

    >>> trajectory = fb.flow(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> trajectory.at(trajectory.t[-1]).round(3), trajectory.limit.w.round(3)
    (array([0.067, 0.467]), array([0.067, 0.467]))
    """

    t: FloatArray
    status: FlowStatus
    stats: FlowStats
    model: Any
    problem: Regression
    loss_constant: float
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

    @cached_property
    def loss(self) -> FloatArray:
        """(c/2) ||X w - y||^2 at each t."""
        misfit = self.w @ self.problem.X.T - self.problem.y
        return np.asarray(0.5 * self.loss_constant * np.sum(np.square(misfit), axis=1))

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

    def at(self, t: ArrayLike) -> FloatArray:
        """The predictor at any time up to t_end: (d,) for one time, else one row per time."""
        times = read_real("t", t, "Pass times within the flow.")
        w = self._coordinates.predictor(self._states_at(times.ravel()))
        return np.reshape(w, (*times.shape, *w.shape[1:]))

    def parameters(self, t: float) -> Parameters:
        """The weights at one time, signs included."""
        if Provides.PARAMETERS not in self.model.provides:
            raise InputError(
                f"model: must provide PARAMETERS, got {self.model!r}, which is a potential alone. "
                "Pass a network, for instance DiagonalNet."
            )
        return self._coordinates.parameters(self._states_at(np.array([t], dtype=np.float64))[0])

    @cached_property
    def conserved_drift(self) -> float:
        """Largest relative change over t of what gradient flow conserves."""
        start = np.asarray(self.model.conserved(self.parameters(0.0)))
        # Negative powers of a tiny weight overflow; there is nothing to compare then.
        finite = np.isfinite(start)
        size = np.abs(start[finite]).max(initial=0.0) or 1.0
        later = (self.model.conserved(self._coordinates.parameters(s)) for s in self._states)
        return float(max(np.abs((q - start)[finite]).max(initial=0.0) for q in later) / size)

    @cached_property
    def limit(self) -> Solution:
        """The limit of this flow, solved for without integration."""
        solution: Solution = destination(self.model, self.problem)
        return solution

    @property
    def distance_to_limit(self) -> float:
        """||w - limit|| / ||limit|| at the last time."""
        size = float(np.linalg.norm(self.limit.w)) or 1.0
        return float(np.linalg.norm(self.w[-1] - self.limit.w)) / size

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        return self.status.value.format(
            t=self.t[-1],
            residual=self._last.residual,
            worst=self._last.shares.max(),
            reason=(self._curve.failure or "").rstrip("."),
        )

    @property
    def _reason(self) -> str:
        return (self._curve.failure or "it takes longer than doubles can count").rstrip(".")

    def checked(self, throw: bool) -> Trajectory:
        """Itself, or FlowError where the flow was not followed to its end and `throw` is set."""
        if throw and not self.status.ok:
            raise FlowError(self.message, self)
        return self

    @property
    def _last(self) -> Quality:
        # Of one state, because printing a trajectory should not compute all of it.
        return self._fit.quality(self._coordinates.predictor(self._states[-1]))

    def _states_at(self, times: FloatArray) -> FloatArray:
        # The last time itself, back from internal time, may round to just beyond the end.
        last = self.t_end * (1.0 + 1e-12)
        bad = times[~((times >= 0.0) & (times <= last))]
        if bad.size:
            raise InputError(
                f"t: must lie in [0, {self.t_end:.6g}], got {bad[0]:.6g}. "
                "Call flow(..., t=[...]) with a later last time."
            )
        return self._curve(self._coordinates.readings(times))

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Coefficients and loss over time; on `ax` the coefficients alone."""
        panels = flow_panels(self, self.w, label="coefficient  w", symbol="w")
        return picture(*panels, path=path, ax=ax)

    def _repr_html_(self) -> str:
        return flow_table(self, coefficients(self.w[-1]))

    def __repr__(self) -> str:
        return (
            f"Trajectory({self.message}\n"
            f"           route={self.route}, {len(self.t)} times, "
            f"steps={self.stats.steps}, evaluations={self.stats.evaluations}, "
            f"seconds={self.stats.seconds:.3g})"
        )
