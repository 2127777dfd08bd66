"""The linear system behind every step, against mpmath."""

import mpmath as mp
import numpy as np
import pytest

import flowbias as fb
from flowbias.limits.normal_equations import Effort, NormalEquations, nearby_system
from flowbias.problems.regression import Regression

RNG = np.random.default_rng(12)
X = RNG.standard_normal((4, 9))
B = RNG.standard_normal(4)


def exact_solution(weights):
    """(A diag(weights) A^T)^-1 b for the equilibrated rows, in 60 digits."""
    constraint = Regression(X, B).constraint
    with mp.workdps(60):
        rows = mp.matrix((constraint.row_scale[:, None] * constraint.rows).tolist())
        matrix = rows * mp.diag([mp.mpf(weight) for weight in weights]) * rows.T
        return np.array([float(x) for x in mp.lu_solve(matrix, mp.matrix(B.tolist()))])


def relative_error(weights, *, graded):
    system = NormalEquations(Regression(X, B).constraint, weights, Effort(), graded=graded)
    exact = exact_solution(weights)
    return np.linalg.norm(system.solve(B) - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("graded", [False, True])
def test_ordinary_weights(graded):
    # Condition of a few hundred, times eps.
    assert relative_error(RNG.uniform(0.1, 1.0, 9), graded=graded) < 1e-12


@pytest.mark.parametrize("spread", [1e-6, 1e-12, 1e-20, 1e-26])
def test_graded_weights(spread):
    """Two columns carry all the weight of four rows: the rest decides two directions."""
    weights = np.where(np.arange(9) < 2, 1.0, spread)
    # sqrt(spread) is what the orthogonal factorization sees: 1e-13 leaves three digits.
    assert relative_error(weights, graded=True) < 1e-2
    if spread < 1e-18:
        assert relative_error(weights, graded=False) > 0.1


def test_directions_without_weight_stay_where_they_are():
    weights = np.where(np.arange(9) < 2, 1.0, 0.0)
    for graded in (False, True):
        system = NormalEquations(Regression(X, B).constraint, weights, Effort(), graded=graded)
        assert np.isfinite(system.solve(B)).all()


def test_effort_is_counted():
    effort = Effort()
    for graded in (False, True):
        NormalEquations(Regression(X, B).constraint, np.ones(9), effort, graded=graded)
    assert effort.factorizations == 2


@pytest.mark.parametrize("scale", [1.0, 0.03, 1e-3, 1e-12])
def test_a_nearby_system_is_within_a_factor_of_the_true_one(scale):
    """Few of many columns carry the limit: the others count by their mean."""
    A, b, _ = fb.datasets.sparse_regression(n=10, d=200, sparsity=2, noise_var=0.01, rng=0)
    problem = Regression(A, b)
    solution = fb.limit(fb.DiagonalNet(2, scale), A, b)
    weights = solution.potential.hess_dual(A.T @ solution.dual)
    effort = Effort()
    nearby = nearby_system(problem.constraint, weights, effort)
    assert effort.factorizations == 1
    lower = problem.constraint.gram(weights)
    whole = np.tril(lower) + np.tril(lower, -1).T
    values = np.linalg.eigvals(np.column_stack([nearby.solve(column) for column in whole])).real
    # The other 180 columns would be off by orders of magnitude without their mean or at its cost.
    assert 0.4 < values.min() <= values.max() < 2.5


def test_where_no_columns_are_left_out_a_nearby_system_is_the_true_one():
    problem, weights = Regression(X, B), np.arange(1.0, 10.0)
    nearby = nearby_system(problem.constraint, weights, Effort())
    exact = exact_solution(weights)
    assert np.linalg.norm(nearby.solve(B) - exact) < 1e-12 * np.linalg.norm(exact)
