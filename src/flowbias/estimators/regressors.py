"""Limits of gradient flow as scikit-learn regressors, and along scales as `lasso_path` has them."""

from __future__ import annotations

import reprlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    check_X_y,
    validate_data,
)

from flowbias.estimators.coefficient_table import CoefficientTable
from flowbias.estimators.inference.limit_inference import LimitInference
from flowbias.estimators.intercepts import FRAMES
from flowbias.estimators.intercepts.frames import Frame, OutputFits, Solve, plain, warn_of
from flowbias.estimators.intercepts.samples import Samples, refuse_large
from flowbias.estimators.start import default_log_scales, log_scales_of, network
from flowbias.ground.arguments import InputError, read_tolerance
from flowbias.ground.typing import FloatArray
from flowbias.limits.rich_limit import rich_limit_of_rounded
from flowbias.limits.solve import min_norm
from flowbias.potentials import L2

# Of scikit-learn, for X and y.
_RULES: dict[str, Any] = {
    "accept_sparse": "csr",
    "dtype": np.float64,
    "multi_output": True,
    "y_numeric": True,
}


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

    def _read_data(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool = True
    ) -> tuple[Any, FloatArray, FloatArray | None]:
        """X (dense or CSR), y and weights as `fit` was given them, checked by scikit-learn's rules.

        Sets n_features_in_ and feature_names_in_, or (without `reset`) compares.
        """
        with _doubles_alone():
            X, y = validate_data(self, X, y, reset=reset, **_RULES)
        _require_numbers(y)
        for name, values in (("X", X), ("y", y)):
            _check_size(name, float(abs(values).max()))
        return X, y, None if sample_weight is None else _weights(sample_weight, X)

    @property
    def _frame(self) -> Callable[[Samples], Frame]:
        """The problem that `fit_intercept` makes of samples."""
        frames = {choice: FRAMES[choice] for choice in self._intercepts}
        try:
            frame = frames.get(self.fit_intercept)
        except TypeError:  # an array or a list, which is no key
            frame = None
        if frame is None:
            names = ", ".join(repr(choice) for choice in frames)
            raise InputError(
                f"fit_intercept: must be one of {names}, got {self.fit_intercept!r}. "
                'True is "centered"; docs/estimators.md says what each of them means.'
            )
        return frame

    def predict(self, X: Any) -> FloatArray:
        """X coef_ + intercept_, of the shape that y had."""
        check_is_fitted(self, "coef_")
        with _doubles_alone():
            X = validate_data(self, X, accept_sparse=["csr", "csc", "coo"], reset=False)
        return np.asarray(safe_sparse_dot(X, self.coef_.T) + self.intercept_)

    def coefficient_table(self) -> CoefficientTable:
        """The coefficients with the names of the features, the largest first.

        Returns
        -------
        CoefficientTable, which shows itself; pandas.DataFrame(table.rows) is a data frame of it

        >>> fitted = fb.estimators.MinNormRegressor(fit_intercept=False).fit([[1.0, 2.0]], [1.0])
        >>> fitted.coefficient_table()
        feature      coefficient
        w[1]                 0.4
        w[0]                 0.2
        (intercept)            0
        """
        check_is_fitted(self, "coef_")
        names = getattr(self, "feature_names_in_", None)  # scikit-learn sets it where X has names
        return CoefficientTable.of(self.coef_, self.intercept_, names)

    def _keep_linear(
        self, samples: Samples, coef: FloatArray, intercept: FloatArray, steps: list[int]
    ) -> None:
        """Set what every fitted estimator has, from one row or value per output."""
        self.coef_, self.n_iter_ = samples.shaped(coef), samples.shaped(steps)
        self.intercept_ = float(intercept[0]) if samples.single else intercept

    def _keep_scale(self, log_scale: float) -> None:
        self.log_scale_ = log_scale
        with np.errstate(over="ignore"):  # infinite where only its logarithm is a double
            self.scale_ = float(np.exp(log_scale))

    def _keep(self, fit: OutputFits, samples: Samples) -> None:
        """Set the attributes of an estimator that is a limit."""
        solutions, shaped = fit.solutions, samples.shaped
        steps = [solution.stats.steps for solution in solutions]
        self._keep_linear(samples, fit.coef, fit.intercept, steps)
        self.dual_coef_ = fit.dual
        self.certificate_ = shaped([solution.certificate for solution in solutions])
        self.status_ = shaped([solution.status.name for solution in solutions])


