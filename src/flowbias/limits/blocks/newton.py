"""Newton's method on the dual of a big problem: n unknowns, X visited block by block.

The iteration is that of `dual_newton`. What is seen along a step takes a pass over X, so eight
slopes are asked for at once, at powers of two, and the longest share at which phi still falls is
taken: an exact line search up to a factor of two. Steps are thus not bounded by where the quadratic
model is good (one unit of z), and far from the kernel regime about as many are needed as an
interior-point method takes, without its 4 d unknowns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse.linalg

from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates
from flowbias.ground import extended
from flowbias.ground.tolerances import DEFAULT, Tolerances
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.tasks import (
    Along,
    Applied,
    CurvatureProduct,
    Evaluate,
    Predictor,
    Slope,
    Trust,
    WeightedGram,
)
from flowbias.limits.driver import Iteration, iterate
from flowbias.limits.dual_newton import IN_BLOCKS, DualPoint, Line, SearchedNewton, even_slope
from flowbias.limits.normal_equations import CholeskyFactor, Effort, GramSystem, LinearSystem
from flowbias.problems.regression import RowBasis

#: Told after every step: how many there were, and the relative gap.
Watch = Callable[[int, float], None]


class LineInPasses(Line):
    """Slopes at powers of two of a step, `trials` of them in one pass over X.

    The first are looked at from `ahead` above the share of the last step.
    """

    trials: ClassVar[int] = 8
    ahead: ClassVar[int] = 4

    def __init__(self, newton: BlockNewton, point: DualPoint, system: LinearSystem) -> None:
        rows = newton.rows
        self.newton, self.point, self.system = newton, point, system
        self.step = system.solve(point.gap)
        self.dual, self.rows_step = rows.dual_of_data(point.dual), rows.dual_of_data(self.step)
        self.asked = float(self.step @ rows.target)
        self.is_trust_known = False
        # A tenth as long as one that was taken whole: nothing is looked at.
        self.growth = 1.0
        if point.system is None:
            self._look(max(0, _exponent(newton.last_share) - self.ahead))
            self.longest = 2.0**-self.first

    def first_share(self) -> float:
        return self.newton.last_share

    def slope(self, share: float) -> float:
        exponent = _exponent(share)
        if exponent >= self.first + self.trials:
            self._look(max(exponent, self._trusted() - self.trials + 1))
        # Shares between the passes are beyond what is trusted by far.
        return np.inf if exponent < self.first else float(self.slopes[exponent - self.first])

    def _look(self, first: int) -> None:
        exponents = np.arange(first, first + self.trials)
        coordinates, reaches = self.newton.coordinates, np.exp2(-1.0 * exponents)
        task = Along(coordinates, self.dual, self.rows_step, reaches)
        found = self.newton.design.reduce(task)
        slopes = found.sums[0] - self.asked
        self.first, self.slopes = first, np.where(np.isnan(slopes), np.inf, slopes)
        self.growth = float(found.largest[0])

    def _trusted(self) -> int:
        if self.is_trust_known:
            return 0
        self.is_trust_known = True
        task = Trust(self.newton.coordinates, self.dual, self.rows_step)
        return int(self.newton.design.reduce(task).largest[0])

    def after(self, share: float) -> DualPoint:
        newton, point = self.newton, self.point
        newton.last_share = share
        # To form a matrix takes n times as long as a step by an older one.
        serves = point.system is not None
        after = newton.at(point.dual + share * self.step, with_matrix=not serves)
        if share < 1.0 or not after.residual < newton.chord * point.residual:
            return after
        used = self.system if serves and newton.is_direct else newton.system(after)
        return after._replace(system=used)


def _exponent(share: float) -> int:
    return -int(np.log2(share))


@dataclass
class BlockNewton(SearchedNewton):
    """The iteration on one problem."""

    design: Design
    coordinates: Coordinates
    rows: RowBasis
    effort: Effort
    watch: Watch
    tolerances: Tolerances = DEFAULT
    #: each would take a pass over X
    secants: ClassVar[int] = 0
    max_steps: ClassVar[int] = 200
    #: a warm start that needs more than this was not warm
    max_warm_steps: ClassVar[int] = 60
    #: a residual that has rested below this level is rounding
    rest: ClassVar[float] = 1e-5
    #: whether the dual is near its end, where a system must be solved for the residual to fall
    is_warm: bool = field(default=False, init=False)
    last_share: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        self.is_direct = self.design.has_entries
        self.iterated = IteratedSystems(self)

    def at(self, dual: FloatArray, *, with_matrix: bool = True) -> DualPoint:
        """The point of a dual; with its matrix, if the design has entries and it is asked for."""
        rows = self.rows
        with_matrix = with_matrix and self.is_direct
        if not dual.any() and self._even_slope:
            # w is 0: nothing has to be seen of X.
            fit, value, matrices = np.zeros(self.design.n), 0.0, []
        else:
            on_rows = rows.dual_of_data(dual)
            task = Evaluate(self.coordinates, on_rows, rows.row_scale, with_gram=with_matrix)
            fit, value, *matrices = self.design.reduce(task).sums
            self.effort.factorizations += len(matrices)
        seen, target = rows.seen(fit), rows.target
        gap = target - seen
        size = max(extended.length(target), extended.length(seen))
        residual = extended.length(gap) / size if size > 0 else 0.0
        if not self.is_direct:
            # Without entries the certificate has only y to compare with, in the data's own units.
            residual = max(residual, rows.misfit(gap))
        # At w = w(z) the duality gap is what infeasibility makes of it.
        duality_gap = abs(float(dual @ gap)) / (1.0 + abs(float(value)))
        matrix = rows.seen_gram(matrices[0]) if matrices else None
        return DualPoint(dual, IN_BLOCKS, IN_BLOCKS, gap, size, residual, matrix, duality_gap)

    @cached_property
    def _even_slope(self) -> float:
        return even_slope(self.coordinates.potential, self.coordinates.shift)

    def solve(self, start: FloatArray | None) -> DualPoint:
        """The best point reached from a dual of X's rows, or from 0."""
        zero = np.zeros(len(self.rows.target))
        here = self.at(zero if start is None else start)
        self.is_warm = start is not None
        is_lost = not np.isfinite(here.residual)
        here = self.at(zero) if is_lost else here
        cold = start is None or is_lost
        return iterate(
            self,
            here,
            self.effort,
            max_steps=self.max_steps if cold else min(self.max_steps, self.max_warm_steps),
            rest=self.rest,
            watch=lambda steps, point: self.watch(steps, point.duality_gap),
        ).best

    def terminate(self, progress: Iteration[DualPoint]) -> bool:
        is_solved = progress.best.residual <= self.tolerances.residual
        is_idle = progress.idle > self.tolerances.patience
        return is_solved or is_idle or progress.here.is_rounding

    def system(self, point: DualPoint) -> LinearSystem | None:
        """H at a point; None where it is not finite."""
        if not point.dual.any() and self._even_slope:
            return GramSystem(self.rows, self.design.d, self._even_slope, self.effort)
        if not self.is_direct:
            return self.iterated.at(point)
        matrix = self.at(point.dual).curvature if point.curvature is None else point.curvature
        return None if matrix is None or not np.isfinite(matrix).all() else MatrixSystem(matrix)

    def _line(self, point: DualPoint) -> LineInPasses | None:
        system = self.system(point) if point.system is None else point.system
        return None if system is None else LineInPasses(self, point, system)

    def predictor(self, point: DualPoint) -> FloatArray:
        """w at a point, corrected for the rounding of its dual where that is worth it."""
        dual, goal = self.rows.dual_of_data(point.dual), self.tolerances.residual
        plain = self.design.gather(Predictor(self.coordinates, dual))
        # Tenfold: a residual that has stopped just short of its goal is not worth a factorization.
        if not 10.0 * goal < point.residual < self.rest:
            return plain
        system = self.system(point._replace(residual=goal / point.residual))
        if system is None:
            return plain
        change = self.rows.dual_of_data(system.solve(point.gap))
        corrected = self.design.gather(Predictor(self.coordinates, dual, change))
        left = self.rows.target - self.rows.seen(self.design.reduce(Applied(), corrected).sums[0])
        return corrected if extended.length(left) < extended.length(point.gap) else plain


