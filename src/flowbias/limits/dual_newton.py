"""Newton's method on the dual: the whole solve near the kernel regime, and for any potential.

    minimize  phi(nu) = Q*(shift + A^T nu) - <nu, b>,     H = A (dw/dz) A^T

The first step from nu = 0 is the tangent-kernel solution, exact in the kernel limit; the others
bend it. Where the potential bounds how fast its Hessian changes (`hess_growth`) and the bound says
that a step stays inside the region of quadratic convergence, it is taken whole, and while whole
steps cut the residual tenfold their factor serves again (a chord method). Elsewhere phi is
searched along the step for its minimum, which takes no product with A. A potential that does not
separate has a matrix dw/dz, and each of its steps is searched.

`SearchedNewton` is that iteration for any X. What a step is made of, the products with X, the
system and what is seen along the step, is of X's kind: `DualNewton` has an array, and keeps z;
`blocks.newton.BlockNewton` has a design, where passes over X are what costs.
"""

from __future__ import annotations

import math
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

#: What is of length d, where it stays in the blocks of a design.
IN_BLOCKS = np.empty(0)


class DualPoint(NamedTuple):
    """A dual of the constraint's rows: z = shift + A^T nu, w(z), and what A w misses of b."""

    dual: FloatArray
    z: FloatArray
    w: FloatArray
    gap: FloatArray
    #: the unit of the residual
    size: float
    residual: float
    #: dw/dz, where it was asked for; of a design A (dw/dz) A^T
    curvature: FloatArray | None = None
    #: relative, of a design
    duality_gap: float = np.nan
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
class _InMemory(ABC):
    """What potentials that separate and others have in common on an array."""

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

    def _with_curvature(self, point: DualPoint, before: DualPoint | None = None) -> DualPoint:
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


class Line(ABC):
    """phi along Newton's step from a point, in shares of the step."""

    #: of w' over the whole step
    growth: float
    #: the longest share that is looked at
    longest: float = 1.0

    @abstractmethod
    def first_share(self) -> float:
        """A guess of where phi is least; 0 where the step is not worth taking."""

    @abstractmethod
    def slope(self, share: float) -> float:
        """<A^T step, w> - <step, b>; infinite beyond the domain."""

    @abstractmethod
    def after(self, share: float) -> DualPoint:
        """The point that a share of the step leads to."""


class SearchedNewton(ABC):
    """The iteration for a potential that separates, whatever X is."""

    tolerances: Tolerances
    #: the least share of a step that is worth taking: where w' grows too fast even along that, the
    #: limit is nearer to the rich than to the kernel one, and the iteration gives up
    least_share: float = 0.0
    #: whether systems are solved to rounding, not by an iteration
    is_direct: bool = True
    #: how often the minimum of phi along a step is looked for once more after it is bracketed
    secants: ClassVar[int]
    #: growth of w' along a step up to which it is taken whole: e^2 is a step of 2 in z at depth 2
    trusted_growth: ClassVar[float] = float(np.exp(2.0))
    #: and below which the next residual can only be larger by rounding
    nearly_linear: ClassVar[float] = 1.1
    #: share of the residual that a whole step may leave for its factor to serve again
    chord: ClassVar[float] = 0.1

    @abstractmethod
    def _line(self, point: DualPoint) -> Line | None:
        """By the system of the point, where one serves once more; None where H is not finite."""

    def step(self, progress: Iteration[DualPoint]) -> DualPoint | None:
        point = progress.here
        line = self._line(point)
        if line is None:
            return None
        share = 1.0 if line.growth <= self.trusted_growth else self._searched(line)
        if share == 0.0:
            return None
        after = line.after(share)
        # What an iteration leaves of a system is no rounding.
        is_linear = self.is_direct and line.growth < self.nearly_linear
        # Without a step that lowers phi there is nothing more to find.
        is_end = point.residual < self.tolerances.solved or is_linear or share <= SHORTEST
        is_lost = (self.least_share > 0.0 and share == 1.0) or point.system is not None
        # Near the end a nearly linear step that does not halve what is left moves it by rounding.
        least = 0.5 if is_linear and point.residual < self.tolerances.solved else 1.0
        if after.residual < least * point.residual or not (is_end or is_lost):
            return after
        # Rounding reached, or too far off for Newton's method; or an older factor does not do.
        if point.system is not None and not point.residual < self.tolerances.solved:
            return point._replace(system=None)
        is_rounding = is_linear or point.residual < self.tolerances.nearly_solved
        return point._replace(is_rounding=True) if is_rounding else None

    def _searched(self, line: Line) -> float:
        """About the share of a step at which phi is least; 0 for none.

        phi is convex: its slope says on which side of the minimum a point is, without the rounding
        of a difference of values.
        """
        share = line.first_share()
        here = line.slope(share) if share > 0.0 else 0.0
        beyond, there = share, here
        while here > 0.0 and share > SHORTEST:
            beyond, there = share, here
            share *= 0.5
            here = line.slope(share)
        if here > 0.0 or share == 0.0:
            return share  # by rounding phi rises all along, and this is the end
        while not there > 0.0:
            if beyond == line.longest:
                return beyond
            share, here = beyond, there
            beyond = min(line.longest, 2.0 * share)
            there = line.slope(beyond)
        for _ in range(self.secants):  # kept off either end
            part = min(max(-here / (there - here), 0.1), 0.9) if there < np.inf else 0.5
            middle = share + part * (beyond - share)
            between = line.slope(middle)
            if between > 0.0:
                beyond, there = middle, between
            else:
                share, here = middle, between
        return share


#: The shortest share of a step: steps may be longer than all that moves w by any double.
SHORTEST = 2.0**-1000


