"""Newton's method from a dual that is nearly right, on a constraint with one row less.

A finish takes a prediction and the effort, and returns the predictor with its dual, converged or
not (whoever calls it certifies), or None where the prediction is no place to start from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flowbias.estimators.inference.homotopy import DualHomotopy, PreconditionedSystems
from flowbias.estimators.inference.linear_response import LinearResponse
from flowbias.ground import extended
from flowbias.ground.routing import first_fitting
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.interior_point import Branches, Response, State, step_to_zero
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
    response: LinearResponse, least_share: float, most_steps: int = 20
) -> Callable[[PredictedDual, Effort], Finished]:
    """Newton steps on the dual; beyond so many a solve from scratch is cheaper."""
    model = response.model

    def finish(ahead: PredictedDual, effort: Effort) -> Finished:
        systems = PreconditionedSystems(ahead.inverse.dot)
        newton = DualNewton(
            ahead.constraint,
            model.potential,
            model.shift,
            effort,
            systems=systems,
            least_share=least_share,
        )
        end = newton.solve(newton.at(ahead.dual), max_steps=most_steps)
        return end.w, end.dual

    return finish


def _in_branches(response: LinearResponse, rich: RichProblem, nearly_linear: float = 1.1) -> Finish:
    """In weights and slacks along the homotopy, or on the dual where that is cheaper.

    That is where w'(z) changes by no more than a factor `nearly_linear` along the prediction.
    """
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
    # A trial point may ask for more than a double holds.
    weight = np.exp(np.minimum(law.log_weight(slack), 700.0))
    on_the_dual = _on_the_dual(response, least_share=1.0)

    def finish(ahead: PredictedDual, effort: Effort) -> Finished | None:
        constraint = ahead.constraint
        moved = constraint.adjoint(ahead.dual)
        if float(potential.hess_growth(z, np.abs(moved - rise)).max()) <= nearly_linear:
            return on_the_dual(ahead, effort)
        homotopy = DualHomotopy(
            constraint.with_target(constraint.target / mass - constraint.apply(origin)),
            branches,
            law,
            branches.signed(rise - constraint.adjoint(ahead.start)) / unit,
            PreconditionedSystems((ahead.inverse * (mass / unit)).dot),
            effort,
        )
        state = homotopy.followed(State(weight, slack, ahead.start / unit))
        if state is None:
            return None
        return mass * (branches.difference(state.weight) + origin), unit * state.dual

    return finish


def _room_for_bias(response: LinearResponse, multiple: float = 4.0) -> float:
    """A multiple of what the bias would be if it fitted the targets alone, and of what it is.

    A refit may ask for another bias than the full fit; a larger room costs digits of w.
    """
    constraint, bias = response.constraint, float(response.solution.w[-1])
    column = constraint.row_scale * constraint.rows[:, -1]
    alone = extended.length(constraint.target) / extended.length(column)
    return multiple * (alone + abs(bias)) or 1.0


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
    return _on_the_dual(response, least_share=0.0)


#: The most special first.
FINISHES = (
    Preparation(frozenset({Provides.POTENTIAL, Provides.EXPONENTIAL_DUAL}), _exponential),
    Preparation(frozenset({Provides.POTENTIAL, Provides.POWER_DUAL}), _power),
    Preparation(frozenset({Provides.POTENTIAL}), _general),
)


# --- a trained bias beside the branches of its network ------------------------------------------


@dataclass(frozen=True)
class LinearBranch(Response):
    """`network` for all branches but the one at `index`: a trained bias, whose law is a line.

    The bias is b = z / g with z its dual and g its weight, the stiffness. Methods in weights and
    slacks (`limits/interior_point.py`) know positive weights only: it is counted from below zero.

        P = b + rest,     A = cost - z,  cost = g rest      =>     P = 2 rest - A / g

    The rows then ask for X w + e P = y + rest e.
    """

    network: Response
    index: int
    stiffness: float
    rest: float

    def log_weight(self, slack: FloatArray) -> FloatArray:
        own = np.log(self._weight(slack))
        return np.insert(self.network.log_weight(self._others(slack)), self.index, own)

    def rate(self, slack: FloatArray) -> FloatArray:
        own = 1.0 / (self.stiffness * self._weight(slack))
        return np.insert(self.network.rate(self._others(slack)), self.index, own)

    def slack(self, weight: FloatArray) -> FloatArray:
        own = self.stiffness * (2.0 * self.rest - weight[self.index])
        return np.insert(self.network.slack(self._others(weight)), self.index, own)

    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        others = self.network.longest_step(self._others(slack), self._others(change))
        fall = change[self.index] / self.stiffness
        # Nine tenths of the way to P = 0.
        return min(others, 0.9 * step_to_zero(np.array([self._weight(slack)]), -fall))

    def _weight(self, slack: FloatArray) -> float:
        return float(2.0 * self.rest - slack[self.index] / self.stiffness)

    def _others(self, values: FloatArray) -> FloatArray:
        return np.delete(values, self.index)


def with_bias(
    branches: Branches, law: Response, stiffness: float, rest: float
) -> tuple[Branches, LinearBranch]:
    """The branches of a network and of its bias, last among the coordinates."""
    index = branches.split
    unit = np.broadcast_to(branches.unit, branches.count)
    both = replace(
        branches,
        plus=np.append(branches.plus, True),
        minus=np.append(branches.minus, False),
        cost=np.insert(branches.cost, index, stiffness * rest),
        unit=np.insert(unit, index, rest),
    )
    return both, LinearBranch(law, index, stiffness, rest)
