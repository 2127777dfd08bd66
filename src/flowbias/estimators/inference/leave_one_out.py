"""Leave-one-out residuals of a limit from one fit.

The limit without sample i is the one whose dual has nu_i = 0. To first order the others keep their
targets while nu_i is taken away, H d nu = delta e_i with d nu_i = -nu_i, so that

    y_i - (prediction without i) = nu_i / (H^-1)_ii

exact where H is constant (the min-norm end), an approximation elsewhere: `leave_one_out_refits`
has the exact ones. With an intercept H^-1 is the block of the bordered inverse of [[H, 1], [1, 0]].
A sample whose row depends on the others is not interpolated but fitted by least squares, whatever
the potential; there the classical (y - fit)_i / (1 - leverage_i) is exact at every scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.estimators.inference.linear_response import LinearResponse, linear_response
from flowbias.estimators.inference.weighted_rows import weighted_rows
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models._base import HasPotential
from flowbias.problems.regression import as_regression


def leave_one_out(
    model: HasPotential,
    X: Any,
    y: Any = None,
    *,
    fit_intercept: bool = False,
    sample_weight: Any = None,
    tol: float = 1e-10,
) -> FloatArray:
    """Residual y_i minus the prediction for sample i by the limit on the others, first order.

    One factorization beyond the fit. With `fit_intercept` the limit is that of the centred data.

    >>> X, y, _ = fb.datasets.sparse_regression(n=10, d=30, rng=0)
    >>> fb.estimators.leave_one_out(fb.DiagonalNet(depth=2, scale=1.0), X, y).shape
    (10,)
    """
    check_one_can_be_left_out(len(as_regression(X, y).y))
    rows = weighted_rows(X, y, fit_intercept, sample_weight)
    return residuals_of(linear_response(model, rows, tol))


def check_one_can_be_left_out(n: int) -> None:
    """Before the fit: centred, a single sample has nothing left to fit."""
    if n < 2:
        raise InputError(
            f"X: must have at least 2 samples to leave one out, got {n}. Pass more samples."
        )


def residuals_of(response: LinearResponse) -> FloatArray:
    """The leave-one-out residuals that a linear response predicts, in the units of y."""
    residuals = least_squares_residuals(response)
    interpolated = response.unseen.interpolated
    if interpolated.any():
        dual, own = response.unit_dual, np.diagonal(response.unit_dual_dy)
        residuals[interpolated] = (dual / own / response.rows.root)[interpolated]
    return residuals


def least_squares_residuals(response: LinearResponse) -> FloatArray:
    """Those of the samples that are not interpolated, which no potential has a part in."""
    return response.unseen.left_out(response.rows.y) / response.rows.root
