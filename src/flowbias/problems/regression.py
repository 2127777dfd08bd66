"""Linear regression data, checked in one place; and what the solvers see of them, A w = b.

The rows of A are independent and of unit length. Its solutions are exactly the predictors that
gradient flow can converge to. Where y is outside the range of X the flow fits its projection P y,
so b belongs to P y, and to nothing where y is orthogonal to the range.

Of an array the rows are known to the last digit. Of a big X all comes from the n x n Gram matrix, n
being small where d is big. It squares the condition number: rows that depend on each other to
within 1e-7 or so cannot be told from rows that do so exactly. Those in between are an error:
without the difference another w would fit y to rounding, and no certificate would see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg

from flowbias.designs import Design, design_of
from flowbias.designs import checked_array as checked_array
from flowbias.designs import checked_outputs as checked_outputs
from flowbias.designs.dense import ArrayDesign, gram
from flowbias.designs.tasks import dependence, noise_of_rows, sizes_and_products
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.extended import row_lengths, row_units
from flowbias.ground.linear_algebra import cholesky_if_conditioned
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray

# Squaring X in the Gram matrix costs half of the digits: below this reciprocal condition number
# (condition of X above about 1e5) the rows are orthogonalized first instead.
SAFE_GRAM_RCOND = 1e-10


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
    #: of the rows of X
    lengths: FloatArray = field(repr=False, compare=False)
    #: whether y and the rows are of a size at which nothing of theirs can leave the doubles
    is_ordinary: bool = field(repr=False, compare=False)
    #: X as a design of one block
    design: ArrayDesign = field(repr=False, compare=False)

    def __init__(self, X: Any, y: Any) -> None:
        checked_X = checked_array("X", X, 2)
        checked_y = checked_outputs(y, len(checked_X))
        lengths = row_lengths(checked_X)
        shortest, longest = extended.least(lengths), extended.largest(lengths)
        if longest == 0.0:
            raise all_zeros(checked_X.shape)
        size = extended.length(checked_y)
        # Any power up to two of what lies within is far from the end of the doubles.
        is_ordinary = min(shortest, size) > 1e-50 and max(longest, size) < 1e50
        if not is_ordinary:
            _check_rows(lengths)
        self.__dict__.update(
            X=checked_X,
            y=checked_y,
            lengths=lengths,
            is_ordinary=is_ordinary,
            design=ArrayDesign(checked_X),
        )

    def __repr__(self) -> str:
        return f"Regression(n={self.X.shape[0]}, d={self.X.shape[1]})"

    @cached_property
    def constraint(self) -> Constraint:
        """`A w = b`, the set of limits that the data allows."""
        if not self.is_ordinary:
            _check_predictor(self.y, self.lengths)
        return _equilibrated(self.X, self.y, self.lengths)

    def check_dual(self) -> None:
        """Refuse y so far below its rows in size that a dual of order y / X^2 is no double."""
        # The smallest dual ~ y / X^2 that is a double.
        smallest_dual = 1e-305
        decades = _largest_decades(self.y, self.lengths, 2)
        if decades < np.log10(smallest_dual):
            raise InputError(
                f"y: must be at least {smallest_dual:.0e} times the squared length of its row of "
                f"X, got 1e{decades:.0f} times. Divide X and y by a common factor, which changes "
                "no limit."
            )


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


class BigRegression(NamedTuple):
    """Data of which X stays where it is, and is read block by block."""

    design: Design
    y: Any


def regression_of(X: Any, y: Any) -> Regression | BigRegression:
    """The problem, of a big X block by block."""
    is_array = type(X) is np.ndarray and X.dtype == np.float64
    design = None if is_array else design_of(X)
    return as_regression(X, y) if design is None else BigRegression(design, y)


@dataclass(frozen=True, kw_only=True)
class RowBasis:
    """Independent combinations A of X's rows, and what they ask of w: A w = target."""

    row_scale: FloatArray
    target: FloatArray
    #: A = to_data^T X, which takes a dual of A's rows to one of X's; None: diag(row_scale)
    to_data: FloatArray | None = None
    #: matrix with target = from_data @ y; None: target = row_scale * y
    from_data: FloatArray | None = field(default=None, repr=False)
    #: X w = span (A w); None: A w divided by row_scale
    span: FloatArray | None = field(default=None, repr=False)
    #: distance of y from the range of X relative to y, and P y itself
    distance: float = 0.0
    projected: FloatArray | None = None
    #: Cholesky factor of A A^T where one was computed on the way; None: A A^T is the identity
    gram_factor: FloatArray | None = field(default=None, repr=False)

    def dual_of_data(self, dual: FloatArray) -> FloatArray:
        """The dual nu of X's own rows with X^T nu = A^T dual."""
        return self.row_scale * dual if self.to_data is None else self.to_data @ dual

    def seen(self, fit: FloatArray) -> FloatArray:
        """A w from X w."""
        return self.row_scale * fit if self.to_data is None else self.to_data.T @ fit

    def seen_gram(self, scaled: FloatArray) -> FloatArray:
        """A diag(c) A^T from that of the rescaled rows diag(row_scale) X."""
        if self.to_data is None:
            return scaled
        basis = self.to_data / self.row_scale[:, None]
        return np.asarray(basis.T @ scaled @ basis)

    def misfit(self, left: FloatArray) -> float:
        """||X w - P y|| / ||P y|| from what is left of the target."""
        size = extended.length(self._in_data_units(self.target))
        return extended.length(self._in_data_units(left)) / size if size > 0 else 0.0

    def _in_data_units(self, values: FloatArray) -> FloatArray:
        return np.asarray(values / self.row_scale if self.span is None else self.span @ values)

    def inverse_gram(self, b: FloatArray) -> FloatArray:
        """(A A^T)^-1 b."""
        if self.gram_factor is None:
            return b
        return np.asarray(scipy.linalg.lapack.dpotrs(self.gram_factor, b, lower=1)[0])

    @cached_property
    def size(self) -> float:
        """||target||."""
        return extended.length(self.target)

    def with_target(self, target: FloatArray) -> Self:
        """The same rows with another right-hand side."""
        return replace(self, target=target)

    def target_derivative(self) -> FloatArray:
        """d target / d y, a matrix."""
        return np.diag(self.row_scale) if self.from_data is None else self.from_data


