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
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problems.constraint import Constraint

# Weights below this share of the total count as none: subnormal numbers are slow.
WEIGHT_FLOOR = 1e-60
# Primal infeasibility, relative to b, above which no handover is tried.
FEASIBLE_ENOUGH = 1e-3


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
        effort.steps += 1

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


def entropic(
    constraint: Constraint,
    branches: Branches,
    response: ExponentialResponse,
    begin: State,
    effort: Effort,
    *,
    max_steps: int = 100,
    handover: float = 1e-3,
) -> State:
    """Approximate `log P = -A / flexibility`, `A (P+ - P-) = b`.

    `handover` is the auxiliary gap at which Newton's method converges from here, as a share of the
    bending term itself. From trials: larger costs Newton steps, smaller costs these.
    """
    bend = response.flexibility
    weight, slack, dual = begin.weight, begin.slack, begin.dual
    # Costs are of order one, and so is a comfortable distance from the boundary.
    auxiliary = np.maximum(slack - response.slack(weight), 0.3)
    size, mass = float(np.linalg.norm(constraint.target)), float(weight.sum())

    for _ in range(max_steps):
        primal = constraint.target - constraint.apply(branches.difference(weight))
        gap = float(weight @ auxiliary) / branches.count
        nearly = float(np.linalg.norm(primal)) < FEASIBLE_ENOUGH * size
        done = gap * branches.count < handover * bend * float(weight.sum())
        if (nearly and done) or not np.isfinite(gap):
            break
        residual = slack - response.slack(weight) - auxiliary
        step = _Linearization(constraint, branches, weight / (bend + auxiliary), primal, effort)

        # A predictor is only looked at, so its last digits do not matter.
        affine = step.direction(-auxiliary - residual, refine=False)
        affine_auxiliary = -auxiliary - auxiliary * affine.weight / weight
        reach_p = _reach(weight, affine.weight)
        reach_d = _reach(auxiliary, affine_auxiliary)
        predicted = (weight + reach_p * affine.weight) @ (auxiliary + reach_d * affine_auxiliary)
        centre = (float(predicted) / branches.count / gap) ** 3 * gap
        # Second-order terms: the product P S, and the bend of the logarithm (clipped where the
        # predictor would empty a branch: there the logarithm's expansion says nothing).
        relative = np.maximum(affine.weight / weight, -0.9)
        bent = bend * (np.log1p(relative) - relative)
        wanted = (centre - affine.weight * affine_auxiliary) / weight - auxiliary
        move = step.direction(wanted - residual - bent)
        move_auxiliary = wanted - auxiliary * move.weight / weight

        boldness = min(max(1.0 - 10.0 * gap / mass, 0.9), 0.9995)
        reach_p = _reach(weight, move.weight, boldness)
        reach_d = _reach(auxiliary, move_auxiliary, boldness)
        weight = weight + reach_p * move.weight
        auxiliary = auxiliary + reach_d * move_auxiliary
        slack = slack + reach_d * move.slack
        dual = dual + reach_d * move.dual
    return State(weight, slack, dual)


def powered(
    constraint: Constraint,
    branches: Branches,
    response: PowerResponse,
    begin: State,
    effort: Effort,
    *,
    max_steps: int = 100,
    handover: float = 0.5,
    handover_level: float = 1.05,
    shortest: float = 0.1,
    farthest: float = 10.0,
) -> State:
    """Approximate `P^(1/k) A = mu` with mu = exp(offset / k), and `A (P+ - P-) = b`.

    `handover` is how far (in log) a branch that carries weight may be off its curve, and
    `handover_level` how close the average may have come: then a single branch that is far off is
    better moved by Newton. A step that is not worth taking is `shortest`, and `farthest` the factor
    by which a centering step tries to raise a product P^(1/k) A far below the others.
    """
    k = response.exponent
    goal = float(np.exp(response.offset / k))
    weight, slack, dual = begin.weight, begin.slack, begin.dual
    unit = branches.unit
    size, mass = float(np.linalg.norm(constraint.target)), float((weight / unit).sum())

    for _ in range(max_steps):
        primal = constraint.target - constraint.apply(branches.difference(weight))
        product = weight ** (1.0 / k) * slack
        level = _barrier_level(weight, slack, k)
        carrying = weight > 1e-9 * mass * unit
        off_curve = float(np.abs(np.log(product[carrying] / goal)).max(initial=0.0))
        nearly = float(np.linalg.norm(primal)) < FEASIBLE_ENOUGH * size
        arrived = off_curve < handover or level < handover_level * goal
        if (nearly and arrived) or not np.isfinite(level):
            break
        step = _Linearization(constraint, branches, k * weight / slack, primal, effort)

        affine = step.direction(slack * (goal / product - 1.0), refine=False)
        reach_p = _reach(weight, affine.weight)
        reach_d = _reach(slack, affine.slack)
        emptied = np.maximum(weight + reach_p * affine.weight, WEIGHT_FLOOR * mass * unit)
        predicted = _barrier_level(emptied, slack + reach_d * affine.slack, k)
        level_next = max(goal, min(1.0, predicted / level) ** 3 * level)
        # Second order of P^(1/k) A; the quadratic term in P only where its expansion converges.
        up, out = affine.weight / weight, affine.slack / slack
        curved = up * out / k + np.where(np.abs(up) < 1.0, (1.0 - k) / (2.0 * k * k) * up * up, 0.0)
        boldness = min(max(1.0 - 10.0 * level, 0.9), 0.9995)
        move = step.direction(slack * (level_next / product - 1.0 - curved))
        reach_p = _reach(weight, move.weight, boldness)
        reach_d = _reach(slack, move.slack, boldness)
        if max(reach_p, reach_d) < shortest:
            # Too far from the middle for second-order terms to mean anything: go there first,
            # raising a branch that is far below the others by a bounded factor only.
            move = step.direction(slack * (np.minimum(level / product, farthest) - 1.0))
            reach_p = _reach(weight, move.weight, boldness)
            reach_d = _reach(slack, move.slack, boldness)
        weight = np.maximum(weight + reach_p * move.weight, WEIGHT_FLOOR * mass * unit)
        slack = slack + reach_d * move.slack
        dual = dual + reach_d * move.dual
    return State(weight, slack, dual)


def _reach(value: FloatArray, change: FloatArray, boldness: float = 1.0) -> float:
    """The fraction of `change` (at most 1) that keeps a positive `value` positive."""
    return min(1.0, boldness * step_to_zero(value, change))


def _barrier_level(weight: FloatArray, slack: FloatArray, k: float) -> float:
    """The mu that the weights and slacks stand for on average: sum P A = mu sum P^(1 - 1/k)."""
    return float((weight @ slack) / (weight ** (1.0 - 1.0 / k)).sum())
