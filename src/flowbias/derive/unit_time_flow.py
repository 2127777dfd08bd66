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
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import scipy.linalg

from flowbias.derive.parametrization import Parametrization
from flowbias.derive.unit_time import RTOL, Evaluations, integrate, steps
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray

T = TypeVar("T")

# The way back only has to land where Newton's method converges at once.
RTOL_BACK = 1e-4


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


class HessianWarp:
    """The only g, up to a constant, for which g (J J^T)^{-1} can be a Hessian."""

    def __init__(self, model: Parametrization) -> None:
        self._model = model
        self._torch = require_torch()
        # With one predictor any metric is a second derivative; g = 1 is as good as any other.
        self._share = 1.0 / (model.d - 1) if model.d > 1 else 0.0

    def volume(self, theta: FloatArray) -> float:
        """log det(J J^T) / (2 (d - 1)); -inf where J has lost rank."""
        values = np.linalg.svd(self._model.jacobian(theta), compute_uv=False)
        return self._share * float(np.log(values).sum())

    def stretch(self, theta: FloatArray, c: FloatArray) -> float:
        """tr(P Hess <c, F>) / (d - 1): curvature of <c, F> summed over what the flow can move."""
        _, _, basis = np.linalg.svd(self._model.jacobian(theta), full_matrices=False)
        gradient = self._torch.autograd.grad
        # Plain double backward: a tenth of the overhead of the composed transforms, and this is
        # where integration spends its time.
        point = self._model.tensor(theta).requires_grad_()
        w = self._model.torch_function(point)
        (slope,) = gradient(w, point, self._model.tensor(c), create_graph=True)
        if not slope.requires_grad:
            return 0.0  # F is linear
        total = 0.0
        for direction in self._torch.tensor(np.ascontiguousarray(basis)):
            (turned,) = gradient(slope, point, direction, retain_graph=True)
            total += float(direction @ turned)
        return self._share * total


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

    end = integrate(field, np.concatenate([start.theta, [0.0, 0.0]]), RTOL, evaluations)
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
    rtol: float = RTOL_BACK,
    evaluations: Evaluations | None = None,
) -> FlowState:
    """From a state to the predictor dw further, on the straight line in the predictor."""
    if not dw.any():
        return start
    line = _PredictorLine(model, warp, start, dw)
    end = integrate(line.field, line.first, rtol, evaluations)
    return nowhere(model) if end is None else line.state(end)


def potential_along_predictor(
    model: Parametrization, warp: Warp, dw: FloatArray, shares: FloatArray
) -> FloatArray:
    """Q(w(0) + share dw) for increasing shares in (0, 1], to drawing accuracy; NaN outside."""
    line = _PredictorLine(model, warp, start_of(model), dw)
    values = np.full(len(shares), np.nan)
    for solver in steps(line.field, line.first, RTOL_BACK, Evaluations()):
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


def remember(memory: OrderedDict[bytes, T], key: bytes, found: T, most: int = 1024) -> None:
    """Newton's method asks for w and dw/dz at one dual point; a line search comes back to it."""
    memory[key] = found
    while len(memory) > most:
        memory.popitem(last=False)
