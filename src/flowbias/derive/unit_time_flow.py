"""The dual map of a parametrization by integration: flow along z for unit time.

    theta' = J^T z / g,    theta(0) = theta0,    then  w(z) = F(theta(1)),  dw/dz = J J^T / g

g = 1 where the gradient fields commute [li2022, Theorem 4.8]; otherwise g is the time warp of
`warped`, counted from g = 1 at the start. One more unknown gives the potential itself,

    Q(w(z)) = int_0^1 <s z, dw/ds> ds = int_0^1 s |J^T z|^2 / g ds,

a sum of non-negative terms: nothing cancels close to the start. The way back, from w to z, goes
along the straight line in the predictor: theta' = J^T (J J^T)^{-1} (w - w(0)).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.linalg
from scipy.integrate import DOP853

from flowbias.derive.parametrization import Parametrization
from flowbias.ground.typing import FloatArray

T = TypeVar("T")
_Field: TypeAlias = Callable[[float, FloatArray], FloatArray]

# Newton's method asks for w and dw/dz at the same dual point; a line search comes back to it.
_REMEMBERED = 1024
# Local error of a step, relative; a hundred steps add up to less than 1e-10.
_RTOL = 1e-12
# The way back only has to land where Newton's method converges at once.
_RTOL_BACK = 1e-4
# A step this short of the unit time means that the flow blows up before it: the point is outside
# the domain (or so near its end that w is beyond use: distance 1e-9 of the way).
_SHORTEST = 1e-10
# Growth by a factor 1e300 takes about 300 steps.
MOST_STEPS = 600
# Each time after this many steps the rest is estimated, and given up if it does not fit into the
# steps left: where steps keep their length (within this factor; a fast start that settles makes
# them longer, a singularity that is passed by shorter for a while), or are as short as that.
_LOOK_EVERY, _KEEPS_LENGTH, _SHORT = 16, 2.0, 1e-6


class Warp(Protocol):
    """The time warp g along theta' = J^T c:  d log g = d volume - stretch ds."""

    def volume(self, theta: FloatArray) -> float:
        """The part of log g that is a function of theta at hand."""

    def stretch(self, theta: FloatArray, c: FloatArray) -> float:
        """The part that has to be integrated: its rate where theta moves along J^T c."""


class NoWarp:
    """g = 1: the gradient fields commute."""

    def volume(self, theta: FloatArray) -> float:
        return 0.0

    def stretch(self, theta: FloatArray, c: FloatArray) -> float:
        return 0.0


class Evaluations:
    """How often a solve may still evaluate its field; flows end, short of their goal, at 0."""

    def __init__(self, left: float = np.inf) -> None:
        self.left = left

    @property
    def spent(self) -> bool:
        return self.left <= 0


@dataclass(frozen=True, eq=False)
class FlowState:
    """Where a flow has come to: parameters, log g, dual point and potential there."""

    theta: FloatArray
    log_g: float
    z: FloatArray
    potential: float

    @property
    def inside(self) -> bool:
        """Whether the flow got there at all."""
        return bool(np.isfinite(self.theta).all())


def start_of(model: Parametrization) -> FlowState:
    """z = 0, Q = 0, g = 1 at theta0."""
    return FlowState(model.start, 0.0, np.zeros(model.d), 0.0)


def nowhere(model: Parametrization) -> FlowState:
    """The answer outside the domain."""
    nan = np.full(model.d, np.nan)
    return FlowState(np.full(model.p, np.nan), np.nan, nan, np.nan)


def along_dual(
    model: Parametrization,
    warp: Warp,
    start: FlowState,
    dz: FloatArray,
    evaluations: Evaluations | None = None,
) -> FlowState:
    """From a state to the dual point dz further, on the straight line in the dual."""
    if not dz.any():
        return start
    log_unit = start.log_g - warp.volume(start.theta)

    def log_g(state: FloatArray) -> float:
        return log_unit + warp.volume(state[:-2]) - float(state[-2])

    def field(s: float, state: FloatArray) -> FloatArray:
        if not np.isfinite(state).all():
            return np.full(len(state), np.nan)
        pull, slowed = model.pulled_back(state[:-2], dz), np.exp(-log_g(state))
        # <z, dw/ds> from the dual point where this stretch starts is added at its end.
        gain = (pull @ pull) * slowed * s
        return np.concatenate([pull * slowed, [warp.stretch(state[:-2], dz) * slowed, gain]])

    end = _integrate(field, np.concatenate([start.theta, [0.0, 0.0]]), _RTOL, evaluations)
    if end is None:
        return nowhere(model)
    theta = end[:-2]
    moved = model.predictor_at(theta) - model.predictor_at(start.theta)
    potential = start.potential + float(start.z @ moved) + float(end[-1])
    return FlowState(theta, log_g(end), start.z + dz, potential)


