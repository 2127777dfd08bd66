"""Newton's method on the dual of a big problem: n unknowns, X visited block by block.

    minimize  phi(nu) = Q*(shift + A^T nu) - <nu, b>,     H = A diag(w'(z)) A^T

phi is convex, so its slope along a step, <A^T step, w> - <step, b>, says where the step has gone
too far, without the rounding of a difference of values. The longest power of two of the step at
which the slope is not positive yet is taken: an exact line search up to a factor of two. Steps are
thus not bounded by where the quadratic model is good (one unit of z), and far from the kernel
regime about as many are needed as an interior-point method takes, without its 4 d unknowns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates
from flowbias.ground import extended
from flowbias.ground.linear_algebra import cholesky_with_ridge
from flowbias.ground.tolerances import DEFAULT, Tolerances
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.tasks import (
    SMALLEST_EXPONENT,
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
from flowbias.limits.normal_equations import Effort
from flowbias.problems.regression import RowBasis

#: Told after every step: how many there were, and the relative gap.
Watch = Callable[[int, float], None]


@dataclass(frozen=True)
class BlockPoint:
    """A dual (of the independent rows), what is left to fit there, and the relative sizes."""

    m: FloatArray
    left: FloatArray
    residual: float
    gap: float
    #: whether the step that led here has shown quadratic convergence: the next is taken whole, and
    #: by the same factor (a chord method), since to form one takes n times as long as to step
    is_quadratic: bool = False
    #: whether a factor that was kept does not serve any more
    is_stale: bool = False


@dataclass
class BlockNewton:
    """The iteration on one problem."""

    design: Design
    coordinates: Coordinates
    rows: RowBasis
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
        self.last_exponent = 0

    def _at(self, m: FloatArray, keep: bool = False) -> BlockPoint:
        fit, value = self.curvature.move_to(self.rows.dual_of_data(m), keep)
        seen, target = self.rows.seen(fit), self.rows.target
        left = target - seen
        size = max(extended.length(target), extended.length(seen))
        residual = extended.length(left) / size if size > 0 else 0.0
        if not self.design.has_entries:
            # Without entries the certificate has only y to compare with, in the data's own units.
            residual = max(residual, self.rows.misfit(left))
        # At w = w(z) the duality gap is what infeasibility makes of it.
        return BlockPoint(m, left, residual, abs(float(m @ left)) / (1.0 + abs(value)))

    def solve(self, start: FloatArray | None) -> BlockPoint:
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

    def terminate(self, progress: Iteration[BlockPoint]) -> bool:
        is_solved = progress.best.residual <= self.tolerances.residual
        return is_solved or progress.idle > self.tolerances.patience

    def step(self, progress: Iteration[BlockPoint]) -> BlockPoint | None:
        here = progress.here
        if here.is_stale:
            self.curvature.move_to(self.rows.dual_of_data(here.m))
        step = self.curvature.solve(here.left, here.residual)
        reach = 1.0 if here.is_quadratic else self._line_search(here, step)
        if not (reach > 0.0 and np.isfinite(step).all()):
            return None
        keep = here.is_quadratic
        after = self._at(here.m + reach * step, keep)
        is_quadratic = reach == 1.0 and after.residual < 0.1 * here.residual
        return replace(after, is_quadratic=is_quadratic, is_stale=keep and not is_quadratic)

    def _line_search(
        self, here: BlockPoint, step: FloatArray, trials: int = 8, ahead: int = 4
    ) -> float:
        """The fraction of a step to take; 0 where none helps.

        `trials` are looked at in one pass over X, from `ahead` above the last one that was taken.
        """
        dual, rows_step = self.rows.dual_of_data(here.m), self.rows.dual_of_data(step)
        goal = float(step @ self.rows.target)
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

    def predictor(self, point: BlockPoint) -> FloatArray:
        """w at a point, corrected for the rounding of its dual where that is worth it."""
        dual, goal = self.rows.dual_of_data(point.m), self.tolerances.residual
        plain = self.design.gather(Predictor(self.coordinates, dual))
        # Tenfold: a residual that has stopped just short of its goal is not worth a factorization.
        if not 10.0 * goal < point.residual < self.rest:
            return plain
        self.curvature.move_to(dual)
        change = self.rows.dual_of_data(self.curvature.solve(point.left, goal / point.residual))
        corrected = self.design.gather(Predictor(self.coordinates, dual, change))
        left = self.rows.target - self.rows.seen(self.design.reduce(Applied(), corrected).sums[0])
        return corrected if extended.length(left) < extended.length(point.left) else plain


class Curvature(ABC):
    """H = A diag(w'(z)) A^T at the current dual."""

    #: whether the dual is near its end, where a system must be solved for the residual to fall
    is_warm: bool = False

    def __init__(self, design: Design, coordinates: Coordinates, rows: RowBasis, effort: Effort):
        self.design, self.coordinates = design, coordinates
        self.rows, self.effort = rows, effort

    @abstractmethod
    def move_to(self, dual: FloatArray, keep: bool = False) -> tuple[FloatArray, float]:
        """X w(z) and Q(w) - <shift, w> at a dual of X's rows; H is then that of this point.

        Or, where it is to be kept and takes long to form, still that of the last.
        """

    @abstractmethod
    def solve(self, b: FloatArray, accuracy: float) -> FloatArray:
        """x with H x = b to a relative residual of about `accuracy`."""


class MatrixCurvature(Curvature):
    """The n x n matrix, summed over blocks and factored here."""

    #: with the factor; None where the matrix is not finite
    _solve: Callable[[FloatArray], FloatArray] | None

    def move_to(self, dual: FloatArray, keep: bool = False) -> tuple[FloatArray, float]:
        if not dual.any() and (slope := self._even_slope()) is not None:
            # H is a multiple of A A^T, and w is 0: nothing has to be seen of X.
            self.matrix = slope * self.rows.products()
            self._solve = lambda b: np.asarray(self.rows.inverse_gram(b) / slope)
            # Q(w) - <shift, w> at w = 0.
            return np.zeros(self.design.n), 0.0
        task = Evaluate(self.coordinates, dual, self.rows.row_scale, with_gram=not keep)
        fit, value, *grams = self.design.reduce(task).sums
        if keep:
            return fit, float(value)
        gram = grams[0]
        self.effort.factorizations += 1
        self.matrix = self.rows.seen_gram(gram)
        self._solve = factored(self.matrix) if np.isfinite(self.matrix).all() else None
        return fit, float(value)

    def _even_slope(self) -> float | None:
        """w' at the start, where all coordinates are alike there and w is 0; None elsewhere."""
        coordinates = self.coordinates
        if coordinates.on(slice(0, 1)) is not coordinates:
            return None
        start = np.broadcast_to(np.asarray(coordinates.shift, dtype=np.float64), (1,))
        slope = float(coordinates.potential.hess_dual(start)[0])
        is_zero = not coordinates.potential.grad_dual(start).any()
        return slope if is_zero and 0.0 < slope < np.inf else None

    def solve(self, b: FloatArray, accuracy: float) -> FloatArray:
        if self._solve is None:
            return np.full_like(b, np.nan)
        x = self._solve(b)
        return np.asarray(x + self._solve(b - self.matrix @ x))


class ProductCurvature(Curvature):
    """Conjugate gradients, preconditioned by the matrix at an earlier point.

    To form the matrix takes as many products as n iterations. So it is formed anew when the
    iterations since the last time have come to n: never more than twice the work of the better of
    the two. In between w' changes by bounded factors from step to step, and an earlier matrix is a
    good preconditioner: its quality does not depend on the conditioning of X or on the scale.
    """

    def __init__(self, design: Design, coordinates: Coordinates, rows: RowBasis, effort: Effort):
        super().__init__(design, coordinates, rows, effort)
        self.precondition: Callable[[FloatArray], FloatArray] = rows.inverse_gram
        self.iterations = 0

    def move_to(self, dual: FloatArray, keep: bool = False) -> tuple[FloatArray, float]:
        task = Evaluate(self.coordinates, dual, self.rows.row_scale, with_gram=False)
        fit, value = self.design.reduce(task).sums
        self.slope = self.design.gather(Slope(self.coordinates, dual))
        return fit, float(value)

    def _product(self, x: FloatArray) -> FloatArray:
        product = CurvatureProduct(self.rows.dual_of_data(x))
        return self.rows.seen(self.design.reduce(product, self.slope).sums[0])

    def solve(self, b: FloatArray, accuracy: float) -> FloatArray:
        n = len(b)
        if self.iterations >= n:
            self._form_matrix()
        x, unsolved = scipy.sparse.linalg.cg(
            scipy.sparse.linalg.LinearOperator((n, n), matvec=self._product, dtype=np.float64),
            b,
            # a direction needs a tenth of its length right, until the end is near
            rtol=min(0.1, accuracy),
            atol=0.0,
            maxiter=n,
            M=scipy.sparse.linalg.LinearOperator(
                (n, n), matvec=self.precondition, dtype=np.float64
            ),
            callback=self._count,
        )
        if unsolved and self.is_warm:
            # Fewer coordinates may carry the fit than there are rows. H is then singular to
            # rounding, and only the ridge of its factor keeps what is left of y out of its kernel.
            self._form_matrix()
            x = self.precondition(b)
            x = x + self.precondition(b - self._product(x))
        return np.asarray(x)

    def _form_matrix(self) -> None:
        gram = self.design.reduce(WeightedGram(self.rows.row_scale), self.slope).sums[0]
        self.precondition = factored(self.rows.seen_gram(gram))
        self.effort.factorizations += 1
        self.iterations = 0

    def _count(self, _: FloatArray) -> None:
        self.iterations += 1


def factored(matrix: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """b -> matrix^-1 b by Cholesky's method, with the diagonal equilibrated."""
    diagonal = np.diagonal(matrix)
    # A row on which no weight rests would divide by zero; it then stays where it is.
    equilibrate = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    lower = cholesky_with_ridge(matrix * equilibrate * equilibrate[:, None])

    def solve(b: FloatArray) -> FloatArray:
        x, _ = scipy.linalg.lapack.dpotrs(lower, equilibrate * b, lower=1)
        return np.asarray(equilibrate * x)

    return solve


def curvature_of(
    design: Design, coordinates: Coordinates, rows: RowBasis, effort: Effort
) -> Curvature:
    """By what the design can do."""
    kind = MatrixCurvature if design.has_entries else ProductCurvature
    return kind(design, coordinates, rows, effort)
