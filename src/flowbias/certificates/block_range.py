"""The range of a big X, from its Gram matrix and products with its blocks."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.certificates.projection import RangeProjection
from flowbias.designs import Design
from flowbias.designs.rows import RowGram, RowSizes, dependence, noise_of_rows
from flowbias.ground.typing import FloatArray
from flowbias.problems.range_fit import row_units

# Eigenvalues of the Gram matrix below this many roundings of it belong to dependent rows.
NOISE = 10.0


class BlockRange:
    """Found when first asked for."""

    def __init__(self, design: Design) -> None:
        self.design = design

    @cached_property
    def _sizes(self) -> FloatArray:
        """The largest entry of each row."""
        return np.asarray(self.design.reduce(RowSizes()).largest[0])

    @cached_property
    def _projection(self) -> RangeProjection | None:
        """None where the rows are independent, so that all can be fitted."""
        unit = row_units(self._sizes)
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
        return RangeProjection(unit, basis, float(values[-1] / values[kept][0]))

    def fitted(self, y: FloatArray) -> tuple[FloatArray, float]:
        """P y, and its rounding relative to y."""
        if not self._sizes.any():
            return np.zeros_like(y), 0.0  # X is zero, and fits nothing
        if self._projection is None:
            return y, float(np.finfo(float).eps)
        return self._projection.projected(y)

    def shortest(self, nu: FloatArray) -> FloatArray:
        """The shortest dual with the same X^T nu."""
        return self.fitted(nu)[0]
