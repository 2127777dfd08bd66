"""The potential of a parametrization, by integration.  [li2022, Theorem 4.8]

Flow along z for unit time is the dual map,

    theta' = J^T z / g,  theta(0) = theta0:   grad_dual(z) = F(theta(1)),   hess_dual(z) = J J^T / g

g = 1 for gradient fields that commute. One more unknown gives the potential itself,

    value(w(z)) = int_0^1 <s z, dw/ds> ds = int_0^1 s |J^T z|^2 / g ds,

a sum of non-negative terms: nothing cancels close to the start; conjugate(z) = <z, w(z)> - value.
The way back, from w to z = grad(w), goes along the straight line in the predictor,
theta' = J^T (J J^T)^{-1} (w - w(0)), and then by Newton's method. Duals are counted from the start:
grad Q(w(0)) = 0 and Q(w(0)) = 0, so no shift is needed and the mirror rate is 1.

After a change of time, g H = Hess Q with H = (J J^T)^{-1} [azulay2021, section 5], the flow
d/dt grad Q(w) = -g c X^T r has the limit of mirror flow in Q. The warp follows from J alone. Along
theta' = J^T c, for d >= 2 predictors,

    (d - 1) d log g = 1/2 d log det(J J^T) - tr(P Hess <c, F>) ds,    P = J^T H J,

because contracting  d_k H_ij - d_j H_ik = H_ik phi_j - H_ij phi_k  with (J J^T)_ik leaves
(d - 1) phi_j (docs/derive.md has the steps). One linear neuron w = a v: g = |a|.

That g H is a Hessian is not checked here: `time_warp` does it, and so does the potential's own
conformance, since without it Q would depend on the path.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import scipy.linalg

from flowbias.derive.parametrization import Parametrization
from flowbias.derive.unit_time import RTOL, Evaluations, integrate, sampled
from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import JointNewton
from flowbias.limits.normal_equations import Effort
from flowbias.potentials.joint import JointPotential
from flowbias.potentials.scale import double_array
from flowbias.problems.regression import Regression

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
    return sampled(line.field, line.first, RTOL_BACK, shares)[:, -1]


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


class _Inverse(JointNewton):
    """To the floor of the integrator, where shorter steps of the line search find nothing."""

    shortest = 2.0**-12


@dataclass(frozen=True, eq=False)
class DerivedPotential(JointPotential):
    """The potential that gradient flow of F(theta) from theta0 minimizes, found numerically.

    Points outside the domain, primal or dual, give NaN (the potential: infinity).
    """

    model: Parametrization
    warp: Warp = field(default_factory=NoWarp)
    #: what is left to spend; points that were not reached for want of it count as outside
    evaluations: Evaluations = field(default_factory=Evaluations, repr=False)
    #: where paths in the dual begin: any point will do, since Q depends on no path; None: the start
    origin: FlowState | None = field(default=None, repr=False)
    _states: OrderedDict[bytes, FlowState] = field(default_factory=OrderedDict, repr=False)
    _inverses: OrderedDict[bytes, FlowState] = field(default_factory=OrderedDict, repr=False)

    @property
    def dimension(self) -> int:
        return self.model.d

    @property
    def rounding(self) -> float:
        # 1e-12 per step and a hundred steps at most.
        return 1e-10

    def grad_dual(self, z: FloatArray) -> FloatArray:
        state = self.state_at(z)
        return self.model.predictor_at(state.theta) if state.inside else state.z.copy()

    def hess_dual(self, z: FloatArray) -> FloatArray:
        state = self.state_at(z)
        if not state.inside:
            return np.full((self.model.d, self.model.d), np.nan)
        return np.asarray(self.model.metric(state.theta) * np.exp(-state.log_g))

    def grad(self, w: FloatArray) -> FloatArray:
        return self._inverse(w).z.copy()

    def value(self, w: FloatArray) -> float:
        state = self._inverse(w)
        if not state.inside:
            return np.inf
        # Newton leaves w(z) a rounding error away from w: <z, w - w(z)> is what that is worth.
        return state.potential + float(state.z @ (w - self.model.predictor_at(state.theta)))

    def conjugate(self, z: FloatArray) -> float:
        state = self.state_at(z)
        if not state.inside:
            return np.inf
        return float(state.z @ self.model.predictor_at(state.theta)) - state.potential

    def along(self, dw: FloatArray, shares: FloatArray) -> FloatArray:
        """Q(w(0) + share dw) for increasing shares in (0, 1], to drawing accuracy; NaN outside."""
        return potential_along_predictor(self.model, self.warp, dw, shares)

    def state_at(self, z: FloatArray) -> FlowState:
        """The parameters (and log g, and Q) from which grad_dual(z) is read off."""
        z = self._vector("z", z)
        key = z.tobytes()
        if key not in self._states:
            found = nowhere(self.model)
            if np.isfinite(z).all():
                begin = self.origin or start_of(self.model)
                found = along_dual(self.model, self.warp, begin, z - begin.z, self.evaluations)
            remember(self._states, key, found)
        return self._states[key]

    def _inverse(self, w: FloatArray) -> FlowState:
        w = self._vector("w", w)
        key = w.tobytes()
        if key not in self._inverses:
            remember(self._inverses, key, self._newton(w))
        return self._inverses[key]

    def _newton(self, w: FloatArray) -> FlowState:
        """The dual of the limit on the equations I w = w, from where the straight line in w leads.

        Paths begin there: exact because Q depends on none, and short.
        """
        outside = nowhere(self.model)
        if not np.isfinite(w).all():
            return outside
        line = partial(
            along_predictor,
            *(self.model, self.warp, start_of(self.model), w - self.model.initial),
            evaluations=self.evaluations,
        )
        near = line()
        state = self.state_at(near.z)
        if near.inside and not state.inside:
            # The straight line in the dual leaves the domain, where the one in w does not.
            state = line(rtol=RTOL)
        if not state.inside:
            return outside
        nearby = self.begun_at(state)
        newton = _Inverse(Regression(np.eye(len(w)), w).constraint, nearby, 0.0, Effort())
        found = nearby.state_at(newton.solve(newton.at(state.z), max_steps=30).z)
        return found if self._miss(found, w) <= self.rounding else outside

    def begun_at(self, state: FlowState) -> DerivedPotential:
        """The same potential, with paths in the dual that begin at a state."""
        return replace(self, origin=state, _states=OrderedDict(), _inverses=OrderedDict())

    def _miss(self, state: FlowState, w: FloatArray) -> float:
        """max |w(z) - w| relative to the size of both and of the start; NaN outside the domain."""
        if not state.inside:
            return np.nan
        size = np.abs(w).max() + np.abs(self.model.initial).max()
        return float(np.abs(self.model.predictor_at(state.theta) - w).max() / (size or 1.0))

    def _vector(self, name: str, given: FloatArray) -> FloatArray:
        array = double_array(given, name).copy()
        if array.shape != (self.model.d,):
            raise InputError(
                f"{name}: must be one vector of shape ({self.model.d},), got shape {array.shape}. "
                "A potential that does not separate takes one point at a time."
            )
        return array


@dataclass(frozen=True, eq=False)
class WarpedPotential(DerivedPotential):
    """Q with Hess Q = g (J J^T)^{-1}, g = 1 at the start, by integration.

    >>> report = fb.derive.implicit_bias(lambda theta: theta[0] * theta[1:], [1.0, 0.5, 0.2])
    >>> report.verdict.value, type(report.potential).__name__
    ('mirror flow after a time warp', 'WarpedPotential')
    """

    warp: Warp = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "warp", HessianWarp(self.model))
