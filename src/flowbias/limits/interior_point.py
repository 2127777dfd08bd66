"""Down to the right neighbourhood in a dozen factorizations, whatever the scale.

Every coordinate is a difference of two positive weights, w = P+ - P-, and each network family grows
a side by a law of its own slack A = cost - (+-)(A^T nu):

    exponential (depth 2):   log P = -A / flexibility
    power (depth D > 2):     log P = -k log A + offset,      k = D / (D - 2)

A side that the start left out (a weight that is zero stays zero) has no branch at all.

Near the rich limit the problem is a linear program, `min sum cost P  s.t.  A (P+ - P-) = b`, bent
by a small convex term that comes from the initialization. Interior-point methods are built for
that. Two of them, both Mehrotra predictor-correctors with separate primal and dual steps:

`entropic`  depth 2.  The bent program, cost + flexibility * log P, keeps its own logarithm, and an
            auxiliary slack S with P S = kappa -> 0 steers around the boundary.
`powered`   depth D.  The network's own law P^(1/k) A = mu already is a barrier, so mu is driven
            from a comfortable value down to the one that the scale asks for.

Neither runs to convergence: `newton.py` takes over once every branch that carries weight is near
its own curve.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.driver import Iteration, iterate
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problems.regression import Constraint

# Weights below this share of the total count as none: subnormal numbers are slow.
WEIGHT_FLOOR = 1e-60


@dataclass(frozen=True)
class Branches:
    """Which coordinates have a positive and a negative side, and what each side costs."""

    plus: Mask  # over the coordinates
    minus: Mask
    cost: FloatArray  # slack of each branch at dual zero: positive sides first
    #: weights are compared in these units: what a branch is worth, where costs differ widely
    unit: FloatArray | float = 1.0

    @property
    def count(self) -> int:
        return len(self.cost)

    @property
    def split(self) -> int:
        return int(np.count_nonzero(self.plus))

    def difference(self, values: FloatArray) -> FloatArray:
        """Per coordinate: value of the positive side minus that of the negative side."""
        return self._combine(values, -1.0)

    def total(self, values: FloatArray) -> FloatArray:
        """Per coordinate: the sum of both sides."""
        return self._combine(values, 1.0)

    def _combine(self, values: FloatArray, sign: float) -> FloatArray:
        d, split = len(self.plus), self.split
        if self.count == 2 * d:
            return values[:d] + sign * values[d:]
        out = np.zeros(d)
        out[self.plus] = values[:split]
        out[self.minus] += sign * values[split:]
        return out

    def lesser(self, values: FloatArray) -> FloatArray:
        """Per coordinate: the smaller of its sides' values."""
        out = np.full(len(self.plus), np.inf)
        out[self.plus] = values[: self.split]
        out[self.minus] = np.minimum(out[self.minus], values[self.split :])
        return out[self.plus | self.minus]

    def signed(self, z: FloatArray) -> FloatArray:
        """(z on the positive sides, -z on the negative ones)."""
        if self.count == 2 * len(self.plus):
            return np.concatenate([z, -z])
        return np.concatenate([z[self.plus], -z[self.minus]])


class Response(ABC):
    """How the weight P of a branch answers to its slack A."""

    @abstractmethod
    def log_weight(self, slack: FloatArray) -> FloatArray:
        """log P at this slack."""

    @abstractmethod
    def rate(self, slack: FloatArray) -> FloatArray:
        """-d log P / d slack."""

    @abstractmethod
    def slack(self, weight: FloatArray) -> FloatArray:
        """The slack at which the branch has this weight."""

    @abstractmethod
    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        """The fraction of `change` (at most 1) that keeps every slack in its domain."""


@dataclass(frozen=True)
class ExponentialResponse(Response):
    """log P = -A / flexibility, for any real slack."""

    flexibility: float

    def log_weight(self, slack: FloatArray) -> FloatArray:
        return -slack / self.flexibility

    def rate(self, slack: FloatArray) -> FloatArray:
        return np.full_like(slack, 1.0 / self.flexibility)

    def slack(self, weight: FloatArray) -> FloatArray:
        return -self.flexibility * np.log(weight)

    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        return 1.0


