"""Newton's method on the dual where the potential does not separate.

    minimize  phi(nu) = Q*(shift + A^T nu) - <nu, b>,     H = A (dw/dz) A^T

Each step is searched along phi; where a potential known only numerically has no more digits of phi
left, a step that lowers the residual is taken all the same.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import runs_off
from flowbias.limits.normal_equations import Effort
from flowbias.potentials import JointPotential
from flowbias.problems.regression import Constraint

# Residual at which iterations stop, unless the potential has fewer digits.
RESIDUAL = 1e-13
MAX_STEPS = 200
# Points that one solve may look at. Forty are many: the rest is for steps along the end of the
# dual domain, where each of them is searched.
MAX_TRIALS = 400
# Sufficient decrease of phi (Armijo), and the shortest step tried.
ARMIJO, SHORTEST = 1e-4, 2.0**-60
# How much shorter the next trial is after one that was too long, after one outside the domain, and
# after one outside that was this many times longer than the dual is.
SHORTER, BACK_INSIDE, BACK_FROM_AFAR, AFAR = 0.5, 0.25, 1.0 / 16.0, 1e3


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
        self.trials, self.ran_off = 0, False
        self.move_to(np.zeros(len(constraint.target)))

    def move_to(self, dual: FloatArray) -> None:
        self.trials += 1
        self.dual = dual
        self.z = self.shift + self.constraint.adjoint(dual)
        self.w = self.potential.grad_dual(self.z)
        self.gap = self.constraint.target - self.constraint.apply(self.w)
        self.residual = extended.length(self.gap) / self.size

    def run(self, tol: float | None = None) -> None:
        """To `tol`, the last digit of the potential unless given, or to where no step helps."""
        if tol is None:
            tol = max(RESIDUAL, 0.1 * self.potential.rounding)
        passed: list[tuple[float, float]] = []
        for _ in range(MAX_STEPS):
            passed.append((self.residual, self.ahead()))
            self.ran_off = runs_off(passed)
            if self.residual <= tol or self.ran_off or not self._step():
                break

    def ahead(self) -> float:
        """What a dual twice as long adds to A w, to first order, in units of the residual."""
        more = self.potential.hess_dual(self.z) @ (self.z - self.shift)
        return extended.length(self.constraint.apply(more)) / self.size

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
        # A Newton step may be longer than the dual by any number of digits: those come on top.
        times_dual = extended.length(step) / max(1.0, extended.length(before))
        reach, shortest = 1.0, SHORTEST / max(1.0, times_dual)
        while reach > shortest and self.trials < MAX_TRIALS:
            self.move_to(before + reach * step)
            # NaN, outside the dual domain, compares false.
            if self.residual < 0.5 * residual:
                return True
            if self._phi() <= start + ARMIJO * reach * slope and -reach * slope > noise:
                return True
            if self.residual < residual and -reach * slope <= noise:
                return True
            if np.isfinite(self.residual):
                reach *= SHORTER
            else:
                reach *= BACK_FROM_AFAR if reach * times_dual > AFAR else BACK_INSIDE
        self.move_to(before)
        return False

    def _phi(self) -> float:
        return self.potential.conjugate(self.z) - float(self.dual @ self.constraint.target)
