"""The limits as regressors: the same bits as fb.limit, and what scikit-learn users expect."""

import pickle

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, MinNormRegressor, RichRegressor
from flowbias.models import DiagonalNet, UntiedDiagonalNet

RNG = np.random.default_rng(7)
X = RNG.standard_normal((8, 20)) + 1.0
Y = X[:, 0] - 2.0 * X[:, 3] + 0.1 * RNG.standard_normal(8) + 5.0
TALL, TALL_Y = RNG.standard_normal((30, 4)) + 1.0, RNG.standard_normal(30) + 2.0
WEIGHT = RNG.uniform(0.5, 3.0, 8)
# Two limits that differ only in how their rows were scaled agree to the solver's residual, 1e-13,
# times the condition of X; certified to 1e-8 in the worst case.
SAME = 1e-9

ALL = [
    ImplicitBiasRegressor(scale=0.1),
    ImplicitBiasRegressor(depth=3, scale=0.2),
    ImplicitBiasRegressor(scale=0.1, shape=0.5, fit_intercept="trained"),
    MinNormRegressor(),
    RichRegressor(),
]
EVERY = pytest.mark.parametrize("estimator", ALL, ids=repr)


# --- the limit itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "model"),
    [
        (ImplicitBiasRegressor(scale=0.1), DiagonalNet(2, 0.1)),
        (ImplicitBiasRegressor(log_scale=-500.0), DiagonalNet(2, log_scale=-500.0)),
        (ImplicitBiasRegressor(depth=3, scale=0.2), DiagonalNet(3, 0.2)),
        (ImplicitBiasRegressor(scale=0.3, shape=-0.5), UntiedDiagonalNet(0.3, shape=-0.5)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("centred", [False, True])
def test_identical_to_the_limit(estimator, model, centred):
    fitted = clone(estimator).set_params(fit_intercept=centred).fit(X, Y)
    data = (X - X.mean(axis=0), Y - Y.mean()) if centred else (X, Y)
    solution = fb.limit(model, *data, tol=1e-8)
    assert fitted.status_ == "CERTIFIED"
    assert solution.status.ok  # PROJECTED where centring has left rows that rounding tells apart
    if centred:  # by means that were summed in another order: the last digits of the data
        assert_allclose(fitted.coef_, solution.w, atol=SAME)
        return
    assert_array_equal(fitted.coef_, solution.w)
    assert_array_equal(fitted.dual_coef_, solution.dual)
    assert fitted.certificate_ == solution.certificate
    assert fitted.n_iter_ == solution.stats.steps


@EVERY
def test_interpolates(estimator):
    assert_allclose(clone(estimator).fit(X, Y).predict(X), Y, rtol=1e-7)


def test_centring_is_the_limit_on_data_less_their_means():
    # Means twice subtracted here, once there: some of 20 sets differ, in the last digits.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A, b = 10.0 + rng.standard_normal((6, 11)), 5.0 + rng.standard_normal(6)
        by_hand = fb.limit(DiagonalNet(2, 0.3), A - A.mean(axis=0), b - b.mean(), tol=1e-8)
        coef = ImplicitBiasRegressor(scale=0.3).fit(A, b).coef_
        assert_allclose(coef, by_hand.w, atol=1e-12 * np.abs(by_hand.w).max())


def test_parameters_in_their_documented_order():
    one = ImplicitBiasRegressor(2, 1.0, None, 0.5, "trained", 1e-9)
    other = ImplicitBiasRegressor(scale=1.0, shape=0.5, fit_intercept="trained", tol=1e-9)
    assert one.get_params() == other.get_params()


def test_dual_coefficients_are_those_of_the_samples():
    fitted = ImplicitBiasRegressor(scale=0.1).fit(X, Y, sample_weight=WEIGHT)
    rise = (X - np.average(X, axis=0, weights=WEIGHT)).T @ fitted.dual_coef_
    potential = DiagonalNet(2, 0.1).potential
    assert_allclose(potential.grad_dual(rise), fitted.coef_, rtol=1e-7, atol=1e-9)


def test_min_norm_is_least_squares_of_least_norm():
    plain = MinNormRegressor(fit_intercept=False).fit(X, Y)
    expected = np.linalg.lstsq(X, Y)[0]
    assert_allclose(plain.coef_, expected, atol=1e-10)
    centred = MinNormRegressor().fit(X, Y)
    assert_allclose(centred.coef_, np.linalg.lstsq(X - X.mean(0), Y - Y.mean())[0], atol=1e-10)


@pytest.mark.parametrize("depth", [2, 3])
def test_large_scales_reach_the_least_norm(depth):
    # The limit is off by O((w / scale^depth)^2): scale^depth = 1e6 leaves 1e-12.
    log_scale = np.log(1e6) / depth
    fitted = ImplicitBiasRegressor(depth, log_scale=log_scale, fit_intercept=False).fit(X, Y)
    assert_allclose(fitted.coef_, np.linalg.lstsq(X, Y)[0], atol=1e-10)


def least_l1(A, b):
    """HiGHS: an implementation that shares nothing with ours."""
    d = A.shape[1]
    result = scipy.optimize.linprog(
        np.ones(2 * d), A_eq=np.hstack([A, -A]), b_eq=b, bounds=(0, None), method="highs"
    )
    return result.x[:d] - result.x[d:]


@pytest.mark.parametrize("depth", [2, 3])
def test_rich_is_the_linear_program_where_that_is_unique(depth):
    fitted = RichRegressor(depth, fit_intercept=False).fit(X, Y)
    assert_allclose(fitted.coef_, least_l1(X, Y), atol=1e-8)
    centred = RichRegressor(depth).fit(X, Y)
    assert_allclose(centred.coef_, least_l1(X - X.mean(0), Y - Y.mean()), atol=1e-8)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_rich_selects_among_many(depth):
    # Minimizers of the l1 norm: (1 - t - s, t, s) >= 0 with t + 2 s = 0.8, a segment in s.
    A, b = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]), np.array([1.0, 0.8])

    def weights(s):
        return np.array([0.2 + s, 0.8 - 2.0 * s, s])

    def criterion(s):
        w = weights(s)
        return float(np.sum(w * np.log(w))) if depth == 2 else -float(np.sum(w ** (2.0 / depth)))

    # The root of the derivative, since a minimum is only found to the square root of rounding.
    def slope(s):
        w, move = weights(s), np.array([1.0, -2.0, 1.0])
        power = 2.0 / depth - 1.0
        return float(move @ np.log(w)) if depth == 2 else -float(move @ w**power)

    best = scipy.optimize.brentq(slope, 1e-9, 0.4 - 1e-9, xtol=1e-15)
    assert criterion(best) < min(criterion(best - 1e-3), criterion(best + 1e-3))
    fitted = RichRegressor(depth, fit_intercept=False).fit(A, b)
    assert_allclose(fitted.coef_, weights(best), atol=1e-8)