@dataclass(frozen=True)
class PowerResponse(Response):
    """log P = -k log A + offset, for positive slack."""

    exponent: float
    offset: float

    def log_weight(self, slack: FloatArray) -> FloatArray:
        return -self.exponent * np.log(slack) + self.offset

    def rate(self, slack: FloatArray) -> FloatArray:
        return self.exponent / slack

    def slack(self, weight: FloatArray) -> FloatArray:
        return np.exp((self.offset - np.log(weight)) / self.exponent)

    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        return min(1.0, 0.9 * step_to_zero(slack, change))


def step_to_zero(value: FloatArray, change: FloatArray) -> float:
    """The multiple of `change` that brings the first entry of a positive `value` to zero."""
    steepest = float((-change / value).max(initial=0.0))
    return 1.0 / steepest if steepest > 0.0 else np.inf


@dataclass
class State:
    """Weights P, slacks A (moved by increments, never recomputed from the dual) and the dual."""

    weight: FloatArray
    slack: FloatArray
    dual: FloatArray


class _Linearization:
    """One factorization, and the directions it gives for any push on the branches.

    Solves  dP = conductance * (A^T dnu + push),  A (dP+ - dP-) = primal residual.
    """

    def __init__(
        self,
        constraint: Constraint,
        branches: Branches,
        conductance: FloatArray,
        primal: FloatArray,
        effort: Effort,
    ) -> None:
        self.constraint, self.branches = constraint, branches
        self.conductance, self.primal = conductance, primal
        self.system = NormalEquations(constraint, branches.total(conductance), effort)

    def direction(self, push: FloatArray, *, refine: bool = True) -> _Direction:
        forced = self.constraint.apply(self.branches.difference(self.conductance * push))
        dual = self.system.solve(self.primal - forced, refine=refine)
        rise = self.branches.signed(self.constraint.adjoint(dual))
        return _Direction(dual, -rise, self.conductance * (rise + push))


class _Direction(NamedTuple):
    dual: FloatArray
    slack: FloatArray
    weight: FloatArray


def start(constraint: Constraint, branches: Branches, guess: FloatArray) -> State:
    """Mehrotra's start: an interpolator, lifted until every weight is positive."""
    sides = branches.signed(guess)
    worth = branches.lesser(np.abs(sides) / branches.unit)
    # Where nothing is to be fitted there is no size to go by, and any will do.
    level = float(worth.mean()) or 1.0 if worth.size else 1.0
    weight = level * branches.unit + np.maximum(sides, 0.0)
    return State(weight, branches.cost.copy(), np.zeros(len(constraint.target)))


@dataclass(frozen=True)
class _Interior:
    """Weights, slacks and dual on their way, what is left of b, and how far there is to go."""

    state: State
    primal: FloatArray
    residual: float
    #: the mean product that is driven to its goal: of weight and auxiliary slack, or the mu of now
    level: float
    #: auxiliary slacks, or the products P^(1/k) A
    other: FloatArray


class _Approach(ABC):
    """What both methods have in common."""

    def __init__(
        self, constraint: Constraint, branches: Branches, begin: State, effort: Effort
    ) -> None:
        self.constraint, self.branches, self.effort = constraint, branches, effort
        self.size = float(np.linalg.norm(constraint.target))
        self.mass = float((begin.weight / branches.unit).sum())

    def run(self, start: _Interior) -> State:
        return iterate(self, start, self.effort, max_steps=100).here.state

    def missing(self, weight: FloatArray) -> tuple[FloatArray, float]:
        """What is left of b, and its length."""
        left = self.constraint.target - self.constraint.apply(self.branches.difference(weight))
        return left, float(np.linalg.norm(left))

    def terminate(self, progress: Iteration[_Interior]) -> bool:
        here = progress.here
        # Where b is not nearly fitted yet no handover is tried.
        nearly = here.residual < 1e-3 * self.size
        return bool((nearly and self.is_near(here)) or not np.isfinite(here.level))

    @abstractmethod
    def is_near(self, here: _Interior) -> bool:
        """Whether Newton's method converges from here."""

    @abstractmethod
    def step(self, progress: Iteration[_Interior]) -> _Interior:
        """A predictor, and the corrected step."""


