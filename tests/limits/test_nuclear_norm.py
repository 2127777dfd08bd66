"""Least nuclear norm: both bounds hold, meet, and are known where they can be computed by hand."""

import builtins

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.limits.spectral import nuclear_norm
from flowbias.problems.matrix import MatrixCompletion, MatrixSensing
from tests.limits.factor_flow import diagonal_together, orthogonal

# What the certificate promises: operator norm of the dual, and relative gap.
OPERATOR, GAP = 1.0 + 1e-7, 1e-6


def completion(seed, shape=(10, 10), count=60, rank=1):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    seen = rng.choice(truth.size, count, replace=False)
    rows, cols = np.unravel_index(seen, shape)
    return MatrixCompletion(rows, cols, truth[rows, cols], shape), truth


@pytest.mark.parametrize(
    "problem",
    [completion(0)[0], completion(1)[0], completion(2, (6, 9), 30, 2)[0]]
    + [
        MatrixSensing(
            np.random.default_rng(s).standard_normal((12, 5, 6)),
            np.random.default_rng(s + 50).standard_normal(12) * 10.0**p,
        )
        for s, p in ((0, 0), (1, 8), (2, -8))
    ],
    ids=["completion", "completion-1", "rectangular", "sensing", "large values", "small values"],
)
def test_certificate(problem):
    solution = nuclear_norm(problem)
    assert solution.status is fb.Status.CERTIFIED
    # Recomputed here from the problem, M and the dual alone.
    operator = np.linalg.norm(problem.adjoint(solution.dual), 2)
    upper, lower = np.linalg.norm(solution.M, "nuc"), solution.dual @ problem.target
    size = np.linalg.norm(problem.target)
    assert np.linalg.norm(problem.measure(solution.M) - problem.target) <= 1e-12 * size
    assert operator <= OPERATOR
    assert -1e-12 * upper <= upper - lower <= GAP * upper
    assert_allclose(
        [solution.certificate.operator_norm, solution.certificate.gap],
        [operator, (upper - lower) / upper],
        atol=1e-12,
    )


def test_low_rank_truth_is_recovered_where_it_is_the_minimizer():
    problem, truth = completion(3, (8, 8), 50)
    solution = nuclear_norm(problem)
    assert solution.unique
    assert_allclose(solution.M, truth, atol=1e-5)


def test_diagonal_measurements_are_basis_pursuit():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((3, 6)), rng.standard_normal(3)
    P, Q = orthogonal(6, rng), orthogonal(6, rng)
    solution = nuclear_norm(MatrixSensing(np.stack([(P * row) @ Q.T for row in X]), y))
    assert_allclose(
        solution.details["nuclear_norm"], np.abs(fb.basis_pursuit(X, y).w).sum(), rtol=1e-6
    )


def test_trace_has_many_minimizers_and_says_so():
    solution = nuclear_norm(MatrixSensing([np.eye(3)], [3.0]))
    assert solution.unique is False
    assert "other minimizers may exist" in solution.message
    assert_allclose(solution.details["nuclear_norm"], 3.0, rtol=1e-7)


def test_measurements_away_from_the_face_do_not_make_it_unique():
    """As many measurements as unknowns on the face, but only the trace of them sees it."""
    X = np.zeros((5, 2, 4))
    X[0, [0, 1], [0, 1]] = 1.0
    for n, place in enumerate([(0, 2), (0, 3), (1, 2), (1, 3)]):
        X[n + 1][place] = 1.0
    solution = nuclear_norm(MatrixSensing(X, [2.0, 0.0, 0.0, 0.0, 0.0]))
    assert_allclose(solution.details["nuclear_norm"], 2.0, rtol=1e-7)
    assert solution.unique is False


def test_zero_target_and_dependent_measurements():
    assert not nuclear_norm(MatrixSensing([np.eye(2)], [0.0])).M.any()
    X = diagonal_together(3, 3, 1, np.random.default_rng(5))
    once, twice = (
        nuclear_norm(MatrixSensing(np.repeat(X, n, axis=0), np.full(n, 2.0))) for n in (1, 2)
    )
    assert_allclose(once.M, twice.M, atol=1e-6)
    projected = nuclear_norm(MatrixSensing(np.repeat(X, 2, axis=0), [1.0, 3.0]))
    assert projected.status is fb.Status.PROJECTED
    assert_allclose(projected.M, once.M, atol=1e-6)


def test_transposing_the_problem_transposes_the_solution():
    problem, _ = completion(6, (4, 6), 14)
    turned = MatrixCompletion(problem.cols, problem.rows, problem.target, (6, 4))
    assert_allclose(nuclear_norm(turned).M, nuclear_norm(problem).M.T, atol=1e-5)


def test_missing_solver_is_named(monkeypatch):
    def without(name, *rest, original=builtins.__import__, **more):
        if name == "cvxpy":
            raise ImportError("No module named 'cvxpy'")
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"flowbias\[sdp\]"):
        nuclear_norm(MatrixSensing([np.eye(2)], [1.0]))


def test_an_accuracy_that_is_not_reached_is_an_error():
    problem, _ = completion(7, (5, 5), 15)
    with pytest.raises(fb.SolveError, match="not certified"):
        nuclear_norm(problem, tol=1e-16)
    assert nuclear_norm(problem, tol=1e-16, throw=False).status is fb.Status.STALLED


@pytest.mark.parametrize("size", [1e-170, 1e200])
def test_sizes_whose_squares_leave_the_double_range_are_refused(size):
    problem = MatrixCompletion([0, 1, 2], [0, 1, 0], size * np.array([1.0, 2.0, 3.0]), (3, 3))
    with pytest.raises(InputError, match="target: must have entries"):
        nuclear_norm(problem)
