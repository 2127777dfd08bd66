"""In which variables a flow is followed: what a route offers to the integrator, and three of them.

A state may run on an internal time tau = time_rate * t, so that the loss constant and the speed of
a parametrization cost no steps.

The weights themselves, as it is written in the papers,

    d theta/dt = -c (dF/dtheta)^T X^T (X F(theta) - y)

serve models without a potential, and check the others: they share nothing with the dual but the
integrator. Of a model with a potential, n unknowns (or rank X) do

    d nu/dt = g c (P y - X w(nu)),    w(nu) = grad_dual(shift + X^T nu)

however many features or parameters there are: gradient ascent on a concave function, with the
symmetric Jacobian -g c X diag(w'(z)) X^T [woodworth2020, proof of Theorem 1; azulay2021, Theorem
1]. One linear neuron takes rank(X) + 1,

    w = w(0) + A^T nu,    a' = c <A w, b - a A w>,    nu' = c a (b - a A w)

where A w = A w(0) + A A^T nu costs n^2: no product with all features is needed on the way.
"""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy.integrate import BDF, DOP853, LSODA, OdeSolver

from flowbias.flows.fit import ReachableFit
from flowbias.flows.request import check_sizes
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models._base import HasPotential, Parameters
from flowbias.models.neuron import Neuron, NeuronWeights

# Ratio of the fastest to the slowest rate from which implicit steps are faster: 24 unknowns took
# 0.13 s against 0.22 s at a ratio of 100, 0.3 s against 1.6 s at 900.
STIFF = 200.0


def stiff_solver(time: float) -> Callable[..., OdeSolver]:
    """Who takes steps of a stiff flow: LSODA from the start on, BDF where it is taken up again.

    LSODA begins with explicit steps, and leaves them by their error: near rest that is rounding,
    and it would stay with steps as short as stability asks for, a million to the end of a flow.
    """
    return LSODA if time == 0.0 else BDF


