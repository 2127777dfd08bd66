"""Points on the unit circle, labelled by a small network.  [woodworth2020, B.2, Figure 6 (a, b)]

    x_n uniform on the unit sphere of R^d (d = 2: the circle),   y = v^T max(U x, 0),

U (units, d) and v (units,) drawn uniformly by He's rule, times `scale` in each layer. The paper
takes n = 10, d = 2 and 3 units; it does not say how the teacher is drawn nor how test points are:
here from the same law as the training points.
"""

import math
from numbers import Real
from typing import NamedTuple

import numpy as np

from flowbias.datasets.sparse_regression import _generator, _require_integer
from flowbias.ground.typing import FloatArray


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
    _require_integer("n", n, at_least=1, fix="Pass the number of training points.")
    _require_integer("d", d, at_least=2, fix="Pass the dimension; 2 is the circle.")
    _require_integer("units", units, at_least=1, fix="Pass the teacher's hidden units.")
    _require_integer("n_test", n_test, at_least=1, fix="Pass the number of test points.")
    _require_scale(scale)
    # One stream per quantity: drawing more of one leaves the others as they were.
    train_rng, test_rng, inner_rng, outer_rng = _generator(rng).spawn(4)
    inner = scale * inner_rng.uniform(-1.0, 1.0, (units, d)) * math.sqrt(6.0 / d)
    outer = scale * outer_rng.uniform(-1.0, 1.0, units) * math.sqrt(6.0 / units)
    X, X_test = _on_sphere(train_rng, n, d), _on_sphere(test_rng, n_test, d)
    empty = CircleTeacher(X, np.empty(n), X_test, np.empty(n_test), inner, outer)
    return empty._replace(y=empty.teacher(X), y_test=empty.teacher(X_test))


def _on_sphere(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    points = rng.standard_normal((n, d))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def _require_scale(scale: object) -> None:
    # The chained comparison also turns away nan.
    if isinstance(scale, bool) or not isinstance(scale, Real) or not 0.0 < float(scale) < math.inf:
        raise ValueError(
            f"scale: must be a finite number > 0, got {scale!r}. It multiplies the teacher's "
            "weights; 1 is He's rule."
        )
