"""The range of a big X, from its Gram matrix and products with its blocks."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias._typing import FloatArray
from flowbias.certificates.certificate import ULPS
from flowbias.designs import Design
from flowbias.designs.rows import RowGram, RowSizes, dependence, noise_of_rows
from flowbias.range_fit import row_units

# Eigenvalues of the Gram matrix below this many roundings of it belong to dependent rows.
NOISE = 10.0


class BlockRange:
    """Found when first asked for."""

    def __init__(self, design: Design) -> None:
        self.design = design

    @cached_property
    def _spanning(self) -> _Spanning | None:
        """None where the rows are independent, so that all can be fitted."""
        sizes = self.design.reduce(RowSizes()).largest[0]
        unit = row_units(sizes)
        gram = self.design.reduce(RowGram(1.0 / unit)).sums[0]
        lengths = row_units(np.sqrt(np.diagonal(gram)))
        values, vectors = scipy.linalg.eigh(gram / lengths / lengths[:, None])
        eps = float(np.finfo(float).eps)
        kept = values > NOISE * len(unit) * eps * values[-1]
        if kept.all():
            return None
        unit = unit * lengths
        parts = vectors[:, kept], values[kept], vectors[:, ~kept]
        vanishing, apart = dependence(self.design, 1.0 / unit, *parts)
        if apart > noise_of_rows(self.design.shape):
            # The Gram matrix took for dependent what is not.
            return None
        basis, _ = scipy.linalg.qr(
            vectors[:, kept] - vanishing @ (vanishing.T @ vectors[:, kept]), mode="economic"
        )
        return _Spanning(unit, basis, float(values[-1] / values[kept][0]))

    def fitted(self, y: FloatArray) -> tuple[FloatArray, float]:
        """P y, and its rounding relative to y."""
        if self._spanning is None:
            return y, float(np.finfo(float).eps)
        return self._spanning.projected(y)

    def shortest(self, nu: FloatArray) -> FloatArray:
        """The shortest dual with the same X^T nu."""
        return self.fitted(nu)[0]


class _Spanning:
    """The range as that of diag(unit) basis, the basis orthonormal.

    Rows of very different size: P y is small where the unit is, however large y is there, and comes
    as a product with the unit. Rows sorted and columns pivoted, so that the large ones do not hide
    what only the small ones tell [Cox and Higham 1998].
    """

    def __init__(self, unit: FloatArray, basis: FloatArray, condition: float) -> None:
        self.order = np.argsort(-unit, kind="stable")
        self.rows = (unit / unit.max())[:, None] * basis
        self.Q, R, self.pivots = scipy.linalg.qr(
            self.rows[self.order], mode="economic", pivoting=True
        )
        # Units too far below the largest for doubles leave no direction of their own.
        self.rank = int(np.count_nonzero(np.diagonal(R)))
        self.R = R[: self.rank, : self.rank]
        condition *= float(np.linalg.cond(self.R))
        self.rounding = ULPS * len(unit) * float(np.finfo(float).eps) * condition

    def projected(self, y: FloatArray) -> tuple[FloatArray, float]:
        """P y, and its rounding relative to y."""
        size = float(np.abs(y).max()) or 1.0
        target = self.Q[:, : self.rank].T @ (y / size)[self.order]
        coefficients = np.zeros(len(self.pivots))
        coefficients[self.pivots[: self.rank]] = scipy.linalg.solve_triangular(
            self.R, target, check_finite=False
        )
        return size * (self.rows @ coefficients), self.rounding
