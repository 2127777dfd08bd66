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
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates
from flowbias.ground import extended
from flowbias.ground.tolerances import DEFAULT, Tolerances
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.rows import Rows
from flowbias.limits.blocks.systems import Curvature, curvature_of
from flowbias.limits.blocks.tasks import SMALLEST_EXPONENT, Along, Predictions, Predictor, Trust
from flowbias.limits.driver import Progress, iterate
from flowbias.limits.normal_equations import Effort

#: Told after every step: how many there were, and the relative gap.
Watch = Callable[[int, float], None]


@dataclass(frozen=True)
class DualPoint:
    """A dual (of the independent rows), what is left to fit there, and the relative sizes."""

    m: FloatArray
    left: FloatArray
    residual: float
    gap: float
    #: whether the step that led here has shown quadratic convergence: the next is taken whole
    is_quadratic: bool = False


@dataclass
class BlockNewton:
    """The iteration on one problem."""

    design: Design
    coordinates: Coordinates
    rows: Rows
    effort: Effort
    watch: Watch
    tolerances: Tolerances = DEFAULT
    max_steps: ClassVar[int] = 200
    #: a warm start that needs more than this was not warm
    max_warm_steps: ClassVar[int] = 60
    #: a residual that has rested below this level is rounding
    rest: ClassVar[float] = 1e-5
    #: growth of w' along a step up to which it is taken whole: e^2 is a step of 2 in z at depth 2
    trusted_growth: ClassVar[float] = float(np.exp(2.0))

    def __post_init__(self) -> None:
        self.curvature: Curvature = curvature_of(
            self.design, self.coordinates, self.rows, self.effort
        )
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

    def solve(self, start: FloatArray | None) -> DualPoint:
        """The best point reached from a dual of X's rows, or from 0."""
        zero = np.zeros(len(self.rows.target))
        here = self._at(zero if start is None else start)
        self.curvature.is_warm = start is not None
        is_lost = not np.isfinite(here.residual)
        here = self._at(zero) if is_lost else here
        cold = start is None or is_lost
        return iterate(
            self,
            here,
            self.effort,
            max_steps=self.max_steps if cold else min(self.max_steps, self.max_warm_steps),
            rest=self.rest,
            watch=lambda steps, point: self.watch(steps, point.gap),
        ).best

    def terminate(self, progress: Progress[DualPoint]) -> bool:
        is_solved = progress.best.residual <= self.tolerances.residual
        return is_solved or progress.idle > self.tolerances.patience

    def step(self, progress: Progress[DualPoint]) -> DualPoint | None:
        here = progress.here
        step = self.curvature.solve(here.left, here.residual)
        reach = 1.0 if here.is_quadratic else self._line_search(here, step)
        if not (reach > 0.0 and np.isfinite(step).all()):
            return None
        after = self._at(here.m + reach * step)
        return replace(after, is_quadratic=reach == 1.0 and after.residual < 0.1 * here.residual)

    def _line_search(
        self, here: DualPoint, step: FloatArray, trials: int = 8, ahead: int = 4
    ) -> float:
        """The fraction of a step to take; 0 where none helps.

        `trials` are looked at in one pass over X, from `ahead` above the last one that was taken.
        """
        dual, rows_step = self.rows.dual(here.m), self.rows.dual(step)
        goal = float(step @ self.rows.target)
        if self.last_exponent is None:
            self.last_exponent = self._trusted(dual, rows_step)
        first = max(0, self.last_exponent - ahead)
        is_trust_known = False
        while first <= SMALLEST_EXPONENT:
            exponents = np.arange(first, first + trials)
            task = Along(self.coordinates, dual, rows_step, np.exp2(-1.0 * exponents))
            found = self.design.reduce(task)
            if found.largest[0] <= self.trusted_growth:
                self.last_exponent = 0
                return 1.0
            # NaN compares false: outside the domain a step is too long.
            downhill = np.flatnonzero(found.sums[0] <= goal)
            if len(downhill):
                self.last_exponent = int(exponents[downhill[0]])
                return float(2.0**-self.last_exponent)
            first += trials
            if not is_trust_known:
                first = max(first, self._trusted(dual, rows_step) - trials + 1)
                is_trust_known = True
        return 0.0

    def _trusted(self, dual: FloatArray, step: FloatArray) -> int:
        task = Trust(self.coordinates, dual, step, self.trusted_growth)
        return int(self.design.reduce(task).largest[0])

    def predictor(self, point: DualPoint) -> FloatArray:
        """w at a point, corrected for the rounding of its dual where that is worth it."""
        dual, goal = self.rows.dual(point.m), self.tolerances.residual
        plain = self.design.gather(Predictor(self.coordinates, dual))
        # Tenfold: a residual that has stopped just short of its goal is not worth a factorization.
        if not 10.0 * goal < point.residual < self.rest:
            return plain
        self.curvature.move_to(dual)
        change = self.rows.dual(self.curvature.solve(point.left, goal / point.residual))
        corrected = self.design.gather(Predictor(self.coordinates, dual, change))
        left = self.rows.target - self.rows.seen(
            self.design.reduce(Predictions(), corrected).sums[0]
        )
        return corrected if extended.length(left) < extended.length(point.left) else plain
