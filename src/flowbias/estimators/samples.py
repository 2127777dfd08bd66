"""Data as an estimator gets them, and splits of them that are judged side by side.

Checked by scikit-learn's rules, weights read once. `sample_weight` is the weight of a sample in the
loss, (c/2) sum weight_i (<x_i, w> - y_i)^2, which is the loss of rows sqrt(weight_i) (x_i, y_i): an
interpolator does not change with it, a least-squares limit and the centre of the data do. A sample
of weight 0 is not there.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel
from sklearn.utils.validation import _check_sample_weight, validate_data

from flowbias.ground.arguments import InputError, shown
from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray


def is_sparse(X: Any) -> bool:
    """Whether X is in one of SciPy's sparse formats."""
    return bool(scipy.sparse.issparse(X))


def read_data(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool = True
) -> tuple[Any, FloatArray, FloatArray | None]:
    """X (dense or CSR), y and weights as `fit` was given them, checked by scikit-learn's rules.

    Sets n_features_in_ and feature_names_in_ of the estimator, or (without `reset`) compares.
    """
    X, y = validate_data(
        estimator,
        X,
        y,
        reset=reset,
        accept_sparse="csr",
        dtype=np.float64,
        multi_output=True,
        y_numeric=True,
    )
    for name, values in (("X", X), ("y", y)):
        _check_size(name, float(abs(values).max()))
    return X, y, None if sample_weight is None else _weights(sample_weight, X)


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


@dataclass(frozen=True)
class Samples:
    """Samples of positive weight: X (n, d), dense or CSR, and y (n, k)."""

    X: Any
    y: FloatArray
    #: whether y was given without the dimension of its outputs
    single: bool
    #: roots of the weights, or None where all samples count alike
    root_weight: FloatArray | None
    #: which of the samples given these are; None: all
    kept: NDArray[np.intp] | None
    given: int

    @classmethod
    def of(cls, X: Any, y: FloatArray, weight: FloatArray | None = None) -> Samples:
        """Those of checked data whose weight is not 0."""
        n, single = X.shape[0], y.ndim == 1
        y = np.asarray(y, dtype=np.float64).reshape(n, -1)
        if weight is None:
            return cls(X, y, single, None, None, n)
        kept = np.flatnonzero(weight > 0.0)
        if len(kept) == 0:
            raise InputError(
                f"sample_weight: must be positive for at least one sample, got {n} zeros. "
                "In cross-validation every training part needs one."
            )
        return cls(X[kept], y[kept], single, np.sqrt(weight[kept]), kept, n)

    @property
    def root(self) -> FloatArray:
        """Square roots of the weights: ones where there are none."""
        return np.ones(len(self.y)) if self.root_weight is None else self.root_weight

    @property
    def total_weight(self) -> float:
        """The sum of the weights: n where samples count alike."""
        return float(self.root @ self.root)

    @property
    def weight(self) -> FloatArray | None:
        return None if self.root_weight is None else self.root_weight**2

    def rows_of(self, given: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows here of samples as they were given, less those that are not there."""
        if self.kept is None:
            return given
        return np.searchsorted(self.kept, given[np.isin(given, self.kept)])

    def shaped(self, outputs: Any) -> Any:
        """One value or row per output, or the only one where y had one dimension."""
        return outputs[0] if self.single else outputs

    def weighted(self, rows: Any) -> Any:
        """Rows of this sample, each times the root of its weight."""
        if self.root_weight is None:
            return rows
        if is_sparse(rows):
            return (scipy.sparse.diags_array(self.root_weight) @ rows).tocsr()
        return rows * self.root_weight[:, None]

    def dual_of_given(self, dual: FloatArray) -> FloatArray:
        """Duals (k, n) of the weighted rows as duals of the samples given; 0 for those dropped."""
        if self.root_weight is None:
            return dual
        full = np.zeros((len(dual), self.given))
        full[:, self.kept] = dual * self.root_weight
        return full


Scorer = Callable[..., float]

# Relative error of what is only compared with others of its kind, to choose among them.
TO_CHOOSE = 1e-6


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

    @cached_property
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

    def error(self, left: FloatArray) -> float:
        """The same, of what is left of one output in the test part, times roots of weights."""
        total = float(len(self.test)) if self.weight is None else self.share
        return float(np.square(left / self.unit).sum()) / total

    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def in_plain_units(self, errors: Any) -> FloatArray:
        """Mean squared errors; 0 or infinite beyond the doubles."""
        return np.where(np.equal(errors, 0.0), 0.0, np.square(self.unit) * errors)

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


def together(n_jobs: int | None, folds: list[Fold]) -> list[list[Fold]]:
    """As many groups of folds as there are to be judged at a time."""
    from joblib import effective_n_jobs

    size = -(-len(folds) // effective_n_jobs(n_jobs))
    return [folds[start : start + size] for start in range(0, len(folds), size)]


def side_by_side(n_jobs: int | None, calls: Iterable[Any]) -> list[Any]:
    """What joblib's delayed `calls` return, with one BLAS thread each where there are several.

    One thread also for products that are worth more alone.
    """
    from joblib import effective_n_jobs

    alone = effective_n_jobs(n_jobs) == 1
    threads: AbstractContextManager[Any] = nullcontext() if alone else one_thread()
    with threads:
        return list(Parallel(n_jobs=n_jobs, prefer="threads")(calls))
