"""Answers that small residuals would certify, and that are wrong: each is right now, or refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from tests.exact import distance
from tests.exact import exact_limit as many_digits

TIED = [[1, -2, 1, -2], [-1, 1, -1, 1], [2, 1, 2, 1]], [1, -1, 2]


@pytest.mark.parametrize(("depth", "scale"), [(10, 0.01), (3, 1e-16), (5, 1e-4), (30, 1e-8)])
def test_equal_columns_share_evenly(depth, scale):
    model = fb.DiagonalNet(depth, scale)
    by_path = fb.limit_path(model, *TIED, log_scales=[0.0, np.log(scale)])[-1]
    for found in (fb.limit(model, *TIED), by_path, fb.rich_limit(model, *TIED)):
        assert found.status.ok
        assert_allclose(found.w, [0.5, 0.0, 0.5, 0.0], atol=1e-12)


@pytest.mark.parametrize("depth", [3, 5, 10])
def test_repeated_features_of_centred_data_share_evenly(depth):
    """Centring makes the rows dependent, and its rounding must not break the tie."""
    rng = np.random.default_rng(depth)
    X = rng.integers(-3, 4, (6, 5)).astype(float)
    X, y = np.hstack([X, X[:, :2]]), rng.standard_normal(6)
    fitted = fb.estimators.ImplicitBiasRegressor(depth=depth, scale=1e-3).fit(X, y)
    assert_allclose(fitted.coef_[:2], fitted.coef_[5:], atol=1e-8)


@pytest.mark.parametrize("depth", [5, 10, 20])
def test_another_minimizer_of_the_same_norm_is_not_certified(depth):
    model = fb.DiagonalNet(depth, 1e-4)
    found = fb.limit(model, [[1.0, 1.0]], [1.0])
    wrong = fb.certify([[1.0, 1.0]], [1.0], [1.0, 0.0], found.dual, model.potential)
    assert not wrong.ok
    assert wrong.error_bound >= np.hypot(0.5, 0.5) - 1e-9
    assert wrong.gap < 1e-6  # nothing else says so


@pytest.mark.parametrize("above", [2.0**-51, 1e-14, 1e-12, 1e-9, 1e-7, 1e-4])
def test_depths_just_above_two(above):
    """k = D/(D-2) is huge, and k x is what counts, however small x."""
    depth = 2.0 + above
    model = fb.DiagonalNet(depth, 1.0)
    found = fb.limit(model, [[1.0, 2.0]], [1.0])
    error = distance(found.w, many_digits(model, [[1.0, 2.0]], [1.0], found.dual))
    assert error <= found.certificate.error_bound <= 1e-12
    # Depth is a continuous matter.
    near = fb.limit(fb.DiagonalNet(2, 1.0), [[1.0, 2.0]], [1.0])
    assert_allclose(found.w, near.w, rtol=10 * above + 1e-12)


@pytest.mark.parametrize("depth", [2, 3])
def test_columns_in_units_far_apart(depth):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((4, 8)) * 10.0 ** rng.integers(-12, 13, 8)
    model, y = fb.DiagonalNet(depth, 1.0), rng.standard_normal(4)
    found = fb.limit(model, X, y)
    assert found.status is fb.Status.CERTIFIED
    error = distance(found.w, many_digits(model, X, y, found.dual, dps=80))
    assert error <= found.certificate.error_bound <= 1e-6 * np.linalg.norm(found.w)


@pytest.mark.parametrize("y", [0.0, 1e-150, 1e-8, 1e-6, 1.0])
def test_biased_starts_and_outputs_of_any_size(y):
    found = fb.limit(fb.DiagonalNet.from_weights([1, 2], [2, 1]), [[1, 0.5]], [y])
    assert found.status is fb.Status.CERTIFIED
    assert_allclose([1, 0.5] @ found.w, y, atol=1e-14)


@pytest.mark.parametrize(
    ("model", "X"),
    [
        (fb.DiagonalNet.from_weights([1, 0], [1, 0]), [[1, 2]]),
        (fb.DiagonalNet.from_weights([1], [0]), [[1]]),
        (fb.DiagonalNet.from_weights([1, 1, 0], [1, 1, 0], depth=3), [[0, 0, 1], [0, 0, 2]]),
    ],
    ids=["frozen", "one-sided", "what moves is not seen"],
)
def test_nothing_to_fit(model, X):
    found = fb.limit(model, X, np.zeros(len(X)))
    assert found.status.ok
    assert_allclose(X @ found.w, 0.0, atol=1e-15)


def test_rows_that_rounding_tells_apart_are_said_to_be_dependent():
    X = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.1, 0.5, 0.7]])
    X[1] *= 1.0 + 2.0**-52
    found = fb.limit(fb.DiagonalNet(2, 0.1), X, X @ [1.0, -1.0, 2.0])
    assert found.status is fb.Status.PROJECTED
    assert_allclose(X @ found.w, X @ [1.0, -1.0, 2.0], rtol=1e-12)


def test_what_is_proved_to_a_few_digits_says_how_many():
    """A problem that is too large for balls, with rows that nearly repeat each other."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2000))
    X[1] = X[0] + 1e-9 * X[1]
    found = fb.limit(fb.DiagonalNet(2, 0.1), X, rng.standard_normal(150), throw=False)
    assert found.status in (fb.Status.FEW_DIGITS, fb.Status.STALLED)
    if found.status is fb.Status.FEW_DIGITS:
        assert f"about {found.certificate.digits} digits" in found.message


def test_derivatives_are_those_of_the_limit_in_balls():
    """Not of the point that was refused, where one was: rounding decides that."""
    model, X, y = fb.DiagonalNet.from_weights([1, 2], [2, 1]), [[1, 0.5]], 1e-8
    found = fb.limit(model, X, [y])
    ahead, behind = (fb.limit(model, X, [y + step]).w for step in (1e-5, -1e-5))
    slope = (ahead - behind) / 2e-5
    assert_allclose(found.sensitivity().dw_dy[:, 0], slope, rtol=1e-7)
