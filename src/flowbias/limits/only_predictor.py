"""Data that leave no choice: where X has rank d there is one w with X w = P y, for every model.

Then X w = P y reads w = X^+ y, a constraint whose rows are the unit vectors. What is left of a
limit is its dual, X^T nu = grad Q(w) - shift: no iteration. Columns are brought to unit length
first, so that neither the rank nor w depends on the units of the features.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias.ground import extended
from flowbias.ground.extended import row_lengths, row_units
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.problems.constraint import Constraint
from flowbias.problems.regression import Regression

# Corrections of a solution by that of its residual.
REFINEMENTS = 2


@np.errstate(all="ignore")
def only_predictor(problem: Regression) -> Constraint | None:
    """The constraint w = X^+ y; None where the rank of X is not d, or not clearly.

    Not clearly also where the rounding of X w would look like a part of y that no w fits.
    """
    X, y = problem.X, problem.y
    n, d = X.shape
    lengths = row_lengths(X.T)
    if n < d or not lengths.all():
        return None
    columns = X / lengths
    left, upper = scipy.linalg.qr(columns, mode="economic")
    values = scipy.linalg.svdvals(upper)
    rounding = n * float(np.finfo(float).eps)
    if not values[-1] > rounding * values[0]:
        return None
    inverse = scipy.linalg.solve_triangular(upper, left.T)
    # What is asked of rows that are zero cannot be fitted, however large it is.
    asked, y = y, np.where(row_lengths(X) > 0.0, y, 0.0)
    lost, total = extended.length(asked - y), extended.length(asked) or 1.0
    size = float(np.abs(y).max()) or 1.0
    w = _least_squares(columns, inverse, y / size, rounding * values[0] / values[-1])
    unit = row_units(row_lengths(X))
    terms = np.abs(columns) @ np.abs(w)
    # Not a comparison the other way round: what overflows is not clear either.
    if not rounding * np.linalg.norm(terms / unit) <= IN_RANGE * np.linalg.norm(y / size / unit):
        return None
    seen = _distance(y / size - columns @ w, y / size, unit) * (extended.length(y) / total)
    distance = float(np.hypot(seen, lost / total))
    w *= size / lengths
    inverse /= lengths[:, None]
    return Constraint(
        rows=np.eye(d),
        row_scale=np.ones(d),
        target=w,
        to_data=inverse.T,
        from_data=inverse,
        distance=distance,
        projected=X @ w if distance > 0.0 else None,
    )


def _least_squares(
    columns: FloatArray, inverse: FloatArray, y: FloatArray, rounding: float
) -> FloatArray:
    w = np.zeros(columns.shape[1])
    for _ in range(1 + REFINEMENTS):
        w += inverse @ (y - columns @ w)
    # Nothing but rounding is left of a y that is orthogonal to the range of X.
    fits = np.linalg.norm(columns @ w) > rounding * np.linalg.norm(y)
    return w if fits else np.zeros_like(w)


def _distance(misfit: FloatArray, y: FloatArray, unit: FloatArray) -> float:
    """Of y from the range of X, relative to y; whether it is 0 is seen in rows of unit length."""
    if not np.linalg.norm(misfit / unit) > IN_RANGE * np.linalg.norm(y / unit):
        return 0.0
    return float(np.linalg.norm(misfit) / np.linalg.norm(y))


def dual_of(constraint: Constraint, X: FloatArray, pull: FloatArray) -> FloatArray:
    """A short nu with X^T nu = pull."""
    nu = constraint.dual_of_data(pull)
    for _ in range(REFINEMENTS):
        nu = nu + constraint.dual_of_data(pull - X.T @ nu)
    return nu
