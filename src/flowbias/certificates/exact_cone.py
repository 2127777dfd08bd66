"""What cannot be used where y is outside of the cone that the model reaches, in rational numbers.

Least squares with columns whose weights keep a sign [Lawson and Hanson 1974, chapter 23]. What is
left of y there pulls some of them against the end of their range: those vanish in the limit. The
others reach the point of the cone closest to y, which is the projection of y on their span.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.optimize
from flint import fmpq, fmpq_mat

from flowbias.certificates.exact_simplex import (
    LinearProgram,
    OutOfPivotsError,
    Side,
    columns_of,
    rational_column,
    rational_matrix,
)
from flowbias.certificates.rank import independent_rows
from flowbias.ground.typing import FloatArray


def not_driven(X: FloatArray, y: FloatArray, program: LinearProgram, pivots: int) -> list[int]:
    """The columns that the flow does not drive to zero, for good, where they keep one sign."""
    sides = [[s for s in (1, -1) if program.is_open(Side(j, s))] for j in range(X.shape[1])]
    signs = np.array([pair[0] if len(pair) == 1 else 0 for pair in sides])
    free, sided = np.flatnonzero(signs == 0), np.flatnonzero(signs)
    free = free[independent_rows(X[:, free].T)] if len(free) else free
    turned = X.copy()
    turned[:, sided] *= signs[sided]
    fit = _ConeFit(turned, y, free.tolist(), sided.tolist(), pivots)
    residual = fit.residual()
    return [j for j in range(X.shape[1]) if signs[j] == 0 or not fit.slope(j, residual) < 0]


class _ConeFit:
    """y by free columns and columns of weights >= 0, of which the `passive` ones are positive."""

    def __init__(
        self, X: FloatArray, y: FloatArray, free: list[int], sided: list[int], pivots: int
    ) -> None:
        self.columns, self.outputs = rational_matrix(X), rational_matrix(y[:, None])
        self.free, self.sided = free, sided
        self.passive = self._guessed(X, y)
        self.weights = dict.fromkeys(sided, fmpq(0))
        for _ in range(pivots):
            trial = self._fitted()
            if all(value > 0 for value in trial):
                self.weights.update(zip(self.passive, trial, strict=True))
                rising = self._steepest()
                if rising is None:
                    return
                self.passive.append(rising)
            else:
                self._step_back(trial)
        raise OutOfPivotsError

    def _guessed(self, X: FloatArray, y: FloatArray) -> list[int]:
        """Those that doubles find positive, unless they are not."""
        used = self.free + self.sided
        lengths = np.linalg.norm(X[:, used], axis=0)
        lengths[lengths == 0.0] = 1.0
        scaled, size = X[:, used] / lengths, float(np.abs(y).max()) or 1.0
        low = [-np.inf] * len(self.free) + [0.0] * len(self.sided)
        found = scipy.optimize.lsq_linear(scaled, y / size, (low, np.inf), method="bvls")
        self.passive = [j for j, w in zip(used, found.x, strict=True) if j in self.sided and w > 0]
        try:
            return self.passive if all(value > 0 for value in self._fitted()) else []
        except ZeroDivisionError:  # they depend on each other
            return []

    def _fitted(self) -> list[fmpq]:
        """Weights of the passive columns in the least-squares fit without bounds."""
        self.fit = _least_squares(columns_of(self.columns, self.used), self.outputs)
        return self.fit[len(self.free) :]

    @property
    def used(self) -> list[int]:
        return self.free + self.passive

    def residual(self) -> fmpq_mat:
        """Of the last fit."""
        if not self.used:
            return self.outputs
        return self.outputs - columns_of(self.columns, self.used) * rational_column(self.fit)

    def slope(self, column: int, residual: fmpq_mat) -> fmpq:
        """How fast the misfit falls as this column's weight grows."""
        return (columns_of(self.columns, [column]).transpose() * residual)[0, 0]

    def _steepest(self) -> int | None:
        residual = self.residual()
        slopes = {j: self.slope(j, residual) for j in self.sided if j not in self.passive}
        best = max(slopes, key=lambda j: slopes[j], default=None)
        return best if best is not None and slopes[best] > 0 else None

    def _step_back(self, trial: Sequence[fmpq]) -> None:
        """Towards the trial until a weight is zero, which is passive no longer."""
        pairs = [(self.weights[j], new) for j, new in zip(self.passive, trial, strict=True)]
        share = min(old / (old - new) for old, new in pairs if new <= 0)
        for j, (old, new) in zip(self.passive, pairs, strict=True):
            self.weights[j] = old + share * (new - old)
        self.passive = [j for j in self.passive if self.weights[j] > 0]


def _least_squares(columns: fmpq_mat, outputs: fmpq_mat) -> list[fmpq]:
    if columns.ncols() == 0:
        return []
    turned = columns.transpose()
    return list((turned * columns).solve(turned * outputs).entries())
