"""The one linear system every step solves: (A diag(c) A^T) x = b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg

from flowbias.certificates.candidate import Factor
from flowbias.designs.dense import can_wait, gram_of_rows
from flowbias.ground import extended
from flowbias.ground.linear_algebra import cholesky_with_ridge, graded_triangle
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import Constraint, RowBasis


@dataclass
class Effort:
    """What a solve has cost so far."""

    factorizations: int = 0
    steps: int = 0
    iterations: int = 0  # of conjugate gradients, where an older factor is made to do
    #: the last system that was made
    system: NormalEquations | GramSystem | None = None

    @property
    def factor(self) -> Factor | None:
        """The last factor, which a first look at the limit may go by; None where it is no such."""
        return None if self.system is None else self.system.of_data()


class LinearSystem(Protocol):
    """Something that solves (A diag(weights) A^T) x = b."""

    def solve(self, b: FloatArray) -> FloatArray: ...


class MakeSystem(Protocol):
    """A way to such a system: `NormalEquations` itself, or one that spares the factorization."""

    def __call__(
        self, constraint: Constraint, weights: FloatArray, effort: Effort, *, graded: bool = False
    ) -> LinearSystem: ...


class NormalEquations:
    """Factor of A diag(weights) A^T, with one refinement per solve.

    The weights span many orders of magnitude near the rich limit. Cholesky's method resolves about
    fifteen of them. `graded` takes twice as many, by an orthogonal factorization of
    diag(weights)^(1/2) A^T that never squares them; it costs several times as much and a copy of A.
    """

    def __init__(
        self,
        constraint: Constraint,
        weights: FloatArray,
        effort: Effort,
        *,
        graded: bool = False,
    ) -> None:
        self.constraint, self.weights = constraint, weights
        effort.factorizations += 1
        rows, scale = constraint.rows, constraint.row_scale
        self.factor: _OrthogonalFactor | CholeskyFactor
        if graded:
            self.factor = _OrthogonalFactor(constraint, weights)
        elif can_wait(scale):
            self.factor = CholeskyFactor(gram_of_rows(rows, weights), scale)
        else:
            self.factor = CholeskyFactor(gram_of_rows(rows, weights, scale))
        effort.system = self

    def solve(self, b: FloatArray, *, refine: bool = True) -> FloatArray:
        """x with (A diag(weights) A^T) x = b; unrefined where a few digits are enough."""
        x = self.factor.solve(b)
        if not refine:
            return x
        product = self.constraint.apply(self.weights * self.constraint.adjoint(x))
        return x + self.factor.solve(b - product)

    def of_data(self) -> Factor | None:
        """As a factor of X's own rows, where the constraint's are these.

        What takes an orthogonal factor to be told apart is nothing for a first look.
        """
        if self.constraint.to_data is not None or isinstance(self.factor, _OrthogonalFactor):
            return None
        unit = self.factor.equilibrate * self.constraint.row_scale
        return Factor(self.factor.lower, unit, self.weights)


class GramSystem:
    """slope A A^T, whose factor the rows have: what H is where w' is the same everywhere."""

    def __init__(self, rows: RowBasis, d: int, slope: float, effort: Effort) -> None:
        self.rows, self.d, self.slope = rows, d, slope
        effort.system = self

    def of_data(self) -> Factor | None:
        """As for any other system."""
        rows = self.rows
        if rows.gram_factor is None or rows.to_data is not None:
            return None
        return Factor(rows.gram_factor, rows.row_scale, np.ones(self.d))

    def solve(self, b: FloatArray) -> FloatArray:
        return self.rows.inverse_gram(b / self.slope)


class CholeskyFactor:
    """Cholesky factor with equilibrated diagonal, which keeps it meaningful for graded weights.

    Of diag(r) M diag(r), from the lower triangle of M, which is written over. Rows r of ordinary
    size need no unit but that of the factor.
    """

    def __init__(self, matrix: FloatArray, row_scale: FloatArray | float = 1.0) -> None:
        diagonal = matrix.flat[:: len(matrix) + 1]
        # A row on which no weight rests would divide by zero; it then stays where it is.
        if not extended.least(diagonal) > 0.0:
            diagonal = np.where(diagonal > 0, diagonal, 1.0)
        unit = 1.0 / np.sqrt(diagonal)
        matrix *= unit
        matrix *= unit[:, None]
        self.equilibrate = unit / row_scale
        self.lower = cholesky_with_ridge(matrix)

    def solve(self, b: FloatArray) -> FloatArray:
        x, _ = scipy.linalg.lapack.dpotrs(self.lower, self.equilibrate * b, lower=1)
        return np.asarray(self.equilibrate * x)


class _OrthogonalFactor:
    """R with R^T R = A diag(weights) A^T, columns pivoted."""

    def __init__(self, constraint: Constraint, weights: FloatArray) -> None:
        rows = constraint.rows.T * constraint.row_scale
        rows *= np.sqrt(weights)[:, None]
        self.upper, self.pivots = graded_triangle(rows)
        # A direction on which no weight rests stays where it is.
        diagonal = np.diagonal(self.upper)
        self.dead = np.abs(diagonal) <= np.finfo(float).tiny
        self.upper[self.dead, self.dead.nonzero()[0]] = 1.0

    def solve(self, b: FloatArray) -> FloatArray:
        y = scipy.linalg.solve_triangular(self.upper, b[self.pivots], trans=1, check_finite=False)
        y[self.dead] = 0.0
        x = np.empty_like(b)
        x[self.pivots] = scipy.linalg.solve_triangular(self.upper, y, check_finite=False)
        return x
