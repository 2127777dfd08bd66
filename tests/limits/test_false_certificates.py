"""Answers that small residuals would certify, and that are wrong: each is right now, or refused."""

import numpy as np
import pytest
from mpmath import mp
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.certificates.exact_limit import exact_limit
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


@pytest.mark.parametrize("unit", [1e-30, 1e-3, 1.0, 1e20])
@pytest.mark.parametrize("entry", [1.0, 1e-4])
@pytest.mark.parametrize("depth", [2, 3])
def test_what_rounding_makes_of_a_row_asks_nothing_of_rows_in_small_units(depth, entry, unit):
    rng = np.random.default_rng(depth)
    X, model = rng.standard_normal((2, 5)), fb.DiagonalNet(depth, 0.5)
    X[0, -1] *= entry  # rounding is that of the row, not of its small entries
    y = X @ rng.standard_normal(5)
    alone = fb.limit(model, X, y).w
    units = np.array([1e13, unit, 1e13 / 3e7])
    repeated = units[:, None] * X[[0, 1, 0]], units * y[[0, 1, 0]]
    # 1e-12: thousands of roundings of the rows, which are well apart.
    assert_allclose(fb.limit(model, *repeated).w, alone, rtol=1e-12)
    rich = fb.rich_limit(model, X, y).w
    assert_allclose(fb.rich_limit(model, *repeated).w, rich, rtol=1e-12, atol=1e-12)


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


def test_a_tie_of_centred_integers_is_kept():
    """Means of integers round; the tie between columns, none of which repeats another, must not."""
    X = np.array(
        [
            [1, 1, 2, 0, -1, -2, 2, 0, 2],
            [2, 0, 1, -2, -1, -2, 3, -1, 3],
            [0, 1, -1, 1, -3, -1, 3, -2, 3],
            [0, 0, -1, 0, -1, 0, 1, -1, 1],
            [0, 0, 2, 0, 2, 0, -2, 2, -2],
            [1, 1, 1, 0, -2, -2, 3, -1, 3],
        ],
        dtype=float,
    )
    y = np.array([0.66049554, 1.1209837, 5.18701284, 2.03480366, -4.06960733, 2.6952992])
    fitted = fb.estimators.ImplicitBiasRegressor(depth=4, scale=2.8e-10).fit(X, y)
    # Six times the centred data are integers, and fit the same: their limit is rounded nowhere.
    whole = 6.0 * X - X.sum(axis=0), 6.0 * y - y.sum()
    assert_allclose(fitted.coef_, fb.limit(fb.DiagonalNet(4, 2.8e-10), *whole).w, atol=1e-6)


def test_columns_that_differ_in_the_last_digits_of_centred_data():
    """2e-14 beside 1 is lost to doubles less their mean, and decides between two columns."""
    X = np.array([[2e-14, 5e-14, 2.0, 2.0], [1.0, 1.0, -2.0, -2.0]])
    y = np.array([-4.0, -2.0])
    fitted = fb.estimators.ImplicitBiasRegressor(depth=5, scale=8.4e-5).fit(X, y)
    with mp.workdps(60):
        row = [mp.mpf(a) - mp.mpf(b) for a, b in X.T.tolist()]
        assert_allclose(fitted.coef_, _of_one_row(row, mp.mpf(-2), 5, mp.mpf(8.4e-5)), rtol=1e-9)


