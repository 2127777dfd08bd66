"""Intervals from the limits without each sample: those are exact, and the intervals cover."""

import numpy as np
import pytest

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, MinNormRegressor, jackknife
from flowbias.ground.arguments import InputError


def data(n, d, rng):
    X, y, _ = fb.datasets.sparse_regression(n=n, d=d, sparsity=2, noise_var=0.01, rng=rng)
    return X + 1.0, y


@pytest.mark.parametrize("fit_intercept", [True, False, "trained"])
@pytest.mark.parametrize("shape", [(12, 30), (24, 6), (13, 30)])
def test_each_is_the_limit_without_a_sample(shape, fit_intercept):
    X, y = data(*shape, rng=1)
    if shape[0] == 13:
        X[3] = X[4]  # two samples at one place: neither is interpolated
    regressor = ImplicitBiasRegressor(scale=0.1, fit_intercept=fit_intercept).fit(X, y)
    found = regressor.jackknife(X, y)
    for i in range(len(y)):
        other = ImplicitBiasRegressor(scale=0.1, fit_intercept=fit_intercept)
        other.fit(np.delete(X, i, axis=0), np.delete(y, i))
        # Two limits, each within the tolerance 1e-8 of its certificate.
        np.testing.assert_allclose(found.coef[i], other.coef_, atol=1e-7)
        assert found.intercept[i] == pytest.approx(other.intercept_, abs=1e-7)
        assert found.residuals[i] == pytest.approx(y[i] - other.predict(X[[i]])[0], abs=1e-7)


def test_the_interval_is_the_one_of_the_theorem():
    """Barber et al. (2021): order statistics of mu_-i(x) -+ R_i, counted from one."""
    X, y = data(19, 40, rng=2)
    found, new = jackknife(fb.DiagonalNet(2, 0.1), X[:-1], y[:-1]), X[-1:]
    low = sorted(found.coef @ new[0] - abs(found.residuals))
    high = sorted(found.coef @ new[0] + abs(found.residuals))
    # n = 18, 19 ranks: floor(0.1 * 19) = 1 and ceil(0.9 * 19) = 18; for 0.5 they are 9 and 10.
    for coverage, first, last in ((0.9, 1, 18), (0.5, 9, 10)):
        lower, upper = found.predict_interval(new, coverage)
        assert lower[0] == pytest.approx(low[first - 1])
        assert upper[0] == pytest.approx(high[last - 1])
    lower, upper = found.predict_interval(new, coverage=0.95)  # 19 ranks promise 0.947 at most
    assert (lower[0], upper[0]) == (-np.inf, np.inf)


def test_a_coverage_is_taken_as_it_is_written():
    """0.9 of ten ranks is nine, though 1 - 0.9 in doubles is below a tenth."""
    X, y = data(9, 20, rng=3)
    lower, upper = jackknife(fb.DiagonalNet(2, 0.1), X, y).predict_interval(X, coverage=0.9)
    assert np.isfinite(lower).all()
    assert np.isfinite(upper).all()


@pytest.mark.parametrize("scale", [1.0, 1e-2])
def test_intervals_cover(scale):
    """At least 2 * 0.8 - 1 = 0.6 is proved; about 0.8 is what is seen.

    60 draws of 20 new outputs each: a share of 0.8 has a standard error of at most
    sqrt(0.8 * 0.2 / 60) = 0.05 if the outputs of a draw went all together, and they go less so.
    """
    covered = []
    for seed in range(60):
        X, y = data(39, 40, rng=seed)
        found = jackknife(fb.DiagonalNet(2, scale), X[:19], y[:19], fit_intercept=True)
        lower, upper = found.predict_interval(X[19:], coverage=0.8)
        covered.append(np.mean((lower <= y[19:]) & (y[19:] <= upper)))
    assert 0.65 <= np.mean(covered) <= 0.95


def test_several_outputs_have_one_each():
    X, y = data(8, 20, rng=4)
    both = MinNormRegressor().fit(X, np.c_[y, 2.0 * y]).jackknife(X, np.c_[y, 2.0 * y])
    assert len(both) == 2
    np.testing.assert_allclose(2.0 * both[0].coef, both[1].coef, atol=1e-9)
    assert repr(both[0]).startswith("Jackknife(n=8, d=20, ")


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90, "most", np.nan])
def test_a_coverage_that_is_no_share(coverage):
    X, y = data(8, 20, rng=5)
    with pytest.raises(InputError, match="coverage: must lie in"):
        jackknife(fb.DiagonalNet(2, 0.1), X, y).predict_interval(X, coverage)


def test_features_of_another_fit():
    X, y = data(8, 20, rng=6)
    with pytest.raises(InputError, match="X: must have 20 columns"):
        jackknife(fb.DiagonalNet(2, 0.1), X, y).predict_interval(X[:, :5])
