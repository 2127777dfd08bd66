"""A first look proves no more than a closer one, and its certificate has the same numbers."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.linalg
from hypothesis import example, given
from hypothesis import strategies as st

import flowbias as fb
from flowbias.certificates.candidate import Factor, as_it_is, is_proved
from tests.fuzz.answers import model_of
from tests.fuzz.problems import problem


def data(n=6, d=20, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n)


def factor_of(X, weights):
    gram = (X * weights) @ X.T
    unit = 1.0 / np.sqrt(np.diagonal(gram))
    lower = scipy.linalg.cholesky(gram * unit * unit[:, None], lower=True)
    return Factor(lower, unit, weights)


def looked_at(solution, X, y, w=None, dual=None, factor=None, tol=1e-10):
    """At a solution, or at something else in its place."""
    w, dual = solution.w if w is None else w, solution.dual if dual is None else dual
    slope = solution.potential.hess_dual(solution.shift + X.T @ solution.dual)
    factor = factor_of(X, slope) if factor is None else factor
    return is_proved(X, y, w, dual, solution.potential, solution.shift, factor, tol=tol)


MODELS = {
    "kernel": fb.DiagonalNet(2, 10.0),
    "between": fb.DiagonalNet(2, 0.1),
    "rich": fb.DiagonalNet(2, 1e-8),
    "tiny": fb.DiagonalNet(2, 1e-290),
    "depth 3": fb.DiagonalNet(3, 0.3),
    "biased": fb.DiagonalNet.from_weights(np.full(20, 0.5), np.linspace(0.1, 1, 20), 2),
    "untied": fb.UntiedDiagonalNet(scale=0.4, shape=0.5),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_limits_are_proved_and_what_is_none_is_not(model):
    X, y = data()
    solution = fb.limit(model, X, y)
    assert looked_at(solution, X, y)
    rng = np.random.default_rng(1)
    for share in (1e-9, 1e-6, 1e-3):  # the tolerance is 1e-10
        w = solution.w * (1.0 + share * rng.standard_normal(20))
        dual = solution.dual * (1.0 + share * rng.standard_normal(6))
        assert not looked_at(solution, X, y, w=w)
        assert not looked_at(solution, X, y, dual=dual)
        along = dual, solution.potential.grad_dual(solution.shift + X.T @ dual)
        assert not looked_at(solution, X, y, w=along[1], dual=along[0])
    assert not looked_at(solution, X, y, tol=1e-17)


def test_nearly_dependent_rows_are_left_to_a_closer_look():
    X, y = data()
    X[1] = X[0] + 1e-7 * X[1]
    solution = fb.limit(fb.DiagonalNet(2, 1.0), X, y, throw=False)
    assert not looked_at(solution, X, y)


def test_a_factor_of_something_else_proves_nothing():
    X, y = data()
    solution = fb.limit(fb.DiagonalNet(2, 1.0), X, y)
    slope = solution.potential.hess_dual(X.T @ solution.dual)
    good = factor_of(X, slope)
    assert looked_at(solution, X, y, factor=good)
    wrong = good.lower.copy()
    wrong[3, 2] += 1e-6
    assert not looked_at(solution, X, y, factor=good._replace(lower=wrong))
    assert not looked_at(solution, X, y, factor=good._replace(unit=1.001 * good.unit))
    assert not looked_at(solution, X, y, factor=good._replace(weights=2.0 * slope))
    # Weights that are near a multiple of the slope will do, others prove too little.
    assert looked_at(solution, X, y, factor=factor_of(X, 7.0 * slope))
    far = slope * np.where(np.arange(20) < 6, 1.0, 1e9)
    assert not looked_at(solution, X, y, factor=factor_of(X, far))


@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0.0, 3.0))
def test_eigenvalues_are_bounded_from_below(seed, n, skew):
    """The cheap bound of few rows as well as the other."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3 * n))
    weights, others = np.exp(skew * rng.standard_normal((2, 3 * n)))
    factor = factor_of(X, weights)
    matrix = (X * others) @ X.T * factor.unit * factor.unit[:, None]
    least = np.linalg.eigvalsh(matrix)[0]
    bounds = list(factor.least_eigenvalues(others, np.abs(X).max()))
    # Up to the rounding of the eigenvalue itself.
    assert max(bounds) <= least + 1e-12 * np.trace(matrix)
    assert 1 <= len(bounds) <= 2


