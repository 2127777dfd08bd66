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
from flowbias.estimators.inference.linear_response import LinearResponse
from flowbias.estimators.inference.older_factor import OlderFactor
from flowbias.estimators.inference.withdrawal import Withdrawal
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.interior_point import State
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


class Prediction(NamedTuple):
    """The remaining rows with the full fit's dual, the predicted one, and its H^-1 on them."""

    constraint: Constraint
    start: FloatArray
    dual: FloatArray
    inverse: FloatArray


Finish: TypeAlias = Callable[[Prediction, Effort], Finished | None]

# Change of w'(z) along the prediction up to which plain steps on the dual are the cheapest.
NEARLY_LINEAR = 1.1
# Newton steps on the dual; beyond so many a solve from scratch is cheaper.
MAX_WARM_STEPS = 20
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
        systems = OlderFactor(ahead.inverse.dot)
        newton = DualNewton(ahead.constraint, model.potential, model.shift, effort, systems)
        newton.move_to(ahead.dual)
        newton.run(tol=RESIDUAL, max_steps=max_steps, only_if_easy=only_if_easy)
        return newton.w, newton.dual

    return finish


def _in_branches(response: LinearResponse, rich: RichProblem) -> Finish:
    """In weights and slacks along the way to the limit, or on the dual where that is cheaper."""
    potential, branches, law = response.model.potential, rich.branches, rich.response
    rise = response.constraint.adjoint(response.basis_dual)
    z = np.asarray(response.model.shift + rise)
    slack = branches.cost - branches.signed(rise / rich.dual_unit)
    weight = np.exp(np.minimum(law.log_weight(slack), LARGEST_LOG))
    on_the_dual = _on_the_dual(response, MAX_WARM_STEPS, only_if_easy=True)

    def finish(ahead: Prediction, effort: Effort) -> Finished | None:
        constraint, unit = ahead.constraint, rich.dual_unit
        moved = constraint.adjoint(ahead.dual)
        if float(potential.hess_growth(z, np.abs(moved - rise)).max()) <= NEARLY_LINEAR:
            return on_the_dual(ahead, effort)
        withdrawal = Withdrawal(
            constraint.with_target(constraint.target / rich.mass),
            branches,
            law,
            branches.signed(rise - constraint.adjoint(ahead.start)) / unit,
            OlderFactor((ahead.inverse * (rich.mass / unit)).dot),
            effort,
        )
        state = withdrawal.followed(State(weight, slack, ahead.start / unit))
        if state is None:
            return None
        return rich.mass * branches.difference(state.weight), unit * state.dual

    return finish


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
