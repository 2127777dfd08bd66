"""Newton's method on the dual: the whole solve near the kernel regime, and for any potential.

    minimize  phi(nu) = Q*(shift + A^T nu) - <nu, b>,     H = A (dw/dz) A^T

The first step from nu = 0 is the tangent-kernel solution, exact in the kernel limit; the others
bend it. Where the potential bounds how fast its Hessian changes (`hess_growth`) and the bound says
that a step stays inside the region of quadratic convergence, it is taken whole, and while whole
steps cut the residual tenfold their factor serves again (a chord method). Elsewhere phi is
searched along the step for its minimum, which takes no product with A. A potential that does not
separate has a matrix dw/dz, and each of its steps is searched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg

from flowbias.ground import extended
from flowbias.ground.tolerances import DEFAULT, Tolerances
from flowbias.ground.typing import FloatArray
from flowbias.limits.driver import Iteration, iterate
from flowbias.limits.normal_equations import (
    Effort,
    GramSystem,
    LinearSystem,
    MakeSystem,
    NormalEquations,
)
from flowbias.problems.regression import Constraint


class DualPoint(NamedTuple):
    """A dual of the constraint's rows: z = shift + A^T nu, w(z), and what A w misses of b."""

    dual: FloatArray
    z: FloatArray
    w: FloatArray
    gap: FloatArray
    #: the unit of the residual
    size: float
    residual: float
    #: dw/dz, where it was asked for
    curvature: FloatArray | None = None
    #: residuals on the way here, and what a dual twice as long would have added to A w at each
    passed: tuple[tuple[float, float], ...] = ()
    #: whether what is left is rounding of the dual
    is_rounding: bool = False
    #: points that line searches have looked at
    trials: int = 1
    #: the factor that has led here, where it serves once more
    system: LinearSystem | None = None

    @property
    def ran_off(self) -> bool:
        """Whether b is beyond what longer duals reach.

        Twice in a row a longer dual promised clearly less than the one before, in the end less than
        1e-3 of what is missing. (From a small start it promises little, but more.)
        """
        if len(self.passed) < 3:
            return False
        (_, first), (_, second), (missing, last) = self.passed[-3:]
        return second < 0.9 * first and last < 0.9 * second and last < 1e-3 * missing

    @property
    def shortfall(self) -> str:
        """Nothing where y is fitted; else how far it came, and whether more dual would help."""
        if self.residual <= DEFAULT.not_solved:
            return ""
        came = (
            f": gave up with X w {self.residual:.1e} of y away from it, at a dual point of size "
            f"{float(np.abs(self.z).max()):.1e}; twice that would move X w by "
            f"{self.passed[-1][1]:.1e} of y"
        )
        return f"{came}, so that y seems out of reach" if self.ran_off else came


@dataclass
class _Newton(ABC):
    """What potentials that separate and others have in common."""

    constraint: Constraint
    potential: Any
    shift: FloatArray | float
    effort: Effort
    tolerances: Tolerances = DEFAULT
    #: ||b||
    target_size: float = field(init=False)
    #: sufficient decrease of phi along a line search (Armijo)
    decrease: ClassVar[float] = 1e-4
    #: whether a residual is judged against A w where that is larger than b
    counts_fit: ClassVar[bool]

    def __post_init__(self) -> None:
        self.target_size = extended.length(self.constraint.target)

    def at(
        self,
        dual: FloatArray | None = None,
        z: FloatArray | None = None,
        system: LinearSystem | None = None,
        serves_to: float = 0.0,
    ) -> DualPoint:
        """The point of a dual, or of 0, with its z where that is known.

        `system` has led here, and serves once more where the residual is at most `serves_to`.
        """
        constraint = self.constraint
        if dual is None:
            dual, z = np.zeros(len(constraint.target)), np.zeros(constraint.rows.shape[1])
            z += self.shift
        elif z is None:
            z = self.shift + constraint.adjoint(dual)
        w = self.potential.grad_dual(z)
        fit = constraint.apply(w)
        gap = constraint.target - fit
        size = self.target_size
        if self.counts_fit:
            # Rows have unit length: A w = 0 is judged against what w could have made of it.
            size = max(size, extended.length(fit)) if size > 0.0 else extended.length(w)
        size = size or 1.0
        residual = extended.length(gap) / size
        serves = system if residual <= serves_to else None
        return DualPoint(dual, z, w, gap, size, residual, system=serves)

    def _looked_ahead(self, point: DualPoint, before: DualPoint | None = None) -> DualPoint:
        """With its curvature, and what a dual twice as long would add to A w, to first order."""
        curvature = self.potential.hess_dual(point.z)
        more = self.constraint.apply(self._moved(curvature, point.z - self.shift))
        ahead = point.residual, extended.length(more) / point.size
        passed = () if before is None else before.passed
        return point._replace(curvature=curvature, passed=(*passed, ahead))

    @abstractmethod
    def _moved(self, curvature: FloatArray, change: FloatArray) -> FloatArray:
        """How w moves with z."""

    def _phi(self, z: FloatArray, dual: FloatArray) -> float:
        """Infinite outside the domain."""
        return float(self.potential.conjugate(z) - float(dual @ self.constraint.target))


