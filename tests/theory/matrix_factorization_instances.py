"""Random instances of the claims on matrix factorization, for the walk over all claims.

Claims that follow a flow are drawn a few times here; test_matrix_factorization.py checks the bounds
on hundreds of starts whose flows are integrated together.
"""

import warnings

import numpy as np

from flowbias import MatrixCompletion, MatrixSensing
from flowbias.models.factorization import MatrixFactorization, SymmetricFactorization
from flowbias.models.lifted import NarrowWarning
from flowbias.theory import (
    KernelRegime,
    Reach,
    commuting_is_not_enough,
    completion_kernel_formula,
    diagonal_bias,
    gaussian_rows_give_delta,
    hyperbolic_rows,
    kernel_regime,
    linearized_flow,
    orthogonal_rows_give_delta,
    path_length,
    resembles_schatten,
    residual_decay,
    schatten_bias,
    symmetric_velocity,
    wide_gram,
    wide_kernel_regime,
)
from tests.limits.factor_flow import orthogonal
from tests.theory.starts import Instances, log_uniform


def sizes(rng):
    """(d1, d2) and a number of independent measurements."""
    d1, d2 = (int(size) for size in rng.integers(1, 4, 2))
    return (d1, d2), int(rng.integers(1, d1 * d2 + 1))


def measurements(rng, shape, count, spread=0.6):
    """(count, d1, d2) with singular values in exp(-+spread): flows that end soon."""
    left, _, right = np.linalg.svd(
        rng.standard_normal((count, shape[0] * shape[1])), full_matrices=False
    )
    values = log_uniform(rng, 0.3, 3.0) * np.exp(rng.uniform(-spread, spread, count))
    return ((left * values) @ right).reshape(count, *shape)


def with_error(model, X, error, rng):
    """The problem whose first error has this length, in a random direction."""
    direction = rng.standard_normal(len(X))
    start = np.tensordot(X, model.product, 2)
    return MatrixSensing(X, start + error * direction / np.linalg.norm(direction))


def within_reach(rng, shape=None, count=None, width=None):
    """(model, problem) for which the length of the path is bounded."""
    if shape is None:
        shape, count = sizes(rng)
    rows = sum(shape)
    width = int(rng.integers(rows, 20 * rows)) if width is None else width
    model = MatrixFactorization.gaussian(
        shape, width=width, scale=log_uniform(rng, 0.1, 1.0), rng=rng
    )
    X = measurements(rng, shape, count)
    reach = Reach.of(model, MatrixSensing(X, np.zeros(count)))
    largest = 0.5 * np.sqrt(reach.smallest) * reach.strength
    return model, with_error(model, X, largest * rng.uniform(0.02, 0.95), rng)


def in_kernel_regime(rng, shape=None, count=None):
    """(model, problem) within the hypotheses of Theorem 9."""
    if shape is None:
        shape, count = sizes(rng)
    X = measurements(rng, shape, count, spread=0.3)
    width = int(log_uniform(rng, 3e3, 1e6)) * sum(shape)
    model = MatrixFactorization.gaussian(
        shape, width=width, scale=log_uniform(rng, 1e-3, 0.1), rng=rng
    )
    regime = KernelRegime.of(model, MatrixSensing(X, np.zeros(count)))
    return model, with_error(model, X, regime.largest_error * rng.uniform(0.02, 1.0), rng)


def any_width(rng):
    """(model, problem), from far too narrow for the kernel regime to deep in it; W W^T as well."""
    if rng.random() < 0.5:
        return in_kernel_regime(rng)
    if rng.random() < 0.5:
        model, problem = within_reach(rng)
        return model, problem
    return symmetric(rng, int(log_uniform(rng, 3.0, 1e6)))


