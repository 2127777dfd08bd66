"""Limits of gradient flow as scikit-learn regressors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from flowbias.estimators.fitting import OutputFits, Solve, fit_outputs
from flowbias.estimators.inference.limit_inference import LimitInference
from flowbias.estimators.intercepts.frames import FRAMES, Frame, frame_of, refuse_large
from flowbias.estimators.samples import Samples, read_data
from flowbias.estimators.start import network
from flowbias.ground.typing import FloatArray
from flowbias.limits.rich_limit import rich_limit_of_rounded
from flowbias.limits.solve import check_tol, limit, min_norm
from flowbias.potentials import L2


class LinearInterpolator(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """y ~ X coef_ + intercept_, with what proves the coefficients beside them."""

    #: the values of fit_intercept that make sense here
    _intercepts: tuple[Any, ...] = (False, True, "centered")

    fit_intercept: Any
    tol: float
    #: of the limit, one per output; None where an estimator does not go that far
    certificate_: Any
    status_: Any
    dual_coef_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def predict(self, X: Any) -> FloatArray:
        """X coef_ + intercept_, of the shape that y had."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse=["csr", "csc", "coo"], reset=False)
        return np.asarray(safe_sparse_dot(X, self.coef_.T) + self.intercept_)

    def _keep(self, fit: OutputFits, single: bool) -> None:
        """Set the attributes of a fitted estimator; `single` for y of one dimension."""
        steps = [solution.stats.steps for solution in fit.solutions]
        certificates = [solution.certificate for solution in fit.solutions]
        self.coef_ = fit.coef[0] if single else fit.coef
        self.intercept_ = float(fit.intercept[0]) if single else fit.intercept
        self.dual_coef_ = fit.dual[0] if single else fit.dual
        self.certificate_ = certificates[0] if single else certificates
        self.status_ = fit.solutions[0].status if single else [s.status for s in fit.solutions]
        self.n_iter_ = steps[0] if single else steps


class DirectInterpolator(LinearInterpolator):
    """An estimator whose fit is one limit per output."""

    @abstractmethod
    def _solver(self, frame: Frame) -> Solve:
        """The limit on the frame's X and one output; its parameters checked."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DirectInterpolator:
        """Find the limit on (X, y).

        sample_weight multiplies the squared error of a sample: it changes a least-squares limit
        and the centre of the data, not what interpolates them. SolveError where the limit could
        not be certified.
        """
        check_tol(self.tol)
        samples = Samples.of(*read_data(self, X, y, sample_weight))
        frame = frame_of(samples, self.fit_intercept, self._intercepts)
        fit = fit_outputs(frame, self._solver(frame), self.tol)
        self._keep(fit, samples.single)
        return self


class ImplicitBiasRegressor(LimitInference, DirectInterpolator):
    """The predictor that gradient flow of a diagonal network converges to, as a linear model.

    Minimizes the network's potential among all coefficients that fit the training data:
    nearly l2 at large scales, nearly l1 at small ones.  [woodworth2020, Theorems 1 and 3]

    Parameters
    ----------
    depth : float >= 2
    scale : size of the weights at the start
    log_scale : its natural logarithm, in place of scale
    shape : (|v| - |u|) / (|v| + |u|) of a depth-2 network with layers of different size
    fit_intercept : True ("centered"), "trained" or False
    tol : of the certificate

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, rng=0)
    >>> fitted = fb.estimators.ImplicitBiasRegressor(depth=2, scale=1e-3).fit(X, y)
    >>> round(fitted.score(X, y), 8), fitted.status_.name
    (1.0, 'CERTIFIED')
    """

    _intercepts = tuple(FRAMES)

    def __init__(
        self,
        depth: float = 2,
        scale: float = 1.0,
        log_scale: float | None = None,
        shape: float = 0.0,
        fit_intercept: bool | str = True,
        tol: float = 1e-8,
    ) -> None:
        self.depth = depth
        self.scale = scale
        self.log_scale = log_scale
        self.shape = shape
        self.fit_intercept = fit_intercept
        self.tol = tol

    def _solver(self, frame: Frame) -> Solve:
        model = frame.model(self._network())
        return lambda X, y: limit(model, X, y, tol=self.tol, throw=False)

    def _network(self) -> Any:
        return network(self.depth, self.scale, self.log_scale, self.shape)


class MinNormRegressor(LimitInference, DirectInterpolator):
    """The coefficients of least Euclidean norm that fit the data: the limit of large scales.

    >>> fitted = fb.estimators.MinNormRegressor(fit_intercept=False).fit([[1.0, 2.0]], [1.0])
    >>> fitted.coef_.round(3)
    array([0.2, 0.4])
    """

    def __init__(self, *, fit_intercept: bool | str = True, tol: float = 1e-8) -> None:
        self.fit_intercept = fit_intercept
        self.tol = tol

    def _solver(self, frame: Frame) -> Solve:
        return lambda X, y: min_norm(X, y, tol=self.tol, throw=False)

    def _network(self) -> Any:
        return L2()


class RichRegressor(DirectInterpolator):
    """The coefficients of least l1 norm that fit the data: the limit of vanishing scales.

    Where several have the least norm, the one that gradient flow at this depth selects: least
    sum |w| log|w| at depth 2, largest sum |w|^(2/depth) beyond.

    >>> fitted = fb.estimators.RichRegressor(fit_intercept=False).fit([[1.0, 2.0]], [1.0])
    >>> fitted.coef_
    array([0. , 0.5])
    """

    def __init__(
        self, depth: float = 2, *, fit_intercept: bool | str = True, tol: float = 1e-8
    ) -> None:
        self.depth = depth
        self.fit_intercept = fit_intercept
        self.tol = tol

    def _solver(self, frame: Frame) -> Solve:
        refuse_large(frame.samples.X, type(self).__name__)
        model = network(self.depth)
        rounding = frame.rounding
        return lambda X, y: rich_limit_of_rounded(model, X, y, rounding, tol=self.tol)