@contextmanager
def _doubles_alone() -> Iterator[None]:
    """In place of Python's words, which name no argument, for numbers that are no doubles."""
    try:
        yield
    except OverflowError:
        raise InputError(
            "X, y: must hold numbers that are doubles, got an integer or a fraction beyond them. "
            "Measure in larger units."
        ) from None


def checked_data(X: Any, y: Any) -> tuple[Any, FloatArray]:
    """X (dense or CSR) and y, checked by scikit-learn's rules."""
    with _doubles_alone():
        X, y = check_X_y(X, y, **_RULES)
    _require_numbers(y)
    return X, y


def _require_numbers(y: Any) -> None:
    """Refuse words and dates in arrays of their own dtype, which scikit-learn lets pass."""
    if y.dtype.kind not in "buif":
        raise InputError(
            f"y: must hold numbers, got {y.dtype} such as {y.flat[0]!s:.20}. Of two classes "
            "call one 0 and the other 1."
        )


def _check_size(name: str, largest: float) -> None:
    """Refuse numbers whose sum over samples, of which the means are made, is no double."""
    most = 1e300
    if largest > most:
        raise InputError(
            f"{name}: must have entries of at most {most:.0e} in size, got {largest:.1e}. "
            "Measure it in a larger unit."
        )


def _weights(sample_weight: Any, X: Any) -> FloatArray:
    """One weight per sample, by scikit-learn's rules, whose words do not say what they got."""
    try:
        checked: FloatArray = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    except ValueError as refusal:
        raise InputError(
            f"sample_weight: must be one finite weight >= 0 per sample ({X.shape[0]}), not all of "
            f"them 0, got {reprlib.repr(sample_weight)}, of which scikit-learn says: {refusal} "
            "Leave it out to count samples alike."
        ) from refusal
    return checked


