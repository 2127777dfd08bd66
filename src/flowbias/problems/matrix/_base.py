"""What every linear measurement of a matrix provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.ground.spectrum import numerical_rank
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray


class MatrixProblem(ABC):
    """Measurements `target` of an unknown matrix of `shape`."""

    shape: tuple[int, int]
    target: FloatArray

    @abstractmethod
    def measure(self, M: FloatArray) -> FloatArray:
        """<X_n, M> for each n: as long as `target`."""

    @abstractmethod
    def adjoint(self, r: FloatArray) -> FloatArray:
        """sum_n r_n X_n, a matrix of `shape`."""

    @cached_property
    def reachable(self) -> FloatArray:
        """The closest to `target` that measurements of a matrix can be: its projection.

        Equal to `target` where the distance is rounding (below `IN_RANGE` of it).
        """
        basis = self.range_basis
        if basis is None:
            return self.target
        return projected(self.target, basis @ (basis.T @ self.target))

    @cached_property
    def range_basis(self) -> FloatArray | None:
        """Orthonormal columns that span what `measure` can be; None where that is everything."""
        rows = self.matrices.reshape(len(self.target), -1)
        left, values, _ = scipy.linalg.svd(rows, full_matrices=False)
        rank = numerical_rank(values, rows.shape)
        return left[:, :rank] if rank < len(rows) else None

    @cached_property
    def matrices(self) -> FloatArray:
        """All X_n, stacked to (N, d1, d2): for small problems."""
        units = np.eye(len(self.target))
        return np.stack([self.adjoint(unit) for unit in units])

    def residual(self, M: FloatArray) -> FloatArray:
        """measure(M) less the reachable part of the target: zero at every limit of zero error."""
        return self.measure(M) - self.reachable

    def relative_residual(self, M: FloatArray) -> float:
        """||residual(M)|| / ||target||; not divided where the target is zero."""
        size = float(np.linalg.norm(self.target))
        return float(np.linalg.norm(self.residual(M))) / (size or 1.0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, measurements={len(self.target)})"


def projected(target: FloatArray, projection: FloatArray) -> FloatArray:
    """`projection`, or the target itself where the two differ by rounding."""
    misfit = np.linalg.norm(target - projection)
    return target if misfit <= IN_RANGE * np.linalg.norm(target) else projection