@dataclass
class DualNewton(_Newton):
    """For a potential that separates."""

    counts_fit: ClassVar[bool] = True
    systems: MakeSystem = NormalEquations
    #: the least share of a step that is worth taking: where w' grows too fast even along that, the
    #: limit is nearer to the rich than to the kernel one, and the iteration gives up
    least_share: float = 0.0
    #: growth of w' along a step up to which it is taken whole: e^2 is a step of 2 in z at depth 2
    trusted_growth: ClassVar[float] = float(np.exp(2.0))
    #: and below which the next residual can only be larger by rounding
    nearly_linear: ClassVar[float] = 1.1
    #: share of the residual that a whole step may leave for its factor to serve again: of small
    #: data a new one costs no more than a step does
    chord: ClassVar[float] = 0.1
    small_chord: ClassVar[float] = 1e-3
    small: ClassVar[float] = 1e6
    shortest: ClassVar[float] = 2.0**-200
    #: that share, of these data
    serves: float = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        n, d = self.constraint.rows.shape
        self.serves = self.chord if n * n * d > self.small else self.small_chord

    def solve(self, start: DualPoint | None = None, *, max_steps: int) -> DualPoint:
        """Where the iteration ends, with its last digits repaired in w if they are rounding."""
        if self.least_share > 0.0:
            start = self._kernel_solution() if start is None else start
        else:
            start = self._blurred(self._looked_ahead(self.at() if start is None else start))
        end = iterate(self, start, self.effort, max_steps=max_steps).here
        is_solved = end.residual <= self.tolerances.residual
        return self.refined(end) if end.is_rounding and not (is_solved or end.ran_off) else end

    def _kernel_solution(self) -> DualPoint:
        """The point of the first step, where all coordinates start alike, at w = 0; else of 0.

        With one w' for all, H is a multiple of A A^T, whose factor the constraint has.
        """
        potential, shift = self.potential, self.shift
        if potential.shape_of_w not in ((), (1,)) or np.ndim(shift):
            return self.at()
        # Of shape () or, where the one feature has a start of its own, (1,).
        slope = np.asarray(potential.hess_dual(shift)).item()
        if not 0.0 < slope < np.inf or np.asarray(potential.grad_dual(shift)).item() != 0.0:
            return self.at()
        system = GramSystem(self.constraint, slope, self.effort)
        step = system.solve(self.constraint.target)
        rise = self.constraint.adjoint(step)
        if not potential.growth_along(shift, rise)(1.0) <= self.trusted_growth:
            return self.at()._replace(system=system)
        self.effort.steps += 1
        return self.at(step, shift + rise, system, self.serves)

    def terminate(self, progress: Iteration[DualPoint]) -> bool:
        point, goal = progress.here, self.tolerances.residual
        if point.system is not None:
            # Steps that cost next to nothing go on for a digit, which Newton's own overshoot.
            goal *= self.chord
        return point.residual <= goal or point.ran_off or point.is_rounding

    def step(self, progress: Iteration[DualPoint]) -> DualPoint | None:
        point = progress.here
        system = self._system(point) if point.system is None else point.system
        step = system.solve(point.gap)
        rise = self.constraint.adjoint(step)
        growth_along = self.potential.growth_along(point.z, rise)
        growth, reach = growth_along(1.0), 1.0
        if not growth <= self.trusted_growth:
            if self.least_share > 0.0 and not growth_along(self.least_share) <= self.trusted_growth:
                return None
            first = self._trusted(point, rise, growth_along)
            reach = self._line_search(point, step, rise, first)
        if reach != 1.0:
            step, rise = reach * step, reach * rise
        # In many steps z would gather their roundings: there it is computed anew from the dual.
        z = point.z + rise if self.least_share > 0.0 else None
        used = system if reach == 1.0 else None
        after = self.at(point.dual + step, z, used, self.serves * point.residual)
        is_linear = growth < self.nearly_linear
        # Without a step that lowers phi there is nothing more to find.
        is_end = point.residual < self.tolerances.solved or is_linear or reach <= self.shortest
        is_lost = self.least_share > 0.0 and reach == 1.0
        # Near the end a nearly linear step that does not halve what is left moves it by rounding.
        least = 0.5 if is_linear and point.residual < self.tolerances.solved else 1.0
        if not after.residual < least * point.residual and (is_end or is_lost):
            # Rounding reached, or too far off for Newton's method; or an older factor does not do.
            is_rounding = point.residual < self.tolerances.nearly_solved or is_linear
            if point.system is not None and not point.residual < self.tolerances.solved:
                return point._replace(system=None)
            return point._replace(is_rounding=True) if is_rounding else None
        return after if self.least_share > 0.0 else self._blurred(self._looked_ahead(after, point))

    def _system(self, point: DualPoint) -> LinearSystem:
        curvature = point.curvature
        if curvature is None:
            curvature = self.potential.hess_dual(point.z)
        slope = float(curvature.flat[0])
        last = curvature.item(-1)
        if self.least_share > 0.0 and 0.0 < slope == last < np.inf and (curvature == slope).all():
            return GramSystem(self.constraint, slope, self.effort)
        return self.systems(self.constraint, curvature, self.effort)

    def _moved(self, curvature: FloatArray, change: FloatArray) -> FloatArray:
        return curvature * change

    def _blurred(self, point: DualPoint) -> DualPoint:
        """Marked where no more is left than the rounding of the dual is worth in A w."""
        moved = self._moved(np.asarray(point.curvature), np.spacing(np.abs(point.z)))
        is_rounding = extended.length(point.gap) <= len(point.dual) * extended.length(moved)
        return point._replace(is_rounding=True) if is_rounding else point

    def _trusted(
        self, point: DualPoint, rise: FloatArray, growth_along: Callable[[float], float]
    ) -> float:
        """A first fraction of the step: about the longest that the growth allows, if known."""
        reach = 1.0
        while reach > self.shortest:
            if growth_along(reach) <= self.trusted_growth:
                for more in (4.0, 2.0):
                    longer = more * reach
                    reach = longer if growth_along(longer) <= self.trusted_growth else reach
                # The minimum is mostly a few times as far as quadratic convergence is sure.
                return min(1.0, 4.0 * reach)
            reach *= 0.125
        units = float((np.abs(rise) / self.potential.dual_unit(point.z)).max())
        trusted = float(np.log(self.trusted_growth))
        return trusted / units if units > trusted else 1.0

    def _line_search(
        self, point: DualPoint, step: FloatArray, rise: FloatArray, reach: float
    ) -> float:
        """About the fraction of `step`, at most 1, at which phi is least; `reach` is a first guess.

        phi is convex: its slope <rise, w> - <step, b> says on which side of the minimum a point is,
        without the rounding of a difference of values.
        """
        asked = float(step.dot(self.constraint.target))

        def slope(share: float) -> float:
            found = float(rise.dot(self.potential.grad_dual(point.z + share * rise))) - asked
            return np.inf if np.isnan(found) else found  # beyond the domain

        here = slope(reach)
        beyond, there = reach, here
        while here > 0.0 and reach > self.shortest:
            beyond, there = reach, here
            reach *= 0.5
            here = slope(reach)
        if here > 0.0:
            return reach  # by rounding phi rises all along, and this is the end
        while not there > 0.0:
            if beyond == 1.0:
                return 1.0
            reach, here = beyond, there
            beyond = min(1.0, 2.0 * reach)
            there = slope(beyond)
        for _ in range(2):  # by the secant, kept off either end
            share = min(max(-here / (there - here), 0.1), 0.9) if there < np.inf else 0.5
            middle = reach + share * (beyond - reach)
            between = slope(middle)
            if between > 0.0:
                beyond, there = middle, between
            else:
                reach, here = middle, between
        return reach

    def refined(self, point: DualPoint, w: FloatArray | None = None) -> DualPoint:
        """Go on in w itself (from `w`, if given) where an ulp of the dual is many of w."""
        constraint = self.constraint
        target, dual = constraint.target, point.dual
        w, gap = (point.w, point.gap) if w is None else (w, target - constraint.apply(w))
        curvature = self.potential.hess_dual(point.z)
        if not np.isfinite(curvature).all():
            return point._replace(w=w, gap=gap)
        size = extended.length(target) or 1.0
        system = self.systems(constraint, curvature, self.effort, graded=True)
        while (left := extended.length(gap)) > self.tolerances.residual * size:
            step = system.solve(gap)
            rise = constraint.adjoint(step)
            moved = w + curvature * rise
            after = target - constraint.apply(moved)
            if not extended.length(after) < 0.5 * left:
                break
            w, gap = moved, after
            # The dual follows where it is determined, by a change of its last digits; w is not
            # recomputed from it.
            if float(np.abs(rise).max()) <= 1e-8 * float(np.abs(point.z).max()):
                dual = dual + step
        return point._replace(dual=dual, w=w, gap=gap, residual=extended.length(gap) / size)