def symmetric(rng, width=None):
    """(W W^T, problem) with symmetric parts that are independent, near its kernel regime."""
    d = int(rng.integers(1, 4))
    count = int(rng.integers(1, d * (d + 1) // 2 + 1))
    left = measurements(rng, (1, d * (d + 1) // 2), count, spread=0.3)[:, 0]
    rows, cols = np.tril_indices(d)
    X = np.zeros((count, d, d))
    X[:, rows, cols] = left
    X = 0.5 * (X + X.transpose(0, 2, 1))
    width = int(log_uniform(rng, 3e3, 1e6)) * d if width is None else width
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowWarning)
        model = SymmetricFactorization.gaussian(
            d, width=width, scale=log_uniform(rng, 1e-3, 0.1), rng=rng
        )
    regime = KernelRegime.of(model, MatrixSensing(X, np.zeros(count)))
    error = max(regime.largest_error, 0.1 * regime.mu) * rng.uniform(0.02, 1.0)
    return model, with_error(model, X, error, rng)


def draw_path_length(rng):
    return path_length(*(within_reach(rng) if rng.random() < 0.7 else symmetric(rng)))


def diagonal_problem(rng, shape):
    p = min(shape)
    count = int(rng.integers(1, p + 1))
    P, Q = orthogonal(shape[0], rng)[:, :p], orthogonal(shape[1], rng)[:, :p]
    rows = measurements(rng, (1, p), count)[:, 0]
    X = np.stack([(P * row) @ Q.T for row in rows])
    return MatrixSensing(X, rng.standard_normal(count))


def draw_schatten_bias(rng):
    shape = tuple(int(size) for size in rng.integers(2, 5, 2))
    problem = diagonal_problem(rng, shape)
    return (schatten_bias(problem, rng.uniform(0.3, 1.0)),)


def draw_resembles_schatten(rng):
    shape, count = tuple(int(size) for size in rng.integers(2, 5, 2)), int(rng.integers(2, 5))
    problem = MatrixSensing(measurements(rng, shape, count), rng.standard_normal(count))
    return resembles_schatten(problem, log_uniform(rng, 0.1, 3.0))


def draw_diagonal_bias(rng):
    shape = tuple(int(size) for size in rng.integers(2, 5, 2))
    model = MatrixFactorization.gaussian(
        shape, width=int(rng.integers(5, 9)), scale=rng.uniform(0.3, 0.8), rng=rng
    )
    return (diagonal_bias(model, diagonal_problem(rng, shape)),)


def draw_hyperbolic_rows(rng):
    X = np.stack([np.diag(rng.standard_normal(3)) for _ in range(2)])
    model = MatrixFactorization.gaussian((3, 3), width=4, scale=0.6, rng=rng)
    return hyperbolic_rows(model, MatrixSensing(X, rng.standard_normal(2)), rng.uniform(0.1, 2.0))


def draw_linearized_flow(rng):
    model, problem = within_reach(rng)
    return (
        linearized_flow(model, problem, log_uniform(rng, 1e-3, 1.0), float(rng.integers(1, 3))),
    )


def draw_symmetric_velocity(rng):
    d, width, count = (int(size) for size in rng.integers(1, 6, 3))
    X = rng.standard_normal((count, d, d))
    problem = MatrixSensing(X, rng.standard_normal(count))
    return (symmetric_velocity(rng.standard_normal((d, width)), problem, rng.uniform(0.5, 2.0)),)


def observed(rng, shape):
    seen = rng.random(shape) < 0.6
    seen[0, 0] = True
    rows, cols = np.nonzero(seen)
    return MatrixCompletion(rows, cols, rng.standard_normal(len(rows)), shape)


def draw_completion_kernel_formula(rng):
    shape = tuple(int(size) for size in rng.integers(2, 6, 2))
    model = MatrixFactorization.gaussian(
        shape, width=int(log_uniform(rng, 6, 1e7)), scale=0.3, rng=rng
    )
    return (completion_kernel_formula(model, observed(rng, shape)),)


def draw_orthogonal_rows_give_delta(rng):
    d1, d2 = (int(size) for size in rng.integers(2, 5, 2))
    width = max(d1, d2) + int(rng.integers(0, 3))
    U, V = orthogonal(width, rng)[:d1], orthogonal(width, rng)[:d2]
    model = MatrixFactorization(rng.uniform(0.2, 2.0, (d1, 1)) * U, rng.uniform(0.2, 2.0) * V)
    return orthogonal_rows_give_delta(model, observed(rng, (d1, d2)))


def draw_gaussian_rows_give_delta(rng):
    # Large enough that the probability of failure, 4 exp(-15), cannot be met by chance.
    scale = log_uniform(rng, 1e-3, 1.0)
    width = int(log_uniform(rng, 30, 1e8))
    return (
        gaussian_rows_give_delta(
            MatrixFactorization.gaussian((30, 30), width=width, scale=scale, rng=rng), scale
        ),
    )


def draw_wide_gram(rng):
    scale = log_uniform(rng, 1e-3, 1.0)
    width = int(log_uniform(rng, 60, 1e8))
    model = MatrixFactorization.gaussian((30, 30), width=width, scale=scale, rng=rng)
    return (wide_gram(model, scale),)


def wide(rng):
    """(model, problem, scale) within the hypotheses of Corollary 10."""
    shape, count = (2, 2), int(rng.integers(1, 4))
    X = measurements(rng, shape, count, spread=0.1)
    target = rng.standard_normal(count)
    width = int(log_uniform(rng, 5e6, 1e9))
    top = float(np.linalg.svd(X.reshape(count, -1), compute_uv=False)[0])
    low = float(np.linalg.svd(X.reshape(count, -1), compute_uv=False)[-1])
    # The third condition on the width, read as one on the scale, with room to spare.
    least = 8.0 * np.linalg.norm(target) * top * (low**2 + 4 * top**2) / (width * low**4)
    alpha = float(np.sqrt(least)) * rng.uniform(1.0, 3.0)
    model = MatrixFactorization.gaussian(shape, width=width, scale=alpha, rng=rng)
    return model, MatrixSensing(X, target), alpha


MATRIX_FACTORIZATION_CLAIMS = {
    "commuting_is_not_enough": Instances(
        lambda rng: (commuting_is_not_enough(log_uniform(rng, 0.01, 30.0)),), 15
    ),
    "completion_kernel_formula": Instances(draw_completion_kernel_formula, 100),
    "diagonal_bias": Instances(draw_diagonal_bias, 8),
    "gaussian_rows_give_delta": Instances(draw_gaussian_rows_give_delta, 100),
    "hyperbolic_rows": Instances(draw_hyperbolic_rows, 15),
    "kernel_regime": Instances(lambda rng: kernel_regime(*any_width(rng)), 40),
    "linearized_flow": Instances(draw_linearized_flow, 30),
    "orthogonal_rows_give_delta": Instances(draw_orthogonal_rows_give_delta, 100),
    "path_length": Instances(draw_path_length, 20),
    "residual_decay": Instances(lambda rng: residual_decay(*any_width(rng)), 40),
    "resembles_schatten": Instances(draw_resembles_schatten, 12),
    "schatten_bias": Instances(draw_schatten_bias, 8),
    "symmetric_velocity": Instances(draw_symmetric_velocity, 200),
    "wide_gram": Instances(draw_wide_gram, 100),
    "wide_kernel_regime": Instances(lambda rng: wide_kernel_regime(*wide(rng)), 20),
}
