"""Starts from which the flow ends at a saddle, which rounding would make an integration leave."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.limits import limit
from flowbias.limits.lifted import stable_manifold
from flowbias.models.factorization import MatrixFactorization
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.results.solution import SolveError, Status

pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
RNG = np.random.default_rng(0)
A, B = (np.linalg.qr(RNG.standard_normal((size, size)))[0] for size in (4, 3))
TRUTH = A[:, :3] @ np.diag([3.0, 2.0, 1.0]) @ B.T
# All entries: the flow keeps to subspaces, though not to those of each measurement.
FULL = MatrixCompletion(*np.divmod(np.arange(12), 3), TRUTH.ravel(), (4, 3))


def start_without_the_first_mode(overlap):
    rng = np.random.default_rng(1)
    U, V = A[:, 1:] @ rng.standard_normal((3, 6)), B[:, 1:] @ rng.standard_normal((2, 6))
    return MatrixFactorization(U + overlap * np.outer(A[:, 0], rng.standard_normal(6)), V)


def test_a_start_on_a_stable_manifold_is_refused():
    with pytest.raises(SolveError, match="stable manifold of a saddle") as raised:
        limit(start_without_the_first_mode(0.0), FULL)
    solution = raised.value.solution
    assert solution.status is Status.STALLED
    # What is returned is the saddle, as close as the flow came to it.
    saddle = A[:, 1:3] @ np.diag([2.0, 1.0]) @ B[:, 1:].T
    assert np.linalg.norm(solution.M - saddle) < 1e-2


@pytest.mark.parametrize(("overlap", "tol"), [(1e-9, 1e-10), (1e-5, 1e-6)])
def test_a_start_next_to_it_is_not(overlap, tol):
    solution = limit(start_without_the_first_mode(overlap), FULL, tol=tol)
    assert solution.status is Status.INTEGRATED
    assert_allclose(solution.M, TRUTH, rtol=0, atol=1e-6)


def symmetric_starts():
    rng = np.random.default_rng(2)
    u = rng.standard_normal((3, 4))
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    stack = rng.standard_normal((3, 3, 3))
    stack = stack + stack.transpose(0, 2, 1)
    stack[0] = np.eye(3)
    # U = -R V, X_n = R S_n: products are -R times a positive matrix, of negative <X_0, M>.
    turned = MatrixSensing(turn @ stack, [1.0, 2.0, 0.5])
    yield pytest.param(MatrixFactorization(-turn @ u, u), turned, id="layers opposite")
    S = rng.standard_normal((3, 3))
    every = MatrixCompletion(*np.divmod(np.arange(9), 3), np.ravel(S + S.T), (3, 3))
    yield pytest.param(MatrixFactorization(u, u), every, id="layers equal")
    # Rows alike, and data that treat them alike: they stay so, and the rank is one.
    ones = np.ones((2, 1))
    alike = MatrixFactorization(ones @ [[0.3, 0.2, 0.1]], ones @ [[0.1, 0.2, 0.5]])
    data = MatrixCompletion([0, 0, 1, 1], [0, 1, 0, 1], [2.0, 1.0, 1.0, 2.0], (2, 2))
    yield pytest.param(alike, data, id="rows alike")


@pytest.mark.parametrize(("model", "problem"), list(symmetric_starts()))
def test_symmetric_starts_that_do_not_fit_are_refused(model, problem):
    solution = limit(model, problem, throw=False)
    assert solution.status is Status.STALLED
    assert "saddle" in solution.route
    assert solution.feasibility > 1e-2
    assert not solution.certificate.ok
    assert_allclose(solution.certificate.residual, problem.relative_residual(solution.w))
    assert solution.certificate.feasibility < solution.certificate.residual


@pytest.mark.parametrize("modes", [[1], [2], [0, 2]])
def test_starts_at_a_critical_point_are_refused(modes):
    # P V = 0 and P^T U = 0 up to rounding, with an error left.
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0][: len(modes)]
    sizes = np.sqrt(np.array([3.0, 2.0, 1.0])[modes])
    U, V = (A[:, modes] * sizes) @ turn, (B[:, modes] * sizes) @ turn
    pull = TRUTH - U @ V.T
    assert max(np.abs(pull @ V).max(), np.abs(pull.T @ U).max()) < 1e-14
    solution = limit(MatrixFactorization(U, V), FULL, throw=False)
    assert solution.status is Status.STALLED
    assert "saddle" in solution.message
    assert_allclose(solution.M, U @ V.T, rtol=0, atol=1e-2)


@pytest.mark.parametrize("is_regression", [True, False])
def test_the_rank_of_a_start_is_kept(is_regression):
    # Exactly, by the root that is followed: a limit, though one that other starts would leave.
    rng = np.random.default_rng(1)
    if is_regression:
        X = np.diag([1.0, 1.5, 0.8, 1.2])
        problem = MatrixRegression(X, TRUTH)
        model = LinearNet(rng.standard_normal((4, 1)) @ np.ones((1, 4)), np.zeros((3, 4)))
    else:
        problem = FULL
        model = MatrixFactorization(
            *(rng.standard_normal((d, 1)) @ np.ones((1, 4)) for d in (4, 3))
        )
    solution = limit(model, problem)
    assert solution.status is Status.INTEGRATED
    assert "a saddle of the loss, a local minimum among products of rank 1" in solution.route
    assert not solution.unique
    assert np.linalg.matrix_rank(solution.M, tol=1e-9) == 1


def test_rest_at_a_saddle_is_called_that_where_subspaces_are_not_looked_into(monkeypatch):
    # Weights that are exactly zero stay so, whatever the rounding.
    monkeypatch.setattr(stable_manifold, "_STACKED", 0.0)
    rng = np.random.default_rng(4)
    U, V = rng.standard_normal((4, 6)), rng.standard_normal((3, 6))
    U[0], V[0] = 0.0, 0.0
    problem = MatrixCompletion([0, 1, 2, 3], [0, 1, 2, 1], [1.0, 2.0, 3.0, 1.0], (4, 3))
    with pytest.raises(SolveError, match="comes to rest at a saddle of the loss"):
        limit(MatrixFactorization(U, V), problem)


@pytest.mark.parametrize("scale", [1e-2, 1e-4])
def test_small_starts_pass_saddles_at_loose_tolerances(scale):
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((3, 2)) @ rng.standard_normal((2, 3))
    places = rng.permutation(9)[:7]
    problem = MatrixCompletion(places // 3, places % 3, truth.ravel()[places], (3, 3))
    model = MatrixFactorization.gaussian((3, 3), width=8, scale=scale, rng=4)
    assert limit(model, problem, tol=1e-5).status is Status.INTEGRATED
