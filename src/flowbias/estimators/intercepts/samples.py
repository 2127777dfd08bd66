"""Samples as an estimator gets them, with their weights, and what an intercept takes out of them.

Weights are read once. `sample_weight` is the weight of a sample in the loss, (c/2) sum weight_i
(<x_i, w> - y_i)^2, which is the loss of rows sqrt(weight_i) (x_i, y_i): an interpolator does not
change with it, a least-squares limit and the centre of the data do. A sample of weight 0 is not
there.

What an intercept can do is taken out to the last digit of what remains. The share of values along e
is known to the rounding of the values. Where their mean exceeds their spread, what one projection
leaves along e is then more than rounding of the rest: centred rows that should depend on each other
do not, and a limit would fit their difference as if it were data. A second projection, of the rest,
leaves nothing (twice is enough).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from flowbias.designs import DENSE_UP_TO
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray

# A row or column is rounding where centring leaves no more than this of the size of its entries.
CANCELLED = 16.0 * np.finfo(np.float64).eps
# A mean of centred values below this share of their size is their own rounding.
CENTRED = np.finfo(np.float64).eps


def is_sparse(X: Any) -> bool:
    """Whether X is in one of SciPy's sparse formats."""
    return bool(scipy.sparse.issparse(X))


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
        """Duals (k, n) of the weighted rows as duals of the samples given, shaped as they are.

        They are 0 for samples that were dropped.
        """
        if self.root_weight is not None:
            full = np.zeros((len(dual), self.given))
            full[:, self.kept] = dual * self.root_weight
            dual = full
        return np.asarray(self.shaped(dual))


def is_large(X: Any) -> bool:
    """Whether X is sparse and has too many entries, zeros counted, to be made dense."""
    return is_sparse(X) and X.shape[0] * X.shape[1] > DENSE_UP_TO


def as_array(X: Any) -> FloatArray:
    """X as a dense array."""
    return np.asarray(X.toarray() if is_sparse(X) else X)


def refuse_large(X: Any, purpose: str) -> None:
    """InputError where X would have to be made dense and is too large for it."""
    if is_large(X):
        raise InputError(
            f"X: must have at most {DENSE_UP_TO} entries, zeros counted, for {purpose}, which "
            f"makes it dense; got shape {X.shape}. ImplicitBiasRegressor and MinNormRegressor with "
            "fit_intercept=True or False keep it sparse."
        )


# --- what an intercept takes -------------------------------------------------------------------


def centred(values: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """`values` (n, k) less the (weighted) means of their columns, and the means.

    Samples at the mean and constant columns come out as zeros, not as constraints made of rounding.
    Only whole rows and columns: a small entry set to zero would put the others off their mean.
    """
    mean = np.average(values, axis=0, weights=weight)
    rest = values - mean
    cancelled = np.abs(rest) <= CANCELLED * np.abs(values).max(axis=0)
    rest[:, cancelled.all(axis=0)] = 0.0
    away = ~cancelled.all(axis=1)
    rest[~away] = 0.0
    if away.any():
        again = np.average(rest[away], axis=0, weights=None if weight is None else weight[away])
        off = np.abs(again) > CENTRED * np.abs(rest).max(axis=0)
        rest[away] -= np.where(off, again, 0.0)
    return rest, np.asarray(mean)


def without(e: FloatArray, values: FloatArray) -> FloatArray:
    """The part of `values` (n, ...) orthogonal to e."""
    for _ in range(2):
        values = values - np.multiply.outer(e, e @ values / float(e @ e))
    return np.asarray(values)


def centred_outputs(samples: Samples) -> tuple[FloatArray, FloatArray]:
    """y, and its means, one output at a time: what is rounding in one need not be in another."""
    columns = (np.ascontiguousarray(column)[:, None] for column in samples.y.T)
    parts = [centred(column, samples.weight) for column in columns]
    rest, means = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return samples.weighted(rest), means
