"""Leave-one-out errors, intervals and uncertainty of a fitted limit, for the estimators.

Estimators do not keep their training data, so these methods ask for them again and solve the limit
once more; all samples are then left out with one factorization (or a few each, where exact).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from flowbias.estimators.inference.jackknife import Jackknife, jackknife_of
from flowbias.estimators.inference.leave_one_out import (
    check_one_can_be_left_out,
    refits_of,
    residuals_of,
)
from flowbias.estimators.inference.linear_response import LinearResponse, linear_response
from flowbias.estimators.inference.uncertainty import Uncertainty, uncertainty_of
from flowbias.estimators.inference.weighted_rows import WeightedRows
from flowbias.estimators.intercepts.frames import Frame
from flowbias.estimators.intercepts.samples import Samples
from flowbias.ground.typing import FloatArray


class LimitInference:
    """Adds inference to an estimator that is the limit of a model with a potential."""

    tol: float
    #: what `fit_intercept` makes of samples
    _frame: Callable[[Samples], Frame]
    #: checks data by scikit-learn's rules
    _read_data: Callable[..., tuple[Any, FloatArray, FloatArray | None]]

    @abstractmethod
    def _network(self) -> Any:
        """The model whose limit this is, without its intercept."""

    def leave_one_out(
        self, X: Any, y: Any, sample_weight: Any = None, *, exact: bool = False
    ) -> FloatArray:
        """y minus the prediction for each sample by the limit on all others, of y's shape.

        To first order from one factorization, which is exact at the min-norm end; or by
        warm-started refits (`exact`). A sample of weight 0 is left out anyway.
        """
        check_is_fitted(self, "coef_")
        X, y, weight = self._read_data(X, y, sample_weight, reset=False)
        samples = Samples.of(X, y, weight)
        check_one_can_be_left_out(len(samples.y))
        frame = self._frame(samples)
        responses = list(self._responses(frame))
        coef, intercept = frame.coefficients(np.stack([r.solution.w for r in responses]))
        left = y.reshape(len(y), -1) - safe_sparse_dot(X, coef.T) - intercept
        kept = slice(None) if samples.kept is None else samples.kept
        left[kept] = np.stack([_residuals(r, exact, self.tol) for r in responses], axis=1)
        return np.asarray(left[:, 0] if samples.single else left)

    def jackknife(self, X: Any, y: Any) -> Jackknife | list[Jackknife]:
        """The exact limits without each training sample, for intervals that cover new outputs.

        Parameters
        ----------
        X, y : the training data

        Returns
        -------
        Jackknife, whose `predict_interval(X_new, coverage=0.9)` covers; a list for several outputs

        Raises
        ------
        SolveError where one of the limits cannot be certified
        """
        check_is_fitted(self, "coef_")
        samples = Samples.of(*self._read_data(X, y, None, reset=False))
        check_one_can_be_left_out(len(samples.y))
        frame = self._frame(samples)
        found = [jackknife_of(response, self.tol) for response in self._responses(frame)]
        return samples.shaped(found)  # type: ignore[no-any-return]

    def uncertainty(
        self, X: Any, y: Any, sample_weight: Any = None, *, sigma: float | None = None
    ) -> Uncertainty | list[Uncertainty]:
        """What noise in y does to the limit, degrees of freedom; a list for several outputs.

        sigma is the standard deviation of the noise in y, by default estimated from the
        leave-one-out residuals.
        """
        check_is_fitted(self, "coef_")
        samples = Samples.of(*self._read_data(X, y, sample_weight, reset=False))
        frame = self._frame(samples)
        found = [uncertainty_of(response, sigma) for response in self._responses(frame)]
        return samples.shaped(found)  # type: ignore[no-any-return]

    def _responses(self, frame: Frame) -> Iterator[LinearResponse]:
        model, X = frame.mirror(self._network())
        for output in range(frame.y.shape[1]):
            yield linear_response(model, WeightedRows.of(frame, X, output), self.tol)


def _residuals(response: LinearResponse, exact: bool, tol: float) -> FloatArray:
    return refits_of(response, tol).residuals if exact else residuals_of(response)
