"""Linear systems that change from step to step, solved with the factor of an older one.

Dropping a sample changes the weights c of A diag(c) A^T: a few by orders of magnitude, as
coordinates enter and leave the fit, the others by small factors. Conjugate gradients with the old
factor need about one iteration per weight of the first kind and a few for the others, each a
product with A and one with its transpose. A new factor takes n / 4 times as much arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problems.constraint import Constraint

Solve: TypeAlias = Callable[[FloatArray], FloatArray]

# New factorizations that a refit may make; beyond, conjugate gradients must do.
MOST_FACTORIZATIONS = 3
# Rows per iteration up to which a new factor is dearer, while one may be made: n^2 d operations for
# the product A diag(c) A^T, of which half is computed, against 4 n d for an iteration.
PATIENCE = 4
# And where none may be made, per row: in exact arithmetic n iterations solve the system.
IN_ROUNDING = 2
# Residual of a system relative to its right-hand side. The steps are repeated until the nonlinear
# residual is small, so that more digits of each are not worth their iterations.
SOLVED = 1e-2


class OlderFactor:
    """Makes the systems of one refit, each solved with the newest factor there is."""

    def __init__(self, solve: Solve) -> None:
        self.solve = solve

    def __call__(
        self, constraint: Constraint, weights: FloatArray, effort: Effort, *, graded: bool = False
    ) -> ChangedSystem:
        system = ChangedSystem(self, constraint, weights, effort)
        if graded and system.may_factor:
            system.factor(graded=True)
        return system


class ChangedSystem:
    """(A diag(weights) A^T) x = b."""

    def __init__(
        self, older: OlderFactor, constraint: Constraint, weights: FloatArray, effort: Effort
    ) -> None:
        self.older, self.constraint, self.weights = older, constraint, weights
        self.effort = effort

    @property
    def may_factor(self) -> bool:
        return self.effort.factorizations < MOST_FACTORIZATIONS

    def factor(self, *, graded: bool = False) -> None:
        made = NormalEquations(self.constraint, self.weights, self.effort, graded=graded)
        # Conjugate gradients refine by themselves.
        self.older.solve = lambda b: made.solve(b, refine=False)

    def solve(self, b: FloatArray) -> FloatArray:
        """x to the accuracy of a Newton step that will be repeated."""
        if self.may_factor:
            x, solved = self._iterated(b, 1 + len(b) // PATIENCE)
            if solved:
                return x
            self.factor()
        return self._iterated(b, IN_ROUNDING * len(b))[0]

    def _iterated(self, b: FloatArray, most: int) -> tuple[FloatArray, bool]:
        """Conjugate gradients [Hestenes and Stiefel 1952], preconditioned; and if they arrived."""
        x, residual = np.zeros_like(b), b
        goal = SOLVED * float(np.linalg.norm(b))
        direction, before = np.zeros_like(b), np.inf
        for _ in range(most):
            self.effort.iterations += 1
            towards = self.older.solve(residual)
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
