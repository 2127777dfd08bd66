"""The one linear system every step solves: (A diag(c) A^T) x = b."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias._typing import FloatArray
from flowbias.problem import Constraint

# Added to the unit diagonal of the equilibrated matrix: what Cholesky's own rounding costs.
RIDGE = 1e-15


@dataclass
class Effort:
    """What a solve has cost so far."""

    factorizations: int = 0
    steps: int = 0


class NormalEquations:
    """Cholesky factor of A diag(weights) A^T, equilibrated, with one refinement per solve.

    The weights span many orders of magnitude near the rich limit. Equilibrating the diagonal
    keeps the factorization meaningful there, and a refinement against the unfactored product
    recovers the digits that the ridge takes.
    """

    def __init__(self, constraint: Constraint, weights: FloatArray, effort: Effort) -> None:
        self.constraint = constraint
        self.weights = weights
        effort.factorizations += 1
        matrix = constraint.gram(weights)
        diagonal = np.diagonal(matrix)
        # A row on which no weight rests would divide by zero; it then stays where it is.
        self.equilibrate = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        matrix *= self.equilibrate
        matrix *= self.equilibrate[:, None]
        self.factor = _cholesky(matrix)

    def _solve_once(self, b: FloatArray) -> FloatArray:
        x, _ = scipy.linalg.lapack.dpotrs(self.factor, self.equilibrate * b, lower=1)
        return np.asarray(self.equilibrate * x)

    def solve(self, b: FloatArray) -> FloatArray:
        """x with (A diag(weights) A^T) x = b."""
        x = self._solve_once(b)
        product = self.constraint.apply(self.weights * self.constraint.adjoint(x))
        return x + self._solve_once(b - product)


def _cholesky(matrix: FloatArray) -> FloatArray:
    """Lower factor of a unit-diagonal matrix, with the smallest ridge that lets it succeed."""
    n = len(matrix)
    ridge = RIDGE
    diagonal = np.arange(n)
    while True:
        trial = matrix.copy(order="F")
        trial[diagonal, diagonal] = 1.0 + ridge
        factor, info = scipy.linalg.lapack.dpotrf(trial, lower=1, clean=0, overwrite_a=1)
        if info == 0:
            return np.asarray(factor)
        # Rounding made the matrix indefinite: it is singular to working precision, and a larger
        # ridge leaves the lost directions where they are instead of sending them far away.
        ridge *= 10.0
