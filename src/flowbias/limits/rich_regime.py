"""Limits away from the kernel regime: interior point, then Newton, in units where all is near one.

The two families (`branches.py`) are brought to a common form: w is divided by the l1 norm of the
least-norm solution and the dual by its typical size, so that neither huge nor tiny scales, X or y
matter. Everything about the scale enters through logarithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from flowbias._typing import FloatArray
from flowbias.limits.branches import (
    Branches,
    ExponentialResponse,
    PowerResponse,
    Response,
)
from flowbias.limits.face import select_on_face
from flowbias.limits.interior_point import State, entropic, least_norm_solution, powered
from flowbias.limits.newton import polish
from flowbias.limits.normal_equations import Effort
from flowbias.problem import Constraint

# mu = exp(-34) is where the slack of an active branch reaches the rounding of its cost: below, the
# problem is the linear program in double precision, and w no longer depends on mu.
SMALLEST_LOG_MU = -34.0
# Where the linear program has several solutions, the slacks must still tell the weights apart.
DEGENERATE_LOG_MU = -14.0
MAX_NEWTON_STEPS = 60
# A warm start that needs more than this was not warm.
MAX_WARM_STEPS = 6


@dataclass(frozen=True)
class WarmStart:
    """A state at a nearby scale, and a guess of the normalized dual at the wanted one."""

    state: State
    predicted_dual: FloatArray


@dataclass(frozen=True)
class RichProblem:
    """One limit in normalized form, with the way back."""

    constraint: Constraint  # target divided by `mass`
    branches: Branches
    response: Response
    #: the network's own law, where `response` stands for it because it is beyond rounding
    true_response: PowerResponse | None
    approach: Callable[[Effort, WarmStart | None], State]
    mass: float
    dual_unit: float

    def solve(self, effort: Effort, *, tol: float, warm: WarmStart | None = None) -> State:
        """The normalized state on its curve; cold unless a warm start is given and works."""
        if warm is not None:
            state, residual = self._polish(self.approach(effort, warm), effort, tol, MAX_WARM_STEPS)
            if residual <= 10.0 * tol:
                return state
        state, _ = self._polish(self.approach(effort, None), effort, tol, MAX_NEWTON_STEPS)
        return self._on_face(state, effort, tol)

    def _on_face(self, state: State, effort: Effort, tol: float) -> State:
        """Where the linear program was solved and has a whole face of solutions: the right one."""
        carrying = int((state.weight > 1e-9 * state.weight.sum()).sum())
        if self.true_response is None or carrying <= len(self.constraint.target):
            return state
        k = self.true_response.exponent
        mild = PowerResponse(k, DEGENERATE_LOG_MU * k)
        near = powered(self.constraint, self.branches, mild, effort)
        near, _ = polish(
            self.constraint, self.branches, mild, near, effort, tol=tol, max_steps=MAX_NEWTON_STEPS
        )
        weight = select_on_face(self.constraint, self.branches, mild, near, effort, tol=tol)
        return state if weight is None else replace(state, weight=weight)

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

    def predictor(self, state: State) -> FloatArray:
        """w in the caller's units."""
        weight = state.weight
        if self.true_response is not None:
            true = np.exp(self.true_response.log_weight(state.slack))
            weight = np.where(weight > 1e-12 * weight.sum(), weight, true)
        return self.mass * self.branches.difference(weight)

    def dual(self, state: State) -> FloatArray:
        """The dual of the constraint's rows, in the potential's units."""
        return self.dual_unit * state.dual


def _mass_of(constraint: Constraint) -> float:
    """Typical l1 size of solutions; 1 where b = 0."""
    return float(np.abs(least_norm_solution(constraint)).sum()) or 1.0


def exponential_problem(
    constraint: Constraint, log_plus: FloatArray, log_minus: FloatArray, rate: float
) -> RichProblem:
    """w = exp(log_plus + rate z) - exp(log_minus - rate z), z counted from the start."""
    mass = _mass_of(constraint)
    plus, minus = np.isfinite(log_plus), np.isfinite(log_minus)
    logs = np.concatenate([log_plus[plus], log_minus[minus]]) - np.log(mass)
    typical = max(1.0, float(np.abs(np.median(logs))))
    branches = Branches(plus, minus, cost=-logs / typical)
    response = ExponentialResponse(1.0 / typical)
    scaled = constraint.with_target(constraint.target / mass)

    def approach(effort: Effort, warm: WarmStart | None) -> State:
        if warm is None:
            return entropic(scaled, branches, response, effort)
        dual = warm.predicted_dual
        slack = branches.cost - branches.signed(scaled.adjoint(dual))
        return State(warm.state.weight, slack, dual)

    return RichProblem(scaled, branches, response, None, approach, mass, typical / rate)


def power_problem(
    constraint: Constraint,
    log_cost_plus: FloatArray,
    log_cost_minus: FloatArray,
    depth: float,
    log_unit: float,
) -> RichProblem:
    """w = (c+ - z)^-k - (c- + z)^-k in units exp(log_unit), z counted from the start.

    A side with infinite cost is absent.
    """
    k = depth / (depth - 2.0)
    mass = _mass_of(constraint)
    plus, minus = np.isfinite(log_cost_plus), np.isfinite(log_cost_minus)
    logs = np.concatenate([log_cost_plus[plus], log_cost_minus[minus]])
    typical = float(np.median(logs))
    branches = Branches(plus, minus, cost=np.exp(logs - typical))
    offset = -k * (typical + log_unit) - float(np.log(mass))
    beyond = offset < SMALLEST_LOG_MU * k
    response = PowerResponse(k, max(offset, SMALLEST_LOG_MU * k))
    true_response = PowerResponse(k, offset) if beyond else None
    scaled = constraint.with_target(constraint.target / mass)

    def approach(effort: Effort, warm: WarmStart | None) -> State:
        return powered(scaled, branches, response, effort, warm.state if warm else None)

    unit = float(np.exp(typical))
    return RichProblem(scaled, branches, response, true_response, approach, mass, unit)
