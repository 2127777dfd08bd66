"""Answers that small residuals would certify, and that are wrong: each is right now, or refused."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse.linalg
from mpmath import mp
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.certificates.candidate import Factor, is_proved
from flowbias.certificates.exact_limit import exact_limit
from tests.exact import distance
from tests.exact import exact_limit as many_digits
from tests.fuzz.answers import model_of
from tests.fuzz.problems import problem

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


def test_rows_that_stand_for_others_fit_no_more_of_y_than_its_digits_say():
    """Each of four rows may be the one that repeats the others, with another limit each."""
    given = problem(830002378)
    model = model_of(given.start)
    found = fb.limit(model, given.X, given.y, throw=False)
    for row in (0, 3, 4, 5):
        others = np.arange(6) != row
        alone = fb.limit(model, given.X[others], given.y[others])
        assert alone.certificate.error_bound < 1e-12  # each is known to all digits
        assert np.linalg.norm(alone.w - found.w) <= found.certificate.error_bound


@pytest.mark.parametrize("seed", [880000791, 880004738])
def test_a_minimizer_gives_up_no_row_for_the_small_units_it_is_in(seed):
    """Where rounding alone tells rows apart: others, many decades larger, hid what it missed."""
    given = problem(seed)
    if given.entry == "rich_limit":
        found = fb.rich_limit(model_of(given.start), given.X, given.y, throw=False)
    else:
        found = fb.basis_pursuit(given.X, given.y, throw=False)
    vertex = found.certificate.vertex
    assert found.status.ok
    fitted, sums = given.X @ vertex.w, np.abs(given.X) @ np.abs(vertex.w)
    # Roundings of sums of eight terms.
    assert (np.abs(given.X @ found.w - fitted) <= 1e-14 * sums).all()
    # Moved along the largest row's null space the others still fit, and the smallest does not.
    rows = np.abs(given.X).max(axis=1)
    *_, turn = np.linalg.svd(given.X[rows > 1.0] / rows[rows > 1.0, None])
    away = turn[-1] * (1e-3 * np.linalg.norm(found.w))
    wrong = fb.certify(given.X, given.y, found.w + away, found.dual, found.potential)
    assert not wrong.ok


def test_columns_that_are_opposite_but_for_their_last_digits_are_no_question_for_doubles():
    """Where weights keep their signs: 1e14 of both fit what neither can, and w is no less."""
    given = problem(850002081)
    found = fb.limit(model_of(given.start), given.X, given.y, throw=False)
    assert found.status is fb.Status.STALLED
    # Columns that are opposite to the last digit fit no more together than alone.
    X = given.X.copy()
    X[:, [1, 3]] = -X[:, [0, 2]]
    assert fb.limit(model_of(given.start), X, given.y).status is fb.Status.PROJECTED


def test_a_step_along_which_the_dual_only_rises_is_the_end():
    """By rounding, of 37 coordinates on a big problem: the secant had no two points."""
    given = problem(870003020)
    found = fb.limit(model_of(given.start), given.X, given.y, throw=False)
    assert found.status.ok or found.status is fb.Status.STALLED


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


def test_rows_that_rounding_tells_apart_are_told_of():
    """The second row repeats the first in units 1e5 times smaller, but for its last digits."""
    X = np.array([[0.6, 1.0, 0.2, 0.4]])
    X, y = np.vstack([X, X * 9.7e-6]), np.array([-0.7, -0.7 * 9.7e-6])
    model = fb.DiagonalNet(2, 1e-20)
    found = fb.limit(model, X, y)
    alone = fb.limit(model, X[:1], y[:1])
    assert_allclose(found.w, alone.w, atol=1e-12)
    proof = fb.certify(X, y, found.w, found.dual, model.potential)
    for told in (found, proof, found.certificate):
        assert 0.0 < told.distance < 1e-15
    assert found.status is fb.Status.PROJECTED
    assert "distance" in repr(proof)
    # Of rows that are apart, or the same, there is nothing to tell.
    for rows in ([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]], [[1.0, 2.0], [2.0, 4.0]]):
        rows = np.array(rows)
        found = fb.limit(model, rows, rows.sum(axis=1))
        proof = fb.certify(rows, rows.sum(axis=1), found.w, found.dual, model.potential)
        assert (found.status, found.distance, proof.distance) == (fb.Status.CERTIFIED, 0.0, 0.0)
        assert "distance" not in repr(proof)


def test_a_certificate_says_how_much_of_y_is_fitted():
    X, y = np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([1.0, 3.0])
    found = fb.limit(fb.DiagonalNet(2, 0.1), X, y)
    wanted = np.sqrt(2.0 / 10.0)
    assert_allclose([found.distance, found.certificate.distance], wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "solve", [fb.basis_pursuit, lambda X, y: fb.rich_limit(fb.DiagonalNet(2, 0.1), X, y)]
)
def test_that_y_was_projected_is_said_where_minimizers_are_several(solve):
    """Whatever else there is to say, and in the same words."""
    X, y = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), np.array([1.0, 3.0])
    found = solve(X, y)
    assert found.distance > 0.4
    assert "y is not in the range" in found.message


@pytest.mark.parametrize("by", [[3e-3, 5e-3, 3e-4], [1e-5, 0.0, 0.0], [-0.5, 0.5, 0.1]])
@pytest.mark.parametrize(("scale", "size"), [(5e53, 1e-119), (1e20, 1e-160), (1e3, 1e-170)])
def test_a_bound_counts_what_underflows(scale, size, by):
    """w is far below one and its dual further: Q, and with it every gap, is no double."""
    X = np.array([[2.0, 1.0, 3.0], [1.0, 2.0, -1.0], [0.0, -1.0, -3.0], [-3.0, -3.0, -3.0]])
    w = size * np.array([-7.0, 9.0, -3.0])
    model = fb.DiagonalNet(2, scale)
    wrong = w * (1.0 - np.array(by))
    dual = np.linalg.lstsq(X.T, model.potential.grad(wrong), rcond=None)[0]
    proof = fb.certify(X, X @ w, wrong, dual, model.potential)
    assert not proof.ok
    # Of numbers whose squares are no doubles either.
    assert proof.error_bound / size >= np.linalg.norm((wrong - w) / size) * (1.0 - 1e-9)


@pytest.mark.parametrize("size", [1e-100, 1e-140, 1e-165, 1e-200])
def test_a_first_look_counts_what_underflows(size):
    """Residuals of outputs that are next to nothing are nothing, squared."""
    rng = np.random.default_rng(3)
    X, w = rng.standard_normal((4, 9)), size * rng.standard_normal(9)
    model, y = fb.DiagonalNet(2, 1e-3), X @ w
    found = fb.limit(model, X, y)
    lower = np.linalg.cholesky(X @ X.T / 9.0)
    unit = 1.0 / np.linalg.norm(lower, axis=1)
    weights = np.full(9, 1.0 / 9.0)
    factor = Factor(unit[:, None] * lower, unit, weights)
    for away, is_right in ((0.5, False), (1e-3, False), (0.0, True)):
        dual = (1.0 + away) * found.dual
        w = model.potential.grad_dual(X.T @ dual)
        proved = is_proved(X, y, w, dual, model.potential, 0.0, factor, tol=1e-10)
        # What is right may be left to a closer look.
        assert is_right or not proved


def test_a_start_far_beyond_the_data_closes_no_side():
    """w(0) = -1e250, from where Q is no number at ordinary w: that is no end of its domain."""
    model = fb.DiagonalNet.from_weights([12667.7], [1e5], depth=50)
    found = fb.limit(model, [[2.0]], [6.0])
    assert found.status is fb.Status.CERTIFIED
    assert_allclose(found.w, [3.0], rtol=1e-12)
    for one_sided in (([1e5], [0.0]), ([0.0], [1e5])):
        potential = fb.DiagonalNet.from_weights(*one_sided, depth=50).potential
        assert potential.open_sides(1, 1.0) == tuple(np.array([w[0] > 0.0]) for w in one_sided)


def test_what_is_no_data_is_refused_by_certify():
    model, good = fb.DiagonalNet(2, 0.1), ([[1.0, 2.0]], [1.0], [0.2, 0.4], [1.0])
    for place, bad in (
        (0, [[1.0, np.nan]]),
        (0, [[1.0, np.inf]]),
        (0, [[1.0], [2.0, 3.0]]),
        (1, [np.nan]),
    ):
        given = [*good[:place], bad, *good[place + 1 :]]
        with pytest.raises(fb.InputError, match=f"^{'Xy'[place]}: must be"):
            fb.certify(*given, model.potential)
    for place in (2, 3):
        for bad in (np.nan, np.inf, 1e308, 5e-324):
            given = [*good[:place], np.full(len(good[place]), bad), *good[place + 1 :]]
            assert not fb.certify(*given, model.potential).ok


@pytest.mark.parametrize("entry", [np.inf, 1e308, 5e-324])
def test_operators_whose_products_are_no_numbers_are_refused_by_certify(entry):
    X = scipy.sparse.linalg.aslinearoperator(np.full((2, 3), entry))
    with pytest.raises(fb.InputError, match=r"^X: must be finite"):
        fb.certify(X, np.ones(2), np.ones(3), np.ones(2), fb.Hypentropy(scale=0.1))


def test_an_operator_of_zeros_fits_nothing():
    X = scipy.sparse.linalg.aslinearoperator(np.zeros((2, 3)))
    assert not fb.certify(X, np.ones(2), np.ones(3), np.ones(2), fb.Hypentropy(scale=0.1)).ok


def test_where_nothing_can_move_all_of_y_is_out_of_reach():
    model = fb.DiagonalNet.from_weights([0.0, 1e-3], [0.0, 1e-2])
    found = fb.limit(model, [[-1.0, 0.0], [3.0, 0.0]], [1.0, -2.0])
    assert found.status is fb.Status.PROJECTED
    assert_allclose([found.distance, found.certificate.distance], 1.0, rtol=1e-12)
    assert_allclose(found.w, [0.0, 1e-6 - 1e-4], rtol=1e-12)
    # Nothing is asked of what cannot move.
    assert fb.limit(model, [[-1.0, 0.0], [3.0, 0.0]], [0.0, 0.0]).status is fb.Status.CERTIFIED


@pytest.mark.parametrize("y", [[0.0], [-1.0]])
def test_what_vanishes_without_a_choice_has_numbers_all_the_same(y):
    """One weight of one sign that is to fit nothing, or the other sign: the dual has no end."""
    found = fb.limit(fb.DiagonalNet.from_weights([1.0], [0.0]), [[1.0]], y)
    assert found.status.ok
    assert found.w == [0.0]
    proof = found.certificate
    assert np.isfinite([*found.dual, proof.feasibility, proof.stationarity, proof.gap]).all()


def test_a_refusal_without_a_measure_that_is_too_large_ends_with_its_reason():
    found = fb.limit(fb.DiagonalNet(2, 0.1), [[1.0, 2.0]], [1.0])
    refused = replace(found, status=fb.Status.STALLED, route="rows are lost")
    assert refused.message.endswith("(rows are lost)")
