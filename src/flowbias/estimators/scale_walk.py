"""Limits at many scales for cross-validation: a few products each, and no error bounds.

Neighbouring scales have neighbouring duals and nearly proportional Hessians. The next dual is
extrapolated from the last four and corrected by quasi-Newton steps: one factorization serves as
their metric for as many scales as it does, and what it has become wrong by is told by the secants
of the steps themselves (L-BFGS [Liu and Nocedal 1989]). Every limit passes a test of its
feasibility and of its duality gap,

    Q(w) + Q*(X^T nu) - <nu, y>  <=  tol (|Q| + |Q*| + 2 |<X^T nu, w>|),   summed by coordinates,

recomputed from the data; one that does not is solved for from scratch, with the full certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from flowbias.designs import design_of
from flowbias.ground import extended
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.limits.normal_equations import Effort, LinearSystem, nearby_system
from flowbias.limits.routes import only_predictor
from flowbias.limits.scale_path import limit_path
from flowbias.limits.solve import limit_with_state
from flowbias.models import MirrorModel
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

# Residual at which a limit is near enough to be tested, as a share of the tolerance of the test.
NEAR = 1e-2
# A step that leaves more than this share of the residual calls for a new factorization, and so do
# so many steps with one at one scale.
SLOW, MANY = 0.3, 8
MAX_FACTORIZATIONS, MAX_STEPS = 4, 30
# Duals of an extrapolation: four make a cubic. More are wild where columns come into use.
MEMORY = 4


class Step(NamedTuple):
    """The limit at one scale, and what it says where it is not certified."""

    w: FloatArray
    failure: str | None


def walk(
    network: MirrorModel, X: Any, y: FloatArray, log_scales: FloatArray, tol: float
) -> list[Step]:
    """The limits on (X, y) at each log-scale, in the order given."""
    if design_of(X) is not None:
        path = limit_path(network, X, y, log_scales=log_scales, tol=tol, throw=False)
        return [step_of(solution) for solution in path]
    problem = Regression(X, y)
    if problem.constraint.distance > 0.0:
        # The limit does not interpolate: the test would have to be told what it projects on.
        alone = only_predictor(problem) is not None
        return _steps(lambda s: step_of(_solved(network, problem, s, tol)), log_scales, alone)
    walker = _Walker(network, problem, tol)
    with threads_for(problem.X), np.errstate(all="ignore"):
        return _steps(walker.at, log_scales)


def _steps(
    step: Callable[[float], Step], log_scales: FloatArray, alone: bool = False, patience: int = 3
) -> list[Step]:
    """One by one; one limit, once it is certified, for all scales where `alone` it fits.

    None after `patience` failures from the beginning: on such data every scale takes long, and the
    first are the easiest.
    """
    found: list[Step] = []
    for log_scale in log_scales:
        if alone and found and found[-1].failure is None:
            found.append(found[-1])
        elif len(found) >= patience and all(before.failure for before in found):
            found.append(found[patience - 1])
        else:
            found.append(step(float(log_scale)))
    return found


def step_of(solution: Solution) -> Step:
    return Step(solution.w, None if solution.status.ok else solution.message)


def _solved(network: MirrorModel, problem: Regression, log_scale: float, tol: float) -> Solution:
    model: Any = network.at_log_scale(log_scale)
    return limit_with_state(model, problem, tol=tol, warm=None)[0]


class _Point(NamedTuple):
    """A dual of the constraint's rows, with z, w(z), what w misses of the target, and its size."""

    dual: FloatArray
    z: FloatArray
    w: FloatArray
    gap: FloatArray
    residual: float


