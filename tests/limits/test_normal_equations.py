"""The linear system behind every step, against mpmath."""

import mpmath as mp
import numpy as np
import pytest

from flowbias.limits.normal_equations import Effort, NormalEquations
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