class FlowCoordinates(ABC):
    """The flow of one model on one problem, as an initial value problem."""

    #: what `Trajectory.route` calls these coordinates
    name: str
    start: FloatArray
    time_rate: float

    def times(self, readings: FloatArray) -> FloatArray:
        """t at internal times."""
        return self._in_time(readings)

    def readings(self, times: FloatArray) -> FloatArray:
        """Internal times at t."""
        with np.errstate(over="ignore"):  # beyond the end of all clocks
            return times * self.time_rate

    def durations(self, readings: FloatArray) -> FloatArray:
        """t from each internal time of a curve to the next, the first from 0 on."""
        return self._in_time(np.diff(readings, prepend=0.0))

    def _in_time(self, internal: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            t = internal / self.time_rate
        if not np.isfinite(t).all():
            raise InputError(
                f"loss: must let times be doubles, got one at rate {self.time_rate:.1e}. "
                "Pass a larger constant: it sets the clock alone."
            )
        return t

    @abstractmethod
    def natural_scales(self) -> tuple[float, float]:
        """Size of the state and length of internal time at which something happens."""

    @abstractmethod
    def solver(self, time: float, state: FloatArray, end: float, **options: Any) -> OdeSolver:
        """An integrator set at a state that goes no further than the internal time `end`.

        The options are first_step, rtol and atol, as SciPy's take them.
        """

    @abstractmethod
    def predictor(self, states: FloatArray) -> FloatArray:
        """w at one state, or at each row of states."""

    @abstractmethod
    def parameters(self, state: FloatArray) -> Parameters:
        """The weights at one state."""

    def dual(self, states: FloatArray) -> FloatArray | None:
        """nu with grad Q(w) = shift + X^T nu; None for coordinates that do not know it."""
        return None

    def ahead(self, state: FloatArray) -> FloatArray:
        """What else than residuals falls while a flow gets on."""
        return np.zeros(0)

    def stage(self, state: FloatArray) -> bytes:
        """What falls is compared within a stage: another one may begin higher up."""
        return b""

    def undecided(self, states: list[FloatArray]) -> tuple[int, ...]:
        """Coordinates whose share of what they fit together the digits of states do not tell."""
        return ()

    def rounding(self, state: FloatArray) -> FloatArray:
        """How much of the misfit, row by row, the rounding of the state alone may cause."""
        return np.zeros(1)


# --- the weights ---------------------------------------------------------------------------------


# Up to here implicit steps pay: their Jacobian, by differences, takes one evaluation per parameter.
_IMPLICIT_UP_TO = 400


class ParameterLayout:
    """Parameters as one vector and back; shape () becomes one value per feature."""

    def __init__(self, initial: Parameters, d: int) -> None:
        parts = [np.asarray(part, dtype=np.float64) for part in initial]
        parts = [np.broadcast_to(part, (d,)) if part.ndim == 0 else part for part in parts]
        self.shapes = [part.shape for part in parts]
        self.cuts = np.cumsum([part.size for part in parts])[:-1]
        # A NamedTuple stays one, so that a model can go on using its names.
        self.rebuild: Any = getattr(type(initial), "_make", tuple)
        self.start = self.flat(tuple(parts))

    def flat(self, parameters: Parameters) -> FloatArray:
        return np.concatenate([np.ravel(part) for part in parameters])

    def unflat(self, state: FloatArray) -> Parameters:
        parts = np.split(state, self.cuts)
        shaped = (part.reshape(s) for part, s in zip(parts, self.shapes, strict=True))
        parameters: Parameters = self.rebuild(shaped)
        return parameters


class ParameterCoordinates(FlowCoordinates):
    """All weights in one vector, on the time tau = c t."""

    name = "parameter"

    def __init__(self, model: Any, fit: ReachableFit, c: float) -> None:
        self.model, self.fit, self.time_rate = model, fit, c
        self.layout = ParameterLayout(model.initial_parameters(), fit.rows.shape[1])
        self.start = self.layout.start

    def predictor(self, states: FloatArray) -> FloatArray:
        if states.ndim == 1:
            return np.asarray(self.model.predictor(self.layout.unflat(states)))
        return np.stack([self.predictor(state) for state in states])

    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        parameters = self.layout.unflat(state)
        # Trial points of a step that is too long may overflow; the step is then retried shorter.
        with np.errstate(over="ignore", invalid="ignore"):
            pull = self.fit.pull(np.asarray(self.model.predictor(parameters))) @ self.fit.rows
            return self.layout.flat(self.model.parameter_gradient(parameters, pull))

    def solver(self, time: float, state: FloatArray, end: float, **options: Any) -> OdeSolver:
        kind = stiff_solver(time) if state.size <= _IMPLICIT_UP_TO else DOP853
        return kind(self.velocity, time, state, end, **options)

    def natural_scales(self) -> tuple[float, float]:
        sizes = np.abs(self.start[self.start != 0.0])
        # Weights grow by factors from their start: the smallest one must be followed as well.
        return float(sizes.min()) if sizes.size else 1.0, self._natural_time()

    # What leaves the double range is refused at the end.
    @np.errstate(over="ignore", invalid="ignore")
    def _natural_time(self) -> float:
        """Time in which either the weights or their velocity change by about their own size."""
        speed = self.velocity(0.0, self.start)
        size, pace = extended.length(self.start), extended.length(speed)
        if size == 0.0 or pace == 0.0:
            return 1.0
        probe = 1e-6 * size / pace
        ahead = self.velocity(0.0, self.start + probe * speed)
        change = extended.length(ahead - speed) / probe if probe > 0.0 else np.inf
        natural = size / pace if change == 0.0 else min(size / pace, pace / change)
        if not 0.0 < natural < np.inf:
            raise InputError(
                "X, y: must leave the flow's speed and its change in the double range, got "
                f"{pace:.1e} and {change:.1e}. Rescale X, y and the start: it multiplies them by "
                "themselves and by each other."
            )
        return natural

    def feature_jacobian(self, state: FloatArray) -> FloatArray:
        """Derivative of A F(theta), one row per row of A."""
        parameters = self.layout.unflat(state)
        gradients = (self.model.parameter_gradient(parameters, row) for row in self.fit.rows)
        return np.stack([self.layout.flat(gradient) for gradient in gradients])

    def parameters(self, state: FloatArray) -> Parameters:
        return self.layout.unflat(state)


# --- the dual ------------------------------------------------------------------------------------


# Trial points of an implicit step may leave the dual domain (depth > 2) or overflow (depth 2). A
# predictor this far above anything the flow visits makes the step fail and be retried shorter.
BEYOND = 1e3
# Internal times end here, far beyond rest and before overflow; and rates: their inverses, times the
# square root of the tightest tolerance, are normal doubles.
FOREVER = 1e300


class HasClock(HasPotential, Protocol):
    """What the dual flow needs of a model: its potential, and how fast its dual moves."""

    @property
    def mirror_rate(self) -> float: ...


def mirror_time_rate(model: HasClock, c: float) -> float:
    """g c: how much faster than t the dual's time runs."""
    rate = float(model.mirror_rate) * c
    if not 0.0 < rate < np.inf:
        raise InputError(
            f"scale: must give times within the double range, got a mirror rate of {rate:g}. "
            "Take limit(model, X, y), which needs no time, or a scale nearer to 1."
        )
    return rate


class DualCoordinates(FlowCoordinates):
    """nu, counted from the start, on the time tau = g c t."""

    name = "dual"

    def __init__(self, model: HasClock, fit: ReachableFit, c: float) -> None:
        self.model, self.fit, self.time_rate = model, fit, mirror_time_rate(model, c)
        self.potential = model.potential
        d = fit.rows.shape[1]
        self.shift = np.broadcast_to(np.asarray(model.shift, dtype=np.float64), (d,))
        self.start = np.zeros(fit.rows.shape[0])
        initial = self.potential.grad_dual(self.shift)
        lengths = fit.column_lengths
        typical = fit.size / np.min(lengths[lengths > 0.0], initial=np.inf)
        self._largest = BEYOND * (float(np.abs(initial).max()) + typical)

    # Trial points may overflow; what comes of them is taken back.
    @np.errstate(over="ignore", invalid="ignore")
    def predictor(self, states: FloatArray) -> FloatArray:
        w = self.potential.grad_dual(self.shift + states @ self.fit.rows)
        return np.clip(w, -self._largest, self._largest)

    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        return self.fit.pull(self.predictor(state))

    @np.errstate(over="ignore", invalid="ignore")
    def jacobian(self, _: float, state: FloatArray) -> FloatArray:
        rows = self.fit.rows
        return np.asarray(-(rows * self._slope(state)) @ rows.T)

    def _slope(self, state: FloatArray) -> FloatArray:
        """w'(z) of the clipped map: a steep one would let a corrector accept a point beyond."""
        z = self.shift + state @ self.fit.rows
        inside = np.abs(self.potential.grad_dual(z)) < self._largest
        return np.where(inside, self.potential.hess_dual(z), 0.0)

    def solver(self, time: float, state: FloatArray, end: float, **options: Any) -> OdeSolver:
        options["jac"] = self.jacobian
        return stiff_solver(time)(self.velocity, time, state, end, **options)

    def natural_scales(self) -> tuple[float, float]:
        """Sizes of nu and tau at which something happens, whatever the scale of the start.

        Either the tangent kernel explains the data, or some coordinate of z moves so far that
        w'(z) changes by a factor: whichever comes first.
        """
        pull = self.velocity(0.0, self.start)
        with np.errstate(over="ignore", invalid="ignore"):
            stiffness = float(np.abs(self.jacobian(0.0, self.start)).sum(axis=1).max())
            drift = float(np.abs(pull @ self.fit.rows).max())
        _check_rate(max(stiffness, drift))
        length = self._natural_length()
        size = length / float(self.fit.column_lengths.max())
        duration = length / drift if drift > 0.0 else np.inf
        if stiffness > 0.0:
            with np.errstate(over="ignore"):
                size = np.fmin(size, np.linalg.norm(pull) / np.float64(stiffness))
                duration = np.fmin(duration, 1.0 / np.float64(stiffness))
        # Nothing happens where nothing can move; any ordinary number will do.
        return _ordinary(size), _ordinary(duration)

    def _natural_length(self) -> float:
        """Largest change of z (within a factor 2) that keeps w' within a factor; inf if unknown."""
        moving = self.potential.hess_dual(self.shift) > 0.0

        def is_short(radius: float) -> bool:
            growth = self.potential.hess_growth(self.shift, radius)
            # One natural length of the dual doubles w'(z).
            return bool(np.max(growth, initial=0.0, where=moving) <= 2.0)

        exponents = range(-1000, 1001)
        first_long = bisect.bisect_left(exponents, True, key=lambda e: not is_short(2.0**e))
        if first_long in (0, len(exponents)):
            return np.inf
        return float(2.0 ** exponents[first_long - 1])

    def rounding(self, state: FloatArray) -> FloatArray:
        # nu's slow directions may be large where its stiff ones would need more digits. z is a sum
        # of n terms and a row of X w one of d, and each addition rounds once.
        rows = np.abs(self.fit.rows)
        terms = np.abs(self.shift) + np.abs(state) @ rows
        once = np.finfo(float).eps * (rows @ (self._slope(state) * terms))
        return np.asarray(sum(rows.shape) * once)

    def dual(self, states: FloatArray) -> FloatArray:
        return self.fit.dual_of_data(states)

    def parameters(self, state: FloatArray) -> Parameters:
        model: Any = self.model
        weights: Parameters = model.parameters(state @ self.fit.rows)
        return weights


def _check_rate(rate: float) -> None:
    if not rate < FOREVER:
        raise InputError(
            f"X: must leave the rates of the flow, of the order of X^2 w', below {FOREVER:g}, got "
            f"{rate:.1e}. Divide X and y by a common factor u: the same flow, u^2 times slower."
        )


def _ordinary(value: float) -> float:
    return float(value) if 0.0 < value < np.inf else 1.0


# --- one linear neuron ---------------------------------------------------------------------------


class NeuronCoordinates(FlowCoordinates):
    """(a, nu) on the time tau = c t."""

    name = "neuron"

    def __init__(self, model: Neuron, fit: ReachableFit, c: float) -> None:
        check_sizes(
            {
                "X": float(np.abs(fit.rows).max()),
                "y": float(np.abs(fit.target).max()),
                "a, w": max(abs(model.a), float(np.abs(model.w).max())),
            }
        )
        self.model, self.fit, self.time_rate = model, fit, c
        self.start = np.concatenate([[model.a], np.zeros(len(fit.rows))])
        self._first = fit.rows @ model.w
        self._gram = fit.rows @ fit.rows.T

    def predictor(self, states: FloatArray) -> FloatArray:
        inner = self.model.w + states[..., 1:] @ self.fit.rows
        return np.asarray(states[..., :1] * inner)

    # Trial points of a step that is too long may overflow; the step is then retried shorter.
    @np.errstate(over="ignore", invalid="ignore")
    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        inputs = self._first + self._gram @ state[1:]
        pull = self.fit.target - state[0] * inputs
        return np.concatenate([[inputs @ pull], state[0] * pull])

    @np.errstate(over="ignore", invalid="ignore")
    def jacobian(self, _: float, state: FloatArray) -> FloatArray:
        a, inputs = state[0], self._first + self._gram @ state[1:]
        matrix = np.empty((state.size, state.size))
        slack = self.fit.target - 2.0 * a * inputs
        matrix[0, 0] = -float(inputs @ inputs)
        matrix[0, 1:] = self._gram @ slack
        matrix[1:, 0] = slack
        matrix[1:, 1:] = -(a**2) * self._gram
        return matrix

    def solver(self, time: float, state: FloatArray, end: float, **options: Any) -> OdeSolver:
        # nu has units of its own: it moves w by as much as a moves.
        sizes = np.full(state.size, options.pop("atol"))
        sizes[1:] /= float(np.sqrt(self._gram.diagonal().max()))
        options |= {"atol": sizes, "jac": self.jacobian}
        return stiff_solver(time)(self.velocity, time, state, end, **options)

    def natural_scales(self) -> tuple[float, float]:
        size = max(abs(self.model.a), extended.length(self.model.w))
        speed = self.velocity(0.0, self.start)
        speed[1:] *= float(np.sqrt(self._gram.diagonal().max()))
        pace = float(np.linalg.norm(speed))
        change = float(np.abs(self._gram).sum(axis=1).max()) * size**2
        duration = size / pace if pace > 0.0 else np.inf
        return size, min(duration, 1.0 / change if change > 0.0 else np.inf, 1e300)

    def dual(self, states: FloatArray) -> FloatArray | None:
        """3/2 sign(a) nu, in units of X's rows; NaN once a has left the sign of its start."""
        kept = states[..., :1] * self.model.a > 0.0
        nu = 1.5 * float(np.sign(self.model.a)) * states[..., 1:]
        return self.fit.dual_of_data(np.where(kept, nu, np.nan))

    def rounding(self, state: FloatArray) -> FloatArray:
        # nu's slow directions may be large where its stiff ones would need more digits.
        moved = np.abs(self._gram) @ np.abs(state[1:]) + np.abs(self._first)
        return np.asarray(np.finfo(float).eps * abs(state[0]) * moved)

    def parameters(self, state: FloatArray) -> Parameters:
        w: Any = self.model.w + state[1:] @ self.fit.rows
        return NeuronWeights(state[:1], w)