class MatrixSystem:
    """A diag(w') A^T, summed over blocks and factored here, with one refinement per solve."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix, self.factor = matrix, CholeskyFactor(matrix.copy(order="F"))

    def solve(self, b: FloatArray) -> FloatArray:
        x = self.factor.solve(b)
        return x + self.factor.solve(b - self.matrix @ x)


class IteratedSystems:
    """Conjugate gradients, preconditioned by the matrix at an earlier point.

    To form the matrix takes as many products as n iterations. So it is formed anew when the
    iterations since the last time have come to n: never more than twice the work of the better of
    the two. In between w' changes by bounded factors from step to step, and an earlier matrix is a
    good preconditioner: its quality does not depend on the conditioning of X or on the scale.
    """

    def __init__(self, newton: BlockNewton) -> None:
        self.newton, self.design, self.rows = newton, newton.design, newton.rows
        self.precondition: Callable[[FloatArray], FloatArray] = self.rows.inverse_gram
        self.iterations = 0

    def at(self, point: DualPoint) -> IteratedSystem:
        """A diag(w') A^T at a point, for a step from it."""
        dual = self.rows.dual_of_data(point.dual)
        slope = self.design.gather(Slope(self.newton.coordinates, dual))
        # A direction needs a tenth of its length right, until the end is near.
        return IteratedSystem(self, slope, min(0.1, point.residual))

    def form_matrix(self, slope: FloatArray) -> None:
        gram = self.design.reduce(WeightedGram(self.rows.row_scale), slope).sums[0]
        self.precondition = CholeskyFactor(self.rows.seen_gram(gram)).solve
        self.newton.effort.factorizations += 1
        self.iterations = 0

    def count(self, _: FloatArray) -> None:
        self.iterations += 1


class IteratedSystem(NamedTuple):
    """A diag(slope) A^T, solved to a relative residual of about `accuracy`."""

    family: IteratedSystems
    slope: FloatArray
    accuracy: float

    def product(self, x: FloatArray) -> FloatArray:
        rows = self.family.rows
        task = CurvatureProduct(rows.dual_of_data(x))
        return rows.seen(self.family.design.reduce(task, self.slope).sums[0])

    def solve(self, b: FloatArray) -> FloatArray:
        family, n = self.family, len(b)
        if family.iterations >= n:
            family.form_matrix(self.slope)
        operator = partial(scipy.sparse.linalg.LinearOperator, (n, n), dtype=np.float64)
        x, unsolved = scipy.sparse.linalg.cg(
            operator(matvec=self.product),
            b,
            rtol=self.accuracy,
            atol=0.0,
            maxiter=n,
            M=operator(matvec=family.precondition),
            callback=family.count,
        )
        if unsolved and family.newton.is_warm:
            # Fewer coordinates may carry the fit than there are rows. H is then singular to
            # rounding, and only the ridge of its factor keeps what is left of y out of its kernel.
            family.form_matrix(self.slope)
            x = family.precondition(b)
            x = x + family.precondition(b - self.product(x))
        return np.asarray(x)
