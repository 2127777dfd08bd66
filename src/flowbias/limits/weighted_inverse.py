"""How a limit answers to its data: G = W A^T (A W A^T)^-1, whatever the spread of the weights W.

G b is the solution of A v = b of least length in the metric 1/W. Its entries are bounded for all
positive W at once [Stewart 1989], though A W A^T may be singular to working precision, as it is
near the rich limit where fewer coordinates carry the fit than there are samples. For the same
reason v = W A^T x is accurate to about the size of its residual A v - b, which is checked.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias._typing import FloatArray
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problem import Constraint
from flowbias.solution import UnresolvedError

# Relative residual above which the normal equations are left for orthogonal factors.
ACCURATE = 1e-12
# And up to which a derivative counts as found: half of the digits.
RESOLVED = 1e-8


def check_resolved(residual: float) -> None:
    """Of A v = b, relative to b."""
    if not residual <= RESOLVED:
        raise UnresolvedError(
            "the derivative of the limit is not resolved in double precision (relative residual "
            f"{residual:.1e}, allowed {RESOLVED:.0e}): fewer coordinates carry the fit than there "
            "are samples, and the others are too small. Take a larger scale."
        )


class WeightedInverse:
    """G for the rows A of a constraint and the weights W."""

    def __init__(self, constraint: Constraint, weights: FloatArray) -> None:
        self.constraint = constraint
        self.weights = weights
        self.system = NormalEquations(constraint, weights, Effort())

    def apply(self, b: FloatArray) -> FloatArray:
        """G b: by the normal equations, or where they lose it by orthogonal factors."""
        v = np.asarray(self.weights * self.constraint.adjoint(self.system.solve(b)))
        if not self._residual(v, b) <= ACCURATE:
            v = self._orthogonal.apply(b)
        check_resolved(self._residual(v, b))
        return v

    @cached_property
    def _orthogonal(self) -> _OrthogonalFactors:
        return _OrthogonalFactors(self.constraint, self.weights)

    def _residual(self, v: FloatArray, b: FloatArray) -> float:
        """||A v - b|| / ||b||; the rows of A have unit length."""
        size = float(np.linalg.norm(b)) or 1.0
        return float(np.linalg.norm(self.constraint.apply(v) - b)) / size


class _OrthogonalFactors:
    """W^(1/2) A^T = Q R P^T, so that G = W^(1/2) Q R^-T P^T and the weights are never squared.

    Rows sorted by size and columns pivoted: Householder's method is then accurate row by row
    [Powell and Reid 1969; Cox and Higham 1998].
    """

    def __init__(self, constraint: Constraint, weights: FloatArray) -> None:
        self.root = np.sqrt(weights)
        rows = constraint.rows.T * constraint.row_scale
        rows *= self.root[:, None]
        self.order = np.argsort(-np.abs(rows).max(axis=1), kind="stable")
        self.Q, self.R, self.pivots = scipy.linalg.qr(
            rows[self.order], mode="economic", pivoting=True, overwrite_a=True, check_finite=False
        )

    def apply(self, b: FloatArray) -> FloatArray:
        """G b; zero, which fits nothing, where no weight rests on some direction."""
        y, singular = scipy.linalg.lapack.dtrtrs(self.R, b[self.pivots], trans=1)
        v = np.zeros(len(self.order))
        if not singular:
            v[self.order] = self.Q @ y
        return np.asarray(self.root * v)
