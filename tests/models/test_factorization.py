"""Matrix factorization: its starts, and the symmetric model inside the lift."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.ground.arguments import InputError
from flowbias.models import MatrixFactorization, NarrowWarning, SymmetricFactorization
from flowbias.potentials import Provides
from flowbias.problems.matrix import MatrixCompletion, MatrixSensing


@pytest.mark.parametrize("width", [8, 30])
def test_from_weights_rectangular(width):
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((5, width)), rng.standard_normal((3, width))
    model = MatrixFactorization(U, V)
    Z = np.vstack([U, V])
    assert (model.shape, model.width) == ((5, 3), width)
    assert_allclose(model.gram, Z @ Z.T, atol=1e-12)
    assert_allclose(model.product, U @ V.T, atol=1e-12)
    assert_allclose(model.root @ model.root.T, model.gram, atol=1e-12)


@pytest.mark.parametrize("width", [10**3, 10**6, 10**9])
def test_gaussian_sizes(width):
    # Rows have squared length scale^2 width; the product is smaller by sqrt(width).
    scale = 1e-3
    model = MatrixFactorization.gaussian((10, 7), width=width, scale=scale, rng=0)
    lengths = np.diag(model.gram) / (scale**2 * width)
    assert np.abs(lengths - 1.0).max() < 5.0 * np.sqrt(2.0 / width)
    assert_allclose(
        np.sqrt(np.mean(model.product**2)), scale**2 * np.sqrt(width), rtol=5.0 / np.sqrt(140)
    )
    assert (model.factors is None) == (width > 10**4)


@pytest.mark.parametrize(
    ("shape", "width", "expected"), [(4, None, 4), ((4, 4), 9, 9), ((3, 5), None, 5)]
)
def test_identity(shape, width, expected):
    model = MatrixFactorization.identity(shape, scale=0.3, width=width)
    rows, cols = (shape, shape) if isinstance(shape, int) else shape
    assert (model.shape, model.width) == ((rows, cols), expected)
    assert_allclose(model.product, 0.09 * np.eye(rows, cols), rtol=1e-15)
    assert_allclose(model.gram[:rows, :rows], 0.09 * np.eye(rows), rtol=1e-15)
    assert_allclose(model.root @ model.root.T, model.gram, rtol=1e-15)
    assert model.factors.U.shape == (rows, expected)


def test_identity_is_balanced_where_square():
    assert_allclose(MatrixFactorization.identity(5, scale=0.1).imbalance().eigenvalues, 0.0)


def test_identity_of_huge_width():
    model = MatrixFactorization.identity(5, scale=0.1, width=10**9)
    assert model.factors is None
    assert_allclose(model.product, 0.01 * np.eye(5), rtol=1e-15)


# --- the unbiased start ------------------------------------------------------------------------


def test_unbiased_from_weights():
    rng = np.random.default_rng(1)
    U0, V0 = rng.standard_normal((4, 6)), rng.standard_normal((3, 6))
    model = MatrixFactorization.unbiased(U0, V0, scale=0.1)
    assert model.width == 12
    assert_allclose(model.product, 0.0, atol=1e-17)
    assert_allclose(model.gram[:4, :4], 0.02 * U0 @ U0.T, rtol=1e-13, atol=1e-15)
    assert_allclose(model.gram[4:, 4:], 0.02 * V0 @ V0.T, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("width", [4, 40])
def test_unbiased_gaussian_has_one_law(width, keep):
    rng = np.random.default_rng(3)
    draws = 400
    grams = np.stack(
        [
            MatrixFactorization.unbiased_gaussian(
                (4, 3), width=width, scale_u=0.5, scale_v=0.1, rng=rng, keep_weights=keep
            ).gram
            for _ in range(draws)
        ]
    )
    assert np.abs(grams[:, :4, 4:]).max() < 1e-15  # M(0) = 0
    scales = np.repeat([0.5, 0.1], [4, 3])
    standard = grams / np.outer(scales, scales) / width
    # A doubled Wishart matrix of width/2: twice the variance of one of full width.
    spread = np.sqrt(2.0 * (1.0 + np.eye(7)) / width / draws)
    assert np.abs((standard.mean(axis=0) - np.eye(7)) / spread).max() < 5.0
    assert_allclose(standard[:, 0, 1].var() * width / 2.0, 1.0, rtol=0.6)
    assert_allclose(standard[:, -1, -1].var() * width / 4.0, 1.0, rtol=0.6)


def test_unbiased_gaussian_at_huge_width():
    model = MatrixFactorization.unbiased_gaussian((4, 3), width=10**9, scale=1e-3, rng=0)
    assert_allclose(model.product, 0.0, rtol=0, atol=0)
    assert_allclose(np.diag(model.gram), 1e3, rtol=1e-3)
    assert (model.width, model.provides) == (10**9, {Provides.GRAM})


# --- W W^T -------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 5, 9])
def test_the_symmetric_model_is_the_lift_of_equal_factors(width, recwarn):
    """Gradient descent on W, and on [U; V] with the lifted problem at `rate` times the step."""
    rng = np.random.default_rng(4)
    problem = MatrixSensing(rng.standard_normal((3, 5, 5)), rng.standard_normal(3))
    W = 0.4 * rng.standard_normal((5, width))
    model = MatrixFactorization.symmetric(W)
    lifted = model.lifted_problem(problem)
    assert bool(model.notes) == (width < 5)
    U, V = model.factors
    step = 0.01
    for _ in range(30):
        product = W @ W.T
        assert_allclose(U @ V.T, product, atol=1e-12)
        assert_allclose(lifted.measure(product), problem.measure(product), atol=1e-12)
        R = problem.adjoint(problem.measure(product) - problem.target)
        W = W - step * (R + R.T) @ W
        R = lifted.adjoint(lifted.measure(U @ V.T) - lifted.target)
        U, V = U - model.rate * step * R @ V, V - model.rate * step * R.T @ U
    assert np.abs(W @ W.T - model.product).max() > 0.01


def test_symmetric_gaussian_at_any_width():
    for width in (50, 10**9):
        model = SymmetricFactorization.gaussian(6, width=width, scale=1.0, rng=0)
        assert (model.shape, model.width) == ((6, 6), width)
        blocks = model.gram.reshape(2, 6, 2, 6)
        for i, j in [(0, 1), (1, 0), (1, 1)]:
            assert_allclose(blocks[i, :, j], blocks[0, :, 0], rtol=1e-12, atol=1e-12)
        assert np.abs(np.diag(model.gram) / width - 1.0).max() < 5.0 * np.sqrt(2.0 / width)


def test_two_different_factors_need_no_symmetrization():
    problem = MatrixCompletion([0, 1], [1, 2], [1.0, 2.0], (3, 4))
    model = MatrixFactorization.gaussian((3, 4), width=8, scale=0.1, rng=0)
    assert model.lifted_problem(problem) is problem
    assert model.rate == 1.0


# --- bad input ---------------------------------------------------------------------------------

GAUSS = {"width": 6, "scale": 0.1, "rng": 0}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MatrixFactorization.gaussian((3,), **GAUSS), r"shape: must be two integers >= 1"),
        (lambda: MatrixFactorization.gaussian((3, 0), **GAUSS), r"shape: .* got \(3, 0\)"),
        (lambda: MatrixFactorization.gaussian((3, 3), **{**GAUSS, "width": 0}), "width: .* got 0"),
        (lambda: MatrixFactorization.gaussian((3, 3), **{**GAUSS, "width": 1.5}), "width: .* 1.5"),
        (
            lambda: MatrixFactorization.gaussian((3, 3), **{**GAUSS, "scale": 0}),
            "saddle.*Start sma",
        ),
        (lambda: MatrixFactorization(np.zeros((3, 3)), np.zeros((3, 3))), "saddle.*Start small"),
        (lambda: MatrixFactorization.identity(3, scale=0.0), "saddle"),
        (lambda: MatrixFactorization.identity(3, scale=-1.0), "scale: must be a finite .* got -1"),
        (lambda: MatrixFactorization.identity("3", scale=1.0), "shape: must be an integer >= 1"),
        (lambda: MatrixFactorization.identity(10**400, scale=1.0), "shape: must be <= .* 1329 bit"),
        (
            lambda: MatrixFactorization.gaussian((3, 3), **{**GAUSS, "width": 10**400}),
            "width: must be an integer from 1 to 1e300",
        ),
        (lambda: MatrixFactorization.identity((3, 5), scale=1.0, width=4), "width: .* 5 to hold"),
        (
            lambda: MatrixFactorization.unbiased(np.eye(3), np.ones((3, 2))),
            "V: must have as many c",
        ),
        (lambda: MatrixFactorization.unbiased(0 * np.eye(3), 0 * np.eye(3)), "saddle"),
        (
            lambda: MatrixFactorization.unbiased_gaussian((3, 3), **{**GAUSS, "width": 7}),
            "width: must be even for a doubled start, got 7",
        ),
        (lambda: MatrixFactorization.symmetric(np.ones(3)), r"W: must have 2 dim.*\(d, width\)"),
        (lambda: MatrixFactorization.symmetric(np.zeros((3, 3))), "saddle"),
        (lambda: SymmetricFactorization.gaussian(0, **GAUSS), "d: must be an integer >= 1, got 0"),
        (
            lambda: MatrixFactorization.gaussian((3, 4), **GAUSS).lifted_problem(
                MatrixCompletion([0], [0], [1.0], (4, 3))
            ),
            r"problem: must measure matrices of the model's shape \(3, 4\), got \(4, 3\)",
        ),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_a_narrow_factorization_says_which_results_no_longer_apply():
    with pytest.warns(NarrowWarning, match=r"width: 2 is below .* = 3.*Theorems 4 and 9"):
        model = MatrixFactorization.gaussian((4, 3), width=2, scale=0.1, rng=0)
    assert np.linalg.matrix_rank(model.product) == 2
    assert len(model.notes) == 1
