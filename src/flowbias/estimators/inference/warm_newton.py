"""Newton's method from a dual that is nearly right, on a constraint with one row less.

A finish takes a prediction and the effort, and returns the predictor with its dual, converged or
not (whoever calls it certifies), or None where the prediction is no place to start from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flowbias.estimators.inference.bias_branch import with_bias
from flowbias.estimators.inference.linear_response import LinearResponse
from flowbias.estimators.inference.older_factor import OlderFactor
from flowbias.estimators.inference.withdrawal import Withdrawal
from flowbias.ground import extended
from flowbias.ground.routing import first_fitting
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.interior_point import State
from flowbias.limits.normal_equations import Effort
from flowbias.limits.rich_regime import RichProblem, exponential_problem, power_problem
from flowbias.limits.routes import exponential_sides, power_sides
from flowbias.models._base import HasPotential
from flowbias.potentials import Provides
from flowbias.problems.constraint import Constraint

Finished: TypeAlias = tuple[FloatArray, FloatArray]  # w and the dual of the constraint's rows


class PredictedDual(NamedTuple):
    """The remaining rows with the full fit's dual, the predicted one, and its H^-1 on them."""

    constraint: Constraint
    start: FloatArray
    dual: FloatArray
    inverse: FloatArray


Finish: TypeAlias = Callable[[PredictedDual, Effort], Finished | None]

# Change of w'(z) along the prediction up to which plain steps on the dual are the cheapest.
NEARLY_LINEAR = 1.1
# Newton steps on the dual; beyond so many a solve from scratch is cheaper.
MAX_WARM_STEPS = 20
# A refit may ask for another bias than the full fit; a larger room costs digits of w.
BIAS_ROOM = 4.0
# Of a weight that a trial point may ask for: its exponential is a double.
LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Preparation:
    """A finish for models that declare what it needs."""

    needs: frozenset[Provides]
    prepare: Callable[[LinearResponse], Finish]


def finish_of(response: LinearResponse) -> Finish:
    """The one that fits the network best, trained bias or not."""
    return first_fitting(_network(response), FINISHES).prepare(response)


def _network(response: LinearResponse) -> HasPotential:
    """The model without its trained bias."""
    potential: Any = response.model.potential
    network: HasPotential = potential.features if response.rows.has_bias_column else response.model
    return network


def _on_the_dual(
    response: LinearResponse, only_if_easy: bool
) -> Callable[[PredictedDual, Effort], Finished]:
    model = response.model

    def finish(ahead: PredictedDual, effort: Effort) -> Finished:
        systems = OlderFactor(ahead.inverse.dot)
        newton = DualNewton(
            ahead.constraint,
            model.potential,
            model.shift,
            effort,
            systems=systems,
            only_if_easy=only_if_easy,
        )
        end = newton.solve(newton.at(ahead.dual), max_steps=MAX_WARM_STEPS)
        return end.w, end.dual

    return finish


def _in_branches(response: LinearResponse, rich: RichProblem) -> Finish:
    """In weights and slacks along the way to the limit, or on the dual where that is cheaper."""
    potential: Any = response.model.potential
    branches, law = rich.branches, rich.response
    mass, unit = rich.mass, rich.dual_unit
    rise = response.constraint.adjoint(response.basis_dual)
    z = np.asarray(response.model.shift + rise)
    origin = np.zeros_like(rise)  # what weights are counted from
    if response.rows.has_bias_column:
        stiffness = float(potential.bias.weights) * mass / unit
        origin[-1] = -_room_for_bias(response) / mass
        branches, law = with_bias(branches, law, stiffness, -origin[-1])
    slack = branches.cost - branches.signed(rise / unit)
    weight = np.exp(np.minimum(law.log_weight(slack), LARGEST_LOG))
    on_the_dual = _on_the_dual(response, only_if_easy=True)

    def finish(ahead: PredictedDual, effort: Effort) -> Finished | None:
        constraint = ahead.constraint
        moved = constraint.adjoint(ahead.dual)
        if float(potential.hess_growth(z, np.abs(moved - rise)).max()) <= NEARLY_LINEAR:
            return on_the_dual(ahead, effort)
        withdrawal = Withdrawal(
            constraint.with_target(constraint.target / mass - constraint.apply(origin)),
            branches,
            law,
            branches.signed(rise - constraint.adjoint(ahead.start)) / unit,
            OlderFactor((ahead.inverse * (mass / unit)).dot),
            effort,
        )
        state = withdrawal.followed(State(weight, slack, ahead.start / unit))
        if state is None:
            return None
        return mass * (branches.difference(state.weight) + origin), unit * state.dual

    return finish


def _room_for_bias(response: LinearResponse) -> float:
    """A multiple of what the bias would be if it fitted the targets alone, and of what it is."""
    constraint, bias = response.constraint, float(response.solution.w[-1])
    column = constraint.row_scale * constraint.rows[:, -1]
    alone = extended.length(constraint.target) / extended.length(column)
    return BIAS_ROOM * (alone + abs(bias)) or 1.0


def _of_network(response: LinearResponse) -> tuple[Constraint, HasPotential, int]:
    """The constraint without the bias' column, the network and its number of coordinates."""
    d = response.rows.X.shape[1] - response.rows.has_bias_column
    constraint = response.constraint
    return replace(constraint, rows=constraint.rows[:, :d]), _network(response), d


def _exponential(response: LinearResponse) -> Finish:
    constraint, network, d = _of_network(response)
    potential: Any = network.potential
    rich = exponential_problem(constraint, *exponential_sides(network, d), potential.rate)
    return _in_branches(response, rich)


def _power(response: LinearResponse) -> Finish:
    constraint, network, d = _of_network(response)
    potential: Any = network.potential
    depth, unit = potential.depth, potential.log_unit
    rich = power_problem(constraint, *power_sides(network, d), depth, unit, Effort())
    return _in_branches(response, rich)


def _general(response: LinearResponse) -> Finish:
    return _on_the_dual(response, only_if_easy=False)


#: The most special first.
FINISHES = (
    Preparation(frozenset({Provides.POTENTIAL, Provides.EXPONENTIAL_DUAL}), _exponential),
    Preparation(frozenset({Provides.POTENTIAL, Provides.POWER_DUAL}), _power),
    Preparation(frozenset({Provides.POTENTIAL}), _general),
)
