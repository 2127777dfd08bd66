"""The linear system behind every step, against mpmath."""

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.ground.linear_algebra import cholesky_if_conditioned
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problems.regression import Regression

RNG = np.random.default_rng(12)
X = RNG.standard_normal((4, 9))
B = RNG.standard_normal(4)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 60])
@pytest.mark.parametrize("decades", [0.0, 3.0, 8.0, 9.5, 12.0])
def test_a_factor_is_had_of_matrices_that_are_conditioned_as_asked(n, decades):
    """Whether or not it takes the condition number itself to tell."""
    rotation, _ = np.linalg.qr(RNG.standard_normal((n, n)))
    matrix = (rotation * np.logspace(0.0, -decades, n)) @ rotation.T
    unit = 1.0 / np.sqrt(np.diagonal(matrix))
    matrix = matrix * unit * unit[:, None]
    rcond = 1.0 / np.linalg.cond(matrix, 1)
    for share in (0.1, 10.0):
        factor = cholesky_if_conditioned(matrix, share * rcond)
        # LAPACK's estimate of a norm of the inverse is within a factor of three.
        assert (factor is not None) == (share < 1.0)
        if factor is not None:
            assert_allclose(factor @ factor.T, matrix, atol=1e-13)


def test_matrices_that_are_indefinite_have_no_factor():
    assert cholesky_if_conditioned(np.array([[1.0, 2.0], [2.0, 1.0]]), 1e-10) is None


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
