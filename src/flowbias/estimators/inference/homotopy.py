"""From the limit on all samples to the one without sample i: a homotopy in its dual.

With a share tau of nu_i left, the limit on the others obeys

    A = cost - (+-)(A_rest^T nu + tau a_i nu_i),  log P = log_weight(A),  A_rest (P+ - P-) = b_rest

whose solution is the full fit at tau = 1 and the refit at tau = 0: the path of targets of sample i
along which its dual vanishes. The whole way is tried at once. Where its linear prediction leaves
the domain of the slacks, or Newton's method does not arrive, a part of it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import FloatArray
from flowbias.limits.interior_point import Branches, Response, State
from flowbias.limits.newton import polish
from flowbias.limits.normal_equations import Effort, MakeSystem, NormalEquations
from flowbias.problems.constraint import Constraint

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


class PreconditionedSystem:
    """(A diag(weights) A^T) x = b."""

    def __init__(
        self,
        family: PreconditionedSystems,
        constraint: Constraint,
        weights: FloatArray,
        effort: Effort,
    ) -> None:
        self.family, self.constraint, self.weights = family, constraint, weights
        self.effort = effort

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