class _Entropic(_Approach):
    """Drives P S = kappa to 0, where S is the slack beyond log P = -A / flexibility."""

    def __init__(
        self,
        constraint: Constraint,
        branches: Branches,
        response: ExponentialResponse,
        begin: State,
        effort: Effort,
    ) -> None:
        super().__init__(constraint, branches, begin, effort)
        self.response, self.bend = response, response.flexibility

    def at(self, state: State, auxiliary: FloatArray) -> _Interior:
        gap = float(state.weight @ auxiliary) / self.branches.count
        return _Interior(state, *self.missing(state.weight), gap, auxiliary)

    def is_near(self, here: _Interior) -> bool:
        # The auxiliary gap as a share of the bending term itself. From trials: larger costs Newton
        # steps, smaller costs these.
        total = float(here.state.weight.sum())
        return here.level * self.branches.count < 1e-3 * self.bend * total

    def step(self, progress: Iteration[_Interior]) -> _Interior:
        here, branches, bend = progress.here, self.branches, self.bend
        weight, slack, dual = here.state.weight, here.state.slack, here.state.dual
        auxiliary, gap = here.other, here.level
        residual = slack - self.response.slack(weight) - auxiliary
        conductance = weight / (bend + auxiliary)
        step = _Linearization(self.constraint, branches, conductance, here.primal, self.effort)

        # A predictor is only looked at, so its last digits do not matter.
        affine = step.direction(-auxiliary - residual, refine=False)
        affine_auxiliary = -auxiliary - auxiliary * affine.weight / weight
        reach_p = _step_to_boundary(weight, affine.weight)
        reach_d = _step_to_boundary(auxiliary, affine_auxiliary)
        predicted = (weight + reach_p * affine.weight) @ (auxiliary + reach_d * affine_auxiliary)
        centre = (float(predicted) / branches.count / gap) ** 3 * gap
        # Second-order terms: the product P S, and the bend of the logarithm (clipped where the
        # predictor would empty a branch: there the logarithm's expansion says nothing).
        relative = np.maximum(affine.weight / weight, -0.9)
        bent = bend * (np.log1p(relative) - relative)
        wanted = (centre - affine.weight * affine_auxiliary) / weight - auxiliary
        move = step.direction(wanted - residual - bent)
        move_auxiliary = wanted - auxiliary * move.weight / weight

        boldness = min(max(1.0 - 10.0 * gap / self.mass, 0.9), 0.9995)
        reach_p = _step_to_boundary(weight, move.weight, boldness)
        reach_d = _step_to_boundary(auxiliary, move_auxiliary, boldness)
        moved = State(
            weight + reach_p * move.weight, slack + reach_d * move.slack, dual + reach_d * move.dual
        )
        return self.at(moved, auxiliary + reach_d * move_auxiliary)


def entropic(
    constraint: Constraint,
    branches: Branches,
    response: ExponentialResponse,
    begin: State,
    effort: Effort,
) -> State:
    """Approximate `log P = -A / flexibility`, `A (P+ - P-) = b`."""
    approach = _Entropic(constraint, branches, response, begin, effort)
    # Costs are of order one, and so is a comfortable distance from the boundary.
    auxiliary = np.maximum(begin.slack - response.slack(begin.weight), 0.3)
    return approach.run(approach.at(begin, auxiliary))


