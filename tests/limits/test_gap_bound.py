"""The bound from the duality gap, where the box of the other one does not close."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import flowbias as fb
from flowbias.certificates.error_bound import box_bound
from flowbias.certificates.gap_bound import _row_space, gap_bound
from flowbias.designs.dense import ArrayDesign

X, Y = fb.datasets.sparse_regression(n=30, d=120, sparsity=3, noise_var=0.01, rng=1)[:2]


@pytest.mark.parametrize(("depth", "log_scale"), [(3, -60.0), (5, -20.0), (2, -5000.0)])
def test_the_gap_bounds_what_the_box_does_not(depth, log_scale):
    model = fb.DiagonalNet(depth, log_scale=log_scale)
    found = fb.limit(model, X, Y)
    arguments = X, Y, found.w, found.dual, model.potential, model.shift
    bound = gap_bound(*arguments)
    assert bound <= 1e-6 * np.linalg.norm(found.w)
    if depth > 2:
        assert box_bound(ArrayDesign(X), *arguments[1:]) == np.inf
    # At the rich end the limit is that of scale zero, which a linear program finds.
    if depth > 2:
        rich = fb.rich_limit(model, X, Y).w
        assert np.linalg.norm(found.w - rich) <= bound + 1e-12 * np.linalg.norm(rich)


@pytest.mark.parametrize("off", [1e-9, 1e-6, 1e-2])
def test_it_is_never_below_the_distance(off):
    model = fb.DiagonalNet(3, log_scale=-60.0)
    found = fb.limit(model, X, Y)
    null = np.linalg.svd(X)[2][-1]
    moved = found.w + off * null
    bound = gap_bound(X, Y, moved, found.dual, model.potential, model.shift)
    assert bound >= off - found.certificate.error_bound


def test_there_is_none_on_a_face():
    """Equal columns: the l1 norm does not say how they share, and the gap cannot see it."""
    model = fb.DiagonalNet(5, 1e-4)
    twice = np.array([[1.0, 1.0]])
    found = fb.limit(model, twice, [1.0])
    for w in (found.w, np.array([1.0, 0.0])):
        bound = gap_bound(twice, np.ones(1), w, found.dual, model.potential, model.shift)
        assert bound == np.inf


def test_there_is_none_where_w_is_outside_the_domain():
    one_sided = fb.DiagonalNet.from_weights([1.0], [0.0])
    bound = gap_bound(np.ones((1, 1)), -np.ones(1), -np.ones(1), np.zeros(1), one_sided.potential)
    assert bound == np.inf


def test_values_of_too_few_digits_prove_nothing():
    # Q + Q* - z w came out negative, and the bound with it: just above depth 2 from a huge start,
    X = np.array(
        [[-7904.66297, -0.527786305, 61.9004957], [-7444.26354, -0.710811194, -208.847696]]
    )
    start = {"scale": 9.259598010077343e86, "w0": [0.78533031, 0.54461741, 1.5763143]}
    above_2 = fb.DiagonalNet(2.0000000007732277, **start), X, [-3.80419661e-43, -3.64679391e-43]
    # and at depth 100, where Q is of order scale^98.
    rows = np.outer([1.0, -12.159, -2.5154, -12.3551, -4.7932], [-0.164, -0.067, -0.008, 0.252])
    rows *= 1.0 + 1e-8 * np.random.default_rng(0).standard_normal(rows.shape)
    deep = fb.DiagonalNet(100, scale=15.0), rows, rows.sum(axis=1)
    for model, X, y in (above_2, deep):
        found = fb.limit(model, X, y)
        arguments = X, np.asarray(y), found.w, found.dual, found.potential, found.shift
        assert gap_bound(*arguments) >= 0.0
        assert found.certificate.error_bound >= 0.0


@pytest.mark.parametrize("apart", [1.0, 1e-8])
@pytest.mark.parametrize("used", [slice(None), slice(0, 40)])
def test_the_row_space_is_that_of_the_columns_in_use(apart, used):
    """Through X X^T, or where rows are so close that this does not tell them, by X itself."""
    rows = X[:10].copy()
    rows[1] = rows[0] + apart * rows[1]
    weights = np.zeros(rows.shape[1])
    weights[used] = 1.0
    inverse, values = _row_space(rows, weights)
    expected = np.linalg.svd(rows[:, used], compute_uv=False)
    # Squares are right to n eps of the largest, and so the least of them to that over apart^2;
    # singular values themselves to n eps over apart.
    assert_allclose(np.sort(values)[::-1], expected, rtol=1e-5)
    v = rows[:, used] @ np.ones(len(weights[used]))
    assert_allclose(rows[:, used] @ (rows[:, used].T @ inverse(v)), v, rtol=1e-5)


# --- vertices of the l1 norm ---------------------------------------------------------------------


def real_data(n):
    """Cubic features of diabetes patients, centred: rows that add up to zero but for rounding."""
    data = load_diabetes()
    cubic = PolynomialFeatures(3, include_bias=False).fit_transform(data.data[:n])
    return StandardScaler().fit_transform(cubic), data.target[:n] - data.target[:n].mean()


def test_a_vertex_of_centred_data_is_known_as_well_as_its_fit():
    X, y = real_data(100)
    found = fb.basis_pursuit(X, y)
    used = found.w != 0.0
    assert used.sum() == len(X) - 1
    exactly = np.zeros_like(found.w)
    # Least squares on the support: its condition is about 1e2, far from where digits get lost.
    exactly[used] = np.linalg.lstsq(X[:, used], y, rcond=1e-10)[0]
    bound = found.certificate.error_bound
    assert np.linalg.norm(found.w - exactly) <= bound <= 1e-9 * np.linalg.norm(found.w)


def test_real_data_are_certified_near_the_rich_end():
    """That the data say only n - 1 things of n is no reason to know w to five digits."""
    X, y = real_data(100)
    assert fb.estimators.RichRegressor().fit(X, y).status_ == "CERTIFIED"
    for model in (fb.DiagonalNet(3, log_scale=-25.0), fb.DiagonalNet(2, log_scale=-200.0)):
        assert fb.limit(model, X, y).certificate.relative_error <= 1e-7


@pytest.mark.parametrize("seed", range(8))
def test_only_the_vertex_that_its_dual_proves_has_a_bound(seed):
    """Every basis with the dual that pays for it: all but one of them are no minimizers."""
    rng = np.random.default_rng(seed)
    rows, y = rng.standard_normal((3, 6)), rng.standard_normal(3)
    least = fb.basis_pursuit(rows, y).w
    bounded = 0
    for basis in map(list, combinations(range(6), 3)):
        w = np.zeros(6)
        w[basis] = np.linalg.solve(rows[:, basis], y)
        nu = np.linalg.solve(rows[:, basis].T, np.sign(w[basis]))
        bound = gap_bound(rows, y, w, nu, fb.L1())
        bounded += np.isfinite(bound)
        assert bound >= np.linalg.norm(w - least) - 1e-13 * np.linalg.norm(least)
    assert bounded == 1


@pytest.mark.parametrize("off", [1e-9, 1e-6, 1e-3])
def test_a_moved_vertex_is_no_nearer_than_it_is_said_to_be(off):
    X, y = real_data(40)
    found = fb.basis_pursuit(X, y)
    used = found.w != 0.0
    # Where the fit sees it least.
    easily = np.linalg.svd(X[:, used])[2][-1]
    moved = found.w.copy()
    moved[used] += off * easily
    bound = gap_bound(X, y, moved, found.dual, fb.L1())
    assert bound >= off - found.certificate.error_bound