@dataclass
class _Secants:
    """How the gap has answered to steps, which mends an inverse Hessian."""

    pairs: list[tuple[FloatArray, FloatArray, float]] = field(default_factory=list)

    def add(self, step: FloatArray, fall: FloatArray) -> None:
        curvature = float(step @ fall)
        if curvature > 0.0:
            self.pairs.append((step, fall, 1.0 / curvature))

    def solve(self, gap: FloatArray, metric: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """The step for this gap: the two loops of L-BFGS."""
        shares = []
        for step, fall, inverse in reversed(self.pairs):
            shares.append(inverse * float(step @ gap))
            gap = gap - shares[-1] * fall
        out = metric(gap)
        for (step, fall, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            out = out + (share - inverse * float(fall @ out)) * step
        return out


@dataclass
class _Walker:
    network: MirrorModel
    problem: Regression
    tol: float
    #: log-scale and normalized dual of the constraint's rows, the last MEMORY of them
    past: list[tuple[float, FloatArray]] = field(default_factory=list)
    #: the last factorization, and the sum of the w' it was made with
    system: LinearSystem | None = None
    mass: float = 1.0

    def __post_init__(self) -> None:
        self.size = extended.length(self.problem.constraint.target) or 1.0

    def at(self, log_scale: float) -> Step:
        model = self.network.at_log_scale(log_scale)
        unit = _dual_unit(model, log_scale)
        point = self._corrected(model, self._at(model, unit * self._predicted(log_scale)))
        if point is not None:
            nu = self.problem.constraint.dual_of_data(point.dual)
            if self._is_proved(model, point.w, nu):
                self._remember(log_scale, point.dual / unit)
                return Step(point.w, None)
        solution = _solved(self.network, self.problem, log_scale, self.tol)
        self.past, self.system = [], None
        if solution.status.ok:
            self._remember(log_scale, self._dual_of_rows(solution.dual) / unit)
        return step_of(solution)

    def _remember(self, log_scale: float, dual: FloatArray) -> None:
        before = [entry for entry in self.past if entry[0] != log_scale]
        self.past = [*before[1 - MEMORY :], (log_scale, dual)]

    def _predicted(self, log_scale: float) -> FloatArray:
        """The polynomial through the last duals, at the new log-scale; 0 where there are none."""
        if not self.past:
            return np.zeros(len(self.problem.constraint.target))
        scales = [s for s, _ in self.past]
        shares = np.array([_lagrange(scales, s, log_scale) for s in scales])
        return np.asarray(shares @ np.array([dual for _, dual in self.past]))

    def _at(self, model: MirrorModel, dual: FloatArray) -> _Point:
        constraint = self.problem.constraint
        z = constraint.adjoint(dual)
        w = model.potential.grad_dual(z)
        gap = constraint.target - constraint.apply(w)
        share = gap / self.size
        return _Point(dual, z, w, gap, float(np.sqrt(share @ share)))

    def _corrected(self, model: MirrorModel, point: _Point) -> _Point | None:
        """The dual of a limit that is near, from one that is not far; None where it is."""
        effort, secants, is_slow = Effort(), _Secants(), False
        mass = float(model.potential.hess_dual(point.z).sum())
        for _ in range(MAX_STEPS):
            if point.residual <= NEAR * self.tol:
                return point
            if self.system is None or is_slow:
                if effort.factorizations == MAX_FACTORIZATIONS:
                    return None
                slope = model.potential.hess_dual(point.z)
                mass = self.mass = float(slope.sum())
                if not 0.0 < mass < np.inf:
                    return None
                self.system = nearby_system(self.problem.constraint, slope, effort)
                secants = _Secants()
            system, share = self.system, self.mass / mass
            step = secants.solve(point.gap, lambda v: share * system.solve(v))  # noqa: B023
            after = self._at(model, point.dual + step)
            # A step that does harm is not taken. NaN is one.
            is_slow = not after.residual <= SLOW * point.residual or len(secants.pairs) == MANY
            if after.residual < point.residual:
                secants.add(step, point.gap - after.gap)
                point = after
        return None

    def _is_proved(self, model: MirrorModel, w: FloatArray, nu: FloatArray) -> bool:
        """The test of this module's head, on the data as they were given."""
        X, y, potential = self.problem.X, self.problem.y, model.potential
        z, misfit = X.T @ nu, X @ w - y
        value, conjugate, product = potential.value_terms(w), potential.conjugate_terms(z), z * w
        gap = abs(float(np.sum(value + conjugate - product)) + float(nu @ misfit))
        unit = float(np.sum(np.abs(value) + np.abs(conjugate) + 2.0 * np.abs(product)))
        # Against ||y|| alone, which is less than what a certificate compares with.
        return extended.length(misfit) <= self.tol * extended.length(y) and gap <= self.tol * unit

    def _dual_of_rows(self, nu: FloatArray) -> FloatArray:
        """The dual of the constraint's rows that belongs to one of X's rows."""
        constraint = self.problem.constraint
        if constraint.to_data is None:
            return nu / constraint.row_scale
        return constraint.rows @ (self.problem.X.T @ nu)  # orthonormal rows


def _dual_unit(model: Any, log_scale: float) -> float:
    """scale^(2 - depth), the reach of the dual at depth D >= 3: 1 at depth 2."""
    return float(np.exp((2.0 - model.depth) * log_scale - model.potential.log_unit))


def _lagrange(nodes: list[float], node: float, at: float) -> float:
    """The polynomial that is 1 at `node` and 0 at the other nodes."""
    return float(np.prod([(at - other) / (node - other) for other in nodes if other != node]))
