"""Linear measurements of a matrix: what a product of two factors is fitted to.

    loss (c/2) ||measure(M) - target||^2,   measure(M)_n = <X_n, M>,   M of a given shape

`MatrixRegression` (Y ~ X M), `MatrixSensing` (any X_n) and `MatrixCompletion` (X_n picks an entry)
check their input once. Their flows need no more than `measure` and `adjoint`. Where the target is
outside the range of `measure`, the flow fits its projection: `reachable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError
from flowbias.ground.linear_algebra import Spectrum, numerical_rank
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import Regression, checked_array


class MatrixProblem(ABC):
    """Measurements `target` of an unknown matrix of `shape`."""

    shape: tuple[int, int]
    target: FloatArray

    @abstractmethod
    def measure(self, M: FloatArray) -> FloatArray:
        """<X_n, M> for each n: as long as `target`."""

    @abstractmethod
    def adjoint(self, r: FloatArray) -> FloatArray:
        """sum_n r_n X_n, a matrix of `shape`."""

    @cached_property
    def reachable(self) -> FloatArray:
        """The closest to `target` that measurements of a matrix can be: its projection.

        Equal to `target` where the distance is rounding (below `IN_RANGE` of it).
        """
        basis = self.range_basis
        if basis is None:
            return self.target
        return projected(self.target, basis @ (basis.T @ self.target))

    @cached_property
    def range_basis(self) -> FloatArray | None:
        """Orthonormal columns that span what `measure` can be; None where that is everything."""
        rows = self.matrices.reshape(len(self.target), -1)
        left, values, _ = scipy.linalg.svd(rows, full_matrices=False)
        rank = numerical_rank(values, rows.shape)
        return left[:, :rank] if rank < len(rows) else None

    @cached_property
    def matrices(self) -> FloatArray:
        """All X_n, stacked to (N, d1, d2): for small problems."""
        units = np.eye(len(self.target))
        return np.stack([self.adjoint(unit) for unit in units])

    def residual(self, M: FloatArray) -> FloatArray:
        """measure(M) less the reachable part of the target: zero at every limit of zero error."""
        return self.measure(M) - self.reachable

    def relative_residual(self, M: FloatArray) -> float:
        """||residual(M)|| / ||target||; not divided where the target is zero."""
        size = float(np.linalg.norm(self.target))
        return float(np.linalg.norm(self.residual(M))) / (size or 1.0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, measurements={len(self.target)})"


def projected(target: FloatArray, projection: FloatArray) -> FloatArray:
    """`projection`, or the target itself where the two differ by rounding."""
    misfit = np.linalg.norm(target - projection)
    return target if misfit <= IN_RANGE * np.linalg.norm(target) else projection


def checked_tensor(name: str, value: Any, axes: tuple[str, ...]) -> FloatArray:
    """A finite read-only float64 array with one dimension per name in `axes`, never empty."""
    shape = shape_of(value)
    if shape is not None and len(shape) != len(axes):
        raise InputError(
            f"{name}: must have {len(axes)} dimension(s), got shape {shape}. "
            f"Pass an array of shape ({', '.join(axes)}{',' if len(axes) == 1 else ''})."
        )
    array = checked_array(name, value, len(axes))
    view = array.view()
    view.setflags(write=False)
    return view


def shape_of(value: Any) -> tuple[int, ...] | None:
    """None for rows of different lengths, which have none, and for a `shape` of another meaning."""
    try:
        return tuple(np.shape(value))
    except (TypeError, ValueError):
        return None


def read_shape(name: str, shape: Any) -> tuple[int, int]:
    """Two positive integers, or an error that names the argument."""
    sizes = np.asarray(shape if shape_of(shape) == (2,) else 0)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise InputError(
            f"{name}: must be two integers >= 1, got {shape!r}. Pass (rows, columns) of the matrix."
        )
    return int(sizes[0]), int(sizes[1])


def no_measurement(name: str, got: str) -> InputError:
    """The error for data without a single measurement."""
    return InputError(
        f"{name}: must hold at least one measurement, got {got}. "
        "Without measurements nothing moves: the start is its own limit."
    )


@dataclass(frozen=True, eq=False, repr=False)
class MatrixRegression(MatrixProblem):
    """Y ~ X M. Measurements are the entries of X M, row by row.

    Parameters
    ----------
    X : (n, d), samples in the rows
    Y : (n, m) outputs; a vector stands for one output

    >>> problem = fb.MatrixRegression([[1.0, 2.0]], [[1.0, 3.0]])
    >>> problem.min_norm.round(2)
    array([[0.2, 0.6],
           [0.4, 1.2]])
    """

    X: FloatArray
    Y: FloatArray
    shape: tuple[int, int] = field(init=False)
    target: FloatArray = field(init=False)

    def __init__(self, X: Any, Y: Any) -> None:
        inputs = checked_tensor("X", X, ("samples", "features"))
        outputs = Y
        if len(shape_of(Y) or ()) == 1:
            outputs = checked_tensor("Y", Y, ("samples",))[:, None]
        outputs = checked_tensor("Y", outputs, ("samples", "outputs"))
        if len(inputs) != len(outputs):
            raise InputError(
                f"Y: must have one row per row of X ({len(inputs)}), got {len(outputs)}. "
                "Check that X is samples x features and Y samples x outputs."
            )
        if not inputs.any():
            raise InputError(
                f"X: must have a nonzero entry, got all zeros of shape {inputs.shape}. "
                "No predictor changes the loss; check how X was built."
            )
        object.__setattr__(self, "X", inputs)
        object.__setattr__(self, "Y", outputs)
        object.__setattr__(self, "shape", (inputs.shape[1], outputs.shape[1]))
        object.__setattr__(self, "target", outputs.reshape(-1))

    def measure(self, M: FloatArray) -> FloatArray:
        """X M, row by row."""
        return np.asarray(self.X @ M).reshape(-1)

    def adjoint(self, r: FloatArray) -> FloatArray:
        """X^T R, r being the rows of R."""
        return np.asarray(self.X.T @ r.reshape(self.Y.shape))

    @cached_property
    def spectrum(self) -> Spectrum:
        """The singular value decomposition of X."""
        return Spectrum.of(self.X)

    @cached_property
    def reachable(self) -> FloatArray:
        """W W^T Y, row by row: Y projected on the range of X."""
        W = self.spectrum.W
        return projected(self.target, np.asarray(W @ (W.T @ self.Y)).reshape(-1))

    @cached_property
    def min_norm(self) -> FloatArray:
        """Theta = X^+ Y: the fit of least Frobenius norm, (d, m)."""
        spectrum = self.spectrum
        scores = spectrum.W.T @ self.Y / spectrum.root[:, None]
        return np.asarray(spectrum.P1 @ scores)


def as_matrix_problem(X: Any, Y: Any = None) -> MatrixProblem:
    """The problem given either as such, or as data (X, Y) of a regression."""
    if Y is not None:
        return MatrixRegression(X, Y)
    if isinstance(X, Regression):
        return MatrixRegression(X.X, X.y)
    if not isinstance(X, MatrixProblem):
        raise InputError(
            f"Y: must be given with X, got None and X of type {type(X).__name__}. "
            "Pass X and Y, or a matrix problem such as MatrixCompletion in place of X."
        )
    return X


@dataclass(frozen=True, eq=False, repr=False)
class MatrixSensing(MatrixProblem):
    """<X_n, M> = values_n for any matrices X_n.

    Parameters
    ----------
    matrices : stacked to (N, d1, d2)
    values : (N,)

    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> problem.measure(np.array([[0.25, 5.0], [7.0, 0.75]]))
    array([1.])
    """

    stack: FloatArray
    target: FloatArray = field(init=False)
    shape: tuple[int, int] = field(init=False)

    def __init__(self, matrices: Any, values: Any) -> None:
        given = shape_of(matrices)
        if given is not None and given[:1] == (0,):
            raise no_measurement("matrices", f"shape {given}")
        stack = checked_tensor("matrices", matrices, ("measurements", "d1", "d2"))
        target = checked_tensor("values", values, ("measurements",))
        if len(stack) != len(target):
            raise InputError(
                f"values: must have one entry per measurement ({len(stack)}), got {len(target)}. "
                "Stack the matrices along the first axis."
            )
        if not stack.any():
            raise InputError(
                f"matrices: must have a nonzero entry, got all zeros of shape {stack.shape}. "
                "No matrix changes the loss; check how the measurements were built."
            )
        object.__setattr__(self, "stack", stack)
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "shape", (stack.shape[1], stack.shape[2]))

    @cached_property
    def matrices(self) -> FloatArray:
        """All X_n, as given."""
        return self.stack

    def measure(self, M: FloatArray) -> FloatArray:
        return np.asarray(self.stack.reshape(len(self.target), -1) @ np.ravel(M))

    def adjoint(self, r: FloatArray) -> FloatArray:
        return np.asarray(r @ self.stack.reshape(len(self.target), -1)).reshape(self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class MatrixCompletion(MatrixProblem):
    """M[rows, cols] = values: some entries of a matrix of `shape`.

    Each entry counts once: repeated observations must agree and are merged. Entries are kept in the
    order of the matrix, row by row.

    Parameters
    ----------
    rows, cols : places, counted from 0
    values : the entries there
    shape : of the matrix

    >>> problem = fb.MatrixCompletion(rows=[0, 1], cols=[0, 1], values=[1.0, 2.0], shape=(2, 2))
    >>> fb.frobenius_norm(problem).M
    array([[1., 0.],
           [0., 2.]])
    """

    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    target: FloatArray
    shape: tuple[int, int]

    def __init__(self, rows: Any, cols: Any, values: Any, shape: tuple[int, int]) -> None:
        size = read_shape("shape", shape)
        places = [_indices("rows", rows, size[0]), _indices("cols", cols, size[1])]
        target = checked_tensor("values", values, ("entries",))
        if not len(places[0]) == len(places[1]) == len(target):
            raise InputError(
                f"rows, cols, values: must have the same length, got {len(places[0])}, "
                f"{len(places[1])} and {len(target)}. Pass one of each per observed entry."
            )
        flat = places[0] * size[1] + places[1]
        entries, first, which = np.unique(flat, return_index=True, return_inverse=True)
        disagree = target != target[first][which]
        if disagree.any():
            later = int(np.flatnonzero(disagree)[0])
            place = int(places[0][later]), int(places[1][later])
            raise InputError(
                f"values: must agree where an entry is observed twice, got "
                f"{target[first][which][later]:.6g} and {target[later]:.6g} for entry {place}. "
                "Keep one of them, or their mean."
            )
        object.__setattr__(self, "rows", _frozen(entries // size[1]))
        object.__setattr__(self, "cols", _frozen(entries % size[1]))
        merged = target[first]
        merged.setflags(write=False)
        object.__setattr__(self, "target", merged)
        object.__setattr__(self, "shape", size)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Which entries are observed."""
        observed = np.zeros(self.shape, dtype=bool)
        observed[self.rows, self.cols] = True
        return observed

    @cached_property
    def range_basis(self) -> None:
        """None: different entries can take any values."""
        return

    def measure(self, M: FloatArray) -> FloatArray:
        return np.asarray(M)[self.rows, self.cols]

    def adjoint(self, r: FloatArray) -> FloatArray:
        total = np.zeros(self.shape)
        total[self.rows, self.cols] = r  # each entry once, so nothing is overwritten
        return total