class DirectInterpolator(LinearInterpolator):
    """An estimator whose fit is one limit per output."""

    @abstractmethod
    def _solver(self, frame: Frame) -> Solve:
        """The limit on one output of the frame; its parameters checked."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DirectInterpolator:
        """Find the limit on (X, y).

        sample_weight multiplies the squared error of a sample: it changes a least-squares limit
        and the centre of the data, not what interpolates them. SolveError where the limit could
        not be certified.
        """
        read_tolerance("tol", self.tol)
        samples = Samples.of(*self._read_data(X, y, sample_weight))
        frame = self._frame(samples)
        self._keep(frame.fitted(self._solver(frame), self.tol), samples)
        return self


@dataclass(eq=False, repr=False)
class ImplicitBiasRegressor(LimitInference, DirectInterpolator):
    """The predictor that gradient flow of a diagonal network converges to, as a linear model.

    Minimizes the network's potential among all coefficients that fit the training data:
    nearly l2 at large scales, nearly l1 at small ones.  [woodworth2020, Theorems 1 and 3]

    Parameters
    ----------
    depth : float >= 2
    scale : size of the weights at the start; by default between the kernel regime and the rich one,
        scale^depth = 1e-4 times the l2 norm of the least-norm fit
    log_scale : its natural logarithm, in place of scale
    shape : (|v| - |u|) / (|v| + |u|) of a depth-2 network with layers of different size
    fit_intercept : True ("centered"), "trained" or False
    tol : of the certificate

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, rng=0)
    >>> fitted = fb.estimators.ImplicitBiasRegressor(depth=2, scale=1e-3).fit(X, y)
    >>> round(fitted.score(X, y), 8), fitted.status_
    (1.0, 'CERTIFIED')
    """

    _intercepts = tuple(FRAMES)

    depth: float = 2
    scale: float | None = None
    log_scale: float | None = None
    shape: float = 0.0
    fit_intercept: bool | str = True
    tol: float = 1e-8

    def _solver(self, frame: Frame) -> Solve:
        if self.scale is None and self.log_scale is None:
            depth = network(self.depth, shape=self.shape).depth
            self.log_scale_ = float(default_log_scales(frame, depth, self.shape, 3)[1])
        start = self._network()
        self._keep_scale(float(start.log_scale))
        model = frame.model(start)
        return lambda y: frame.limit(model, y, self.tol)

    def _network(self) -> Any:
        if self.scale is None and self.log_scale is None:
            return network(self.depth, log_scale=self.log_scale_, shape=self.shape)
        return network(self.depth, self.scale, self.log_scale, self.shape)


@dataclass(eq=False, repr=False, kw_only=True)
class MinNormRegressor(LimitInference, DirectInterpolator):
    """The coefficients of least Euclidean norm that fit the data: the limit of large scales.

    Parameters
    ----------
    fit_intercept : True ("centered") or False
    tol : of the certificate

    >>> fitted = fb.estimators.MinNormRegressor(fit_intercept=False).fit([[1.0, 2.0]], [1.0])
    >>> fitted.coef_.round(3)
    array([0.2, 0.4])
    """

    fit_intercept: bool | str = True
    tol: float = 1e-8

    def _solver(self, frame: Frame) -> Solve:
        return lambda y: min_norm(frame.X, y, tol=self.tol, throw=False)

    def _network(self) -> Any:
        return L2()


@dataclass(eq=False, repr=False)
class RichRegressor(DirectInterpolator):
    """The coefficients of least l1 norm that fit the data: the limit of vanishing scales.

    Where several have the least norm, the one that gradient flow at this depth selects: least sum
    |w| log|w| at depth 2, largest sum |w|^(2/depth) beyond.

    Parameters
    ----------
    depth : float >= 2
    fit_intercept : True ("centered") or False
    tol : of the certificate

    >>> fitted = fb.estimators.RichRegressor(fit_intercept=False).fit([[1.0, 2.0]], [1.0])
    >>> fitted.coef_
    array([0. , 0.5])
    """

    depth: float = 2
    _: KW_ONLY
    fit_intercept: bool | str = True
    tol: float = 1e-8

    def _solver(self, frame: Frame) -> Solve:
        refuse_large(frame.samples.X, type(self).__name__)
        model = network(self.depth)
        return lambda y: rich_limit_of_rounded(model, frame.X, y, frame.rounding, tol=self.tol)


def implicit_bias_path(
    X: Any,
    y: Any,
    *,
    scales: Any = None,
    log_scales: Any = None,
    n_scales: int = 100,
    eps: float = 1e-10,
    depth: float = 2,
    shape: float = 0.0,
    tol: float = 1e-8,
) -> tuple[FloatArray, FloatArray, dict[str, Any]]:
    """Limits of a diagonal network from the kernel regime to the rich one, with warm starts.

    As `lasso_path` it fits no intercept: centre X and y for one.

    Parameters
    ----------
    X, y : the data; y (n,) or (n, n_targets)
    scales, log_scales : of the start, in any order; by default scale^depth falls from 10 times the
        l2 norm of the least-norm fit to eps times that
    n_scales, eps : of the default scales
    depth, shape : of the network
    tol : of the certificates

    Returns
    -------
    log_scales : (n_scales,), largest first
    coefs : (n_features, n_scales), or (n_targets, n_features, n_scales) for y of two dimensions
    info : a dict:

        certified     (n_scales,) whether the limits are; where not, a ConvergenceWarning says so
        certificates  one per scale, without error bounds (a list per scale for y of two dimensions)
        dual_coefs    (n_samples, n_scales), or (n_targets, n_samples, n_scales)
        n_iters       (n_scales,) steps, of all outputs together

    Raises
    ------
    InputError for data or scales that cannot be used

    >>> X, y, _ = fb.datasets.sparse_regression(n=10, d=30, rng=0)
    >>> log_scales, coefs, info = fb.estimators.implicit_bias_path(X, y, n_scales=4)
    >>> coefs.shape, bool(info["certified"].all())
    ((30, 4), True)
    """
    read_tolerance("tol", tol)
    X, y = checked_data(X, y)
    frame = plain(Samples.of(X, y))
    net = network(depth, shape=shape)
    logs = log_scales_of(scales, log_scales, frame, net.depth, shape, n_scales, eps)
    fits = frame.fitted_along(net, logs, tol)
    warn_of([(s, fit.failure) for s, fit in zip(logs, fits, strict=True)], "implicit_bias_path")
    certificates = [[solution.certificate for solution in fit.solutions] for fit in fits]
    coefs = np.stack([fit.coef for fit in fits], axis=-1)
    duals = np.stack([fit.dual for fit in fits], axis=-1)
    shaped = frame.samples.shaped
    return (
        logs,
        shaped(coefs),
        {
            "certified": np.array([fit.failure is None for fit in fits]),
            "certificates": [shaped(of_scale) for of_scale in certificates],
            "dual_coefs": duals,
            "n_iters": np.array([sum(s.stats.steps for s in fit.solutions) for fit in fits]),
        },
    )