# --- weights ---------------------------------------------------------------------------------


@pytest.mark.parametrize("centred", [False, True], ids=["", "centred"])
@EVERY
def test_weights_do_not_change_an_interpolator(estimator, centred):
    # Centring too: the centre moves with the weights, along what is fitted. A trained bias is part
    # of the limit.
    kind = "trained" if estimator.fit_intercept == "trained" else centred
    estimator = clone(estimator).set_params(fit_intercept=kind)
    plain, weighted = clone(estimator).fit(X, Y), clone(estimator).fit(X, Y, WEIGHT)
    assert_allclose(weighted.coef_, plain.coef_, atol=SAME)
    assert_allclose(weighted.intercept_, plain.intercept_, atol=SAME)


@EVERY
@settings(max_examples=12)
@given(data=st.data())
def test_a_weight_is_a_number_of_copies(estimator, data):
    """Over-determined or not, interpolated or projected."""
    rows = data.draw(st.sampled_from([(X, Y), (TALL[:9], TALL_Y[:9])]))
    counts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=8, max_size=8)))
    A, b = rows[0][:8], rows[1][:8]
    if not counts.any():
        return
    weighted = clone(estimator).fit(A, b, sample_weight=counts)
    copied = clone(estimator).fit(np.repeat(A, counts, axis=0), np.repeat(b, counts))
    assert_allclose(weighted.coef_, copied.coef_, atol=1e-7)
    assert_allclose(weighted.intercept_, copied.intercept_, atol=1e-7)
    assert (weighted.dual_coef_[counts == 0] == 0.0).all()


@EVERY
@pytest.mark.parametrize("weight", [None, RNG.uniform(0.1, 2.0, 30)])
def test_over_determined_data_have_the_least_squares_limit(estimator, weight):
    expected = LinearRegression().fit(TALL, TALL_Y, weight)
    fitted = clone(estimator).fit(TALL, TALL_Y, weight)
    assert fitted.status_ == "PROJECTED"
    assert_allclose(fitted.coef_, expected.coef_, atol=1e-9)
    assert_allclose(fitted.intercept_, expected.intercept_, atol=1e-9)


