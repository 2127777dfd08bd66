"""What noise in y does to a limit: degrees of freedom, noise level, spread.

    degrees of freedom   trace d(fitted)/dy = rank of X (with the column of ones, if there is an
                         intercept). For an interpolator that is n whatever the scale: its fit to
                         the training data says nothing. What does change with the scale:
    shares               p_j = w'(z_j) x_j^T H^-1 x_j in [0, 1], the part that coordinate j takes
                         in the answer to a change of y; they sum to the rank
    carriers             (sum p)^2 / sum p^2: how many coordinates carry the fit. d where all take
                         the same part, rank where as many as there are samples do (rich end)
    gain                 ||dw/dy||_F: noise of variance sigma^2 in y moves w by gain * sigma
    spread               sigma times the lengths of the rows of dw/dy: the standard deviation of
                         the limit around its value at the noiseless y, to first order. That value
                         is not the truth: +-1.96 of these need not cover true coefficients, and
                         mostly do not. What covers new outputs is in `jackknife`.

The noise level comes from leave-one-out residuals nu_i / (H^-1)_ii. If y were noise alone their
variance would be sigma^2 sum_j (H^-1)_ij^2 / (H^-1)_ii^2, and the squared misfit of samples fitted
by least squares sigma^2 (n - rank) on average, hence

    sigma^2 = (||y - fit||^2 + sum_i nu_i^2 / sum_j (H^-1)_ij^2) / (n - rank + interpolated)

with i over the interpolated samples: the usual estimate for over-determined data, a mean of squares
for an interpolator. What the other samples cannot tell about sample i counts as noise: an upper
estimate where y has signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.estimators.inference.linear_response import LinearResponse, linear_response
from flowbias.estimators.inference.weighted_rows import new_samples, weighted_rows
from flowbias.ground import extended
from flowbias.ground.arguments import InputError, read_nonnegative
from flowbias.ground.drawing import picture, stems
from flowbias.ground.extended import row_lengths
from flowbias.ground.html import facts
from flowbias.ground.typing import Axes, Figure, FloatArray
from flowbias.models._base import HasPotential


@dataclass(frozen=True, eq=False, repr=False)
class Uncertainty:
    """First-order effect of independent noise of standard deviation `sigma` in y.

    w_error, intercept_error  how far such noise moves coefficients and intercept, as standard
                              deviations; not how far these are from the truth
    sigma                     as given, or estimated from the leave-one-out residuals
    degrees_of_freedom        trace of d(fitted)/dy
    carriers, gain            see the module
    """

    w_error: FloatArray
    intercept_error: float
    sigma: float
    degrees_of_freedom: float
    carriers: float
    gain: float
    _dw_dy: FloatArray
    _db_dy: FloatArray

    def prediction_error(self, X: Any) -> FloatArray:
        """Standard deviation of X w + b under new noise in the training outputs, for each row of X.

        Neither the noise of a new y nor the distance to the truth is part of it: for an interval
        that covers new outputs take `jackknife`.

        Parameters
        ----------
        X : (m, d), samples

        Returns
        -------
        (m,)

        Raises
        ------
        InputError for another number of features
        """
        rows = new_samples(X, len(self.w_error))
        return np.asarray(self.sigma * row_lengths(rows @ self._dw_dy + self._db_dy))

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """How far noise moves each coefficient; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            stems(axes, self.w_error, label="standard deviation of  w  under noise in y")

        return picture(panel, path=path, ax=ax)

    def __repr__(self) -> str:
        return "\n".join(
            ["Uncertainty", *(f"  {value:<12.6g} {name}" for name, value in self._facts.items())]
        )

    def _repr_html_(self) -> str:
        return facts("Uncertainty", self._facts)

    @property
    def _facts(self) -> dict[str, float]:
        return {
            "noise in y (sigma)": self.sigma,
            "degrees of freedom": self.degrees_of_freedom,
            "coefficients that carry the fit": self.carriers,
            "gain": self.gain,
            "largest deviation of w under that noise (w_error)": float(self.w_error.max()),
            "deviation of the intercept (intercept_error)": self.intercept_error,
        }


def uncertainty(
    model: HasPotential,
    X: Any,
    y: Any = None,
    *,
    sigma: float | None = None,
    fit_intercept: bool = False,
    sample_weight: Any = None,
    tol: float = 1e-10,
) -> Uncertainty:
    """What noise in y does to the limit of `model` on (X, y), and its degrees of freedom.

    One factorization beyond the fit.

    Parameters
    ----------
    model : with a potential, such as DiagonalNet
    X, y : the data, or a `Regression` in place of X
    fit_intercept : whether the limit is that of the centred data
    sample_weight : (n,), of each sample in the loss
    tol : of the certificates
    sigma : standard deviation of the noise, of a sample of weight 1 (variances go with 1 / weight);
        by default from the leave-one-out residuals

    Returns
    -------
    Uncertainty with w_error, sigma, degrees_of_freedom, carriers and gain

    Raises
    ------
    SolveError where the limit cannot be certified, or doubles do not show how it answers

    >>> X, y, _ = fb.datasets.sparse_regression(n=10, d=30, rng=0)
    >>> errors = fb.estimators.uncertainty(fb.DiagonalNet(depth=2, scale=1.0), X, y)
    >>> errors.prediction_error(X[:2]).shape, errors.sigma > 0.0
    ((2,), True)
    """
    rows = weighted_rows(X, y, fit_intercept, sample_weight)
    return uncertainty_of(linear_response(model, rows, tol), sigma)


def uncertainty_of(response: LinearResponse, sigma: float | None = None) -> Uncertainty:
    """The uncertainty that follows from a linear response."""
    if sigma is None:
        level = noise_level(response)
    else:
        fix = "Leave it out to estimate it from leave-one-out residuals."
        level = read_nonnegative("sigma", sigma, fix)
    shares = np.einsum("ij,ji->j", response.rows.X, response.dw_dy)
    dw_dy, db_dy = response.rows.coefficients_and_intercept(response.dw_dy)
    return Uncertainty(
        w_error=level * row_lengths(dw_dy),
        intercept_error=level * extended.length(db_dy),
        sigma=level,
        degrees_of_freedom=float(response.degrees_of_freedom),
        # No share at all: nothing is left of X, and no coordinate carries anything.
        carriers=float(shares.sum() ** 2 / (np.square(shares).sum() or 1.0)),
        gain=extended.length(dw_dy),
        _dw_dy=dw_dy,
        _db_dy=db_dy,
    )


def noise_level(response: LinearResponse) -> float:
    """sigma from the leave-one-out residuals: right on average where y is noise alone."""
    unseen, y = response.unseen, response.rows.y
    told, count = unseen.misfit(y), unseen.dimension
    alone = unseen.interpolated
    if alone.any():
        if response.rows.free is not None and len(y) == 1:
            raise InputError(
                "sigma: must be given where a single sample is centred, got None. Nothing is left "
                "of it to tell the noise; pass sigma, more samples, or no intercept."
            )
        gain = row_lengths(response.unit_dual_dy[alone])
        told = np.append(told, response.unit_dual[alone] / gain)
        count += int(alone.sum())
    return extended.length(told) / float(np.sqrt(count))
