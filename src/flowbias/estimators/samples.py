"""Data as an estimator gets them: checked by scikit-learn's rules, weights read once.

`sample_weight` is the weight of a sample in the loss, (c/2) sum weight_i (<x_i, w> - y_i)^2, which
is the loss of rows sqrt(weight_i) (x_i, y_i): an interpolator does not change with it, a
least-squares limit and the centre of the data do. A sample of weight 0 is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, validate_data

from flowbias.ground.arguments import InputError
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
    if sample_weight is None:
        return X, y, None
    return X, y, _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


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
        """Duals (k, n) of the weighted rows as duals of the samples given; 0 for those dropped."""
        if self.root_weight is None:
            return dual
        full = np.zeros((len(dual), self.given))
        full[:, self.kept] = dual * self.root_weight
        return full
