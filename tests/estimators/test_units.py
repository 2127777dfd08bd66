"""Fits in any units of the features and of a bias."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.estimators import (
    ImplicitBiasRegressor,
    ImplicitBiasRegressorCV,
    MinNormRegressor,
    RichRegressor,
)
from flowbias.estimators.intercepts import frames, trained_bias
from flowbias.estimators.intercepts.frames import centred_frame
from flowbias.estimators.intercepts.samples import Samples
from flowbias.estimators.start import default_log_scales

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 30))
Y = X[:, 0] - X[:, 1] + 0.1 * RNG.standard_normal(12)
TALL, TALL_Y = RNG.standard_normal((9, 5)), RNG.standard_normal(9)


@pytest.mark.parametrize("unit", [1e-13, 1e-15, 1e-20, 1e20, 1e100])
@pytest.mark.parametrize("depth", [2, 3])
def test_a_trained_bias_beside_features_of_any_unit(unit, depth):
    """Beside small features it costs nothing, beside large ones it does not move."""
    start = {"depth": depth, "scale": 0.1 * unit ** (-1.0 / depth)}
    fitted = ImplicitBiasRegressor(**start, fit_intercept="trained").fit(X * unit, Y)
    assert fitted.status_ == "CERTIFIED"
    assert_allclose(fitted.predict(X * unit), Y, atol=1e-8)
    other = ImplicitBiasRegressor(**start, fit_intercept=unit < 1.0).fit(X * unit, Y)
    assert fitted.intercept_ == pytest.approx(other.intercept_, abs=1e-8)
    assert_allclose(fitted.coef_ * unit, other.coef_ * unit, atol=1e-8)


@pytest.mark.parametrize(
    ("depth", "scale"), [(2, 1e-3), (2, 1e20), (4, 1e4), (6, 352), (8, 100), (8, 1e20)]
)
@pytest.mark.parametrize("weight", [None, RNG.uniform(0.5, 2.0, 9)], ids=["", "weighted"])
def test_over_determined_data_with_a_trained_bias_are_least_squares(depth, scale, weight):
    fitted = ImplicitBiasRegressor(depth, scale, fit_intercept="trained").fit(TALL, TALL_Y, weight)
    root = np.ones(9) if weight is None else np.sqrt(weight)
    both = np.column_stack([TALL, np.ones(9)]) * root[:, None]
    best = np.linalg.lstsq(both, TALL_Y * root)[0]
    assert_allclose([*fitted.coef_, fitted.intercept_], best, atol=1e-12)
    assert fitted.status_ == "PROJECTED"
    assert fitted.certificate_.ok


@pytest.mark.parametrize(("budget", "most"), [("most_trials", 5), ("most_steps", 1)])
def test_the_search_for_a_bias_ends(budget, most, monkeypatch):
    """After so many limits or steps, certified or not."""
    asked = []
    solve = trained_bias.limit_with_state

    def counted(*arguments, **options):
        asked.append(1)
        return solve(*arguments, **options)

    monkeypatch.setattr(trained_bias, "limit_with_state", counted)
    monkeypatch.setattr(trained_bias.Elimination, budget, most)
    network = fb.DiagonalNet(2, log_scale=-300.0)
    problem = fb.Regression(np.column_stack([X, np.ones(12)]), Y)
    trained_bias.eliminate_bias(network, problem, trained_bias.Effort())
    assert len(asked) <= most + 2  # h(0) first, and the last for its w


@pytest.mark.parametrize(
    "estimator",
    [
        RichRegressor(fit_intercept=False),
        RichRegressor(3),
        MinNormRegressor(),
        ImplicitBiasRegressor(2, 1e-3),
        ImplicitBiasRegressor(3, 1.0, fit_intercept=False),
        ImplicitBiasRegressor(2, 1.0, fit_intercept="trained"),
    ],
    ids=repr,
)
def test_columns_of_different_units(estimator):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((30, 6)) * 10.0 ** np.linspace(-4, 4, 6)
    b = rng.standard_normal(30)
    kind = estimator.fit_intercept
    B = np.column_stack([A, np.ones(30)]) if kind else A
    lengths = np.linalg.norm(B, axis=0)
    best = (np.linalg.lstsq(B / lengths, b)[0] / lengths)[:6]
    assert_allclose(estimator.fit(A, b).coef_, best, rtol=1e-8)


# --- large sparse data -------------------------------------------------------------------------


@pytest.fixture
def _everything_is_large(monkeypatch):
    for module in ("flowbias.designs", "flowbias.estimators.intercepts.samples"):
        monkeypatch.setattr(f"{module}.DENSE_UP_TO", 1)


def sparse(constant):
    A = scipy.sparse.random_array((12, 40), density=0.3, rng=np.random.default_rng(3)).toarray()
    A[:, constant] = 0.1
    return A


@pytest.mark.usefixtures("_everything_is_large")
@pytest.mark.parametrize("weight", [None, RNG.uniform(0.5, 2.0, 12)], ids=["", "weighted"])
def test_constant_columns_of_large_data_get_nothing(weight):
    A = scipy.sparse.csr_array(sparse([2, 5]))
    assert frames.is_large(A)
    for estimator in (MinNormRegressor(), ImplicitBiasRegressor(scale=0.1)):
        assert not estimator.fit(A, Y, weight).coef_[[2, 5]].any()


@pytest.mark.usefixtures("_everything_is_large")
def test_large_data_without_any_variation_have_their_mean():
    A = scipy.sparse.csr_array(np.full((12, 40), 0.1))
    for estimator in (MinNormRegressor(), ImplicitBiasRegressorCV(n_scales=2, cv=2)):
        fitted = estimator.fit(A, Y)
        assert not fitted.coef_.any()
        assert fitted.intercept_ == pytest.approx(Y.mean())


@pytest.mark.usefixtures("_everything_is_large")
@pytest.mark.parametrize("unit", [1.0, 1e160, 1e-160])
@pytest.mark.parametrize("frame", [frames.plain, centred_frame])
def test_default_scales_of_large_data_in_any_unit(unit, frame):
    A = sparse([])
    means = (A.mean(axis=0), Y.mean()) if frame is centred_frame else (0.0, 0.0)
    norm = np.linalg.norm(np.linalg.lstsq(A - means[0], Y - means[1])[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        samples = Samples.of(scipy.sparse.csr_array(A * unit), Y)
        top = default_log_scales(frame(samples), 2.0, 0.0, 1, 0.5)[0]
    assert top == pytest.approx((np.log(10.0 * norm) - np.log(unit)) / 2.0, rel=1e-10)
