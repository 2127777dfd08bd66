"""What warm refits are made of: systems solved with an older factor, and duals taken away."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowbias as fb
from flowbias.estimators.inference import leave_one_out as leaving_out
from flowbias.estimators.inference import warm_newton
from flowbias.estimators.inference.leave_one_out import leave_one_out_refits, residuals_of
from flowbias.estimators.inference.linear_response import linear_response
from flowbias.estimators.inference.uncertainty import noise_level
from flowbias.estimators.inference.warm_newton import DualHomotopy, PreconditionedSystems
from flowbias.estimators.inference.weighted_rows import weighted_rows
from flowbias.limits.normal_equations import Effort, NormalEquations

N, D = 12, 40
# Warm starts given up one after the other, from which on none is tried.
MOST_IN_VAIN = 3


def problem(seed):
    rng = np.random.default_rng(seed)
    constraint = fb.Regression(rng.standard_normal((N, D)), rng.standard_normal(N)).constraint
    return rng, constraint, np.exp(rng.standard_normal(D))


def dense(constraint, weights):
    rows = constraint.row_scale[:, None] * constraint.rows
    return (rows * weights) @ rows.T


@given(seed=st.integers(0, 10**6), changed=st.integers(0, D), graded=st.booleans())
def test_changed_systems_are_solved(seed, changed, graded):
    rng, constraint, old = problem(seed)
    new = old.copy()
    new[:changed] *= np.exp(10.0 * rng.standard_normal(changed))
    effort, b = Effort(), rng.standard_normal(N)
    older = PreconditionedSystems(NormalEquations(constraint, old, Effort()).solve)
    x = older(constraint, new, effort, graded=graded).solve(b)
    matrix = dense(constraint, new)
    # What is asked, and what the rounding of this very product may add to it.
    rounding = N * np.finfo(float).eps * np.linalg.norm(matrix) * np.linalg.norm(x)
    allowed = 1.01 * PreconditionedSystems.solved * np.linalg.norm(b) + rounding
    assert np.linalg.norm(matrix @ x - b) <= allowed
    assert effort.factorizations >= graded
    assert effort.iterations >= 1


@pytest.mark.parametrize("changed", [1, 3])
def test_few_changed_weights_take_few_iterations_and_no_factorization(changed):
    # A change of rank k has at most k + 1 different eigenvalues beside the identity.
    rng, constraint, old = problem(0)
    new = old.copy()
    new[:changed] *= 1e6
    effort = Effort()
    older = PreconditionedSystems(NormalEquations(constraint, old, Effort()).solve)
    older(constraint, new, effort).solve(rng.standard_normal(N))
    assert effort.factorizations == 0
    assert effort.iterations <= changed + 1


def test_a_new_factor_serves_the_next_systems():
    rng, constraint, _ = problem(1)
    weights = np.exp(8.0 * rng.standard_normal(D))
    # Of no use as a preconditioner: it says nothing about the system.
    older, effort = PreconditionedSystems(np.copy), Effort()
    older(constraint, weights, effort).solve(rng.standard_normal(N))
    # Given up when it has cost as much as the new one, which needs one iteration.
    assert (effort.factorizations, effort.iterations) == (
        1,
        1 + N // PreconditionedSystems.patience + 1,
    )
    before = effort.iterations
    older(constraint, 1.001 * weights, effort).solve(rng.standard_normal(N))
    assert (effort.factorizations, effort.iterations - before) == (1, 1)


def test_no_more_factorizations_than_a_refit_may_make():
    rng, constraint, _ = problem(2)
    older, effort = PreconditionedSystems(np.copy), Effort()
    for k in range(10):
        weights = np.exp(15.0 * rng.standard_normal(D))
        older(constraint, weights, effort, graded=k % 2 == 1).solve(rng.standard_normal(N))
    assert effort.factorizations == PreconditionedSystems.most_factorizations


def test_a_factor_that_is_not_positive_is_replaced():
    rng, constraint, weights = problem(3)
    older, effort, b = PreconditionedSystems(np.negative), Effort(), rng.standard_normal(N)
    x = older(constraint, weights, effort).solve(b)
    # At once: the first look shows it, and the new factor needs one iteration.
    assert (effort.factorizations, effort.iterations) == (1, 2)
    np.testing.assert_allclose(dense(constraint, weights) @ x, b, atol=PreconditionedSystems.solved)


def recorded_parts(monkeypatch, model, X, y):
    """The refits, with the parts of the way that were tried."""
    parts = []
    polish = warm_newton.polish

    def watched(*args, **options):
        parts.append(options["tol"])
        return polish(*args, **options)

    monkeypatch.setattr(warm_newton, "polish", watched)
    return leave_one_out_refits(model, X, y), parts


@pytest.mark.parametrize("model", [fb.DiagonalNet(depth=3, scale=0.01)], ids=repr)
def test_the_way_is_gone_in_parts_where_its_prediction_leaves_the_domain(monkeypatch, model):
    X, y, _ = fb.datasets.sparse_regression(n=15, d=60, sparsity=3, noise_var=0.1, rng=0)
    found, parts = recorded_parts(monkeypatch, model, X, y)
    assert not found.from_scratch.any()
    assert DualHomotopy.on_the_way in parts
    assert len(parts) > len(y)


def test_a_part_that_fails_is_tried_shorter(monkeypatch):
    # So few Newton steps are not enough for the whole way at this scale.
    monkeypatch.setattr(DualHomotopy, "most_steps", 3)
    X, y, _ = fb.datasets.sparse_regression(n=15, d=60, sparsity=3, noise_var=0.1, rng=0)
    model = fb.DiagonalNet(depth=2, scale=1e-8)
    found, parts = recorded_parts(monkeypatch, model, X, y)
    assert len(parts) > len(y)
    # A part that works is followed by an attempt at all that is left.
    assert not found.from_scratch.any()
    for i in range(3):
        others = np.arange(len(y)) != i
        expected = y[i] - X[i] @ fb.limit(model, X[others], y[others]).w
        np.testing.assert_allclose(found.residuals[i], expected, atol=1e-8)


def test_no_way_at_all_is_given_up_early(monkeypatch):
    X, y, _ = fb.datasets.sparse_regression(n=10, d=60, sparsity=3, noise_var=0.1, rng=0)
    model = fb.DiagonalNet(depth=10, scale=0.01)
    found, parts = recorded_parts(monkeypatch, model, X, y)
    assert found.from_scratch.all()
    assert len(parts) <= DualHomotopy.first_parts * MOST_IN_VAIN
    assert (found.iterations[:MOST_IN_VAIN] > 0).all()
    assert not found.iterations[MOST_IN_VAIN:].any()


def test_a_way_that_takes_too_many_products_is_given_up(monkeypatch):
    monkeypatch.setattr(DualHomotopy, "most_iterations", 2)
    X, y, _ = fb.datasets.sparse_regression(n=10, d=60, sparsity=3, noise_var=0.1, rng=0)
    found, parts = recorded_parts(monkeypatch, fb.DiagonalNet(depth=3, scale=0.003), X, y)
    tried = found.iterations[found.from_scratch][:MOST_IN_VAIN]
    assert len(tried) > 0
    assert (tried > 2 * (len(y) - 1)).all()
    assert len(parts) < DualHomotopy.first_parts * len(y)


def test_a_warm_start_that_ends_somewhere_else_is_not_believed(monkeypatch):
    X, y, _ = fb.datasets.sparse_regression(n=6, d=20, sparsity=3, noise_var=0.1, rng=0)
    model = fb.DiagonalNet(depth=2, scale=0.3)
    right = leave_one_out_refits(model, X, y)

    def off(response):
        return lambda ahead, effort: (response.solution.w, ahead.start)

    monkeypatch.setattr(leaving_out, "finish_of", off)
    found = leave_one_out_refits(model, X, y)
    assert found.from_scratch.all()
    np.testing.assert_allclose(found.residuals, right.residuals, atol=1e-8)


def test_the_response_is_resolved_or_says_why_not():
    X = np.random.default_rng(0).standard_normal((4, 12))
    rows = weighted_rows(X, X[:, 0], fit_intercept=False)
    assert linear_response(fb.DiagonalNet(depth=2, scale=0.1), rows).is_resolved
    response = linear_response(fb.DiagonalNet(depth=2, log_scale=-5000.0), rows)
    assert not response.is_resolved
    with pytest.raises(fb.SolveError, match="leave_one_out_refits"):
        _ = response.inverse


@pytest.mark.parametrize("log_scale", [-3.0, -10.0, -30.0, -100.0, -300.0])
def test_what_is_resolved_is_right(log_scale):
    """One coordinate fits everything, and X W X^T is singular to sixteen digits: here with 700."""
    X = np.random.default_rng(0).standard_normal((4, 12))
    rows = weighted_rows(X, X[:, 0], fit_intercept=False)
    response = linear_response(fb.DiagonalNet(depth=2, log_scale=log_scale), rows)
    with mpmath.workdps(700):
        exact_rows, W = mpmath.matrix(X.tolist()), mpmath.diag(response.curvature.tolist())
        H = mpmath.inverse(exact_rows * W * exact_rows.T)
        dw_dy = np.array((W * exact_rows.T * H).tolist(), dtype=float)
        told = [response.dual[i] / float(H[i, i]) for i in range(4)]
        parts = [response.dual[i] / mpmath.norm(H[i, :]) for i in range(4)]
        sigma = float(mpmath.norm(parts) / 2)
    # Twelve digits are asked of the residual, whose size the errors have.
    np.testing.assert_allclose(response.dw_dy, dw_dy, atol=1e-11)
    np.testing.assert_allclose(residuals_of(response), told, rtol=1e-10)
    np.testing.assert_allclose(noise_level(response), sigma, rtol=1e-10)


def test_conjugate_gradients_stop_where_they_are_told(monkeypatch):
    rng, constraint, _ = problem(4)
    monkeypatch.setattr(PreconditionedSystems, "most_factorizations", 0)
    effort = Effort()
    weights = np.exp(30.0 * rng.standard_normal(D))
    PreconditionedSystems(np.copy)(constraint, weights, effort).solve(rng.standard_normal(N))
    assert effort.iterations <= PreconditionedSystems.in_rounding * N
    assert effort.factorizations == 0