@dataclass(frozen=True)
class Constraint(RowBasis):
    """With the rows themselves: A = row_scale * rows."""

    rows: FloatArray
    factorizations: int = 1

    def apply(self, w: FloatArray) -> FloatArray:
        """A w."""
        # `dot`: of small rows in half the time of rows @ w.
        return np.asarray(self.row_scale * self.rows.dot(w))

    def adjoint(self, dual: FloatArray) -> FloatArray:
        """A^T dual."""
        return np.asarray((self.row_scale * dual).dot(self.rows))

    def dual_of_rows(self, X: FloatArray, nu: FloatArray) -> FloatArray:
        """The dual of A's rows with A^T dual = X^T nu, from that of X's own."""
        if self.to_data is None:
            return np.asarray(nu / self.row_scale)
        return self.apply(X.T @ nu)  # orthonormal rows


def constraint_of(X: FloatArray, y: FloatArray) -> Constraint:
    """`A w = b` on some columns alone."""
    lengths = row_lengths(X)
    _check_rows(lengths)
    _check_predictor(y, lengths)
    return _equilibrated(X, y, lengths)


def _equilibrated(X: FloatArray, y: FloatArray, lengths: FloatArray) -> Constraint:
    """Equilibrate the rows; orthogonalize them where they are (nearly) dependent."""
    n, d = X.shape
    if n <= d and extended.least(lengths) > 0.0:
        scale = 1.0 / lengths
        factor = cholesky_if_conditioned(gram(X, None, scale), SAFE_GRAM_RCOND)
        if factor is not None:
            return Constraint(X, row_scale=scale, target=scale * y, gram_factor=factor)
    return _orthogonal_constraint(X, y, row_units(lengths))


def _check_rows(lengths: FloatArray) -> None:
    """Refuse rows so short that they cannot be brought to length one."""
    shortest, least = 1e-305, float(lengths.min(where=lengths > 0.0, initial=np.inf))
    if least < shortest:
        raise InputError(
            f"X: must have rows of zeros or of length {shortest:.0e} at least, got {least:.1e}. "
            "Multiply them and their y by a common factor, which changes no limit that fits y."
        )


def _check_predictor(y: FloatArray, lengths: FloatArray) -> None:
    """Refuse outputs so far above their rows in size that the square of w is no double."""
    largest_predictor = 1e153  # w ~ y / X whose square is a double
    decades = _largest_decades(y, lengths, 1)
    if decades > np.log10(largest_predictor):
        raise InputError(
            f"y: must be at most {largest_predictor:.0e} times the length of its row of X, got "
            f"1e{decades:.0f} times. Divide y, and the scale of the start to match."
        )


def _largest_decades(y: FloatArray, lengths: FloatArray, power: int) -> float:
    """log10 of the largest |y| / length^power; 0 where none is seen, which is of ordinary size."""
    seen = (lengths > 0) & (y != 0)
    ratios = np.log10(np.abs(y[seen])) - power * np.log10(lengths[seen])
    return float(ratios.max()) if ratios.size else 0.0


def _orthogonal_constraint(X: FloatArray, y: FloatArray, unit: FloatArray) -> Constraint:
    """Orthonormal basis of the row space, from a singular value decomposition.

    With D^-1 X = U S V^T (D the row lengths), the constraint X w = P y reads V^T w = b. Singular
    values below max(n, d) eps are rounding, and their directions are dropped.
    """
    left, values, basis = scipy.linalg.svd(X / unit[:, None], full_matrices=False)
    rank = int((values > noise_of_rows(X.shape) * values[0]).sum())
    left, values, basis = left[:, :rank], values[:rank], basis[:rank]
    fit = _fit_to_range(left, values, unit, y, rounding=noise_of_rows(X.shape))
    return Constraint(
        np.ascontiguousarray(basis),
        row_scale=np.ones(rank),
        target=fit.target,
        to_data=(left / values) / unit[:, None],
        from_data=fit.from_data,
        distance=fit.distance,
        projected=fit.projected,
    )


