"""Infinite width: the Schatten potential, over all matrices, by proof and by flow."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import flowbias as fb
from flowbias.certificates.spectral_certificate import certify_spectral
from flowbias.ground.arguments import InputError
from flowbias.limits.lifted.diagonal_measurements import common_basis
from flowbias.limits.spectral import frobenius_norm, nuclear_norm, schatten_limit
from flowbias.problems.matrix import MatrixSensing
from tests.limits.factor_flow import diagonal_together, flow_limit, lifted_identity, orthogonal

FLOW = 1e-9


def singular_values(M):
    return np.linalg.svd(M, compute_uv=False)


def drawn(shape, count, seed):
    rng = np.random.default_rng(seed)
    return MatrixSensing(diagonal_together(*shape, count, rng), rng.standard_normal(count))


@pytest.mark.parametrize("shape", [(4, 4), (3, 5)])
@pytest.mark.parametrize("mu", [0.15, 0.5, 2.0])
def test_flow_from_a_multiple_of_the_identity_goes_there(shape, mu):
    problem = drawn(shape, 2, seed=1)
    solution = schatten_limit(problem, mu)
    U, V = lifted_identity(*shape, mu)
    assert_allclose(
        solution.M, flow_limit(U, V, problem.matrices, problem.target), atol=FLOW, rtol=0
    )


@pytest.mark.parametrize("mu", [1e-3, 0.2, 5.0])
def test_no_other_matrix_does_better(mu):
    """Over all matrices, not only those that are diagonal in the common basis."""
    problem, potential = drawn((3, 4), 2, seed=2), fb.Hypentropy(scale=mu)
    solution = schatten_limit(problem, mu)
    least = potential.value(singular_values(solution.M))
    rng = np.random.default_rng(0)
    rows = problem.matrices.reshape(2, -1)
    for size in (1e-3, 1e-1, 1.0):
        move = size * rng.standard_normal((200, 12))
        move -= move @ np.linalg.pinv(rows) @ rows
        for step in move.reshape(-1, 3, 4):
            assert potential.value(singular_values(solution.M + step)) > least


def test_general_minimizer_agrees():
    """A minimizer that knows nothing of bases or duals: BFGS over the feasible matrices."""
    problem, potential = drawn((3, 3), 2, seed=3), fb.Hypentropy(scale=0.5)
    rows = problem.matrices.reshape(2, -1)
    free = np.linalg.svd(rows)[2][2:]
    feasible = np.linalg.lstsq(rows, problem.target, rcond=None)[0]

    def value_and_gradient(z):
        left, s, right = np.linalg.svd((feasible + z @ free).reshape(3, 3))
        return potential.value(s), free @ ((left * potential.grad(s)) @ right).ravel()

    found = minimize(value_and_gradient, np.zeros(7), jac=True, method="BFGS", tol=1e-12)
    assert_allclose(
        (feasible + found.x @ free).reshape(3, 3), schatten_limit(problem, 0.5).M, atol=1e-7
    )


def test_extremes_are_the_nuclear_and_the_frobenius_norm():
    problem = drawn((4, 4), 2, seed=4)
    rich = schatten_limit(problem, log_scale=-2000.0).M
    assert_allclose(
        singular_values(rich).sum(), singular_values(nuclear_norm(problem).M).sum(), rtol=1e-3
    )
    kernel = schatten_limit(problem, scale=1e4).M
    assert_allclose(kernel, frobenius_norm(problem).M, rtol=1e-7, atol=1e-8)


def test_singular_values_and_not_eigenvalues():
    """One rotation generator: eigenvalues +-i, on which Q is not even defined."""
    X = np.array([[0.0, 1.0], [-1.0, 0.0]])
    M = schatten_limit(MatrixSensing([X], [2.0]), 0.5).M
    assert_allclose(M, X, atol=1e-12)
    assert np.abs(np.linalg.eigvals(M).imag).min() > 0.9
    assert_allclose(flow_limit(*lifted_identity(2, 2, 0.5), [X], [2.0]), M, atol=FLOW)


@pytest.mark.parametrize("scale", [1e-3, 0.3, 100.0])
def test_certificate_sees_a_wrong_matrix_and_a_wrong_dual(scale):
    problem, potential = drawn((4, 4), 2, seed=5), fb.Hypentropy(scale=scale)
    solution = schatten_limit(problem, scale)
    assert solution.certificate.ok
    rows = problem.matrices.reshape(2, -1)
    off = np.random.default_rng(0).standard_normal(16)
    off -= np.linalg.pinv(rows) @ (rows @ off)
    moved = solution.M + 1e-3 * off.reshape(4, 4)
    for M, nu in (
        (moved, solution.dual),
        (solution.M, 1.001 * solution.dual),
        (1.001 * solution.M, solution.dual),
    ):
        assert not certify_spectral(problem, M, nu, potential, tol=1e-10).ok


def test_certificate_is_not_the_gap_alone():
    """A gap falls with the square of an error; a dual that is off by 1e-6 must be seen as well."""
    problem, potential = drawn((4, 4), 2, seed=5), fb.Hypentropy(scale=0.3)
    solution = schatten_limit(problem, 0.3)
    slightly = certify_spectral(
        problem, solution.M, solution.dual * (1 + 1e-6), potential, tol=1e-10
    )
    assert slightly.gap < 1e-10
    assert not slightly.ok
    moved = solution.M + 1e-3
    misfit = np.linalg.norm(problem.measure(moved) - problem.target)
    size = np.linalg.norm(problem.target) + np.linalg.norm(problem.matrices) * np.linalg.norm(moved)
    assert_allclose(
        certify_spectral(problem, moved, solution.dual, potential, tol=1e-10).feasibility,
        misfit / size,
    )


def test_wrong_basis_is_not_certified():
    problem, other = drawn((3, 3), 2, seed=7), drawn((3, 3), 2, seed=8)
    with pytest.raises(fb.SolveError, match="not certified"):
        schatten_limit(problem, 0.3, basis=common_basis(other))


def test_bad_input():
    problem = MatrixSensing([np.eye(2), [[0, 1], [0, 0]]], [1.0, 1.0])
    with pytest.raises(InputError, match="They commute, but that is not enough"):
        schatten_limit(problem, 0.3)
    good = drawn((3, 3), 1, seed=0)
    with pytest.raises(InputError, match="scale"):
        schatten_limit(good, -0.3)
    with pytest.raises(InputError, match="scale: must be one number"):
        schatten_limit(good, np.ones(3))


def test_unreachable_targets_are_projected():
    X = np.stack([np.diag([1.0, 2.0]), np.diag([1.0, 2.0])])
    solution = schatten_limit(MatrixSensing(X, [1.0, 3.0]), 0.3)
    assert solution.status is fb.Status.PROJECTED
    assert_allclose(np.tensordot(X, solution.M, 2), [2.0, 2.0], atol=1e-12)


def test_rotation_invariance():
    problem, rng = drawn((4, 4), 2, seed=6), np.random.default_rng(6)
    P, Q = orthogonal(4, rng), orthogonal(4, rng)
    turned = MatrixSensing(P @ problem.matrices @ Q.T, problem.target)
    assert_allclose(
        schatten_limit(turned, 0.2).M, P @ schatten_limit(problem, 0.2).M @ Q.T, atol=1e-10
    )
