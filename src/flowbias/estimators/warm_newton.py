"""Newton's method from a dual that is nearly right, on a constraint with one row less.

A finish takes a prediction and the effort, and returns the predictor with its dual, converged or
not (whoever calls it certifies), or None where the prediction is no place to start from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flowbias._typing import FloatArray
from flowbias.estimators.linear_response import LinearResponse
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.interior_point import State
from flowbias.limits.newton import polish
from flowbias.limits.normal_equations import Effort
from flowbias.limits.rich_regime import RichProblem, exponential_problem, power_problem
from flowbias.limits.routes import (
    MAX_GENERAL_STEPS,
    RESIDUAL,
    exponential_sides,
    power_sides,
)
from flowbias.potentials import Provides
from flowbias.problem import Constraint

Finished: TypeAlias = tuple[FloatArray, FloatArray]  # w and the dual of the constraint's rows
Solve: TypeAlias = Callable[[FloatArray], FloatArray]


class Prediction(NamedTuple):
    """The remaining rows, the dual predicted for them, and H^-1 on them as the full fit has it."""

    constraint: Constraint
    dual: FloatArray
    solve: Solve


Finish: TypeAlias = Callable[[Prediction, Effort], Finished | None]

# Change of w'(z) along the prediction up to which plain steps on the dual are the cheapest.
NEARLY_LINEAR = 1.1
# Beyond so many steps a solve from scratch is cheaper.
MAX_WARM_STEPS = 8
# Corrections with the factorization of the full fit before a new one is made. From trials: two save
# about one of three new factorizations at small scales, more of them may lead astray.
CORRECTIONS = 2
# Relative growth of a weight that one correction may ask for.
LARGEST_PULL = 1.0
# Of a weight that a trial point may ask for: its exponential is a double.
LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Preparation:
    """A finish for models that declare what it needs."""

    needs: frozenset[Provides]
    prepare: Callable[[LinearResponse], Finish]


def _on_the_dual(
    response: LinearResponse, max_steps: int, only_if_easy: bool
) -> Callable[[Prediction, Effort], Finished]:
    model = response.model

    def finish(ahead: Prediction, effort: Effort) -> Finished:
        newton = DualNewton(ahead.constraint, model.potential, model.shift, effort)
        newton.move_to(ahead.dual)
        newton.run(tol=RESIDUAL, max_steps=max_steps, only_if_easy=only_if_easy)
        return newton.w, newton.dual

    return finish


def _in_branches(response: LinearResponse, rich: RichProblem) -> Finish:
    """In weights and slacks from the predicted ones, or on the dual where that is cheaper."""
    potential, branches, law = response.model.potential, rich.branches, rich.response
    rise = response.constraint.adjoint(response.basis_dual)
    z = np.asarray(response.model.shift + rise)
    slack = branches.cost - branches.signed(rise / rich.dual_unit)
    weight, rate = np.exp(np.minimum(law.log_weight(slack), LARGEST_LOG)), law.rate(slack)
    on_the_dual = _on_the_dual(response, MAX_WARM_STEPS, only_if_easy=True)

    def finish(ahead: Prediction, effort: Effort) -> Finished | None:
        constraint = ahead.constraint
        moved = constraint.adjoint(ahead.dual)
        if float(potential.hess_growth(z, np.abs(moved - rise)).max()) <= NEARLY_LINEAR:
            return on_the_dual(ahead, effort)
        predicted = branches.cost - branches.signed(moved / rich.dual_unit)
        if law.longest_step(slack, predicted - slack) < 1.0:
            return None  # the prediction leaves the domain of the dual
        # The linear prediction of the weights. Those that belong to the predicted slacks would be
        # off by the exponential of what the prediction misses.
        grown = _grown(weight, rate * (slack - predicted))
        scaled = constraint.with_target(constraint.target / rich.mass)
        state = State(grown, predicted, ahead.dual / rich.dual_unit)
        for _ in range(CORRECTIONS):
            state = corrected(scaled, state, ahead.solve)
        state, _ = polish(
            scaled, branches, law, state, effort, tol=RESIDUAL, max_steps=MAX_WARM_STEPS
        )
        return rich.mass * branches.difference(state.weight), rich.dual_unit * state.dual

    def corrected(constraint: Constraint, state: State, solve: Solve) -> State:
        """A Newton step with the matrix of the full fit, which costs no factorization."""
        mismatch = law.log_weight(state.slack) - np.log(state.weight)
        pull = np.where(mismatch >= 0.0, np.minimum(mismatch, LARGEST_PULL), np.expm1(mismatch))
        gap = constraint.target - constraint.apply(branches.difference(state.weight * (1.0 + pull)))
        change = solve(gap) * (rich.mass / rich.dual_unit)
        up = branches.signed(constraint.adjoint(change))
        if law.longest_step(state.slack, -up) < 1.0:
            return state
        return State(_grown(state.weight, pull + rate * up), state.slack - up, state.dual + change)

    return finish


def _grown(weight: FloatArray, growth: FloatArray) -> FloatArray:
    """weight (1 + growth), kept positive: exp(growth) where it shrinks."""
    return weight * np.where(growth >= 0.0, 1.0 + growth, np.exp(np.minimum(growth, 0.0)))


def _exponential(response: LinearResponse) -> Finish:
    potential: Any = response.model.potential
    plus, minus = exponential_sides(response.model, response.problem.X.shape[1])
    rich = exponential_problem(response.constraint, plus, minus, potential.rate)
    return _in_branches(response, rich)


def _power(response: LinearResponse) -> Finish:
    potential: Any = response.model.potential
    plus, minus = power_sides(response.model, response.problem.X.shape[1])
    depth, unit = potential.depth, potential.log_unit
    rich = power_problem(response.constraint, plus, minus, depth, unit, Effort())
    return _in_branches(response, rich)


def _general(response: LinearResponse) -> Finish:
    return _on_the_dual(response, MAX_GENERAL_STEPS, only_if_easy=False)


#: The most special first.
FINISHES = (
    Preparation(frozenset({Provides.POTENTIAL, Provides.EXPONENTIAL_DUAL}), _exponential),
    Preparation(frozenset({Provides.POTENTIAL, Provides.POWER_DUAL}), _power),
    Preparation(frozenset({Provides.POTENTIAL}), _general),
)
