"""Newton's linear system on a big X: from its matrix, or from products alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.rows import Rows
from flowbias.limits.blocks.tasks import CurvatureProduct, Evaluate, Slope, WeightedGram
from flowbias.limits.normal_equations import Effort, cholesky_with_ridge

# A direction of Newton's method needs this share of its length right, until the end is near.
FORCING = 0.1


class Curvature(ABC):
    """H = A diag(w'(z)) A^T at the current dual."""

    #: whether the dual is near its end, where a system must be solved for the residual to fall
    is_warm: bool = False

    def __init__(self, design: Design, coordinates: Coordinates, rows: Rows, effort: Effort):
        self.design, self.coordinates = design, coordinates
        self.rows, self.effort = rows, effort

    @abstractmethod
    def move_to(self, dual: FloatArray) -> tuple[FloatArray, float]:
        """X w(z) and Q(w) - <shift, w> at a dual of X's rows; H is then that of this point."""

    @abstractmethod
    def solve(self, b: FloatArray, accuracy: float) -> FloatArray:
        """x with H x = b to a relative residual of about `accuracy`."""


class MatrixCurvature(Curvature):
    """The n x n matrix, summed over blocks and factored here."""

    def move_to(self, dual: FloatArray) -> tuple[FloatArray, float]:
        task = Evaluate(self.coordinates, dual, self.rows.scale, with_gram=True)
        fit, value, gram = self.design.reduce(task).sums
        self.effort.factorizations += 1
        self.matrix = self.rows.matrix(gram)
        self._solve = factored(self.matrix) if np.isfinite(self.matrix).all() else None
        return fit, float(value)

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

    def __init__(self, design: Design, coordinates: Coordinates, rows: Rows, effort: Effort):
        super().__init__(design, coordinates, rows, effort)
        self.precondition = factored(rows.gram)
        self.iterations = 0

    def move_to(self, dual: FloatArray) -> tuple[FloatArray, float]:
        task = Evaluate(self.coordinates, dual, self.rows.scale, with_gram=False)
        fit, value = self.design.reduce(task).sums
        self.slope = self.design.gather(Slope(self.coordinates, dual))
        return fit, float(value)

    def _product(self, x: FloatArray) -> FloatArray:
        product = CurvatureProduct(self.rows.dual(x))
        return self.rows.seen(self.design.reduce(product, self.slope).sums[0])

    def solve(self, b: FloatArray, accuracy: float) -> FloatArray:
        n = len(b)
        if self.iterations >= n:
            self._form_matrix()
        x, unsolved = scipy.sparse.linalg.cg(
            scipy.sparse.linalg.LinearOperator((n, n), matvec=self._product, dtype=np.float64),
            b,
            rtol=min(FORCING, accuracy),
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
        gram = self.design.reduce(WeightedGram(self.rows.scale), self.slope).sums[0]
        self.precondition = factored(self.rows.matrix(gram))
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


def curvature_of(design: Design, coordinates: Coordinates, rows: Rows, effort: Effort) -> Curvature:
    """By what the design can do."""
    kind = MatrixCurvature if design.has_entries else ProductCurvature
    return kind(design, coordinates, rows, effort)