def test_few_rows_have_a_cheap_bound_of_their_least_eigenvalue():
    X, _ = data(6, 60)
    weights = np.ones(60)
    bounds = factor_of(X, weights).least_eigenvalues(weights, np.abs(X).max())
    # Rows of random data are nearly orthogonal: their eigenvalues are about one.
    assert next(bounds) > 0.1


def test_a_weight_that_counts_for_nothing_is_taken_off():
    X, _ = data(3, 4)
    X[2, :3] = 0.0  # only the last column tells the third row
    weights = np.array([1.0, 1.0, 1.0, 1e-13])
    factor = factor_of(X, weights)
    entry = np.abs(X).max()
    assert max(factor.least_eigenvalues(weights, entry)) > 0.0
    assert max(factor.least_eigenvalues(weights * [1.0, 1.0, 1.0, 0.0], entry)) <= 0.0


@given(st.integers(0, 10**6))
@example(209995)  # depth 100, scale 17: the square of a dual of 1e-247 is no double
@example(6788)  # depth 100: w hardly moves with its dual point, which its digits do not tell
def test_what_is_proved_at_first_is_proved_by_its_numbers(seed):
    drawn = problem(seed)
    try:
        solution = fb.limit(model_of(drawn.start), drawn.X, drawn.y, throw=False)
    except fb.InputError:
        return
    certificate = solution.certificate
    if "numbers" in vars(certificate):
        assert certificate.ok
        assert all(measure.ok for measure in certificate.measures)


def fresh():
    X, y = data()
    certificate = fb.limit(fb.DiagonalNet(2, 0.1), X, y).certificate
    assert "numbers" in vars(certificate)
    return certificate


def test_its_numbers_are_those_of_certify():
    X, y = data()
    solution = fb.limit(fb.DiagonalNet(2, 0.1), X, y)
    again = fb.certify(X, y, solution.w, solution.dual, solution.potential)
    assert solution.certificate == again
    assert "numbers" not in vars(solution.certificate)


def test_it_travels_and_changes_like_any_other():
    one = fresh()
    assert pickle.loads(pickle.dumps(fresh())) == one
    assert not replace(fresh(), feasibility=1.0).ok
    assert repr(fresh()) == repr(one)
    assert fresh().tol == 1e-10
    assert [getattr(fresh(), each.name) for each in fields(one)][:3] == [
        one.feasibility,
        one.stationarity,
        one.gap,
    ]
    with pytest.raises(AttributeError, match="no attribute 'feasible'"):
        _ = fresh().feasible


def test_its_numbers_are_of_what_was_proved_whatever_was_changed_in_place_since():
    X, y = data()
    wanted = fresh()
    solution = fb.limit(fb.DiagonalNet(2, 0.1), X, y)
    for array in (X, y, solution.w, solution.dual):
        array[...] = 0.0
    assert solution.certificate == wanted


def test_limits_on_one_problem_share_what_their_numbers_are_computed_from():
    X, y = data()
    given = fb.Regression(X, y)
    path = fb.limit_path(fb.DiagonalNet(2, 1.0), given, log_scales=[0.0, -1.0])
    first, second = (vars(each.certificate)["numbers"].args[0][0] for each in path)
    assert first is second
    assert first.in_memory is not X
    expected = fb.certify(X, y, path[0].w, path[0].dual, path[0].potential)
    X *= 2.0  # and what comes after has its own
    assert as_it_is(given.design) is not first
    assert path[0].certificate == expected