def trusted_share(
    potential: Any, z: FloatArray, rise: FloatArray, growth_along: Callable[[float], float]
) -> float:
    """About the longest share of a rise of z over which w' grows by no more than is trusted.

    The whole, where nothing is known of it.
    """
    limit = SearchedNewton.trusted_growth
    if not growth_along(SHORTEST) <= limit:
        units = float((np.abs(rise) / potential.dual_unit(z)).max())
        trusted = float(np.log(limit))
        return trusted / units if units > trusted else 1.0
    share = 1.0
    while not growth_along(share) <= limit:
        share *= 0.125
    for longer in (4.0 * share, 2.0 * share):
        if longer < 1.0 and growth_along(longer) <= limit:
            return longer
    return share


def even_slope(potential: Any, shift: FloatArray | float) -> float:
    """w' at the start, where all coordinates start alike and at w = 0; 0 elsewhere.

    With one w' for all, H is a multiple of A A^T, whose factor the rows have.
    """
    if potential.shape_of_w not in ((), (1,)) or np.ndim(shift):
        return 0.0
    # Of shape () or, where the one feature has a start of its own, (1,).
    slope: float = np.asarray(potential.hess_dual(shift)).item()
    if not 0.0 < slope < np.inf or np.asarray(potential.grad_dual(shift)).item() != 0.0:
        return 0.0
    return slope


class LineInMemory(Line):
    """With what z rises by along it."""

    #: <step, b>, from when a search begins
    asked: float

    def __init__(self, newton: DualNewton, point: DualPoint) -> None:
        self.newton, self.point = newton, point
        self.system = newton.system(point) if point.system is None else point.system
        self.step = self.system.solve(point.gap)
        self.rise = newton.constraint.adjoint(self.step)
        self.growth_along = newton.potential.growth_along(point.z, self.rise)
        self.growth = self.growth_along(1.0)

    def first_share(self) -> float:
        newton, least = self.newton, self.newton.least_share
        if least > 0.0 and not self.growth_along(least) <= newton.trusted_growth:
            return 0.0
        self.asked = float(self.step.dot(newton.constraint.target))
        # The minimum is mostly a few times as far as quadratic convergence is sure.
        sure = trusted_share(newton.potential, self.point.z, self.rise, self.growth_along)
        return min(1.0, 4.0 * sure)

    def slope(self, share: float) -> float:
        rise = self.rise
        w = self.newton.potential.grad_dual(self.point.z + share * rise)
        found = float(rise.dot(w)) - self.asked
        return np.inf if math.isnan(found) else found

    def after(self, share: float) -> DualPoint:
        newton, point = self.newton, self.point
        if share == 1.0:
            step, rise, serves_to = self.step, self.rise, newton.serves * point.residual
        else:
            step, rise, serves_to = share * self.step, share * self.rise, -1.0
        if newton.least_share > 0.0:
            return newton.at(point.dual + step, point.z + rise, self.system, serves_to)
        # In many steps z would gather their roundings: there it is computed anew from the dual.
        after = newton.at(point.dual + step, None, self.system, serves_to)
        return newton.looked_ahead(after, point)


@dataclass
class DualNewton(_InMemory, SearchedNewton):
    """On an array."""

    counts_fit: ClassVar[bool] = True
    #: slopes cost as much as a product with one row: next to nothing beside a factor
    secants: ClassVar[int] = 2
    systems: MakeSystem = NormalEquations
    least_share: float = 0.0
    #: of small data a new factor costs no more than a step does
    small_chord: ClassVar[float] = 1e-3
    small: ClassVar[float] = 1e6
    #: the share of the residual that is left where a factor serves again, of these data
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
            start = self.looked_ahead(self.at() if start is None else start)
        end = iterate(self, start, self.effort, max_steps=max_steps).here
        is_solved = end.residual <= self.tolerances.residual
        return self.refined(end) if end.is_rounding and not (is_solved or end.ran_off) else end

    def _kernel_solution(self) -> DualPoint:
        """The point of the first step, where all coordinates start alike; else of 0."""
        potential, shift = self.potential, self.shift
        slope = even_slope(potential, shift)
        if not slope:
            return self.at()
        constraint = self.constraint
        system = GramSystem(constraint, constraint.rows.shape[1], slope, self.effort)
        step = system.solve(constraint.target)
        rise = constraint.adjoint(step)
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

    def system(self, point: DualPoint) -> LinearSystem:
        """H at a point."""
        curvature = point.curvature
        if curvature is None:
            curvature = self.potential.hess_dual(point.z)
        slope = float(curvature.flat[0])
        last = curvature.item(-1)
        if self.least_share > 0.0 and 0.0 < slope == last < np.inf and (curvature == slope).all():
            return GramSystem(self.constraint, len(curvature), slope, self.effort)
        return self.systems(self.constraint, curvature, self.effort)

    def _line(self, point: DualPoint) -> LineInMemory:
        return LineInMemory(self, point)

    def looked_ahead(self, point: DualPoint, before: DualPoint | None = None) -> DualPoint:
        """With its curvature, and whether no more is left than the dual's rounding is worth."""
        point = self._with_curvature(point, before)
        moved = self._moved(np.asarray(point.curvature), np.spacing(np.abs(point.z)))
        is_rounding = extended.length(point.gap) <= len(point.dual) * extended.length(moved)
        return point._replace(is_rounding=True) if is_rounding else point

    def _moved(self, curvature: FloatArray, change: FloatArray) -> FloatArray:
        return curvature * change

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
class JointNewton(_InMemory):
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
        first = self._with_curvature(self.at() if start is None else start)
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
        return None if after is None else self._with_curvature(after, before)

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
