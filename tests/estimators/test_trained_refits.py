"""Exact leave-one-out with a trained bias: warm-started, against refits of the regressor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor
from flowbias.estimators.inference.leave_one_out import refits_of
from flowbias.estimators.inference.linear_response import linear_response
from flowbias.estimators.inference.warm_newton import LinearBranch, with_bias
from flowbias.estimators.inference.weighted_rows import WeightedRows
from flowbias.estimators.intercepts.trained_bias import TrainedBias
from flowbias.limits.interior_point import Branches, ExponentialResponse, PowerResponse


def refits_with_trained_bias(model, X, y):
    n, d = X.shape
    rows = WeightedRows(np.column_stack([X, np.ones(n)]), y, None, np.zeros(d), np.ones(n), True)
    both = TrainedBias.of(model, d)
    return refits_of(linear_response(both, rows), 1e-10)


def by_refitting(regressor, X, y, weight=None):
    """The definition, by the regressor itself."""
    weight = np.ones(len(y)) if weight is None else weight
    residuals = []
    for i in range(len(y)):
        others = weight.copy()
        others[i] = 0.0
        residuals.append(y[i] - regressor.fit(X, y, others).predict(X[[i]])[0])
    return np.array(residuals)


def small_data():
    """n = 5 and d = 22, with a bias to learn."""
    rng = np.random.default_rng(9)
    n, d = int(rng.integers(3, 10)), int(rng.integers(2, 25))
    return rng.standard_normal((n, d)) + 0.5, rng.standard_normal(n)


@pytest.mark.parametrize(
    ("depth", "scale"), [(2, 1.0), (2, 0.1), (2, 1e-3), (3, 1.0), (3, 0.2), (5, 0.3)]
)
def test_exact_residuals_with_a_trained_bias(depth, scale):
    X, y = small_data()
    weight = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    regressor = ImplicitBiasRegressor(depth, scale, fit_intercept="trained", tol=1e-10)
    for shift, weights in ((0.0, None), (0.0, weight), (10.0, None)):
        expected = by_refitting(regressor, X, y + shift, weights)
        found = regressor.fit(X, y + shift, weights).leave_one_out(
            X, y + shift, weights, exact=True
        )
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_exact_residuals_below_the_scales_of_newtons_method():
    # There the regressor eliminates the bias, and so must the full fit and refits from scratch.
    X, y = small_data()
    X, y = X[:3, :5], y[:3]
    regressor = ImplicitBiasRegressor(2, 1e-40, fit_intercept="trained").fit(X, y)
    expected = by_refitting(regressor, X, y)
    found = regressor.fit(X, y).leave_one_out(X, y, exact=True)
    np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize(
    ("depth", "scale"),
    [(2, 100.0), (2, 0.3), (2, 0.01), (2, 1e-6), (3, 1.0), (3, 0.2), (3, 0.03), (5, 0.3)],
)
def test_trained_refits_take_at_most_three_factorizations(depth, scale):
    X, y, _ = fb.datasets.sparse_regression(n=20, d=150, sparsity=5, noise_var=0.01, rng=0)
    found = refits_with_trained_bias(fb.DiagonalNet(depth=depth, scale=scale), X, y + 1.0)
    assert found.factorizations.max() <= 3
    assert not found.from_scratch.any()


def test_the_data_that_once_took_half_a_minute():
    # 200 searched Newton steps with inexact directions, for each of five refits.
    found = refits_with_trained_bias(fb.DiagonalNet(depth=3, scale=0.2), *small_data())
    assert not found.from_scratch.any()
    assert found.factorizations.max() <= 3
    assert found.iterations.max() < 100


def test_trained_refits_from_scratch_where_the_way_is_too_long():
    X, y = small_data()
    model = fb.DiagonalNet(depth=10, scale=0.1)
    found = refits_with_trained_bias(model, X, y)
    assert found.from_scratch.any()
    assert (found.factorizations[found.from_scratch] > 3).all()
    regressor = ImplicitBiasRegressor(10, 0.1, fit_intercept="trained", tol=1e-10)
    np.testing.assert_allclose(found.residuals, by_refitting(regressor, X, y), atol=1e-8)


LAWS = [ExponentialResponse(0.3), PowerResponse(3.0, -2.0)]


@pytest.mark.parametrize("law", LAWS, ids=repr)
@given(stiffness=st.floats(1e-3, 1e3), bias=st.floats(-2.0, 2.0), seed=st.integers(0, 100))
def test_a_bias_is_a_branch_that_is_a_straight_line(law, stiffness, bias, seed):
    d = 4
    cost = np.random.default_rng(seed).uniform(0.5, 2.0, 2 * d)
    branches = Branches(np.ones(d, dtype=bool), np.ones(d, dtype=bool), cost)
    both, biased = with_bias(branches, law, stiffness, rest=5.0)
    assert isinstance(biased, LinearBranch)
    z = np.append(np.zeros(d), stiffness * bias)
    slack = both.cost - both.signed(z)
    weight = np.exp(biased.log_weight(slack))
    w = both.difference(weight)
    # The dual g b gives the bias b, and the network is left alone.
    np.testing.assert_allclose(w[-1] - biased.rest, bias, atol=1e-12)
    alone = branches.difference(np.exp(law.log_weight(branches.cost)))
    np.testing.assert_allclose(w[:-1], alone, atol=1e-14 * np.exp(law.log_weight(cost)).max())
    np.testing.assert_allclose(biased.slack(weight), slack, rtol=1e-9)
    # The rate is -d log P / d slack: what a change of dual does to the bias.
    step = 1e-6
    change = biased.log_weight(slack + step) - biased.log_weight(slack - step)
    np.testing.assert_allclose(-change / (2.0 * step), biased.rate(slack), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose((both.total(weight * biased.rate(slack)))[-1], 1.0 / stiffness)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_steps_end_before_the_bias_leaves_its_domain(law):
    branches = Branches(np.ones(2, dtype=bool), np.ones(2, dtype=bool), np.ones(4))
    both, biased = with_bias(branches, law, 2.0, rest=5.0)
    slack = both.cost - both.signed(np.array([0.0, 0.0, 1.0]))
    change = np.zeros(5)
    for far in (1e3, -1e3):
        change[2] = far
        reach = biased.longest_step(slack, change)
        assert np.isfinite(biased.log_weight(slack + reach * change)).all()
        # Downwards only: there is no largest bias.
        assert (reach < 1.0) == (far > 0.0)
    network = np.array([-2.0, 0.0, 0.0, 0.0, 0.0])
    assert biased.longest_step(slack, network) == law.longest_step(np.ones(4), network[:4])
