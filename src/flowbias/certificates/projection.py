"""The orthogonal projection on what the rows of X can fit, whatever their sizes."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias.ground.graded_qr import graded_qr
from flowbias.ground.typing import FloatArray

# Units in the last place that a projection may be off by, per row and unit of the condition.
ROUNDINGS = 8.0


class RangeProjection:
    """The range as that of diag(unit) basis, the basis orthonormal.

    Rows of very different size: P y is small where the unit is, however large y is there, and comes
    as a product with the unit.
    """

    def __init__(self, unit: FloatArray, basis: FloatArray, condition: float) -> None:
        self.rows = (unit / unit.max())[:, None] * basis
        self.Q, R, self.pivots = graded_qr(self.rows)
        # Units too far below the largest for doubles leave no direction of their own.
        self.rank = int(np.count_nonzero(np.diagonal(R)))
        self.R = R[: self.rank, : self.rank]
        condition *= float(np.linalg.cond(self.R))
        self.rounding = ROUNDINGS * len(unit) * float(np.finfo(float).eps) * condition

    def projected(self, y: FloatArray) -> tuple[FloatArray, float]:
        """P y, and its rounding relative to y."""
        size = float(np.abs(y).max()) or 1.0
        target = self.Q[:, : self.rank].T @ (y / size)
        coefficients = np.zeros(len(self.pivots))
        coefficients[self.pivots[: self.rank]] = scipy.linalg.solve_triangular(
            self.R, target, check_finite=False
        )
        return size * (self.rows @ coefficients), self.rounding