def _indices(name: str, values: Any, size: int) -> NDArray[np.intp]:
    shape = shape_of(values)
    if shape is not None and 0 in shape:
        raise no_measurement(name, f"shape {shape}")
    if shape is None or len(shape) != 1 or np.asarray(values).dtype.kind not in "iu":
        raise InputError(
            f"{name}: must be a vector of integers, got {values!r}. "
            "Pass one index per observed entry, counted from 0."
        )
    places = np.asarray(values).astype(np.intp)
    outside = (places < 0) | (places >= size)
    if outside.any():
        where = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"{name}: must lie in 0 .. {size - 1}, got {int(places[where])} at index {where}. "
            "Indices count from 0; check the shape."
        )
    return places


def _frozen(places: NDArray[np.intp]) -> NDArray[np.intp]:
    places.setflags(write=False)
    return places


@dataclass(frozen=True, eq=False, repr=False)
class SymmetrizedProblem(MatrixProblem):
    """The same measurements of the symmetric part (M + M^T)/2: all that W W^T shows of them."""

    base: MatrixProblem
    shape: tuple[int, int] = field(init=False)
    target: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        if self.base.shape[0] != self.base.shape[1]:
            raise InputError(
                f"problem: must measure square matrices to be symmetrized, got shape "
                f"{self.base.shape}. Use two different factors, U V^T."
            )
        object.__setattr__(self, "shape", self.base.shape)
        object.__setattr__(self, "target", self.base.target)

    def measure(self, M: FloatArray) -> FloatArray:
        return self.base.measure(0.5 * (M + M.T))

    def adjoint(self, r: FloatArray) -> FloatArray:
        R = self.base.adjoint(r)
        return np.asarray(0.5 * (R + R.T))
