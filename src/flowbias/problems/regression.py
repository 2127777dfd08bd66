"""Linear regression data: the one place where input is checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from flowbias.designs import refuse_dense
from flowbias.designs.dense import ArrayDesign
from flowbias.designs.sparse import as_dense
from flowbias.ground.arguments import InputError, refuse_masked
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray
from flowbias.problems.constraint import Constraint, all_zeros, constraint_of, largest_decades


def checked_array(name: str, value: Any, ndim: int) -> FloatArray:
    """`value` as a finite float64 array of `ndim` dimensions, without a copy where possible."""
    if value is None:
        raise InputError(
            f"{name}: must be given, got None. Pass X and y, or a Regression(X, y) in place of X."
        )
    refuse_dense(name, value)
    refuse_masked(name, value)
    if scipy.sparse.issparse(value):
        value = as_dense(value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(
            f"{name}: must be a rectangular array, got rows of different lengths. "
            "Check that every sample has the same features."
        ) from None
    if array.dtype.kind not in "buif":
        raise InputError(
            f"{name}: must hold real numbers, got dtype {array.dtype}. "
            f"Convert it first, for example {name}.astype(float)."
        )
    if array.ndim != ndim:
        fix = (
            f"Use {name}.reshape(1, -1) for one sample, {name}.reshape(-1, 1) for one feature."
            if ndim == 2
            else "Solve one output at a time: pass a single column, for example y[:, 0]."
        )
        raise InputError(f"{name}: must have {ndim} dimension(s), got shape {array.shape}. {fix}")
    if array.size == 0:
        raise InputError(f"{name}: must not be empty, got shape {array.shape}. Pass some data.")
    array = array.astype(np.float64, copy=False)
    # max and min propagate NaN and infinity, and unlike isfinite need no temporary of X's size.
    if not (np.isfinite(array.max()) and np.isfinite(array.min())):
        bad = np.argwhere(~np.isfinite(array))[0]
        raise InputError(
            f"{name}: must be finite, got {array[tuple(bad)]} at index {tuple(map(int, bad))}. "
            "Drop or impute such entries."
        )
    return array


def checked_outputs(y: Any, n: int) -> FloatArray:
    """y as n finite doubles."""
    checked = checked_array("y", y, 1)
    if len(checked) != n:
        raise InputError(
            f"y: must have one entry per row of X ({n}), "
            f"got {len(checked)}. Check that X is samples x features."
        )
    return checked


@dataclass(frozen=True)
class Regression:
    """Linear regression data, checked.

    Parameters
    ----------
    X : (n, d), samples in the rows
    y : (n,), real outputs

    >>> problem = fb.Regression([[1.0, 2.0]], [1.0])
    >>> fb.limit(fb.DiagonalNet(depth=2, scale=0.1), problem).status.name
    'CERTIFIED'
    """

    X: FloatArray
    y: FloatArray

    def __init__(self, X: Any, y: Any) -> None:
        checked_X = checked_array("X", X, 2)
        checked_y = checked_outputs(y, len(checked_X))
        if checked_X.max() == 0.0 == checked_X.min():
            raise all_zeros(checked_X.shape)
        object.__setattr__(self, "X", checked_X)
        object.__setattr__(self, "y", checked_y)

    def __repr__(self) -> str:
        return f"Regression(n={self.X.shape[0]}, d={self.X.shape[1]})"

    @cached_property
    def design(self) -> ArrayDesign:
        """X as a design of one block."""
        return ArrayDesign(self.X)

    @cached_property
    def lengths(self) -> FloatArray:
        """Of the rows of X."""
        return row_lengths(self.X)

    @cached_property
    def constraint(self) -> Constraint:
        """`A w = b`, the set of limits that the data allows."""
        return constraint_of(self.X, self.y, self.lengths)


def as_regression(X: Any, y: Any) -> Regression:
    """The problem given either as data or as a Regression."""
    if y is None:
        if not isinstance(X, Regression):
            raise InputError(
                f"y: must be given with X, got None and X of type {type(X).__name__}. "
                "Pass X and y, or a Regression(X, y) in place of X."
            )
        return X
    return Regression(X, y)


def check_dual(problem: Regression) -> None:
    """Refuse outputs so far below their rows in size that a dual of order y / X^2 is no double."""
    # The smallest dual ~ y / X^2 that is a double.
    smallest_dual = 1e-305
    decades = largest_decades(problem.y, problem.lengths, 2)
    if decades < np.log10(smallest_dual):
        raise InputError(
            f"y: must be at least {smallest_dual:.0e} times the squared length of its row of X, "
            f"got 1e{decades:.0f} times. Divide X and y by a common factor, which changes no limit."
        )