@dataclass
class JointNewton(_Newton):
    """For a potential of all coordinates together.

    Where one that is known only numerically has no more digits of phi left, a step that lowers the
    residual is taken all the same.
    """

    counts_fit: ClassVar[bool] = False
    shortest: ClassVar[float] = 2.0**-60
    #: points that one solve may look at. Forty are many: the rest is for steps along the end of the
    #: dual domain, where each of them is searched
    max_trials: ClassVar[int] = 400

    def solve(self, start: DualPoint | None = None, *, max_steps: int) -> DualPoint:
        """Where the iteration ends."""
        first = self._looked_ahead(self.at() if start is None else start)
        return iterate(self, first, self.effort, max_steps=max_steps).here

    def terminate(self, progress: Iteration[DualPoint]) -> bool:
        return progress.here.residual <= self.tolerances.residual or progress.here.ran_off

    def step(self, progress: Iteration[DualPoint]) -> DualPoint | None:
        before = progress.here
        self.effort.factorizations += 1
        rows = self.constraint.rows * self.constraint.row_scale[:, None]
        try:
            matrix = rows @ np.asarray(before.curvature) @ rows.T
            step = scipy.linalg.solve(matrix, before.gap, assume_a="pos")
        except (scipy.linalg.LinAlgError, ValueError):
            return None  # singular, or infinite at the end of the dual domain
        after = self._line_search(before, step)
        return None if after is None else self._looked_ahead(after, before)

    def _line_search(self, before: DualPoint, step: FloatArray) -> DualPoint | None:
        """The first point along the step that helps."""
        start, slope = self._phi(before.z, before.dual), -float(before.gap @ step)
        noise = 10.0 * self.potential.rounding * (1.0 + abs(start))
        # A Newton step may be longer than the dual by any number of digits: those come on top.
        times_dual = extended.length(step) / max(1.0, extended.length(before.dual))
        reach, shortest = 1.0, self.shortest / max(1.0, times_dual)
        trials = before.trials
        while reach > shortest and trials < self.max_trials:
            trials += 1
            point = self.at(before.dual + reach * step)._replace(trials=trials)
            # NaN, outside the dual domain, compares false.
            if point.residual < 0.5 * before.residual:
                return point
            shows = -reach * slope > noise
            goal = start + self.decrease * reach * slope
            if shows and self._phi(point.z, point.dual) <= goal:
                return point
            if not shows and point.residual < before.residual:
                return point
            if np.isfinite(point.residual):
                reach *= 0.5
            else:
                # Back inside the domain, faster from a step that was far longer than the dual is.
                reach *= 1.0 / 16.0 if reach * times_dual > 1e3 else 0.25
        return None

    def _moved(self, curvature: FloatArray, change: FloatArray) -> FloatArray:
        return np.asarray(curvature @ change)
