"""Newton's method on the dual of a big problem: n unknowns, X visited block by block.

    minimize  phi(nu) = Q*(shift + A^T nu) - <nu, b>,     H = A diag(w'(z)) A^T

phi is convex, so its slope along a step, <A^T step, w> - <step, b>, says where the step has gone
too far, without the rounding of a difference of values. The longest power of two of the step at
which the slope is not positive yet is taken: an exact line search up to a factor of two. Steps are
thus not bounded by where the quadratic model is good (one unit of z), and far from the kernel
regime about as many are needed as an interior-point method takes, without its 4 d unknowns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.rows import Rows
from flowbias.limits.blocks.systems import Curvature, curvature_of
from flowbias.limits.blocks.tasks import SMALLEST_EXPONENT, Along, Predictions, Predictor, Trust
from flowbias.limits.normal_equations import Effort

# Growth of w' along a step up to which it is taken whole: e^2 in the exponential family is a step
# of 2 in z.
TRUSTED_GROWTH = float(np.exp(2.0))
# Fractions of a step looked at in one pass over X, and how far above the last one they begin.
TRIALS = 8
AHEAD = 4
# Residual at which iterations stop: two digits below the default certificate, above rounding.
RESIDUAL = 1e-13
# Residual above which rounding of the dual is worth repairing in w.
ROUNDING = 1e-12
# A residual that has rested this often below this level is rounding.
PATIENCE = 2
RESTING = 1e-5
MAX_STEPS = 200
# A warm start that needs more than this was not warm.
MAX_WARM_STEPS = 60
# A whole step that cuts the residual this much is in the region of quadratic convergence.
QUADRATIC = 0.1

#: Told after every step: how many there were, and the relative gap.
Watch = Callable[[int, float], None]


@dataclass(frozen=True)
class DualPoint:
    """A dual (of the independent rows), what is left to fit there, and the relative sizes."""

    m: FloatArray
    left: FloatArray
    residual: float
    gap: float


class BlockNewton:
    """The iteration on one problem."""

    def __init__(
        self, design: Design, coordinates: Coordinates, rows: Rows, effort: Effort, watch: Watch
    ) -> None:
        self.design, self.coordinates, self.rows = design, coordinates, rows
        self.effort, self.watch = effort, watch
        self.curvature: Curvature = curvature_of(design, coordinates, rows, effort)
        self.last_exponent: int | None = None

    def _at(self, m: FloatArray) -> DualPoint:
        fit, value = self.curvature.move_to(self.rows.dual(m))
        seen, target = self.rows.seen(fit), self.rows.target
        left = target - seen
        size = max(extended.length(target), extended.length(seen))
        residual = extended.length(left) / size if size > 0 else 0.0
        if not self.design.has_entries:
            # Without entries the certificate has only y to compare with, in the data's own units.
            residual = max(residual, self.rows.misfit(left))
        # At w = w(z) the duality gap is what infeasibility makes of it.
        return DualPoint(m, left, residual, abs(float(m @ left)) / (1.0 + abs(value)))

    def run(self, start: FloatArray | None) -> DualPoint:
        """The best point reached from a dual of X's rows, or from 0."""
        zero = np.zeros(len(self.rows.target))
        here = self._at(zero if start is None else start)
        self.curvature.is_warm = start is not None
        max_steps = MAX_STEPS if start is None else min(MAX_STEPS, MAX_WARM_STEPS)
        if not np.isfinite(here.residual):
            here, max_steps = self._at(zero), MAX_STEPS
        best, idle, is_quadratic = here, 0, False
        while self.effort.steps < max_steps and best.residual > RESIDUAL and idle <= PATIENCE:
            step = self.curvature.solve(here.left, here.residual)
            reach = 1.0 if is_quadratic else self._reach(here, step)
            if not (reach > 0.0 and np.isfinite(step).all()):
                break
            before, here = here, self._at(here.m + reach * step)
            self.effort.steps += 1
            self.watch(self.effort.steps, here.gap)
            is_quadratic = reach == 1.0 and here.residual < QUADRATIC * before.residual
            rests = best.residual < RESTING and not here.residual < 0.5 * best.residual
            idle = idle + 1 if rests else 0
            if here.residual < best.residual:
                best = here
        return best

    def _reach(self, here: DualPoint, step: FloatArray) -> float:
        """The fraction of a step to take; 0 where none helps."""
        dual, rows_step = self.rows.dual(here.m), self.rows.dual(step)
        goal = float(step @ self.rows.target)
        if self.last_exponent is None:
            self.last_exponent = self._trusted(dual, rows_step)
        first = max(0, self.last_exponent - AHEAD)
        is_trust_known = False
        while first <= SMALLEST_EXPONENT:
            exponents = np.arange(first, first + TRIALS)
            task = Along(self.coordinates, dual, rows_step, np.exp2(-1.0 * exponents))
            found = self.design.reduce(task)
            if found.largest[0] <= TRUSTED_GROWTH:
                self.last_exponent = 0
                return 1.0
            # NaN compares false: outside the domain a step is too long.
            downhill = np.flatnonzero(found.sums[0] <= goal)
            if len(downhill):
                self.last_exponent = int(exponents[downhill[0]])
                return float(2.0**-self.last_exponent)
            first += TRIALS
            if not is_trust_known:
                first = max(first, self._trusted(dual, rows_step) - TRIALS + 1)
                is_trust_known = True
        return 0.0

    def _trusted(self, dual: FloatArray, step: FloatArray) -> int:
        task = Trust(self.coordinates, dual, step, TRUSTED_GROWTH)
        return int(self.design.reduce(task).largest[0])

    def predictor(self, point: DualPoint) -> FloatArray:
        """w at a point, corrected for the rounding of its dual where that is worth it."""
        dual = self.rows.dual(point.m)
        plain = self.design.gather(Predictor(self.coordinates, dual))
        if not ROUNDING < point.residual < RESTING:
            return plain
        self.curvature.move_to(dual)
        change = self.rows.dual(self.curvature.solve(point.left, RESIDUAL / point.residual))
        corrected = self.design.gather(Predictor(self.coordinates, dual, change))
        left = self.rows.target - self.rows.seen(
            self.design.reduce(Predictions(), corrected).sums[0]
        )
        return corrected if extended.length(left) < extended.length(point.left) else plain