# --- data with nothing in them ---------------------------------------------------------------


@EVERY
def test_constant_columns_get_nothing(estimator):
    with_constant = np.column_stack([X, np.full(8, 0.1), np.zeros(8)])
    fitted = clone(estimator).set_params(fit_intercept=True).fit(with_constant, Y)
    assert (fitted.coef_[-2:] == 0.0).all()
    assert_allclose(fitted.coef_[:-2], clone(fitted).fit(X, Y).coef_, atol=SAME)


@EVERY
@pytest.mark.parametrize(
    ("A", "b"),
    [
        (X, np.full(8, 0.1)),
        (np.full((8, 3), 0.1), Y),
        (np.zeros((8, 3)), Y),
        (X[:1], Y[:1]),
    ],
    ids=["constant y", "constant X", "zero X", "one sample"],
)
def test_nothing_to_learn(estimator, A, b):
    fitted = clone(estimator).set_params(fit_intercept=True).fit(A, b)
    assert (fitted.coef_ == 0.0).all()
    assert_allclose(fitted.intercept_, b.mean(), rtol=1e-14)
    assert fitted.certificate_.ok


def test_a_sample_at_the_mean_is_no_constraint():
    """Centring leaves of it only rounding, which must not be fitted."""
    A = np.array([[0.1, 0.7, 0.3, 1.0], [0.2, 0.4, 0.6, 0.3], [0.3, 0.1, 0.9, -0.4]])
    A[1] = (A[0] + A[2]) / 2.0
    fitted = MinNormRegressor().fit(A, [1.0, 2.0, 3.0])
    expected = np.linalg.lstsq(A[[0, 2]] - A[1], np.array([-1.0, 1.0]))[0]
    assert_allclose(fitted.coef_, expected, atol=1e-12)


# --- conventions -----------------------------------------------------------------------------


@EVERY
def test_outputs_are_fitted_one_by_one(estimator):
    both = np.column_stack([Y, Y**2])
    fitted = clone(estimator).fit(X, both)
    assert fitted.coef_.shape == (2, 20)
    assert fitted.dual_coef_.shape == (2, 8)
    for j in range(2):
        single = clone(estimator).fit(X, both[:, j])
        # A column of two lies apart in memory, so that sums over it may round differently.
        for name in ("coef_", "dual_coef_", "intercept_"):
            expected = getattr(single, name)
            atol = SAME * np.abs(expected).max()
            assert_allclose(getattr(fitted, name)[j], expected, atol=atol, err_msg=name)
        assert fitted.certificate_[j].ok
        # Which step is the last may depend on a digit that rounds.
        assert abs(fitted.n_iter_[j] - single.n_iter_) <= 1
        assert_allclose(fitted.predict(X)[:, j], single.predict(X), rtol=SAME)


@EVERY
@pytest.mark.parametrize("as_sparse", [scipy.sparse.csr_array, scipy.sparse.coo_matrix])
def test_sparse_is_dense(estimator, as_sparse):
    A = np.where(np.abs(X) > 0.5, X, 0.0)
    dense = clone(estimator).fit(A, Y, WEIGHT)
    fitted = clone(estimator).fit(as_sparse(A), Y, WEIGHT)
    assert_allclose(fitted.coef_, dense.coef_, atol=SAME)
    assert_allclose(fitted.predict(as_sparse(A)), dense.predict(A), atol=1e-8)


@EVERY
def test_pickles(estimator):
    fitted = clone(estimator).fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.certificate_ == fitted.certificate_


def test_in_a_pipeline_and_a_search():
    steps = make_pipeline(StandardScaler(), ImplicitBiasRegressor())
    search = GridSearchCV(steps, {"implicitbiasregressor__scale": [1e-3, 1.0]}, cv=2).fit(X, Y)
    best = search.best_params_["implicitbiasregressor__scale"]
    scaled = StandardScaler().fit_transform(X)
    expected = ImplicitBiasRegressor(scale=best).fit(scaled, Y)
    assert_array_equal(search.best_estimator_[-1].coef_, expected.coef_)


def test_weights_are_routed():
    weight = np.array([1.0, 0.0, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(MinNormRegressor().set_fit_request(sample_weight=True))
        routed = steps.fit(X, Y, sample_weight=weight)[-1]
    assert_array_equal(routed.coef_, MinNormRegressor().fit(X, Y, weight).coef_)


def test_names_of_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:, :3], columns=["a", "b", "c"])
    fitted = MinNormRegressor().fit(frame, Y)
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame[["c", "b", "a"]])
