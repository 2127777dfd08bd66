"""y as far as the rows of X can fit it.

Where y is outside the range of X gradient flow fits its projection P y, and nothing of a y that is
orthogonal to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias.ground import extended
from flowbias.ground.typing import FloatArray

# y counts as inside the range of X when the part outside is below this fraction of it: well above
# the rounding of a projection in an ill-conditioned basis, well below any real misfit.
IN_RANGE = 1e-10


def row_units(lengths: FloatArray) -> FloatArray:
    """What to divide rows by. A row of zeros counts as the smallest: y shows there all the more."""
    return np.where(lengths > 0, lengths, np.min(lengths, initial=np.inf, where=lengths > 0))


def row_lengths(X: FloatArray) -> FloatArray:
    """Euclidean length of each row, safe for entries whose squares overflow or vanish."""
    largest = np.maximum(X.max(axis=1), -X.min(axis=1))
    lengths = np.zeros(len(X))
    ordinary = (largest > 1e-120) & (largest < 1e120)
    if ordinary.all():
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", X, X)))
    for i in np.flatnonzero(largest > 0):
        lengths[i] = largest[i] * np.linalg.norm(X[i] / largest[i])
    return lengths


@dataclass(frozen=True)
class RangeFit:
    """y as far as X can fit it: V^T w = target, target = from_data @ y; see `Constraint`."""

    target: FloatArray
    from_data: FloatArray
    distance: float
    projected: FloatArray | None


def fit_to_range(
    left: FloatArray, values: FloatArray, unit: FloatArray, y: FloatArray, rounding: float
) -> RangeFit:
    """The target of y over the basis V, where X = diag(unit) left diag(values) V^T.

    `rounding` is the relative error of a product with X.
    """
    target = (left.T @ (y / unit)) / values
    misfit = np.linalg.norm(y / unit - left @ (values * target))
    distance = float(misfit / (np.linalg.norm(y / unit) or 1.0))
    if not distance > IN_RANGE:
        return RangeFit(target, ((left / values) / unit[:, None]).T, 0.0, None)
    # P y is the least-squares fit in the data's own units, where rows are not rescaled.
    size = float(np.abs(y).max())
    reduced = (unit[:, None] * left) * values / unit.max()
    from_data = scipy.linalg.pinv(reduced) / unit.max()
    target = size * (from_data @ (y / size))
    projected = (unit[:, None] * left) @ (values * target)
    # Nothing but rounding is left of a y that is orthogonal to the range, and w is 0. What is asked
    # of a row of zeros is not rounded into the others.
    condition = float(np.linalg.cond(reduced))
    asked = np.where(left.any(axis=1), y, 0.0)
    if extended.length(projected) <= rounding * condition * extended.length(asked):
        target, projected = np.zeros_like(target), np.zeros_like(y)
    distance = float(np.linalg.norm((y - projected) / size) / np.linalg.norm(y / size))
    return RangeFit(target, from_data, distance, projected)
