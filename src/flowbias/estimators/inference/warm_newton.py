"""Refits without a sample, from a dual that is nearly right: Newton's method, or a homotopy to it.

A finish takes a prediction and the effort, and returns the predictor with its dual, converged or
not (whoever calls it certifies), or None where the prediction is no place to start from.

Of a rich problem it is a homotopy in the dual of the sample i that leaves. With a share tau of nu_i
left, the limit on the others obeys

    A = cost - (+-)(A_rest^T nu + tau a_i nu_i),  log P = log_weight(A),  A_rest (P+ - P-) = b_rest

whose solution is the full fit at tau = 1 and the refit at tau = 0: the path of targets of sample i
along which its dual vanishes. The whole way is tried at once. Where its linear prediction leaves
the domain of the slacks, or Newton's method does not arrive, a part of it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from flowbias.estimators.inference.linear_response import LinearResponse
from flowbias.ground import extended
from flowbias.ground.routing import first_fitting
from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.interior_point import Branches, Response, State, step_to_zero
from flowbias.limits.newton import polish
from flowbias.limits.normal_equations import Effort, MakeSystem, NormalEquations
from flowbias.limits.rich_regime import RichProblem, exponential_problem, power_problem
from flowbias.limits.routes import exponential_sides, power_sides
from flowbias.models._base import HasPotential
from flowbias.potentials import Provides
from flowbias.problems.regression import Constraint

Solve: TypeAlias = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class DualHomotopy:
    """The homotopy for one sample.

    constraint  of the others, in the units of the branches
    leaving     (+-) a_i nu_i, by how much slacks are lower while nu_i is there
    systems     how linear systems are solved
    """

    # Parts of the way, tried or gone, and conjugate-gradient iterations per row: a solve from
    # scratch is cheaper beyond, and where after the first few parts hardly any of the way is gone.
    most_parts: ClassVar[int] = 40
    most_iterations: ClassVar[int] = 40
    first_parts: ClassVar[int] = 8
    hardly_any: ClassVar[float] = 0.1
    # Newton steps for one part, and the residual from which the next one may set out.
    most_steps: ClassVar[int] = 12
    on_the_way: ClassVar[float] = 0.1
    # Share of a part that is tried after it has failed.
    shorter: ClassVar[float] = 0.25
    # Residual up to which rounding may have ended the last part; the certificate judges it.
    arrived: ClassVar[float] = 1e3 * DEFAULT.residual

    constraint: Constraint
    branches: Branches
    law: Response
    leaving: FloatArray
    systems: MakeSystem
    effort: Effort

    def followed(self, state: State) -> State | None:
        """The state at tau = 0 from that at tau = 1, or None where that takes too long."""
        left, longest = 1.0, 1.0
        slope = self._slope(state)
        for tried in range(self.most_parts):
            if self._is_too_long(tried, left):
                break
            part = min(left, longest)
            part *= self.law.longest_step(state.slack, part * slope.slack)
            is_last = part >= left
            found, residual = polish(
                self.constraint,
                self.branches,
                self.law,
                self._predicted(state, slope, part),
                self.effort,
                tol=DEFAULT.residual if is_last else self.on_the_way,
                max_steps=self.most_steps,
                systems=self.systems,
            )
            if is_last and residual <= self.arrived:
                return found
            if is_last or not residual <= self.on_the_way:
                longest = self.shorter * part
                continue
            state, left, longest = found, left - part, 1.0
            slope = self._slope(state)
        return None

    def _is_too_long(self, tried: int, left: float) -> bool:
        slow = tried >= self.first_parts and left > 1.0 - self.hardly_any
        return slow or self.effort.iterations > self.most_iterations * len(self.constraint.target)

    def _slope(self, state: State) -> State:
        """Change of weights, slacks and dual per unit of tau that is taken away."""
        rate = self.law.rate(state.slack)
        conductance = self.branches.total(state.weight * rate)
        # On a branch: dP = P rate (rise - leaving); summed over the branches of a coordinate.
        pushed = self.branches.difference(state.weight * rate * self.leaving)
        system = self.systems(self.constraint, conductance, self.effort, graded=False)
        dual = system.solve(self.constraint.apply(pushed))
        rise = self.branches.signed(self.constraint.adjoint(dual)) - self.leaving
        return State(rate * rise, -rise, dual)

    def _predicted(self, state: State, slope: State, part: float) -> State:
        """The linear prediction of the weights.

        Those that belong to the predicted slacks would be off by the exponential of what the
        prediction misses.
        """
        growth = part * slope.weight
        grown = np.where(growth >= 0.0, 1.0 + growth, np.exp(np.minimum(growth, 0.0)))
        return State(
            state.weight * grown, state.slack + part * slope.slack, state.dual + part * slope.dual
        )


class PreconditionedSystems:
    """The linear systems of one refit, preconditioned by the newest factor there is.

    Dropping a sample changes the weights c of A diag(c) A^T: a few by orders of magnitude, as
    coordinates enter and leave the fit, the others by small factors. Conjugate gradients with the
    old factor need about one iteration per weight of the first kind and a few for the others, each
    a product with A and one with its transpose. A new factor takes n / 4 times as much arithmetic.
    """

    # New factorizations that a refit may make; beyond, conjugate gradients must do.
    most_factorizations: ClassVar[int] = 3
    # Rows per iteration up to which a new factor is dearer, while one may be made: n^2 d operations
    # for the product A diag(c) A^T, of which half is computed, against 4 n d for an iteration.
    patience: ClassVar[int] = 4
    # And where none may be made, per row: in exact arithmetic n iterations solve the system.
    in_rounding: ClassVar[int] = 2
    # Residual of a system relative to its right-hand side. Steps are repeated until the nonlinear
    # residual is small, so that more digits of each are not worth their iterations.
    solved: ClassVar[float] = 1e-2

    def __init__(self, solve: Solve) -> None:
        self.solve = solve

    def __call__(
        self, constraint: Constraint, weights: FloatArray, effort: Effort, *, graded: bool = False
    ) -> PreconditionedSystem:
        system = PreconditionedSystem(self, constraint, weights, effort)
        if graded and system.may_factor:
            system.factor(graded=True)
        return system


@dataclass(frozen=True, eq=False)
class PreconditionedSystem:
    """(A diag(weights) A^T) x = b."""

    family: PreconditionedSystems
    constraint: Constraint
    weights: FloatArray
    effort: Effort

    @property
    def may_factor(self) -> bool:
        return self.effort.factorizations < self.family.most_factorizations

    def factor(self, *, graded: bool = False) -> None:
        made = NormalEquations(self.constraint, self.weights, self.effort, graded=graded)
        # Conjugate gradients refine by themselves.
        self.family.solve = lambda b: made.solve(b, refine=False)

    def solve(self, b: FloatArray) -> FloatArray:
        """x to the accuracy of a Newton step that will be repeated."""
        if self.may_factor:
            x, solved = self._iterated(b, 1 + len(b) // self.family.patience)
            if solved:
                return x
            self.factor()
        return self._iterated(b, self.family.in_rounding * len(b))[0]

    def _iterated(self, b: FloatArray, most: int) -> tuple[FloatArray, bool]:
        """Conjugate gradients [Hestenes and Stiefel 1952], preconditioned; and if they arrived.

        By hand, since those of SciPy go on where rounding makes the factor indefinite: that calls
        for a new one at once.
        """
        x, residual = np.zeros_like(b), b
        goal = self.family.solved * float(np.linalg.norm(b))
        direction, before = np.zeros_like(b), np.inf
        for _ in range(most):
            self.effort.iterations += 1
            towards = self.family.solve(residual)
            slope = float(residual @ towards)
            direction = towards + slope / before * direction
            image = self.constraint.apply(self.weights * self.constraint.adjoint(direction))
            curvature = float(direction @ image)
            if not (slope > 0.0 and curvature > 0.0):
                return x, False  # rounding: the factor, or the system, is not positive any more
            step, before = slope / curvature, slope
            x, residual = x + step * direction, residual - step * image
            if np.linalg.norm(residual) <= goal:
                return x, True
        return x, False


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
