"""The potential of a parametrization, by integration.  [li2022, Theorem 4.8]

    grad_dual(z) = F(theta(1)),  theta' = J^T z / g          hess_dual(z) = J J^T / g  there
    grad(w)      = z with grad_dual(z) = w, by Newton's method
    value(w)     = int s |J^T z|^2 / g ds,    conjugate(z) = <z, w(z)> - value(w(z))

g = 1 for gradient fields that commute. Duals are counted from the start: grad Q(w(0)) = 0 and
Q(w(0)) = 0, so no shift is needed and the mirror rate is 1.

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
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from flowbias.derive.parametrization import Parametrization
from flowbias.derive.unit_time import RTOL, Evaluations
from flowbias.derive.unit_time_flow import (
    FlowState,
    HessianWarp,
    NoWarp,
    Warp,
    along_dual,
    along_predictor,
    metric_solve,
    nowhere,
    potential_along_predictor,
    remember,
    start_of,
)
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.potentials.joint import JointPotential


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
                found = self._along_dual(begin, z - begin.z)
            remember(self._states, key, found)
        return self._states[key]

    def _inverse(self, w: FloatArray) -> FlowState:
        w = self._vector("w", w)
        key = w.tobytes()
        if key not in self._inverses:
            remember(self._inverses, key, self._newton(w))
        return self._inverses[key]

    def _newton(self, w: FloatArray) -> FlowState:
        """Newton's method on w(z) = w, from where the straight line in w leads.

        Each step flows on from the last state: exact because Q depends on no path, and short.
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
        miss = self._miss(state, w)
        for _ in range(30):
            if not state.inside or miss <= 1e-13:  # what integration at 1e-12 can give
                return state
            step = self._newton_step(state, w)
            for halving in range(12):
                trial = self._along_dual(state, 0.5**halving * step)
                missed = self._miss(trial, w)
                if missed < miss:
                    break
            else:
                # No progress: the floor of the integrator, or the end of the domain.
                break
            state, miss = trial, missed
        return state if miss <= self.rounding else outside

    def _along_dual(self, start: FlowState, dz: FloatArray) -> FlowState:
        return along_dual(self.model, self.warp, start, dz, self.evaluations)

    def _newton_step(self, state: FlowState, w: FloatArray) -> FloatArray:
        change = w - self.model.predictor_at(state.theta)
        step = metric_solve(self.model.metric(state.theta), change)
        return np.asarray(np.exp(state.log_g) * step)

    def _miss(self, state: FlowState, w: FloatArray) -> float:
        """max |w(z) - w| relative to the size of both and of the start; NaN outside the domain."""
        if not state.inside:
            return np.nan
        size = np.abs(w).max() + np.abs(self.model.initial).max()
        return float(np.abs(self.model.predictor_at(state.theta) - w).max() / (size or 1.0))

    def _vector(self, name: str, given: FloatArray) -> FloatArray:
        array = np.array(given, dtype=np.float64)
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
