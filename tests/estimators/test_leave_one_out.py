"""Leave-one-out residuals, from one fit and by warm-started refits, against the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, MinNormRegressor
from flowbias.estimators.inference.leave_one_out import leave_one_out, leave_one_out_refits

KERNEL_END = [fb.L2(), fb.DiagonalNet(depth=2, scale=1e4), fb.DiagonalNet(depth=3, scale=1e4)]
IN_BETWEEN = [
    fb.DiagonalNet(depth=2, scale=0.3),
    fb.DiagonalNet(depth=2, scale=0.01),
    fb.DiagonalNet(depth=3, scale=0.2),
    fb.UntiedDiagonalNet(scale=0.3, shape=0.5),
    fb.DistancePotential(scale=0.1),
]


def data(n, d, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.5
    return X, X[:, :2].sum(axis=1) + 1.0 + 0.3 * rng.standard_normal(n)


def by_refitting(model, X, y, fit_intercept=False, weight=None):
    """The definition: the limit on all samples but one, for each of them."""
    weight = np.ones(len(y)) if weight is None else weight
    residuals = []
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        root = np.sqrt(weight[kept])
        x_mean = np.average(X[kept], axis=0, weights=weight[kept]) if fit_intercept else 0.0
        y_mean = np.average(y[kept], weights=weight[kept]) if fit_intercept else 0.0
        rows, targets = root[:, None] * (X[kept] - x_mean), root * (y[kept] - y_mean)
        # One sample and an intercept leave nothing to learn.
        w = fb.limit(model, rows, targets).w if rows.any() else np.zeros(X.shape[1])
        residuals.append(y[i] - y_mean - (X[i] - x_mean) @ w)
    return np.array(residuals)


@given(
    model=st.sampled_from(KERNEL_END),
    fit_intercept=st.booleans(),
    seed=st.integers(0, 1000),
    shape=st.sampled_from([(8, 20), (8, 9), (12, 4), (2, 3)]),
)
def test_exact_at_the_min_norm_end(model, fit_intercept, seed, shape):
    X, y = data(*shape, seed)
    expected = by_refitting(model, X, y, fit_intercept)
    found = leave_one_out(model, X, y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(y).max())


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("model", [fb.L2(), fb.DiagonalNet(depth=2, scale=0.3)], ids=repr)
def test_least_squares_samples_are_exact_at_any_scale(model, fit_intercept):
    # Three times the same features with different outputs, among more features than samples.
    X, y = data(6, 20, 5)
    X, y = np.vstack([X, X[:1], X[:1]]), np.append(y, [3.0, -1.0])
    expected = by_refitting(model, X, y, fit_intercept)
    found = leave_one_out(model, X, y, fit_intercept=fit_intercept)
    repeated = [0, 6, 7]
    np.testing.assert_allclose(found[repeated], expected[repeated], atol=1e-8)
    refits = leave_one_out_refits(model, X, y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(refits.residuals, expected, atol=1e-8)
    assert (refits.factorizations[repeated] == 0).all()


def by_least_squares(X, y, fit_intercept):
    """Over-determined: lstsq on all samples but one, for each of them."""
    rows = np.column_stack([X, np.ones(len(y))]) if fit_intercept else X
    fits = [np.linalg.lstsq(np.delete(rows, i, 0), np.delete(y, i))[0] for i in range(len(y))]
    return np.array([y[i] - rows[i] @ fit for i, fit in enumerate(fits)])


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("small", [1e-3, 3e-5, 1e-6, 1e-7, 1e-10])
@pytest.mark.parametrize("n", [12, 6])
def test_a_sample_of_high_leverage(n, small, fit_intercept):
    # One feature that only the first sample has to speak of: its leverage is 1 - O(small^2), while
    # X is well conditioned.
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.standard_normal((n, 3)), small * rng.standard_normal(n)])
    X[0, 3] = 1.0
    y = rng.standard_normal(n)
    expected = by_least_squares(X, y, fit_intercept)
    assert abs(expected[0]) > 0.1 / small
    # What rounding does to a basis whose row has that length, and to a refit whose column has.
    rtol = 1e-14 / small + 1e-12
    found = leave_one_out(fb.L2(), X, y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(found, expected, rtol=rtol)
    regressor = ImplicitBiasRegressor(scale=0.1, fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(regressor.leave_one_out(X, y, exact=True), expected, rtol=rtol)


@pytest.mark.parametrize("log_scale", [0.0, -5000.0])
@pytest.mark.parametrize("length", [1.0, 1e3, 1e9])
def test_least_squares_where_rows_differ_in_length(length, log_scale):
    # The first row decides nearly alone what it says; no curvature has a part in any of this.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 4)), rng.standard_normal(12)
    X[0], y[0] = length * X[0], length * y[0]
    model = fb.DiagonalNet(depth=2, log_scale=log_scale)
    expected = by_least_squares(X, y, fit_intercept=False)
    np.testing.assert_allclose(leave_one_out(model, X, y), expected, rtol=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_sample_that_alone_decides_a_coefficient_among_many(fit_intercept):
    # Left out it is predicted by the others, to whom its own feature means nothing.
    X, y = data(15, 4, 0)
    X[:, 3] = 0.0
    X[2, 3] = 5.0
    expected = by_refitting(fb.L2(), X, y, fit_intercept)
    for found in (
        leave_one_out(fb.L2(), X, y, fit_intercept=fit_intercept),
        leave_one_out_refits(fb.L2(), X, y, fit_intercept=fit_intercept).residuals,
    ):
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("unit", [1e150, 1e-150, 1e160, 1e-160])
def test_units_of_the_data_change_nothing_but_the_unit(unit, fit_intercept):
    X, y = data(6, 15, 0)
    right = leave_one_out(fb.L2(), X, y, fit_intercept=fit_intercept)
    found = leave_one_out(fb.L2(), unit * X, unit * y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(found / unit, right, rtol=1e-8)


@pytest.mark.parametrize("weight", [None, np.array([1.0, 2.0, 0.5, 4.0])])
@pytest.mark.parametrize("value", [1.0, 0.1])
def test_constant_features_leave_the_mean_of_the_others(value, weight):
    X, y = np.full((4, 3), value), np.array([1.0, 2.0, 4.0, 9.0])
    shares = np.ones(4) if weight is None else weight
    others = [np.average(np.delete(y, i), weights=np.delete(shares, i)) for i in range(4)]
    model = fb.DiagonalNet(depth=3, scale=0.1)
    found = leave_one_out(model, X, y, fit_intercept=True, sample_weight=weight)
    np.testing.assert_allclose(found, y - others, atol=1e-14)
    refits = leave_one_out_refits(model, X, y, fit_intercept=True, sample_weight=weight)
    np.testing.assert_allclose(refits.residuals, y - others, atol=1e-14)
    for regressor in (MinNormRegressor(), ImplicitBiasRegressor(scale=0.1)):
        for exact in (False, True):
            found = regressor.fit(X, y, weight).leave_one_out(X, y, weight, exact=exact)
            np.testing.assert_allclose(found, y - others, atol=1e-14)


def test_a_refit_whose_centre_is_one_of_its_samples():
    # Without sample 3, sample 2 lies at the mean of what remains up to rounding, which is no
    # constraint; log_scale says that the refit is from scratch.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 12)) / 3.0
    X[2] = (X[0] + X[1] + X[4]) / 3.0
    model, y = fb.DiagonalNet(depth=2, log_scale=-5000.0), np.array([1.0, 2.0, 1.6, 0.3, 1.8])
    y[2] = (y[0] + y[1] + y[4]) / 3.0
    found = leave_one_out_refits(model, X, y, fit_intercept=True)
    kept = [0, 1, 4]  # the same limit as without sample 2
    w = fb.limit(model, X[kept] - X[kept].mean(axis=0), y[kept] - y[kept].mean()).w
    expected = y[3] - y[kept].mean() - (X[3] - X[kept].mean(axis=0)) @ w
    np.testing.assert_allclose(found.residuals[3], expected, atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("model", [fb.L2(), fb.DiagonalNet(depth=2, scale=0.1)], ids=repr)
@pytest.mark.parametrize("shape", [(7, 15), (15, 4)])
def test_weights(model, fit_intercept, shape):
    X, y = data(*shape, 1)
    weight = np.linspace(0.5, 4.0, len(y))
    expected = by_refitting(model, X, y, fit_intercept, weight)
    found = leave_one_out_refits(model, X, y, fit_intercept=fit_intercept, sample_weight=weight)
    np.testing.assert_allclose(found.residuals, expected, atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("model", KERNEL_END + IN_BETWEEN, ids=repr)
@pytest.mark.parametrize("shape", [(10, 40), (2, 5)])
def test_refits_are_the_limits_without_a_sample(model, fit_intercept, shape):
    X, y = data(*shape, 2)
    expected = by_refitting(model, X, y, fit_intercept)
    found = leave_one_out_refits(model, X, y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(found.residuals, expected, atol=1e-8)


RICH = [
    fb.DiagonalNet(depth=2, scale=1e-6),
    fb.DiagonalNet(depth=2, scale=1e-10),
    fb.DiagonalNet(depth=3, scale=0.03),
]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("model", [*KERNEL_END, *IN_BETWEEN[:3], *RICH], ids=repr)
def test_refits_take_at_most_three_factorizations(model, fit_intercept):
    X, y, _ = fb.datasets.sparse_regression(n=30, d=300, sparsity=5, noise_var=0.01, rng=0)
    found = leave_one_out_refits(model, X, y, fit_intercept=fit_intercept)
    assert found.factorizations.max() <= 3
    assert not found.from_scratch.any()
    # Outside the rich regime the factor of the full fit is enough for most of them.
    if model not in RICH[:2]:
        assert np.mean(found.factorizations == 0) > 0.5
    assert found.iterations.any() == (model not in KERNEL_END)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("model", RICH, ids=repr)
def test_rich_refits_are_the_limits_without_a_sample(model, fit_intercept):
    X, y, _ = fb.datasets.sparse_regression(n=12, d=60, sparsity=3, noise_var=0.1, rng=1)
    expected = by_refitting(model, X, y, fit_intercept)
    found = leave_one_out_refits(model, X, y, fit_intercept=fit_intercept)
    np.testing.assert_allclose(found.residuals, expected, atol=1e-8)


@pytest.mark.parametrize("depth", [2, 10])
def test_refits_from_scratch_where_the_way_is_too_long(depth):
    X, y, _ = fb.datasets.sparse_regression(n=10, d=60, sparsity=5, noise_var=0.1, rng=0)
    model = fb.DiagonalNet(depth=depth, scale=0.1 if depth > 2 else 1e-100)
    found = leave_one_out_refits(model, X, y)
    np.testing.assert_allclose(found.residuals, by_refitting(model, X, y), atol=1e-8)
    assert found.from_scratch.any()
    assert not (found.factorizations[found.from_scratch] == 0).any()
    assert (found.factorizations[~found.from_scratch] <= 3).all()


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_refits_where_the_full_fit_has_no_resolved_response(fit_intercept):
    # One coordinate fits everything; all other curvatures underflow at this scale.
    X = np.random.default_rng(0).standard_normal((5, 12))
    X = np.vstack([X, X[:1]])
    model, y = fb.DiagonalNet(depth=2, log_scale=-5000.0), X[:, 0]
    found = leave_one_out_refits(model, X, y, fit_intercept=fit_intercept)
    # The repeated sample is fitted by least squares, which takes no response.
    np.testing.assert_array_equal(found.from_scratch, [False, True, True, True, True, False])
    np.testing.assert_allclose(found.residuals, by_refitting(model, X, y, fit_intercept), atol=1e-8)


def test_the_first_order_error_falls_with_the_scale():
    X, y = data(10, 40, 3)
    errors = []
    for scale in (0.3, 1.0, 3.0):
        model = fb.DiagonalNet(depth=2, scale=scale)
        errors.append(np.abs(leave_one_out(model, X, y) - by_refitting(model, X, y)).max())
    # The potential is even, so that it differs from l2 by a relative order scale^-4.
    assert errors[1] < 0.05 * errors[0]
    assert errors[2] < 0.05 * errors[1]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True, "trained"])
def test_estimators(fit_intercept, exact):
    X, y = data(8, 20, 4)
    y = np.column_stack([y, y[::-1]])
    weight = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 1.0, 1.0, 0.5])
    regressor = ImplicitBiasRegressor(scale=100.0, fit_intercept=fit_intercept).fit(X, y, weight)
    found = regressor.leave_one_out(X, y, weight, exact=exact)
    for i in range(len(y)):
        others = weight.copy()
        others[i] = 0.0
        prediction = regressor.fit(X, y, others).predict(X[[i]])[0]
        np.testing.assert_allclose(found[i], y[i] - prediction, atol=1e-6)


def test_min_norm_estimator_against_the_hat_matrix():
    X, y = data(8, 20, 5)
    inverse = np.linalg.inv(X @ X.T)
    found = MinNormRegressor(fit_intercept=False).fit(X, y).leave_one_out(X, y)
    np.testing.assert_allclose(found, (inverse @ y) / np.diag(inverse), rtol=1e-8)


def test_refusals():
    X, y = data(5, 10, 0)
    with pytest.raises(fb.InputError, match="at least 2 samples"):
        leave_one_out(fb.L2(), X[:1], y[:1])
    with pytest.raises(fb.InputError, match="both signs"):
        leave_one_out(fb.DiagonalNet.from_weights(np.ones(10), np.eye(10)[0]), X, y)
    for choice in ("trained", np.array([1, 0]), None):
        with pytest.raises(fb.InputError, match="fit_intercept: must be True or False, got"):
            leave_one_out(fb.L2(), X, y, fit_intercept=choice)
    with pytest.raises(fb.InputError, match="POTENTIAL"):
        leave_one_out(fb.L1(), X, y)
    with pytest.raises(fb.InputError, match="sample_weight"):
        leave_one_out(fb.L2(), X, y, sample_weight=[1, 1, 0, 1, 1])


def test_what_doubles_do_not_resolve_is_refused():
    # One coordinate fits everything; all other curvatures underflow at this scale.
    X = np.random.default_rng(0).standard_normal((4, 12))
    with pytest.raises(fb.SolveError, match="not resolved"):
        leave_one_out(fb.DiagonalNet(depth=2, log_scale=-5000.0), X, X[:, 0])


@pytest.mark.parametrize("model", [fb.L2(), fb.DiagonalNet(depth=2, scale=0.3)], ids=repr)
def test_a_sample_without_features_beside_interpolated_ones(model):
    # Its dual is 0, and does not answer to its y: 0/0, of a sample that no one asked about.
    X, y = data(4, 6, 0)
    X[2] = 0.0
    found = leave_one_out(model, X, y)
    assert found[2] == y[2]
    others = np.arange(4) != 2
    np.testing.assert_allclose(found[others], leave_one_out(model, X[others], y[others]), rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-100, 1e-150])
def test_a_trained_bias_beside_tiny_features_is_refitted_without_a_warning(unit):
    X, y = data(8, 2, 0)
    fitted = ImplicitBiasRegressor(depth=4, fit_intercept="trained").fit(unit * X, unit * y)
    assert np.isfinite(fitted.leave_one_out(unit * X, unit * y, exact=True)).all()


@pytest.mark.parametrize("unit", [1e-10, 1e-20, 1e-100])
def test_a_trained_bias_beside_small_features(unit):
    """More samples than features: every limit is the least-squares fit, in any unit."""
    X, y = data(8, 2, 0)
    fitted = ImplicitBiasRegressor(scale=1.0, fit_intercept="trained").fit(unit * X, unit * y)
    expected = by_refitting(fb.L2(), np.column_stack([X, np.ones(8)]), y)
    found = fitted.leave_one_out(unit * X, unit * y)
    np.testing.assert_allclose(found / unit, expected, rtol=1e-10)