class _Powered(_Approach):
    """Drives mu = P^(1/k) A down to the one that the scale asks for."""

    def __init__(
        self,
        constraint: Constraint,
        branches: Branches,
        response: PowerResponse,
        begin: State,
        effort: Effort,
    ) -> None:
        super().__init__(constraint, branches, begin, effort)
        self.k = response.exponent
        self.goal = float(np.exp(response.offset / self.k))
        self.floor = WEIGHT_FLOOR * self.mass * branches.unit

    def at(self, state: State) -> _Interior:
        product = state.weight ** (1.0 / self.k) * state.slack
        level = _barrier_level(state.weight, state.slack, self.k)
        return _Interior(state, *self.missing(state.weight), level, product)

    def is_near(self, here: _Interior) -> bool:
        carrying = here.state.weight > 1e-9 * self.mass * self.branches.unit
        off_curve = float(np.abs(np.log(here.other[carrying] / self.goal)).max(initial=0.0))
        # How far (in log) a branch that carries weight is off its curve; or how close the average
        # has come: then a single branch that is far off is better moved by Newton.
        return off_curve < 0.5 or here.level < 1.05 * self.goal

    def step(self, progress: Iteration[_Interior]) -> _Interior:
        here, k, goal = progress.here, self.k, self.goal
        weight, slack, dual = here.state.weight, here.state.slack, here.state.dual
        product, level = here.other, here.level
        conductance = k * weight / slack
        step = _Linearization(self.constraint, self.branches, conductance, here.primal, self.effort)
        affine = step.direction(slack * (goal / product - 1.0), refine=False)
        reach_p = _step_to_boundary(weight, affine.weight)
        reach_d = _step_to_boundary(slack, affine.slack)
        emptied = np.maximum(weight + reach_p * affine.weight, self.floor)
        predicted = _barrier_level(emptied, slack + reach_d * affine.slack, k)
        level_next = max(goal, min(1.0, predicted / level) ** 3 * level)
        # Second order of P^(1/k) A; the quadratic term in P only where its expansion converges.
        up, out = affine.weight / weight, affine.slack / slack
        curved = up * out / k + np.where(np.abs(up) < 1.0, (1.0 - k) / (2.0 * k * k) * up * up, 0.0)
        boldness = min(max(1.0 - 10.0 * level, 0.9), 0.9995)
        move = step.direction(slack * (level_next / product - 1.0 - curved))
        reach_p = _step_to_boundary(weight, move.weight, boldness)
        reach_d = _step_to_boundary(slack, move.slack, boldness)
        if max(reach_p, reach_d) < 0.1:
            # Too far from the middle for second-order terms to mean anything: go there first,
            # raising a branch that is far below the others by a bounded factor only.
            move = step.direction(slack * (np.minimum(level / product, 10.0) - 1.0))
            reach_p = _step_to_boundary(weight, move.weight, boldness)
            reach_d = _step_to_boundary(slack, move.slack, boldness)
        return self.at(
            State(
                np.maximum(weight + reach_p * move.weight, self.floor),
                slack + reach_d * move.slack,
                dual + reach_d * move.dual,
            )
        )


def powered(
    constraint: Constraint,
    branches: Branches,
    response: PowerResponse,
    begin: State,
    effort: Effort,
) -> State:
    """Approximate `P^(1/k) A = mu` with mu = exp(offset / k), and `A (P+ - P-) = b`."""
    approach = _Powered(constraint, branches, response, begin, effort)
    return approach.run(approach.at(begin))


def _step_to_boundary(value: FloatArray, change: FloatArray, boldness: float = 1.0) -> float:
    """The fraction of `change` (at most 1) that keeps a positive `value` positive."""
    return min(1.0, boldness * step_to_zero(value, change))


def _barrier_level(weight: FloatArray, slack: FloatArray, k: float) -> float:
    """The mu that the weights and slacks stand for on average: sum P A = mu sum P^(1 - 1/k)."""
    return float((weight @ slack) / (weight ** (1.0 - 1.0 / k)).sum())