def _of_one_row(row, y, depth, start):
    """w of one equation by bisection in its only dual: w = (c - x nu)^-k - (c + x nu)^-k."""
    k, c = mp.mpf(depth) / (depth - 2), start ** (2 - depth)
    low, high = (sign * c / max(map(abs, row)) for sign in (-1, 1))
    for _ in range(400):
        nu = (low + high) / 2
        w = [(c - x * nu) ** -k - (c + x * nu) ** -k for x in row]
        low, high = (nu, high) if mp.fdot(row, w) < y else (low, nu)
    return [float(value) for value in w]


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 8, 9, 14, 17])
def test_rows_that_rounding_has_spread_are_left_out_together(seed):
    """Of the noise in X, here on both sides of its rounding, nothing is fitted."""
    rng = np.random.default_rng(seed)
    clean = rng.standard_normal((9, 2)) @ rng.standard_normal((2, 6))
    X = clean + 3e-15 * rng.standard_normal(clean.shape)
    w = rng.standard_normal(6)
    found = fb.min_norm(X, X @ w)
    assert found.status is fb.Status.PROJECTED
    # 1e-12: the noise, times the condition of the clean rows.
    assert_allclose(found.w, np.linalg.pinv(clean, rcond=1e-10) @ (clean @ w), atol=1e-12)


@pytest.mark.parametrize(
    ("X", "y", "w"),
    [
        ([[1.0]], [-1.0], [0.0]),  # the wrong side: nothing is fitted
        ([[1.0, 2.0]], [0.0], [0.0, 0.0]),  # on the edge, where the dual is at infinity
        ([[1.0, 1.0], [0.0, 1.0]], [1.0, 0.0], [1.0, 0.0]),  # on an edge of its own
        ([[1.0, 1.0], [0.0, 1.0]], [2.0, -1.0], [2.0, 0.0]),  # outside
        ([[1.0, 0.0], [0.0, 0.0]], [3.0, 1.0], [3.0, 0.25]),  # what X does not see stays
    ],
)
@pytest.mark.parametrize("depth", [2, 3, 7.5])
def test_cones_and_their_edges(X, y, w, depth):
    start = np.where(np.any(np.array(X) != 0.0, axis=0), 0.5, 0.25 ** (1.0 / depth))
    found = fb.limit(fb.DiagonalNet.from_weights(start, np.zeros(len(start)), depth), X, y)
    assert_allclose(found.w, w, atol=1e-12)


def test_a_large_biased_start_that_is_to_fit_nothing():
    found = fb.limit(fb.DiagonalNet.from_weights([5.9, 7.6], [3.2, 4.5]), [[0.0, -2.0]], [0.0])
    assert_allclose(found.w, [5.9**2 - 3.2**2, 0.0], atol=1e-12)


@pytest.mark.parametrize("depth", [3, 4, 6])
def test_strongly_biased_deep_starts(depth):
    """Newton's method comes all the way from weights over four decades to a w of nearly zero."""
    rng = np.random.default_rng(depth)
    plus, minus = 10.0 ** rng.uniform(-2, 2, (2, 6))
    model = fb.DiagonalNet.from_weights(plus, minus, depth)
    X, y = rng.standard_normal((5, 6)), np.zeros(5)
    found = exact_limit(X, y, model.potential, model.shift, np.zeros(5), np.zeros(6))
    assert_allclose(X @ found.w, y, atol=1e-12 * np.abs(found.w).max())


@pytest.mark.parametrize("columns", [[0, 1], [0, 1, 1]])
def test_what_rows_of_zeros_ask_for_is_no_size_of_the_others(columns):
    """1e99 times the outputs that can be fitted, which are fitted all the same."""
    X = 1e-99 * np.array([[0.0, 0.0], [1.0, 2.0], [1.0, -1.0]])[:, columns]
    y = np.array([1.0, 3e-99, 0.0])
    model = fb.DiagonalNet(5, 0.1, w0=np.arange(1.0, 1.0 + len(columns)))
    found = fb.limit(model, X, y)
    assert found.status is fb.Status.PROJECTED
    assert_allclose(found.w, fb.limit(model, X[1:], y[1:]).w, rtol=1e-9)


def test_a_refusal_says_which_measure_is_too_large():
    with pytest.raises(fb.SolveError, match=r"feasibility \S+ where 1e-30 is allowed"):
        fb.limit(fb.DiagonalNet(2, 0.1), [[1.0, 2.0]], [1.0], tol=1e-30)
