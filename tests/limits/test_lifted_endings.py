"""Where flows of products end if not at a fit, and whether the estimate of the error holds."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import flow
from flowbias.flows.driver import integrate
from flowbias.limits import limit
from flowbias.limits.lifted import integration
from flowbias.limits.lifted.diagonal_measurements import diagonal_limit
from flowbias.models.factorization import MatrixFactorization
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.results.solution import SolveError, Status
from tests.limits.factor_flow import followed, pull_of

pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")


def weights(rng, shape, width, scale):
    return tuple(scale * rng.standard_normal((size, width)) for size in shape)


def reference(U, V, problem):
    """The product by SciPy alone, then the last step by the pseudoinverse of the derivative."""

    def misfit(M):
        return problem.measure(M) - problem.reachable

    Z = followed(
        U,
        V,
        pull_of(problem),
        1e5,
        lambda M: float(np.abs(misfit(M)).max()) - 1e-9,
        rtol=3e-14,
        atol=1e-16,
    )[-1]
    d = len(U)
    matrices = [problem.adjoint(unit) for unit in np.eye(problem.target.size)]
    jacobian = np.array([np.vstack([X @ Z[d:], X.T @ Z[:d]]).ravel() for X in matrices])
    left = np.linalg.lstsq(jacobian, misfit(Z[:d] @ Z[d:].T), rcond=1e-12)[0]
    Z = Z - left.reshape(Z.shape)
    return Z[:d] @ Z[d:].T


def random_problem(seed):
    rng = np.random.default_rng(seed)
    d, m = (int(size) for size in rng.integers(2, 5, 2))
    U, V = weights(rng, (d, m), d + m, 10.0 ** rng.uniform(-1.0, 0.0))
    if seed % 2:
        places = rng.permutation(d * m)[: d * m // 2 + 1]
        values = rng.standard_normal(len(places))
        problem = MatrixCompletion(places // m, places % m, values, (d, m))
        return U, V, problem, MatrixFactorization
    X = (
        np.linalg.qr(rng.standard_normal((d, d)))[0][: d - 1]
        * rng.uniform(0.7, 1.5, d - 1)[:, None]
    )
    return U, V, MatrixRegression(X, rng.standard_normal((d - 1, m))), LinearNet


@pytest.mark.parametrize("seed", range(30))
def test_the_estimate_covers_the_error(seed):
    U, V, problem, cls = random_problem(seed)
    # Loose, so that the error is far above rounding and above the reference's.
    solution = limit(cls(U, V), problem, tol=1e-6)
    assert solution.status.ok
    if solution.status is Status.INTEGRATED:
        true_error = float(np.linalg.norm(solution.M - reference(U, V, problem)))
        # The reference itself is good to some hundred roundings of 3e-14.
        assert true_error <= solution.error + 1e-13
        assert solution.error <= 1e-4 * np.linalg.norm(solution.M)


def test_two_integrators_from_a_tiny_start():
    rng = np.random.default_rng(1)
    truth = np.outer(rng.standard_normal(5), rng.standard_normal(5))
    places = rng.permutation(25)[:15]
    problem = MatrixCompletion(places // 5, places % 5, truth.ravel()[places], (5, 5))
    model = MatrixFactorization.gaussian((5, 5), width=50, scale=1e-4, rng=0)
    solution = limit(model, problem)
    assert solution.status is Status.INTEGRATED
    assert "DOP853, LSODA and extrapolated implicit Euler steps" in solution.route
    assert solution.error < 1e-8


@pytest.mark.parametrize("width", [1, 2])
def test_a_width_that_fits_nothing_ends_at_rest(width):
    rng = np.random.default_rng(width)
    places = rng.permutation(20)[:17]
    problem = MatrixCompletion(places // 4, places % 4, rng.standard_normal(17), (5, 4))
    U, V = weights(rng, (5, 4), width, 0.3)
    solution = limit(MatrixFactorization(U, V), problem)
    assert solution.status is Status.INTEGRATED
    assert "not a fit" in solution.route
    assert solution.feasibility > 0.05
    assert np.linalg.matrix_rank(solution.M, tol=1e-9) == width
    later = flow(MatrixFactorization(U, V), problem, t=[300.0], rtol=1e-12).M[-1]
    assert np.linalg.norm(later - solution.M) <= solution.error + 1e-10
    # At rest: the gradient of the loss in both factors, from the Gram matrix.
    R = problem.adjoint(problem.measure(solution.M) - problem.target)
    UU, VV = solution.gram[:5, :5], solution.gram[5:, 5:]
    assert np.abs(R @ VV).max() < 1e-10
    assert np.abs(R.T @ UU).max() < 1e-10


def test_a_one_sided_start_is_projected():
    rng = np.random.default_rng(0)
    U = 0.3 * rng.standard_normal((4, 6))
    stack = np.stack([np.diag(rng.uniform(0.5, 1.0, 4)) for _ in range(2)])
    problem = MatrixSensing(stack, [-1.0, -0.5])
    model = MatrixFactorization(U, U)
    solution, alone = limit(model, problem), diagonal_limit(model, problem)
    assert solution.status is alone.status is Status.PROJECTED
    assert solution.distance == pytest.approx(alone.distance)
    assert_allclose(solution.M, alone.M, rtol=0, atol=0)
    assert_allclose(solution.gram, alone.gram, rtol=0, atol=0)
    # Products of one sign come closest to a negative target with none at all.
    assert_allclose(np.diag(solution.M), 0.0, rtol=0, atol=1e-9)


def saddle_start(overlap):
    """Y with singular values 3, 2, 1; U and V have `overlap` of its first singular vectors."""
    rng = np.random.default_rng(3)
    A, B = (np.linalg.qr(rng.standard_normal((size, size)))[0] for size in (4, 3))
    Y = A[:, :3] @ np.diag([3.0, 2.0, 1.0]) @ B.T
    U, V = A[:, 1:] @ rng.standard_normal((3, 6)), B[:, 1:] @ rng.standard_normal((2, 6))
    U = U + overlap * np.outer(A[:, 0], rng.standard_normal(6))
    return A, U, V, Y


@pytest.mark.parametrize("rates", [[1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 0.5]])
def test_a_start_on_the_stable_manifold_of_a_saddle_is_refused(rates):
    A, U, V, Y = saddle_start(0.0)
    X = A @ np.diag(rates) @ A.T
    with pytest.raises(SolveError, match="stable manifold of a saddle"):
        limit(LinearNet(U, V), X, X @ Y)
    # However close to it, the flow leaves: X is invertible, and the limit Y.
    A, U, V, Y = saddle_start(1e-6)
    assert_allclose(limit(LinearNet(U, V), X, X @ Y).M, Y, rtol=0, atol=1e-9)


def test_rows_and_columns_that_nothing_moves_are_seen():
    rng = np.random.default_rng(4)
    U, V = weights(rng, (4, 3), 6, 1.0)
    U[0], V[0] = 0.0, 0.0
    stuck = MatrixCompletion([0, 1, 2, 3], [0, 1, 2, 1], [1.0, 2.0, 3.0, 1.0], (4, 3))
    moved = MatrixCompletion([0, 1, 2, 0], [0, 1, 2, 1], [1.0, 2.0, 3.0, 1.0], (4, 3))
    solution = limit(MatrixFactorization(U, V), stuck, throw=False)
    assert solution.status is Status.STALLED
    assert "stable manifold" in solution.message
    assert limit(MatrixFactorization(U, V), moved).feasibility < 1e-9


def test_a_stationary_start_has_a_reason():
    net = LinearNet(np.diag([1.0, 0.0]), np.zeros((2, 2)))
    solution = limit(net, np.eye(2), [[0.0, 0.0], [1.0, 2.0]], throw=False)
    assert solution.status is Status.STALLED
    assert "saddle" in solution.message
    assert np.isfinite(solution.M).all()


@pytest.mark.parametrize("size", [1.0, 1e-14, 1e-20, 0.0])
def test_targets_far_smaller_than_the_start(size):
    rng = np.random.default_rng(6)
    X, Y = rng.standard_normal((3, 7)), rng.standard_normal((3, 2))
    net = LinearNet(*weights(rng, (7, 2), 12, 0.5))
    solution = limit(net, X, size * Y)
    assert solution.status is Status.INTEGRATED
    assert np.abs(X @ solution.M - size * Y).max() < 1e-13
    # Relative to the terms of the difference, not to a target that is below their rounding.
    assert solution.feasibility < 1e-13
    if size < 1.0:
        # What the data does not see is that of a zero target, up to what the target moves.
        zero = limit(net, X, 0.0 * Y).M
        assert_allclose(solution.M, zero, rtol=0, atol=1e-10)


def test_weights_that_vanish_with_their_target():
    # Balanced: they fall like t^(-1/2), and the last step is as long as they are.
    X = np.random.default_rng(0).standard_normal((6, 3))
    net = LinearNet.balanced(np.random.default_rng(1).standard_normal((3, 2)), X, width=4, rng=0)
    solution = limit(net, X, np.zeros((6, 2)))
    assert solution.status is Status.INTEGRATED
    assert np.abs(solution.M).max() < 1e-15


def test_an_integrator_that_gives_up_half_way_has_no_limit(monkeypatch):
    monkeypatch.setattr(integration, "integrate", partial(integrate, max_steps=5))
    U, V, problem, cls = random_problem(1)
    solution = limit(cls(U, V), problem, throw=False)
    assert solution.status is Status.STALLED
    assert "5 steps were not enough" in solution.message


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_large_starts_hardly_move(scale):
    rng = np.random.default_rng(7)
    X, Y = rng.standard_normal((3, 7)), rng.standard_normal((3, 2))
    U, V = weights(rng, (7, 2), 40, scale)
    solution = limit(LinearNet(U, V), X, Y)
    assert solution.status is Status.INTEGRATED
    assert solution.error <= 1e-9 * np.linalg.norm(solution.M)


def test_units_below_rounding_of_others_are_not_lost_by_the_closed_form():
    # Exactly balanced; one output unit starts at 1e-20 of the other, and the limit is still Y.
    Y = np.array([[2.0, 0.3], [0.1, 1.0]])
    X = np.hstack([np.eye(2), np.zeros((2, 1))])
    U = np.vstack([np.diag([1.0, 1e-20]), [[0.3, 0.2]]])
    solution = limit(LinearNet(U, np.diag([1.0, 1e-20])), X, Y)
    assert solution.status is Status.CERTIFIED or solution.status is Status.INTEGRATED
    assert_allclose(X @ solution.M, Y, rtol=0, atol=1e-9)


@pytest.mark.parametrize("is_consistent", [True, False])
def test_more_measurements_than_entries_have_one_limit(is_consistent):
    rng = np.random.default_rng(0)
    A, truth = rng.standard_normal((7, 2, 2)), rng.standard_normal((2, 2))
    y = np.einsum("nij,ij->n", A, truth) if is_consistent else rng.standard_normal(7)
    model = MatrixFactorization.gaussian((2, 2), width=3, scale=0.7, rng=0)
    solution = limit(model, MatrixSensing(A, y))
    least_squares = np.linalg.lstsq(A.reshape(7, 4), y, rcond=None)[0].reshape(2, 2)
    assert_allclose(solution.M, least_squares, atol=1e-9)
    assert solution.unique
    assert (solution.distance == 0.0) == is_consistent
    trajectory = flow(model, MatrixSensing(A, y), residual=1e-10)
    misfit = A.reshape(7, 4) @ least_squares.ravel() - y
    assert_allclose(trajectory.loss[-1], 0.5 * misfit @ misfit, atol=1e-12)


def test_rest_beside_an_unreachable_target_is_not_called_the_least_squares_limit():
    """A start of rank 1 keeps it, and rests above the error that the data force on it."""
    rng = np.random.default_rng(0)
    X = np.vstack([np.diag([1.0, 2.0, 3.0])] * 2)  # not whitened: no closed form
    Y = np.vstack([np.diag([3.0, 2.0, 1.0])] * 2) + 0.1 * rng.standard_normal((6, 3))
    alike = np.ones((1, 4))
    net = LinearNet(rng.standard_normal((3, 1)) @ alike, rng.standard_normal((3, 1)) @ alike)
    solution = limit(net, X, Y)
    assert solution.is_rest
    assert solution.distance > 0
    assert "least-squares limit" not in solution.message
    wide = limit(LinearNet(rng.standard_normal((3, 4)), rng.standard_normal((3, 4))), X, Y)
    assert not wide.is_rest
    assert "least-squares limit" in wide.message
