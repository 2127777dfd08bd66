"""Splits of the data for cross-validation, and what the limits along a path are worth on each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from flowbias.estimators.fitting import outputs_at_scales
from flowbias.estimators.intercepts.frames import Frame
from flowbias.estimators.regressors import ImplicitBiasRegressor
from flowbias.estimators.samples import Samples
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray

Scorer = Callable[..., float]


class Linear(NamedTuple):
    """Coefficients as far as an error needs them."""

    coef: FloatArray
    intercept: FloatArray

    def predict(self, X: Any) -> FloatArray:
        return np.asarray(X @ self.coef.T + self.intercept)


@dataclass(frozen=True)
class Fold:
    """Data and one split of them."""

    X: Any
    y: FloatArray
    weight: FloatArray | None
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    def __post_init__(self) -> None:
        if not (len(self.train) and len(self.test)):
            raise InputError(
                "cv: must leave samples in both parts of every split, got "
                f"{len(self.train)} to train on and {len(self.test)} to test on. Pass cv=5."
            )
        if not self.share > 0.0:
            raise InputError(
                "sample_weight: must be positive for some sample of every part left out, got "
                f"{len(self.test)} zeros in one. Drop samples of weight 0 first, or shuffle them."
            )

    def samples(self) -> Samples:
        """The training part."""
        weight = None if self.weight is None else self.weight[self.train]
        return Samples.of(self.X[self.train], self.y[self.train], weight)

    @property
    def test_weight(self) -> FloatArray | None:
        return None if self.weight is None else self.weight[self.test]

    @property
    def share(self) -> float:
        """Of the fold in an average: folds count alike unless samples have weights."""
        return 1.0 if self.weight is None else float(self.weight[self.test].sum())

    def mse(self, predictor: Any) -> float:
        """Mean squared error of the test part, over samples and outputs."""
        found = predictor.predict(self.X[self.test])
        error = np.square(found - self.y[self.test]).reshape(len(found), -1).mean(axis=1)
        return float(np.average(error, weights=self.test_weight))

    def score(self, scorer: Scorer, predictor: Any) -> float:
        given = {} if self.weight is None else {"sample_weight": self.test_weight}
        return float(scorer(predictor, self.X[self.test], self.y[self.test], **given))


@dataclass(frozen=True)
class FoldPath:
    """What the path of one fold is worth: NaN where a limit is not certified."""

    mse: list[float]
    score: list[float]
    failures: list[str | None]


def folds_of(cv: Any, X: Any, y: FloatArray, weight: FloatArray | None, groups: Any) -> list[Fold]:
    """The splits that `cv` asks for, by scikit-learn's rules."""
    splits = list(check_cv(cv).split(X, y, groups))
    if not splits:
        raise InputError(f"cv: must have at least one split, got {cv!r}. Pass cv=5.")
    return [Fold(X, y, weight, train, test) for train, test in splits]


def check_takes_weights(scorer: Scorer, scoring: Any) -> None:
    """A scorer that ignores the weights would choose by another error than was asked for."""
    # Scorers of scikit-learn take any keyword and pass it on to the metric they were made of.
    metric = getattr(scorer, "_score_func", scorer)
    parameters = inspect.signature(metric).parameters.values()
    if not any(p.name == "sample_weight" or p.kind is p.VAR_KEYWORD for p in parameters):
        raise InputError(
            f"scoring: must take sample_weight where fit is given weights, got {scoring!r}. Add "
            "the argument, or take one that has it, such as 'neg_mean_absolute_error'."
        )


def fold_path(
    fold: Fold,
    frame_for: Callable[[Samples], Frame],
    net: Any,
    log_scales: FloatArray,
    tol: float,
    scorer: Scorer | None,
) -> FoldPath:
    """The errors and scores of every scale on the part left out."""
    frame = frame_for(fold.samples())
    steps = outputs_at_scales(frame, net, log_scales, tol)
    failures = [next((step.failure for step in at if step.failure), None) for at in steps]
    keep = 0 if frame.samples.single else slice(None)
    limits = (frame.coefficients(np.stack([step.w for step in at])) for at in steps)
    fits = [Linear(coef[keep], intercept[keep]) for coef, intercept in limits]
    mse = [fold.mse(fit) for fit in fits]
    score = [-error for error in mse]
    if scorer is not None:
        score = [fold.score(scorer, _estimator(fit)) for fit in fits]
    mse, score = (
        [
            value if failure is None else np.nan
            for value, failure in zip(part, failures, strict=True)
        ]
        for part in (mse, score)
    )
    return FoldPath(mse, score, failures)


def _estimator(fit: Linear) -> ImplicitBiasRegressor:
    """A fitted estimator with these coefficients, for scorers."""
    estimator = ImplicitBiasRegressor()
    estimator.n_features_in_ = fit.coef.shape[-1]
    estimator.coef_, estimator.intercept_ = fit
    return estimator
