"""Standard errors and degrees of freedom against refits, finite differences and statistics."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, MinNormRegressor
from flowbias.estimators.inference.flow_response import flow_response
from flowbias.estimators.inference.uncertainty import uncertainty

MODELS = [
    fb.L2(),
    fb.DiagonalNet(depth=2, scale=0.3),
    fb.DiagonalNet(depth=2, scale=0.01),
    fb.DiagonalNet(depth=3, scale=0.3),
]


def data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.3
    return X, X[:, :2].sum(axis=1) + 1.0 + 0.3 * rng.standard_normal(n)


def centred_limit(model, X, y, fit_intercept):
    """Coefficients and intercept."""
    x_mean, y_mean = (X.mean(axis=0), y.mean()) if fit_intercept else (np.zeros(X.shape[1]), 0.0)
    w = fb.limit(model, X - x_mean, y - y_mean).w
    return w, y_mean - x_mean @ w


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("model", [MODELS[0], MODELS[2]], ids=repr)
def test_standard_errors_are_the_spread_of_refits(model, fit_intercept):
    X, y = data(6, 12)
    sigma, rng = 1e-4, np.random.default_rng(1)
    noisy = [y + sigma * rng.standard_normal(len(y)) for _ in range(150)]
    refits = [centred_limit(model, X, target, fit_intercept) for target in noisy]
    w, b = np.array([w for w, _ in refits]), np.array([b for _, b in refits])
    found = uncertainty(model, X, y, sigma=sigma, fit_intercept=fit_intercept)
    # A standard deviation of 150 draws is off by 1 / sqrt(300) = 6%: four times that.
    np.testing.assert_allclose(found.w_error, w.std(axis=0), rtol=0.24)
    np.testing.assert_allclose(found.intercept_error, b.std(), rtol=0.24, atol=1e-15)
    fresh = np.random.default_rng(2).standard_normal((3, 12))
    spread = (fresh @ w.T + b).std(axis=1)
    np.testing.assert_allclose(found.prediction_error(fresh), spread, rtol=0.24)
    moved = np.linalg.norm(w - w.mean(axis=0), axis=1)
    assert found.gain * sigma == pytest.approx(np.sqrt(np.mean(moved**2)), rel=0.12)


def test_over_determined_is_ordinary_least_squares():
    X, y = data(30, 4)
    design = np.column_stack([X, np.ones(30)])
    inverse = np.linalg.inv(design.T @ design)
    residual = y - design @ (inverse @ design.T @ y)
    sigma = np.sqrt(np.sum(residual**2) / (30 - 5))
    found = uncertainty(fb.DiagonalNet(depth=2, scale=0.1), X, y, fit_intercept=True)
    assert found.degrees_of_freedom == pytest.approx(5.0)
    assert found.sigma == pytest.approx(sigma)
    errors = sigma * np.sqrt(np.diag(inverse))
    np.testing.assert_allclose(found.w_error, errors[:-1], rtol=1e-8)
    assert found.intercept_error == pytest.approx(errors[-1])


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_noise_level_is_right_on_average_where_y_is_noise(fit_intercept):
    X, _ = data(20, 60)
    rng = np.random.default_rng(0)
    levels = [
        uncertainty(fb.L2(), X, 3.0 * rng.standard_normal(20), fit_intercept=fit_intercept).sigma
        for _ in range(60)
    ]
    # sigma^2 of one draw is off by sqrt(2/20) = 32%, so their mean by 4%: three times that.
    assert np.mean(np.square(levels)) == pytest.approx(9.0, rel=0.12)


def test_noise_level_where_some_samples_are_interpolated_and_some_are_not():
    X, _ = data(8, 20)
    X = np.vstack([X, X[:2], X[:1]])  # the first two samples are fitted by least squares
    rng = np.random.default_rng(0)
    draws = [uncertainty(fb.L2(), X, 3.0 * rng.standard_normal(11)).sigma for _ in range(100)]
    # 3 differences among repeated samples and 6 interpolated ones: sigma^2 of one draw is off by
    # sqrt(2/9) = 47%, so their mean by 4.7%: three times that.
    assert np.mean(np.square(draws)) == pytest.approx(9.0, rel=0.14)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", [(6, 15), (15, 4)])
@pytest.mark.parametrize(
    ("x_unit", "y_unit"),
    [(1e80, 1.0), (1e150, 1.0), (1e-150, 1.0), (1e100, 1e200), (1e160, 1e160), (1e-160, 1e-160)],
)
def test_units_of_the_data_change_those_of_the_errors(x_unit, y_unit, shape, fit_intercept):
    X, y = data(*shape)
    fresh = data(3, shape[1], seed=1)[0]
    right = uncertainty(fb.L2(), X, y, fit_intercept=fit_intercept)
    found = uncertainty(fb.L2(), x_unit * X, y_unit * y, fit_intercept=fit_intercept)
    assert found.sigma / y_unit == pytest.approx(right.sigma)
    assert_allclose(found.w_error * (x_unit / y_unit), right.w_error, rtol=1e-8)
    assert found.intercept_error / y_unit == pytest.approx(right.intercept_error)
    assert found.gain * x_unit == pytest.approx(right.gain)
    assert found.carriers == pytest.approx(right.carriers)
    errors = found.prediction_error(x_unit * fresh)
    assert_allclose(errors / y_unit, right.prediction_error(fresh), rtol=1e-8)


def test_constant_features_leave_the_mean_and_its_error():
    X, y = np.full((4, 3), 0.1), np.array([1.0, 2.0, 4.0, 9.0])
    sigma = y.std(ddof=1)
    for found in (
        uncertainty(fb.DiagonalNet(depth=2, scale=0.1), X, y, fit_intercept=True),
        MinNormRegressor().fit(X, y).uncertainty(X, y),
    ):
        assert found.sigma == pytest.approx(sigma)
        assert found.intercept_error == pytest.approx(sigma / 2.0)
        assert (found.degrees_of_freedom, found.carriers, found.gain) == (1.0, 0.0, 0.0)
        assert_allclose(found.w_error, 0.0)
        assert_allclose(found.prediction_error(X[:2]), sigma / 2.0)
    response = flow_response(fb.DistancePotential(scale=0.1), X, y, t=1.0, fit_intercept=True)
    assert response.degrees_of_freedom == 1.0
    assert_allclose(response.dw_dy, np.zeros((3, 4)))
    assert_allclose(response.w, 0.0)


def test_one_centred_sample_says_nothing_about_the_noise():
    X, y = np.ones((1, 3)), np.array([2.0])
    with pytest.raises(fb.InputError, match="sigma: must be given where a single sample is cent"):
        uncertainty(fb.L2(), X, y, fit_intercept=True)
    found = uncertainty(fb.L2(), X, y, fit_intercept=True, sigma=3.0)
    assert (found.intercept_error, found.degrees_of_freedom) == (3.0, 1.0)
    # Uncentred it is an interpolator as any other: all of y could be noise.
    assert uncertainty(fb.L2(), X, y).sigma == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((2, 5)), "X: must have 4 columns"),
        (np.ones(4), "X: must have 2 dimension"),
        ([[1.0, np.nan, 0.0, 0.0]], "X: must be finite"),
    ],
)
def test_errors_of_predictions_for_bad_samples(X, message):
    with pytest.raises(fb.InputError, match=message):
        uncertainty(fb.L2(), *data(3, 4)).prediction_error(X)


def test_degrees_of_freedom_and_carriers_from_one_end_to_the_other():
    X, y = data(10, 40)
    found = [
        uncertainty(fb.DiagonalNet(depth=2, log_scale=log_scale), X, y)
        for log_scale in (7.0, -2.0, -7.0, -3000.0)
    ]
    for each in found:  # an interpolator fits all n targets at every scale
        assert each.degrees_of_freedom == pytest.approx(10.0)
    carriers = [each.carriers for each in found]
    assert carriers == sorted(carriers, reverse=True)
    assert carriers[0] > 30.0  # nearly all 40 coordinates
    assert carriers[-1] == pytest.approx(10.0, abs=1.0)  # as many as there are samples
    # With orthonormal columns of equal weight every coordinate carries the same share.
    whole = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    assert uncertainty(fb.L2(), whole, y[:6]).carriers == pytest.approx(6.0)


def test_weights_are_inverse_variances():
    X, y = data(8, 20)
    repeated, weight = np.vstack([X, X[:2]]), np.ones(8)
    weight[:2] = 2.0
    once = uncertainty(fb.L2(), X, y, sigma=1.0, fit_intercept=True, sample_weight=weight)
    twice = uncertainty(fb.L2(), repeated, np.append(y, y[:2]), sigma=1.0, fit_intercept=True)
    np.testing.assert_allclose(once.w_error, twice.w_error, rtol=1e-8)
    assert once.intercept_error == pytest.approx(twice.intercept_error)
    assert twice.degrees_of_freedom == pytest.approx(8.0)


@pytest.mark.parametrize("fit_intercept", [False, True, "trained"])
def test_estimators(fit_intercept):
    X, y = data(8, 20)
    regressor = ImplicitBiasRegressor(scale=0.3, fit_intercept=fit_intercept).fit(X, y)
    found = regressor.uncertainty(X, np.column_stack([y, 2.0 * y]), sigma=0.5)[0]
    step = 1e-4
    moved = []
    for direction in np.eye(8):
        up, down = (
            ImplicitBiasRegressor(scale=0.3, fit_intercept=fit_intercept, tol=1e-11).fit(X, target)
            for target in (y + step * direction, y - step * direction)
        )
        change = up.predict(X[:3]) - down.predict(X[:3])
        moved.append([*(up.coef_ - down.coef_), up.intercept_ - down.intercept_, *change])
    errors = 0.5 * np.linalg.norm(np.array(moved) / (2.0 * step), axis=0)
    np.testing.assert_allclose(found.w_error, errors[:20], rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(found.intercept_error, errors[20], rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(found.prediction_error(X[:3]), errors[21:], rtol=1e-4)
    one = MinNormRegressor(fit_intercept=False).fit(X, y).uncertainty(X, y, sigma=1.0)
    np.testing.assert_allclose(one.w_error, np.linalg.norm(np.linalg.pinv(X), axis=1), rtol=1e-8)


@pytest.mark.parametrize("sigma", [-1.0, np.inf, "much", np.nan])
def test_bad_sigma(sigma):
    with pytest.raises(fb.InputError, match="sigma: must be a finite number >= 0"):
        uncertainty(fb.L2(), *data(3, 5), sigma=sigma)


# --- at finite times ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*MODELS[:2], MODELS[3]], ids=repr)
@pytest.mark.parametrize(
    ("shape", "t", "fit_intercept"),
    [((4, 8), 0.03, False), ((4, 8), 0.3, True), ((6, 3), 0.1, True)],
)
def test_flow_response_against_finite_differences(model, fit_intercept, shape, t):
    X, y = data(*shape)

    def predictor(target):
        if fit_intercept:
            return fb.flow(model, X - X.mean(axis=0), target - target.mean(), t=[t]).w[0]
        return fb.flow(model, X, target, t=[t]).w[0]

    step = 1e-4
    differences = [predictor(y + step * e) - predictor(y - step * e) for e in np.eye(len(y))]
    expected = np.array(differences).T / (2.0 * step)
    found = flow_response(model, X, y, t=t, fit_intercept=fit_intercept)
    np.testing.assert_allclose(found.dw_dy, expected, atol=3e-4 * np.abs(expected).max())
    centred = X - X.mean(axis=0) if fit_intercept else X
    trace = np.trace(centred @ expected) + fit_intercept
    assert found.degrees_of_freedom == pytest.approx(trace, rel=1e-3)
    np.testing.assert_allclose(found.w, predictor(y), atol=1e-8)


def test_degrees_of_freedom_grow_from_none_to_the_rank():
    X, y = data(6, 15)
    model = fb.DiagonalNet(depth=2, scale=1.0)
    degrees = [flow_response(model, X, y, t=t).degrees_of_freedom for t in (0, 1e-3, 0.01, 10)]
    assert degrees[0] == 0.0
    assert degrees == sorted(degrees)
    assert degrees[-1] == pytest.approx(6.0)
    # For the min-norm flow, exactly: sum of 1 - exp(-t eigenvalue).
    exact = np.sum(-np.expm1(-0.01 * np.linalg.eigvalsh(X @ X.T)))
    assert flow_response(fb.L2(), X, y, t=0.01).degrees_of_freedom == pytest.approx(exact)


@pytest.mark.parametrize("t", [-1.0, np.inf, None])
def test_bad_time(t):
    with pytest.raises(fb.InputError, match="t: must be a finite time >= 0"):
        flow_response(fb.L2(), *data(3, 5), t=t)


def test_inference_asks_for_the_data_of_the_fit():
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((6, 10)), rng.standard_normal(6)
    with pytest.raises(NotFittedError):
        MinNormRegressor().leave_one_out(A, b)
    fitted = MinNormRegressor().fit(A, b)
    for method in (fitted.leave_one_out, fitted.uncertainty):
        with pytest.raises(ValueError, match="5 features"):
            method(A[:, :5], b)
    assert fitted.n_features_in_ == 10
    with pytest.raises(fb.InputError, match="at least 2 samples"):
        fitted.leave_one_out(A[:1], b[:1])
    errors = fitted.uncertainty(A, b)
    assert_allclose(
        errors.prediction_error(scipy.sparse.csr_array(A)), errors.prediction_error(A), rtol=1e-12
    )
