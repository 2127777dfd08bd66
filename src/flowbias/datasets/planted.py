"""Problems whose answer is planted: sparse regression, low-rank completion, points of a teacher.

Sparse regression, on which scale decides generalization [woodworth2020, Section 4]:

    x_n ~ N(0, I_d),   y_n ~ N(<w_true, x_n>, noise_var),   w_true has r entries 1/sqrt(r), else 0

The small-scale (l1) limit generalizes from the order of r log(d) samples; the large-scale (l2)
limit needs the order of d.

Low-rank completion, some entries of a planted matrix [woodworth2020, Figure 5]:

    truth = A B^T,   A (rows, rank) and B (columns, rank) with N(0, 1) entries,

seen at `observed` places that are drawn without repetition. The small-scale (nuclear norm) limit
of a factorization recovers the truth from far fewer places than there are entries; the large-scale
(Frobenius norm) limit leaves unseen entries as they start.

Points on the unit circle, labelled by a small network [woodworth2020, B.2, Figure 6 (a, b)]:

    x_n uniform on the unit sphere of R^d (d = 2: the circle),   y = v^T max(U x, 0),

U (units, d) and v (units,) drawn uniformly by He's rule, times `scale` in each layer. The paper
takes n = 10, d = 2 and 3 units; it does not say how the teacher is drawn nor how test points are:
here from the same law as the training points.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import (
    InputError,
    read_count,
    read_nonnegative,
    read_positive,
    read_rng,
    read_size,
)
from flowbias.ground.typing import FloatArray


class SparseRegression(NamedTuple):
    """Samples X (n, d), targets y (n,), and the planted predictor w_true (d,) of unit norm."""

    X: FloatArray
    y: FloatArray
    w_true: FloatArray

    def population_error(self, w: FloatArray) -> FloatArray:
        """||w - w_true||^2 of each w: the expected squared error on new samples, less the noise."""
        return np.asarray(np.sum(np.square(w - self.w_true), axis=-1))


def sparse_regression(
    n: int = 100,
    d: int = 1000,
    sparsity: int = 5,
    noise_var: float = 0.01,
    rng: int | np.random.Generator = 0,
) -> SparseRegression:
    """Draw n samples in d dimensions from a planted predictor with `sparsity` entries.

    The support is drawn at random. For one integer `rng` the problems are nested: a larger n
    appends rows, a larger sparsity adds to the support, and noise_var only rescales the noise, so
    that along a sweep only what is swept changes.

    Parameters
    ----------
    n, d : samples and features
    sparsity : entries of the truth that are not zero, each 1/sqrt(sparsity)
    noise_var : variance of the noise in y
    rng : seed or generator

    Returns
    -------
    SparseRegression, which unpacks to X, y, w_true

    Raises
    ------
    InputError for numbers that make no problem

    >>> X, y, w_true = fb.datasets.sparse_regression(n=20, d=50, sparsity=5, noise_var=0.0, rng=0)
    >>> X.shape, int(np.count_nonzero(w_true)), bool(np.allclose(X.dot(w_true), y))
    ((20, 50), 5, True)
    """
    read_size("n", n, "the number of samples to draw")
    read_size("d", d, "the number of features")
    read_count("sparsity", sparsity, "Pass the number of non-zero entries.")
    if sparsity > d:
        raise InputError(
            f"sparsity: must be <= d = {d}, got {sparsity}. Lower sparsity or raise d."
        )
    read_nonnegative("noise_var", noise_var, "Pass the variance of the noise, or 0 for none.")
    # One stream per quantity: drawing more of one leaves the others as they were.
    sample_rng, support_rng, noise_rng = read_rng(rng).spawn(3)
    X = sample_rng.standard_normal((n, d))
    w_true = np.zeros(d)
    w_true[support_rng.permutation(d)[:sparsity]] = 1.0 / math.sqrt(sparsity)
    y = X @ w_true + math.sqrt(noise_var) * noise_rng.standard_normal(n)
    return SparseRegression(X, y, w_true)


class LowRankCompletion(NamedTuple):
    """truth[rows, cols] = values: what is seen of a matrix of low rank, and all of it."""

    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    values: FloatArray
    truth: FloatArray


def low_rank_completion(
    shape: tuple[int, int] = (10, 10),
    rank: int = 1,
    observed: int = 60,
    rng: int | np.random.Generator = 0,
) -> LowRankCompletion:
    """Draw a matrix of `shape` and `rank` and the places at which it is seen.

    For one integer `rng` the problems are nested: a larger `observed` adds places, a larger rank
    adds terms to the truth, so that along a sweep only what is swept changes.

    Parameters
    ----------
    shape, rank : of the matrix
    observed : how many entries are seen
    rng : seed or generator

    Returns
    -------
    LowRankCompletion

    Raises
    ------
    InputError for numbers that make no problem

    >>> rows, cols, values, truth = fb.datasets.low_rank_completion((5, 4), observed=12, rng=0)
    >>> truth.shape, bool(np.all(truth[rows, cols] == values))
    ((5, 4), True)
    """
    height, width = _require_shape(shape)
    read_count("rank", rank, "Pass the rank of the planted matrix.")
    if rank > min(height, width):
        raise InputError(
            f"rank: must be <= the smaller side {min(height, width)}, got {rank}. "
            "Lower rank or enlarge shape."
        )
    read_count("observed", observed, "Pass the number of entries to see.")
    if observed > height * width:
        raise InputError(
            f"observed: must be <= {height * width}, the number of entries, got {observed}. "
            "Places do not repeat: lower observed or enlarge shape."
        )
    # One stream per quantity: drawing more of one leaves the others as they were.
    left_rng, right_rng, place_rng = read_rng(rng).spawn(3)
    left, right = left_rng.standard_normal((rank, height)), right_rng.standard_normal((rank, width))
    truth = left.T @ right
    rows, cols = np.divmod(place_rng.permutation(height * width)[:observed], width)
    return LowRankCompletion(rows, cols, truth[rows, cols], truth)


def _require_shape(shape: object) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise InputError(f"shape: must be two integers >= 1, got {shape!r}. Pass (rows, columns).")
    for side in shape:
        read_size("shape", side, "(rows, columns)")
    return int(shape[0]), int(shape[1])


class CircleTeacher(NamedTuple):
    """Training points X (n, d) and y (n,), test points likewise, and the teacher's weights."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    inner: FloatArray
    outer: FloatArray

    def teacher(self, X: FloatArray) -> FloatArray:
        """What the teacher says about any points, (n, d) to (n,)."""
        return np.maximum(np.asarray(X) @ self.inner.T, 0.0) @ self.outer


