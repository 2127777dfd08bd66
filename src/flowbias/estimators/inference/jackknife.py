"""Intervals that cover new outputs, from the limits without each sample: the jackknife+.

With mu_-i the limit on all samples but i and R_i = |y_i - mu_-i(x_i)|, that for a new x runs

    from   the floor((1 - coverage) (n + 1))-th smallest of   mu_-i(x) - R_i
    to     the ceil(coverage (n + 1))-th smallest of          mu_-i(x) + R_i

If the samples and the new one are exchangeable (drawn alike, say), it covers the new y with a
probability of at least 2 coverage - 1, whatever their distribution, and of about `coverage` for
predictors that one sample changes little.  [barber2021, Theorem 1] Nothing is asked of the model:
it may be wrong. The scale must not have been chosen on the same data; where cross-validation chose
it, each limit would have to choose its own, and the promise holds only nearly.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.estimators.inference.leave_one_out import (
    Refits,
    check_one_can_be_left_out,
    refits_of,
)
from flowbias.estimators.inference.linear_response import LinearResponse, linear_response
from flowbias.estimators.inference.weighted_rows import new_samples, weighted_rows
from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.html import facts
from flowbias.ground.typing import Axes, Figure, FloatArray
from flowbias.limits.solve import limit
from flowbias.models._base import HasPotential
from flowbias.problems.regression import as_regression


@dataclass(frozen=True, eq=False, repr=False)
class Jackknife:
    """The limits without each sample, and intervals from them.

    coef, intercept  (n, d) and (n,): the limit without sample i
    refits           the residuals of the samples left out, and what each limit cost
    """

    coef: FloatArray
    intercept: FloatArray
    refits: Refits

    @property
    def residuals(self) -> FloatArray:
        """y_i minus the prediction for sample i by the limit on the others."""
        return self.refits.residuals

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of intervals for the outputs of new samples.

        Parameters
        ----------
        X : (m, d), the new samples
        coverage : the share of new outputs to be covered, in (0, 1)

        Returns
        -------
        lower, upper : (m,); infinite where so few samples can promise nothing

        Raises
        ------
        InputError for another number of features, or a coverage that is no share
        """
        n, d = self.coef.shape
        rows = new_samples(X, d)
        rank = _rank(coverage, n)
        if rank > n:
            return np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
        predicted, off = rows @ self.coef.T + self.intercept, np.abs(self.residuals)
        lower = np.partition(predicted - off, n - rank, axis=1)[:, n - rank]
        upper = np.partition(predicted + off, rank - 1, axis=1)[:, rank - 1]
        return lower, upper

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The residual of each sample left out; on `ax` if given, written to `path` if given."""
        return self.refits.plot(path, ax=ax)

    def __repr__(self) -> str:
        n, d = self.coef.shape
        return f"Jackknife(n={n}, d={d}, root mean square of the residuals={self._size:.3g})"

    def _repr_html_(self) -> str:
        size = f"{self._size:.6g}"
        return facts(
            "Jackknife, limits without one sample each",
            {"samples": f"{len(self.coef)}", "root mean square of the residuals": size},
        )

    @property
    def _size(self) -> float:
        return float(np.sqrt(np.mean(self.residuals**2)))


def _rank(coverage: Any, n: int) -> int:
    """ceil(coverage (n + 1)), of the coverage as it is written: 0.9 of 10 is 9."""
    share = as_float(coverage)
    if share is None or not 0.0 < share < 1.0:
        raise InputError(
            f"coverage: must lie in (0, 1), got {shown(coverage)}. Pass 0.9 for nine in ten."
        )
    return int((Decimal(repr(share)) * (n + 1)).to_integral_value(ROUND_CEILING))


def jackknife(
    model: HasPotential,
    X: Any,
    y: Any = None,
    *,
    fit_intercept: bool = False,
    tol: float = 1e-10,
) -> Jackknife:
    """The limits of `model` without each sample, exactly, for intervals that cover.

    Parameters
    ----------
    model : with a potential, such as DiagonalNet
    X, y : the training data, or a Regression in place of X
    fit_intercept : whether the limits are those of the centred data
    tol : of the certificates

    Returns
    -------
    Jackknife

    Raises
    ------
    SolveError where one of the limits cannot be certified

    >>> X, y, _ = fb.datasets.sparse_regression(n=30, d=40, rng=0)
    >>> left_out = fb.estimators.jackknife(fb.DiagonalNet(depth=2, scale=0.1), X[:20], y[:20])
    >>> lower, upper = left_out.predict_interval(X[20:], coverage=0.9)
    >>> lower.shape, bool((lower < upper).all())
    ((10,), True)
    """
    check_one_can_be_left_out(len(as_regression(X, y).y))
    return jackknife_of(linear_response(model, weighted_rows(X, y, fit_intercept), tol), tol)


def jackknife_of(response: LinearResponse, tol: float) -> Jackknife:
    """The limits behind exact refits; those that least squares made needless are solved for."""
    rows, refits = response.rows, refits_of(response, tol)
    w = refits._w.copy()
    for i in np.flatnonzero(np.isnan(w).any(axis=1)):
        w[i] = _least_squares_limit(response, int(i), refits.residuals[i], tol)
    if rows.has_bias_column:
        return Jackknife(w[:, :-1], w[:, -1], refits)
    intercept = np.zeros(len(w))
    if rows.free is not None:
        # The mean with y_i replaced by what the others predict for it: that changes no fit.
        share = rows.root**2 / float(rows.free @ rows.free)
        intercept = rows.y_mean - share * refits.residuals - w @ rows.x_mean
    return Jackknife(w, intercept, refits)


def _least_squares_limit(
    response: LinearResponse, i: int, residual: float, tol: float
) -> FloatArray:
    """Without a sample whose row depends on the others: with y_i as they predict it."""
    rows = response.rows
    if not rows.moves:
        return response.solution.w
    y = rows.y.copy()
    y[i] -= rows.root[i] * residual
    w: FloatArray = limit(response.model, rows.X, rows.projected(y), tol=tol).w
    return w
