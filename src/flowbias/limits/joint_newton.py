"""Newton's method on the dual where the potential does not separate.

    minimize  phi(nu) = Q*(shift + A^T nu) - <nu, b>,     H = A (dw/dz) A^T

Each step is searched along phi; where a potential known only numerically has no more digits of phi
left, a step that lowers the residual is taken all the same.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias import _extended as extended
from flowbias._typing import FloatArray
from flowbias.limits.normal_equations import Effort
from flowbias.potentials import JointPotential
from flowbias.problem import Constraint

# Residual at which iterations stop, unless the potential has fewer digits.
RESIDUAL = 1e-13
MAX_STEPS = 200
# Sufficient decrease of phi (Armijo), and the shortest step tried.
ARMIJO, SHORTEST = 1e-4, 2.0**-60


class JointNewton:
    """The iteration on one problem."""

    def __init__(
        self,
        constraint: Constraint,
        potential: JointPotential,
        shift: FloatArray | float,
        effort: Effort,
    ) -> None:
        self.constraint, self.potential, self.effort = constraint, potential, effort
        self.shift = np.broadcast_to(np.asarray(shift, float), constraint.rows.shape[1:])
        self.size = extended.length(constraint.target) or 1.0
        self.move_to(np.zeros(len(constraint.target)))

    def move_to(self, dual: FloatArray) -> None:
        self.dual = dual
        self.z = self.shift + self.constraint.adjoint(dual)
        self.w = self.potential.grad_dual(self.z)
        self.gap = self.constraint.target - self.constraint.apply(self.w)
        self.residual = extended.length(self.gap) / self.size

    def run(self) -> None:
        """To the last digit of the potential, or to where no step helps."""
        tol = max(RESIDUAL, 0.1 * self.potential.rounding)
        for _ in range(MAX_STEPS):
            if self.residual <= tol or not self._step():
                break

    def _step(self) -> bool:
        """One Newton step; False, and back where it was, if it does not help."""
        self.effort.steps += 1
        self.effort.factorizations += 1
        rows = self.constraint.rows * self.constraint.row_scale[:, None]
        matrix = rows @ self.potential.hess_dual(self.z) @ rows.T
        try:
            step = scipy.linalg.solve(matrix, self.gap, assume_a="pos")
        except (scipy.linalg.LinAlgError, ValueError):
            return False  # singular, or infinite at the end of the dual domain
        before, residual = self.dual, self.residual
        start, slope = self._phi(), -float(self.gap @ step)
        noise = 10.0 * self.potential.rounding * (1.0 + abs(start))
        reach = 1.0
        while reach > SHORTEST:
            self.move_to(before + reach * step)
            # NaN, outside the dual domain, compares false.
            if self.residual < 0.5 * residual:
                return True
            if self._phi() <= start + ARMIJO * reach * slope and -reach * slope > noise:
                return True
            if self.residual < residual and -reach * slope <= noise:
                return True
            reach *= 0.5
        self.move_to(before)
        return False

    def _phi(self) -> float:
        return self.potential.conjugate(self.z) - float(self.dual @ self.constraint.target)