def circle_teacher(
    n: int = 10,
    d: int = 2,
    units: int = 3,
    n_test: int = 1000,
    scale: float = 1.0,
    rng: int | np.random.Generator = 0,
) -> CircleTeacher:
    """Draw n training and n_test test points, and a teacher with `units` hidden units.

    For one integer `rng` the problems are nested: a larger n or n_test appends points, and neither
    changes the teacher, so that along a sweep only what is swept changes.

    Parameters
    ----------
    n, n_test : training and test points
    d : their dimension
    units : hidden units of the teacher
    scale : of the teacher's outputs
    rng : seed or generator

    Returns
    -------
    CircleTeacher

    Raises
    ------
    InputError for numbers that make no problem

    >>> data = fb.datasets.circle_teacher(n=10, d=2, rng=0)
    >>> data.X.shape, data.y.shape
    ((10, 2), (10,))
    """
    read_size("n", n, "the number of training points")
    read_count("d", d, "Pass the dimension; 2 is the circle.", at_least=2)
    read_size("d", d, "the dimension; 2 is the circle")
    read_size("units", units, "the teacher's hidden units")
    read_size("n_test", n_test, "the number of test points")
    scale = read_positive("scale", scale, "It multiplies the teacher's weights; 1 is He's rule.")
    # One stream per quantity: drawing more of one leaves the others as they were.
    train_rng, test_rng, inner_rng, outer_rng = read_rng(rng).spawn(4)
    inner = scale * inner_rng.uniform(-1.0, 1.0, (units, d)) * math.sqrt(6.0 / d)
    outer = scale * outer_rng.uniform(-1.0, 1.0, units) * math.sqrt(6.0 / units)
    X, X_test = _on_sphere(train_rng, n, d), _on_sphere(test_rng, n_test, d)
    empty = CircleTeacher(X, np.empty(n), X_test, np.empty(n_test), inner, outer)
    with np.errstate(over="ignore", invalid="ignore"):
        y, y_test = empty.teacher(X), empty.teacher(X_test)
    if not (np.isfinite(y).all() and np.isfinite(y_test).all()):
        raise InputError(f"scale: must leave outputs that are doubles, got {scale:g}. Lower it.")
    return empty._replace(y=y, y_test=y_test)


def _on_sphere(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    points = rng.standard_normal((n, d))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))
