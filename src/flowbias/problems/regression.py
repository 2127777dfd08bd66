"""Data and constraint: the one place where input is checked.

`Regression(X, y)` holds what the user gave, checked once. `Constraint` is what the solvers see:
`A w = b` with independent rows of unit length, whose solutions are exactly the predictors that
gradient flow can converge to. Where y is outside the range of X the flow fits its projection P y,
so b belongs to P y.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from flowbias.designs import refuse_dense, refuse_masked
from flowbias.designs.dense import ArrayDesign, gram
from flowbias.designs.sparse import sound
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.range_fit import fit_to_range, row_lengths, row_units

# The largest w ~ y / X whose square is a double, and the smallest dual ~ y / X^2 that is one.
LARGEST_PREDICTOR, SMALLEST_DUAL = 1e153, 1e-305
# Squaring X in the Gram matrix costs half of the digits: below this reciprocal condition number
# (condition of X above about 1e5) the rows are orthogonalized first instead.
SAFE_GRAM_RCOND = 1e-10


def as_dense(matrix: Any) -> Any:
    """A sparse matrix as an array; anything else as it is."""
    return sound(matrix).toarray() if scipy.sparse.issparse(matrix) else matrix


def checked_array(name: str, value: Any, ndim: int) -> FloatArray:
    """`value` as a finite float64 array of `ndim` dimensions, without a copy where possible."""
    if value is None:
        raise InputError(
            f"{name}: must be given, got None. Pass X and y, or a Regression(X, y) in place of X."
        )
    refuse_dense(name, value)
    refuse_masked(name, value)
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


def all_zeros(shape: tuple[int, ...]) -> InputError:
    """The error for an X that is zero."""
    return InputError(
        f"X: must have a nonzero entry, got all zeros of shape {shape}. "
        "No predictor changes the loss; check how X was built."
    )


@dataclass(frozen=True)
class Regression:
    """Linear regression data: n samples in the rows of X, and n real outputs y.

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
    def constraint(self) -> Constraint:
        """`A w = b`, the set of limits that the data allows."""
        return constraint_of(self.X, self.y)


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


@dataclass(frozen=True)
class Constraint:
    """`A w = b` with A = row_scale * rows: independent rows of unit length."""

    rows: FloatArray
    row_scale: FloatArray
    target: FloatArray
    #: matrix that takes a dual of the basis rows to a dual of X's rows; None: they are X's rows
    to_data: FloatArray | None = None
    #: matrix with target = from_data @ y; None: target = row_scale * y
    from_data: FloatArray | None = field(default=None, repr=False)
    #: distance of y from the range of X relative to y, and P y itself
    distance: float = 0.0
    projected: FloatArray | None = None
    #: Cholesky factor of A A^T where one was computed on the way
    gram_factor: FloatArray | None = field(default=None, repr=False)
    factorizations: int = 1

    def apply(self, w: FloatArray) -> FloatArray:
        """A w."""
        return self.row_scale * (self.rows @ w)

    def adjoint(self, dual: FloatArray) -> FloatArray:
        """A^T dual."""
        return self.rows.T @ (self.row_scale * dual)

    def gram(self, weights: FloatArray) -> FloatArray:
        """Lower triangle of A diag(weights) A^T."""
        return gram(self.rows, weights, self.row_scale)

    def dual_of_data(self, dual: FloatArray) -> FloatArray:
        """The dual nu of X's own rows with X^T nu = A^T dual."""
        if self.to_data is None:
            return self.row_scale * dual
        return self.to_data @ dual

    def with_target(self, target: FloatArray) -> Constraint:
        """The same rows with another right-hand side."""
        return replace(self, target=target)

    def target_derivative(self) -> FloatArray:
        """d target / d y, a matrix."""
        return np.diag(self.row_scale) if self.from_data is None else self.from_data


def constraint_of(X: FloatArray, y: FloatArray) -> Constraint:
    """Equilibrate the rows; orthogonalize them where they are (nearly) dependent."""
    n, d = X.shape
    lengths = row_lengths(X)
    _check_predictor(y, lengths)
    if n <= d and (lengths > 0).all():
        scale = 1.0 / lengths
        factor, rcond = cholesky_with_condition(gram(X, np.ones(d), scale))
        if factor is not None and rcond > SAFE_GRAM_RCOND:
            return Constraint(X, scale, scale * y, gram_factor=factor)
    return _orthogonal_constraint(X, y, lengths)


def _check_predictor(y: FloatArray, lengths: FloatArray) -> None:
    """Refuse outputs so far above their rows in size that the square of w is no double."""
    decades = _decades(y, lengths, 1)
    if decades > np.log10(LARGEST_PREDICTOR):
        raise InputError(
            f"y: must be at most {LARGEST_PREDICTOR:.0e} times the length of its row of X, got "
            f"1e{decades:.0f} times. Divide y, and the scale of the start to match."
        )


def check_dual(problem: Regression) -> None:
    """Refuse outputs so far below their rows in size that a dual of order y / X^2 is no double."""
    decades = _decades(problem.y, row_lengths(problem.X), 2)
    if decades < np.log10(SMALLEST_DUAL):
        raise InputError(
            f"y: must be at least {SMALLEST_DUAL:.0e} times the squared length of its row of X, "
            f"got 1e{decades:.0f} times. Divide X and y by a common factor, which changes no limit."
        )


def _decades(y: FloatArray, lengths: FloatArray, power: int) -> float:
    """log10 of the largest |y| / length^power; 0 where none is seen, which is of ordinary size."""
    seen = (lengths > 0) & (y != 0)
    ratios = np.log10(np.abs(y[seen])) - power * np.log10(lengths[seen])
    return float(ratios.max()) if ratios.size else 0.0


def cholesky_with_condition(matrix: FloatArray) -> tuple[FloatArray | None, float]:
    """Lower factor and reciprocal condition number; None and 0 where there is no factor."""
    norm = np.abs(matrix).sum(axis=0).max()
    try:
        factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None, 0.0
    rcond, _ = scipy.linalg.lapack.dpocon(factor, norm, uplo="L")
    return factor, float(rcond)


def _orthogonal_constraint(X: FloatArray, y: FloatArray, lengths: FloatArray) -> Constraint:
    """Orthonormal basis of the row space, from a singular value decomposition.

    With D^-1 X = U S V^T (D the row lengths), the constraint X w = P y reads V^T w = b. Singular
    values below max(n, d) eps are rounding, and their directions are dropped.
    """
    unit = row_units(lengths)
    scaled = X / unit[:, None]
    left, values, basis = scipy.linalg.svd(scaled, full_matrices=False)
    rank = int((values > max(X.shape) * np.finfo(float).eps * values[0]).sum())
    left, values, basis = left[:, :rank], values[:rank], basis[:rank]
    fit = fit_to_range(left, values, unit, y, rounding=max(X.shape) * np.finfo(float).eps)
    return Constraint(
        rows=np.ascontiguousarray(basis),
        row_scale=np.ones(rank),
        target=fit.target,
        to_data=(left / values) / unit[:, None],
        from_data=fit.from_data,
        distance=fit.distance,
        projected=fit.projected,
    )
