"""Splits of the data for cross-validation, judged side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel

from flowbias.estimators.samples import Samples
from flowbias.ground.arguments import InputError, shown
from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray

Scorer = Callable[..., float]


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

    @property
    def unit(self) -> float:
        """The power of two next to the largest output, whose square may leave the double range."""
        return float(np.exp2(np.frexp(np.abs(self.y).max())[1]))

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

    def errors(self, fits: Iterable[tuple[FloatArray, FloatArray]]) -> FloatArray:
        """Of each coef (k, d), intercept (k,): mean squared error of the test part and outputs.

        In units: errors are compared in them, and `in_plain_units` says what they are.
        """
        X, y = self.X[self.test], self.y[self.test].reshape(len(self.test), -1)
        misfits = ((X @ coef.T + intercept - y) / self.unit for coef, intercept in fits)
        squares = (np.square(misfit).mean(axis=1) for misfit in misfits)
        return np.array([np.average(square, weights=self.test_weight) for square in squares])

    @np.errstate(over="ignore", under="ignore")
    def in_plain_units(self, errors: Any) -> FloatArray:
        """Mean squared errors; 0 or infinite beyond the doubles."""
        return np.asarray(np.square(self.unit) * errors)

    def score(self, scorer: Scorer, predictor: Any) -> float:
        given = {} if self.weight is None else {"sample_weight": self.test_weight}
        return float(scorer(predictor, self.X[self.test], self.y[self.test], **given))


def folds_of(cv: Any, X: Any, y: FloatArray, weight: FloatArray | None, groups: Any) -> list[Fold]:
    """The splits that `cv` asks for, by scikit-learn's rules."""
    try:
        splits = list(check_cv(cv).split(X, y, groups))
    except ValueError as error:  # scikit-learn's, which names none of our arguments
        what = "the default, 5 folds" if cv is None else shown(cv)
        raise InputError(
            f"cv: must be able to split {X.shape[0]} samples, got {what}, of which scikit-learn "
            f"says: {str(error).rstrip('.')}. Pass fewer folds, such as cv=2, or another splitter."
        ) from None
    if not splits:
        raise InputError(f"cv: must have at least one split, got {cv!r}. Pass cv=5.")
    return [Fold(X, y, weight, train, test) for train, test in splits]


def check_n_jobs(n_jobs: Any) -> None:
    """Before the folds are split: joblib would read a string, and refuse 0, in its own words."""
    if n_jobs is not None and not (isinstance(n_jobs, Integral) and n_jobs != 0):
        raise InputError(
            f"n_jobs: must be None or a nonzero integer, got {n_jobs!r}. "
            "Pass 1 for one fold at a time, -1 for as many as there are processors."
        )


def side_by_side(n_jobs: int | None, calls: Iterable[Any]) -> list[Any]:
    """What joblib's delayed `calls` return, with one BLAS thread each where there are several.

    One thread also for products that are worth more alone.
    """
    from joblib import effective_n_jobs

    alone = effective_n_jobs(n_jobs) == 1
    threads: AbstractContextManager[Any] = nullcontext() if alone else one_thread()
    with threads:
        return list(Parallel(n_jobs=n_jobs, prefer="threads")(calls))