def along_predictor(
    model: Parametrization,
    warp: Warp,
    start: FlowState,
    dw: FloatArray,
    rtol: float = _RTOL_BACK,
    evaluations: Evaluations | None = None,
) -> FlowState:
    """From a state to the predictor dw further, on the straight line in the predictor."""
    if not dw.any():
        return start
    line = _PredictorLine(model, warp, start, dw)
    end = _integrate(line.field, line.first, rtol, evaluations)
    return nowhere(model) if end is None else line.state(end)


def potential_along_predictor(
    model: Parametrization, warp: Warp, dw: FloatArray, shares: FloatArray
) -> FloatArray:
    """Q(w(0) + share dw) for increasing shares in (0, 1], to drawing accuracy; NaN outside."""
    line = _PredictorLine(model, warp, start_of(model), dw)
    values = np.full(len(shares), np.nan)
    for solver in _steps(line.field, line.first, _RTOL_BACK, Evaluations()):
        passed = (shares > solver.t_old) & (shares <= solver.t)
        if passed.any():
            values[passed] = solver.dense_output()(shares[passed])[-1]
    return values


class _PredictorLine:
    """The straight line in the predictor, lifted: unknowns theta, the warp's integral, z and Q."""

    def __init__(
        self, model: Parametrization, warp: Warp, start: FlowState, dw: FloatArray
    ) -> None:
        self.model, self.warp, self.dw = model, warp, dw
        self.log_unit = start.log_g - warp.volume(start.theta)
        self.first = np.concatenate([start.theta, [0.0], start.z, [start.potential]])

    def log_g(self, unknowns: FloatArray) -> float:
        p = self.model.p
        return self.log_unit + self.warp.volume(unknowns[:p]) - float(unknowns[p])

    def field(self, _: float, unknowns: FloatArray) -> FloatArray:
        if not np.isfinite(unknowns).all():
            return np.full(len(unknowns), np.nan)
        theta, z = unknowns[: self.model.p], unknowns[self.model.p + 1 : -1]
        J = self.model.jacobian(theta)
        c = metric_solve(J @ J.T, self.dw)
        if not np.isfinite(c).all():
            return np.full(len(unknowns), np.nan)
        rise = np.exp(self.log_g(unknowns)) * c
        stretch = self.warp.stretch(theta, c)
        return np.concatenate([J.T @ c, [stretch], rise, [z @ self.dw]])

    def state(self, unknowns: FloatArray) -> FlowState:
        p = self.model.p
        return FlowState(
            unknowns[:p], self.log_g(unknowns), unknowns[p + 1 : -1], float(unknowns[-1])
        )


def metric_solve(M: FloatArray, b: FloatArray) -> FloatArray:
    """M^{-1} b for the metric; NaN where M is no longer positive definite, or not finite."""
    # Equilibrated, so that predictors of different size are not taken for a singular metric.
    scale = 1.0 / np.sqrt(np.diag(M))
    try:
        factor = scipy.linalg.cho_factor(scale[:, None] * M * scale)
    except (scipy.linalg.LinAlgError, ValueError):
        return np.full(len(b), np.nan)
    return np.asarray(scale * scipy.linalg.cho_solve(factor, scale * b))


def _integrate(
    field: _Field, first: FloatArray, rtol: float, evaluations: Evaluations | None = None
) -> FloatArray | None:
    """The unknowns at time 1; None where they do not get there."""
    for solver in _steps(field, first, rtol, evaluations or Evaluations()):
        if solver.status == "finished" and np.isfinite(solver.y).all():
            return np.asarray(solver.y)
    return None


def _steps(
    field: _Field, first: FloatArray, rtol: float, evaluations: Evaluations
) -> Iterator[Any]:
    """The integrator after each step to time 1, as far as it gets."""
    if evaluations.spent:
        return
    size = float(np.abs(first).max()) or 1.0
    # A trial step beyond the domain may overflow; it is retried shorter.
    with np.errstate(all="ignore"):
        solver = DOP853(field, 0.0, first, 1.0, rtol=rtol, atol=1e-3 * rtol * size)
        counted, length_before = 0, 0.0
        for taken in range(1, MOST_STEPS + 1):
            solver.step()
            evaluations.left -= solver.nfev - counted
            counted = solver.nfev
            if solver.status == "failed" or solver.h_abs < _SHORTEST or evaluations.spent:
                return
            yield solver
            if solver.status == "finished":
                return
            if taken % _LOOK_EVERY == 0:
                length, steps_left = solver.h_abs, MOST_STEPS - taken
                grows = length > _KEEPS_LENGTH * length_before
                shrinks = length < length_before / _KEEPS_LENGTH and length > _SHORT
                if 1.0 - solver.t > steps_left * length and not (grows or shrinks):
                    return
                length_before = length


def remember(memory: OrderedDict[bytes, T], key: bytes, found: T) -> None:
    memory[key] = found
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)
