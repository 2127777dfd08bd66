"""Least Frobenius norm, or least distance from a start."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.limits.spectral import frobenius_norm
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("start", [None, RNG.standard_normal((4, 5))], ids=["zero", "start"])
def test_pseudo_inverse(start):
    problem = MatrixSensing(RNG.standard_normal((6, 4, 5)), RNG.standard_normal(6))
    origin = np.zeros((4, 5)) if start is None else start
    rows = problem.matrices.reshape(6, -1)
    move = np.linalg.pinv(rows) @ (problem.target - rows @ origin.ravel())
    solution = frobenius_norm(problem, start)
    assert solution.status is fb.Status.CERTIFIED
    assert_allclose(solution.M, origin + move.reshape(4, 5), atol=1e-12)
    assert_allclose(solution.M - origin, problem.adjoint(solution.dual), atol=1e-12)


def test_completion_leaves_the_other_entries():
    problem = MatrixCompletion([0, 1, 1], [0, 0, 2], [1.0, 2.0, 3.0], (2, 3))
    assert_allclose(frobenius_norm(problem).M, [[1, 0, 0], [2, 0, 3]], atol=1e-14)
    start = np.arange(6.0).reshape(2, 3)
    assert_allclose(frobenius_norm(problem, start).M, [[1, 1, 2], [2, 4, 3]], atol=1e-13)


def test_regression_is_the_least_norm_fit():
    X, Y = RNG.standard_normal((3, 6)), RNG.standard_normal((3, 2))
    assert_allclose(frobenius_norm(MatrixRegression(X, Y)).M, np.linalg.pinv(X) @ Y, atol=1e-12)


def test_unreachable_targets_are_projected():
    solution = frobenius_norm(MatrixSensing(np.stack([np.eye(2)] * 2), [1.0, 3.0]))
    assert solution.status is fb.Status.PROJECTED
    assert_allclose(solution.M, np.eye(2), atol=1e-14)
    assert "least-squares limit" in solution.message


def test_bad_start():
    with pytest.raises(InputError, match=r"start: must have the shape of the problem \(2, 2\)"):
        frobenius_norm(MatrixSensing([np.eye(2)], [1.0]), np.zeros((3, 2)))
