"""The rows that are fitted, and what an unpenalized intercept does to them.

Sample i enters as root_i (x_i, y_i), root_i the square root of its weight. An intercept is one more
column, e = root, that costs nothing: minimize Q(w) subject to X w + b e = y. Its dual condition is
<e, nu> = 0, and eliminating b projects e out of X and y, which is what centring does. The centre
moves when a sample is dropped; the condition <e, nu> = 0 does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.estimators.intercepts.centring import centred, without
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.constraint import Constraint
from flowbias.problems.regression import Regression, as_regression, checked_array


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Weighted rows X and their targets y with the free column projected out.

    free             e, or None where no column is free
    x_mean           (weighted) means of the columns of X, 0 without a free column
    root             roots of the weights
    has_bias_column  whether the last column of X is that of a trained bias
    """

    X: FloatArray
    y: FloatArray
    free: FloatArray | None
    x_mean: FloatArray
    root: FloatArray
    has_bias_column: bool = False

    @property
    def moves(self) -> bool:
        """Whether gradient flow leaves its start: centring may leave nothing of X."""
        return bool(self.X.any())

    @cached_property
    def problem(self) -> Regression:
        return Regression(self.X, self.y)

    @cached_property
    def constraint(self) -> Constraint:
        """`A w = b`; of no rows at all where X is zero."""
        if self.moves:
            return self.problem.constraint
        n, d = self.X.shape
        none = np.zeros(0)
        return Constraint(np.zeros((0, d)), row_scale=none, target=none, to_data=np.zeros((n, 0)))

    def projected(self, values: FloatArray) -> FloatArray:
        """`values` (n, ...) less what the free column can do."""
        return values if self.free is None else without(self.free, values)

    def coefficients_and_intercept(self, dw_dy: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Derivatives of the coefficients (d, n) and of the intercept (n)."""
        if self.has_bias_column:
            return dw_dy[:-1], dw_dy[-1]
        if self.free is None:
            return dw_dy, np.zeros_like(self.root)
        return dw_dy, self.free / float(self.free @ self.free) - self.x_mean @ dw_dy


def weighted_rows(X: Any, y: Any, fit_intercept: bool, sample_weight: Any = None) -> WeightedRows:
    """Data as they are fitted."""
    _check_is_flag(fit_intercept)
    given = as_regression(X, y)
    root = _root_of(sample_weight, len(given.y))
    column = root[:, None]
    if not fit_intercept:
        return WeightedRows(
            column * given.X, root * given.y, None, np.zeros(given.X.shape[1]), root
        )
    X, x_mean = centred(given.X, root**2)
    y, _ = centred(given.y[:, None], root**2)
    return WeightedRows(column * X, root * y[:, 0], root, x_mean, root)


def _check_is_flag(fit_intercept: Any) -> None:
    """Other values of the regressors' argument, such as "trained", would pass for True here."""
    if not isinstance(fit_intercept, bool | np.bool_):
        raise InputError(
            f"fit_intercept: must be True or False, got {fit_intercept!r}. A bias that is trained "
            "with the weights takes a regressor: ImplicitBiasRegressor(fit_intercept='trained')."
        )


def _root_of(sample_weight: Any, n: int) -> FloatArray:
    if sample_weight is None:
        return np.ones(n)
    weight = checked_array("sample_weight", sample_weight, 1)
    if len(weight) != n or not (weight > 0.0).all():
        raise InputError(
            f"sample_weight: must be {n} positive numbers, one per row of X, got shape "
            f"{weight.shape} with smallest entry {weight.min():g}. Leave out samples of weight 0."
        )
    return np.sqrt(weight)
