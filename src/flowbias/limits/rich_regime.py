"""Limits away from the kernel regime: interior point, then Newton, in units where all is near one.

The two families (`branches.py`) are brought to a common form: w is divided by the l1 norm of the
least-norm solution and the dual by its typical size, so that neither huge nor tiny scales, X or y
matter. Everything about the scale enters through logarithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.continuation import History
from flowbias.limits.interior_point import (
    Branches,
    ExponentialResponse,
    PowerResponse,
    Response,
    State,
    entropic,
    powered,
    start,
)
from flowbias.limits.newton import polish, select_on_face
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problems.regression import Constraint

# Where the linear program has several solutions, the slacks must still tell the weights apart.
DEGENERATE_LOG_MU = -14.0


@dataclass(frozen=True)
class WarmStart:
    """A state at a nearby scale, and a guess of the normalized dual at the wanted one."""

    state: State
    predicted_dual: FloatArray


def predicted(history: History[State], log_scale: float) -> WarmStart | None:
    """The last state, with its dual moved along the secant in 1 / log_scale."""
    if not history:
        return None
    last_scale, last = history[-1]
    before_scale, before = history[0]
    if not 0 > before_scale > last_scale > log_scale:
        return WarmStart(last, last.dual)
    ahead = (1.0 / log_scale - 1.0 / last_scale) / (1.0 / last_scale - 1.0 / before_scale)
    return WarmStart(last, last.dual + ahead * (last.dual - before.dual))


@dataclass(frozen=True)
class RichProblem:
    """One limit in normalized form, with the way back."""

    constraint: Constraint  # target divided by `mass`
    branches: Branches
    response: Response
    approach: Callable[[Effort, WarmStart | None], State]
    #: the weights of a state on its curve, where the curve stands for a smaller scale
    final_weights: Callable[[State, Effort, float], FloatArray]
    mass: float
    dual_unit: float
    max_steps: ClassVar[int] = 60
    #: a warm start that needs more than this was not warm
    max_warm_steps: ClassVar[int] = 6

    def solve(
        self, effort: Effort, *, tol: float, warm: WarmStart | None = None
    ) -> tuple[State, FloatArray]:
        """The normalized state on its curve, and the predictor in the caller's units.

        Cold unless a warm start is given and works.
        """
        if warm is not None:
            state, residual = self._polish(
                self.approach(effort, warm), effort, tol, self.max_warm_steps
            )
            if residual <= 10.0 * tol:
                return state, self._predictor(state, effort, tol)
        state, _ = self._polish(self.approach(effort, None), effort, tol, self.max_steps)
        return state, self._predictor(state, effort, tol)

    def _polish(
        self, state: State, effort: Effort, tol: float, max_steps: int
    ) -> tuple[State, float]:
        return polish(
            self.constraint,
            self.branches,
            self.response,
            state,
            effort,
            tol=tol,
            max_steps=max_steps,
        )

    def _predictor(self, state: State, effort: Effort, tol: float) -> FloatArray:
        return self.mass * self.branches.difference(self.final_weights(state, effort, tol))

    def dual(self, state: State) -> FloatArray:
        """The dual of the constraint's rows, in the potential's units."""
        return self.dual_unit * state.dual


def least_norm_solution(constraint: Constraint) -> FloatArray:
    """argmin ||w||_2 s.t. A w = b; free of charge where the Gram matrix is factored already."""
    return constraint.adjoint(constraint.inverse_gram(constraint.target))


def _cheap_solution(constraint: Constraint, cost: FloatArray, effort: Effort) -> FloatArray:
    """argmin ||cost w||_2 s.t. A w = b: an interpolator worth its cost, where costs differ."""
    # Costs within this factor of each other count as equal for a first guess.
    if float(cost.max()) < 30.0 * float(cost.min()):
        return least_norm_solution(constraint)
    weights = (cost.min() / cost) ** 2
    system = NormalEquations(constraint, weights, effort)
    return np.asarray(weights * constraint.adjoint(system.solve(constraint.target)))


def exponential_problem(
    constraint: Constraint, log_plus: FloatArray, log_minus: FloatArray, rate: float
) -> RichProblem:
    """w = exp(log_plus + rate z) - exp(log_minus - rate z), z counted from the start."""
    guess = least_norm_solution(constraint)
    mass = float(np.abs(guess).sum()) or 1.0
    plus, minus = np.isfinite(log_plus), np.isfinite(log_minus)
    logs = np.concatenate([log_plus[plus], log_minus[minus]]) - np.log(mass)
    typical = max(1.0, float(np.abs(np.median(logs))))
    branches = Branches(plus, minus, cost=-logs / typical)
    response = ExponentialResponse(1.0 / typical)
    scaled = constraint.with_target(constraint.target / mass)

    def approach(effort: Effort, warm: WarmStart | None) -> State:
        if warm is None:
            begin = start(scaled, branches, guess / mass)
            return entropic(scaled, branches, response, begin, effort)
        dual = warm.predicted_dual
        slack = branches.cost - branches.signed(scaled.adjoint(dual))
        return State(warm.state.weight, slack, dual)

    def weights(state: State, effort: Effort, tol: float) -> FloatArray:
        return state.weight

    return RichProblem(scaled, branches, response, approach, weights, mass, typical / rate)


def power_problem(
    constraint: Constraint,
    log_cost_plus: FloatArray,
    log_cost_minus: FloatArray,
    depth: float,
    log_unit: float,
    effort: Effort,
) -> RichProblem:
    """w = (c+ - z)^-k - (c- + z)^-k in units exp(log_unit), z counted from the start.

    A side with infinite cost is absent.
    """
    k = depth / (depth - 2.0)
    plus, minus = np.isfinite(log_cost_plus), np.isfinite(log_cost_minus)
    cheaper = np.minimum(log_cost_plus, log_cost_minus)
    lowest = float(cheaper.min())
    cost = np.exp(cheaper - lowest)
    guess = _cheap_solution(constraint, cost, effort)
    mass = float(np.abs(guess).sum()) or 1.0
    typical = lowest + float(np.log(np.abs(cost * guess).sum() / mass or 1.0))
    logs = np.concatenate([log_cost_plus[plus], log_cost_minus[minus]])
    branches = Branches(plus, minus, cost=np.exp(logs - typical), unit=np.exp(typical - logs))
    offset = -k * (typical + log_unit) - float(np.log(mass))
    # A branch of cost c has a slack of about mu c^(1/k) and a rounding of eps c.
    # So mu = exp(-34) is where the slack of an active branch reaches the rounding of its cost, that
    # of nine in ten of them: below, the problem is the linear program in double precision, and w no
    # longer depends on mu.
    dear = float(np.clip(np.quantile(branches.cost, 0.9), 1.0, 1e6))
    smallest = -34.0 * k + (k - 1.0) * float(np.log(dear))
    response = PowerResponse(k, max(offset, smallest))
    scaled = constraint.with_target(constraint.target / mass)

    def approach(effort: Effort, warm: WarmStart | None) -> State:
        begin = start(scaled, branches, guess / mass) if warm is None else warm.state
        return powered(scaled, branches, response, begin, effort)

    def weights(state: State, effort: Effort, tol: float) -> FloatArray:
        if offset < smallest:
            true = np.exp(PowerResponse(k, offset).log_weight(state.slack))
            # A smaller share of the total may be nothing but the mu that stands for the true one.
            in_use = state.weight > 1e-10 * state.weight.sum()
            state = replace(state, weight=np.where(in_use, state.weight, true))
        if offset > DEGENERATE_LOG_MU * k:
            return state.weight
        return _weights_on_face(scaled, branches, response, state, effort, tol)

    unit = float(np.exp(typical))
    return RichProblem(scaled, branches, response, approach, weights, mass, unit)


def _weights_on_face(
    constraint: Constraint,
    branches: Branches,
    response: PowerResponse,
    state: State,
    effort: Effort,
    tol: float,
) -> FloatArray:
    """Where the linear program has a whole face of solutions, the right one among them."""
    worth = state.weight / branches.unit
    carrying = int((worth > 1e-9 * worth.sum()).sum())
    if carrying <= len(constraint.target):
        return state.weight
    near = state.weight
    # Below this mu slacks have lost so many digits that the weights on a face mean nothing.
    if response.offset < -28.0 * response.exponent:
        near = _mild_weights(constraint, branches, response.exponent, state, effort, tol)
    weight = select_on_face(constraint, branches, response, state, near, effort, tol=tol)
    return state.weight if weight is None else weight


def _mild_weights(
    constraint: Constraint, branches: Branches, k: float, state: State, effort: Effort, tol: float
) -> FloatArray:
    """The weights at a mu well above rounding, for a first idea of those on the face."""
    mild = PowerResponse(k, DEGENERATE_LOG_MU * k)
    begin = start(constraint, branches, branches.difference(state.weight))
    near = powered(constraint, branches, mild, begin, effort)
    near, _ = polish(constraint, branches, mild, near, effort, tol=tol, max_steps=60)
    return near.weight