def row_basis_of(design: Design, y: FloatArray) -> RowBasis:
    """One pass over X: sizes of rows, with all checks of the entries, and their Gram matrix."""
    largest, products = sizes_and_products(design)
    if not largest.any():
        raise all_zeros(design.shape)
    scale = 1.0 / row_units(largest)
    lengths = np.sqrt(np.diagonal(products))
    if not lengths.any():
        raise all_zeros(design.shape)
    unit = row_units(lengths)
    scale, products = scale / unit, products / unit / unit[:, None]
    factor = cholesky_if_conditioned(np.tril(products), SAFE_GRAM_RCOND)
    if factor is not None:
        return RowBasis(row_scale=scale, target=scale * y, gram_factor=factor)
    return _orthogonal_row_basis(design, y, scale, products)


def _orthogonal_row_basis(
    design: Design, y: FloatArray, scale: FloatArray, products: FloatArray
) -> RowBasis:
    """Orthonormal rows from the eigenvectors of the Gram matrix, as from the SVD of X."""
    values, vectors = scipy.linalg.eigh(products)
    # Below ten roundings of the largest an eigenvalue is noise.
    kept = values > 10.0 * len(y) * np.finfo(float).eps * values[-1]
    roots, left = np.sqrt(values[kept]), vectors[:, kept]
    # Eigenvectors of a Gram matrix are known to its rounding times its condition number, that of
    # the rows squared; one of the two is counted by _fit_to_range.
    rounding = len(y) * np.finfo(float).eps * float(roots[-1] / roots[0])
    if not kept.all():
        vanishing, apart = dependence(design, scale, left, values[kept], vectors[:, ~kept])
        if apart > noise_of_rows(design.shape):
            raise _nearly_dependent(design, apart)
        # P y is known to a rounding divided by the distance of the others from being dependent:
        # nearer than this, not to the digits of a certificate.
        if roots[0] < 3e-7 * roots[-1]:
            raise _nearly_dependent(design, float(roots[0] / roots[-1]))
        # Each column is next to what it was, so its eigenvalue still says how large it is.
        left, _ = np.linalg.qr(left - vanishing @ (vanishing.T @ left))
    fit = _fit_to_range(left, roots, 1.0 / scale, y, rounding)
    return RowBasis(
        row_scale=scale,
        target=fit.target,
        to_data=scale[:, None] * (left / roots),
        from_data=fit.from_data,
        span=left * roots / scale[:, None],
        distance=fit.distance,
        projected=fit.projected,
    )


@dataclass(frozen=True)
class _RangeFit:
    """y as far as X can fit it: V^T w = target, target = from_data @ y."""

    target: FloatArray
    from_data: FloatArray
    distance: float
    projected: FloatArray | None


def _fit_to_range(
    left: FloatArray, values: FloatArray, unit: FloatArray, y: FloatArray, rounding: float
) -> _RangeFit:
    """The target of y over the basis V, where X = diag(unit) left diag(values) V^T.

    `rounding` is the relative error of a product with X.
    """
    target = (left.T @ (y / unit)) / values
    misfit = np.linalg.norm(y / unit - left @ (values * target))
    distance = float(misfit / (np.linalg.norm(y / unit) or 1.0))
    if not distance > IN_RANGE:
        return _RangeFit(target, ((left / values) / unit[:, None]).T, 0.0, None)
    # P y is the least-squares fit in the data's own units, where rows are not rescaled.
    size = float(np.abs(y).max())
    reduced = (unit[:, None] * left) * values / unit.max()
    from_data = scipy.linalg.pinv(reduced) / unit.max()
    target = size * (from_data @ (y / size))
    projected = (unit[:, None] * left) @ (values * target)
    # Nothing but rounding is left of a y that is orthogonal to the range, and w is 0. What is asked
    # of a row of zeros is not rounded into the others.
    condition = float(np.linalg.cond(reduced))
    asked = np.where(left.any(axis=1), y, 0.0)
    if extended.length(projected) <= rounding * condition * extended.length(asked):
        target, projected = np.zeros_like(target), np.zeros_like(y)
    distance = float(np.linalg.norm((y - projected) / size) / np.linalg.norm(y / size))
    return _RangeFit(target, from_data, distance, projected)


def all_zeros(shape: tuple[int, ...]) -> InputError:
    """The error for an X that is zero."""
    return InputError(
        f"X: must have a nonzero entry, got all zeros of shape {shape}. "
        "No predictor changes the loss; check how X was built."
    )


def _nearly_dependent(design: Design, apart: float) -> InputError:
    return InputError(
        f"X: rows of a {design.kind} X must be independent to about 1e-7 or dependent to "
        f"rounding, got rows dependent to {apart:.1e}. Remove nearly repeated samples, and one "
        "sample of an X centred in single precision; or pass X as an array of doubles: the "
        "dense solver tells them apart."
    )
