"""Newton's method on the dual: the whole solve near the kernel regime, and for any potential.

    minimize  phi(nu) = Q*(shift + A^T nu) - <nu, b>,     H = A diag(w'(z)) A^T

The first step from nu = 0 is the tangent-kernel solution, exact in the kernel limit; the others
bend it. Where the potential bounds how fast its Hessian changes (`hess_growth`) and the bound says
that a step stays inside the region of quadratic convergence, it is taken whole; elsewhere phi is
searched along it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.limits.normal_equations import Effort, MakeSystem, NormalEquations
from flowbias.potentials import Potential
from flowbias.problems.regression import Constraint

# Hessian growth along a step up to which Newton's method needs no line search: e^2 in the
# exponential family is a step of 2 in z.
TRUSTED_GROWTH = float(np.exp(2.0))
# Growth along a step below which the next residual can only be larger by rounding.
NEARLY_LINEAR = 1.1
# Sufficient decrease of phi (Armijo), and the shortest step tried.
ARMIJO = 1e-4
SHORTEST = 2.0**-200
# Residual at which what remains is linear: second-order terms are below rounding.
NEARLY_SOLVED = 1e-7
# Relative change of the dual that a correction of w by rounding can ask for.
LAST_DIGITS = 1e-8
# A dual that runs off: for so many steps a longer one promised less than the one before, and in the
# end less than this share of what is missing. (From a small start it promises little, but more.)
RUNS_OFF_STEPS, RUNS_OFF_SHARE = 2, 1e-3


def runs_off(passed: list[tuple[float, float]]) -> bool:
    """Whether the target is beyond what longer duals reach; residuals and `ahead`, oldest first."""
    last = [ahead for _, ahead in passed[-1 - RUNS_OFF_STEPS :]]
    falls = all(later < earlier for earlier, later in pairwise(last))
    return len(last) > RUNS_OFF_STEPS and falls and last[-1] < RUNS_OFF_SHARE * passed[-1][0]


class DualNewton:
    """The iteration on one problem; `run` goes on from wherever the dual stands."""

    def __init__(
        self,
        constraint: Constraint,
        potential: Potential,
        shift: FloatArray | float,
        effort: Effort,
        systems: MakeSystem = NormalEquations,
    ) -> None:
        self.constraint, self.potential, self.effort = constraint, potential, effort
        self.systems, self.ran_off = systems, False
        self.shift = np.broadcast_to(np.asarray(shift, float), constraint.rows.shape[1:])
        self.dual = np.zeros(len(constraint.target))
        self.move_to(self.dual)

    def move_to(self, dual: FloatArray) -> None:
        self.dual = dual
        self.z = self.shift + self.constraint.adjoint(dual)
        self.w = self.potential.grad_dual(self.z)
        self.gap = self.constraint.target - self.constraint.apply(self.w)
        target = self.constraint.target
        size = max(extended.length(target), extended.length(target - self.gap))
        if not target.any():
            # Rows have unit length: A w = 0 is judged against what w could have made of it.
            size = extended.length(self.w)
        self.size = size or 1.0
        self.residual = extended.length(self.gap) / self.size

    def run(self, *, tol: float, max_steps: int, only_if_easy: bool) -> float:
        """Iterate to `tol`; with `only_if_easy` give up at the first step that needs a search."""
        passed: list[tuple[float, float]] = []
        for _ in range(max_steps):
            if self.residual <= tol:
                break
            curvature = self.potential.hess_dual(self.z)
            if not only_if_easy:
                passed.append((self.residual, self.ahead(curvature)))
                self.ran_off = runs_off(passed)
                if self.ran_off:
                    break
                if extended.length(self.gap) <= self._blur(curvature):
                    self.refine_predictor(tol)
                    break
            system = self.systems(self.constraint, curvature, self.effort)
            self.effort.steps += 1
            step = system.solve(self.gap)
            rise = self.constraint.adjoint(step)
            growth = float(self.potential.hess_growth(self.z, np.abs(rise)).max())
            before, residual, reach = self.dual, self.residual, 1.0
            if growth > TRUSTED_GROWTH:
                if only_if_easy:
                    break
                reach = self._searched(step, rise)
            self.move_to(self.dual + reach * step)
            # Without a step that lowers phi there is nothing more to find.
            is_rounding = residual < 1e3 * tol or growth < NEARLY_LINEAR or reach <= SHORTEST
            if not self.residual < residual and (only_if_easy or is_rounding):
                # Rounding reached, or too far off for Newton's method.
                self.move_to(before)
                if residual < NEARLY_SOLVED or growth < NEARLY_LINEAR:
                    self.refine_predictor(tol)
                break
        return self.residual

    def ahead(self, curvature: FloatArray) -> float:
        """What a dual twice as long adds to A w, to first order, in units of the residual."""
        more = self.constraint.apply(curvature * (self.z - self.shift))
        return extended.length(more) / self.size

    def _blur(self, curvature: FloatArray) -> float:
        """What the rounding of the dual is worth in A w, whose rows have unit length."""
        return len(self.dual) * extended.length(curvature * np.spacing(np.abs(self.z)))

    def _trusted(self, rise: FloatArray) -> float:
        """A first fraction of the step: the longest within the trusted growth, if that is known."""
        reach = 1.0
        while reach > SHORTEST:
            growth = float(self.potential.hess_growth(self.z, reach * np.abs(rise)).max())
            if growth <= TRUSTED_GROWTH:
                return reach
            reach *= 0.5
        units = float((np.abs(rise) / self.potential.dual_unit(self.z)).max())
        trusted = float(np.log(TRUSTED_GROWTH))
        return trusted / units if units > trusted else 1.0

    def _searched(self, step: FloatArray, rise: FloatArray) -> float:
        """The fraction of `step` that lowers phi enough; phi is infinite outside the domain."""
        target = self.constraint.target
        start = self.potential.conjugate(self.z) - float(self.dual @ target)
        slope = -float(self.gap @ step)
        reach = self._trusted(rise)
        while reach > SHORTEST:
            value = self.potential.conjugate(self.z + reach * rise)
            value -= float((self.dual + reach * step) @ target)
            # An infinite or NaN value compares false and shortens the step.
            if value <= start + ARMIJO * reach * slope + 1e-14 * abs(start):
                return reach
            reach *= 0.5
        return reach

    def refine_predictor(self, tol: float, w: FloatArray | None = None) -> None:
        """Go on in w itself (from `w`, if given) where an ulp of the dual is many of w."""
        if w is not None:
            self.w = w
            self.gap = self.constraint.target - self.constraint.apply(w)
        curvature = self.potential.hess_dual(self.z)
        if not np.isfinite(curvature).all():
            return
        size = extended.length(self.constraint.target) or 1.0
        system = self.systems(self.constraint, curvature, self.effort, graded=True)
        while (left := extended.length(self.gap)) > tol * size:
            step = system.solve(self.gap)
            rise = self.constraint.adjoint(step)
            w = self.w + curvature * rise
            gap = self.constraint.target - self.constraint.apply(w)
            if not extended.length(gap) < 0.5 * left:
                break
            self.w, self.gap = w, gap
            # The dual follows where it is determined; w is not recomputed from it.
            if float(np.abs(rise).max()) <= LAST_DIGITS * float(np.abs(self.z).max()):
                self.dual = self.dual + step
        self.residual = extended.length(self.gap) / size
