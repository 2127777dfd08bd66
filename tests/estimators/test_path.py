"""Many scales at once: each point is the limit there."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, implicit_bias_path

RNG = np.random.default_rng(11)
X = RNG.standard_normal((6, 14))
Y = X[:, 1] - X[:, 4] + 0.1 * RNG.standard_normal(6)
LOGS = np.linspace(1.0, -8.0, 7)


@pytest.mark.parametrize("start", [{"depth": 2}, {"depth": 3}, {"shape": 0.5}], ids=repr)
def test_every_point_is_the_limit(start):
    logs, coefs, info = implicit_bias_path(X, Y, log_scales=LOGS, **start)
    assert_array_equal(logs, LOGS)
    assert info["certified"].all()
    for j, log_scale in enumerate(logs):
        one = ImplicitBiasRegressor(**start, log_scale=log_scale, fit_intercept=False).fit(X, Y)
        # Both certified; they start Newton's method from different points.
        assert_allclose(coefs[:, j], one.coef_, atol=1e-9)
        assert_allclose(info["dual_coefs"][:, j], one.dual_coef_, rtol=1e-6)
        assert info["certificates"][j].ok


def test_shapes_for_several_outputs():
    both = np.column_stack([Y, 2.0 * Y])
    _, coefs, info = implicit_bias_path(X, both, log_scales=LOGS)
    assert coefs.shape == (2, 14, 7)
    assert info["dual_coefs"].shape == (2, 6, 7)
    assert info["n_iters"].shape == (7,)
    assert [len(at) for at in info["certificates"]] == [2] * 7
    _, single, _ = implicit_bias_path(X, Y, log_scales=LOGS)
    assert_allclose(coefs[0], single, atol=1e-12)


def test_any_order_is_put_in_order():
    logs, coefs, _ = implicit_bias_path(X, Y, log_scales=LOGS[::-1])
    assert_array_equal(logs, LOGS)
    assert_allclose(coefs, implicit_bias_path(X, Y, scales=np.exp(LOGS))[1], atol=1e-12)


def test_the_default_goes_from_one_regime_to_the_other():
    logs, coefs, info = implicit_bias_path(X, Y, n_scales=20)
    assert len(logs) == 20
    assert info["certified"].all()
    least = np.linalg.lstsq(X, Y)[0]
    l1 = np.abs(fb.basis_pursuit(X, Y).w).sum()
    # [woodworth2020, Theorem 2]: at scale^2 = 10 ||w|| within a factor 1 + e, e = 2.1e-4.
    assert np.linalg.norm(coefs[:, 0]) <= (1.0 + 2.1e-4) * np.linalg.norm(least)
    assert np.abs(coefs[:, -1]).sum() < 1.1 * l1
    assert np.abs(coefs[:, 0]).sum() > 1.2 * l1


@pytest.mark.parametrize("start", [{"depth": 2}, {"depth": 4}, {"shape": 0.8}], ids=repr)
def test_the_default_follows_a_change_of_units(start):
    logs, coefs, _ = implicit_bias_path(X, Y, n_scales=5, **start)
    depth = start.get("depth", 2)
    moved, scaled, _ = implicit_bias_path(10.0 * X, 1e3 * Y, n_scales=5, **start)
    assert_allclose(moved - logs, np.log(100.0) / depth, rtol=1e-10)
    assert_allclose(scaled, 100.0 * coefs, rtol=1e-7, atol=1e-9)


def test_an_uneven_start_counts_as_a_larger_one():
    """alpha^2 (1 + s^2) / (1 - s^2) decides, so the default grids give the same limits."""
    even = implicit_bias_path(X, Y, n_scales=5)[1]
    assert_allclose(implicit_bias_path(X, Y, n_scales=5, shape=0.8)[1], even, atol=1e-9)


@settings(max_examples=10)
@given(tall=st.booleans(), sparse=st.booleans(), outputs=st.integers(1, 2))
def test_the_grid_starts_at_the_least_norm(tall, sparse, outputs):
    A = (np.vstack([X] * 3) if tall else X)[:, : 4 if tall else None]
    b = np.column_stack([np.resize(Y, len(A)) * (j + 1) for j in range(outputs)])
    logs, _, _ = implicit_bias_path(scipy.sparse.csr_array(A) if sparse else A, b, n_scales=1)
    size = max(np.linalg.norm(np.linalg.lstsq(A, column)[0]) for column in b.T)
    assert_allclose(logs[0], 0.5 * np.log(10.0 * size), rtol=1e-8)


def test_nothing_to_learn():
    _, coefs, info = implicit_bias_path(np.zeros((3, 2)), [1.0, 2.0, 3.0], n_scales=4)
    assert_array_equal(coefs, np.zeros((2, 4)))
    assert info["certified"].all()


def test_what_is_not_certified_is_named():
    with pytest.warns(
        ConvergenceWarning, match=r"3 of 3 limits are not certified, at log_scale -2"
    ):
        _, _, info = implicit_bias_path(X, Y, log_scales=[0.0, -1.0, -2.0], tol=1e-30)
    assert not info["certified"].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        implicit_bias_path(X, Y, log_scales=[0.0, -1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scales": [1.0], "log_scales": [0.0]}, "scales: must not be given together"),
        ({"scales": [1.0, -1.0]}, "scales: must be > 0 and finite, got -1"),
        ({"log_scales": []}, "log_scales: must be a non-empty list"),
        ({"log_scales": [np.inf]}, "log_scales: must be a non-empty list of finite"),
        ({"n_scales": 0}, "n_scales: must be a whole number >= 1"),
        ({"n_scales": 2.5}, "n_scales: must be a whole number >= 1"),
        ({"eps": 2.0}, "eps: must lie in"),
        ({"depth": 3, "shape": 0.1}, "shape: must be 0 unless depth is 2"),
        ({"tol": -1.0}, "tol: must be a positive number"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(fb.InputError, match=message):
        implicit_bias_path(X, Y, **arguments)


def test_the_grid_follows_data_whose_squares_leave_the_double_range():
    plain = implicit_bias_path(X, Y, n_scales=3)[0]
    large = implicit_bias_path(1e160 * X, 1e160 * Y, n_scales=3)[0]
    assert_allclose(large, plain, rtol=1e-12)
