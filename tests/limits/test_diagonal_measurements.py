"""The exact limit at finite width, against the flow of the factors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.limits.lifted.diagonal_measurements import _grown, common_basis, diagonal_limit
from flowbias.limits.spectral import schatten_limit
from flowbias.models.factorization import MatrixFactorization, SymmetricFactorization
from flowbias.problems.matrix import MatrixCompletion, MatrixSensing
from tests.limits.factor_flow import diagonal_together, flow_limit, orthogonal

pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
# The flow at rtol 1e-12 ends with a residual of 1e-9 at most, usually 1e-12.
FLOW = 1e-9


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 4)])
@pytest.mark.parametrize("width", [1, 3, 9])
def test_all_of_the_product_not_only_its_diagonal(shape, width):
    rng = np.random.default_rng(width)
    count = min(shape) - 1
    problem = MatrixSensing(diagonal_together(*shape, count, rng), rng.standard_normal(count))
    U, V = (0.6 * rng.standard_normal((d, width)) for d in shape)
    solution = diagonal_limit(MatrixFactorization(U, V), problem)
    assert solution.status is fb.Status.CERTIFIED
    assert_allclose(
        solution.M, flow_limit(U, V, problem.matrices, problem.target), atol=FLOW, rtol=0
    )


def test_gram_matrix_at_the_limit_conserves_the_imbalance():
    rng = np.random.default_rng(3)
    problem = MatrixSensing(diagonal_together(3, 4, 2, rng), rng.standard_normal(2))
    U, V = 0.5 * rng.standard_normal((3, 5)), 0.5 * rng.standard_normal((4, 5))
    gram = diagonal_limit(MatrixFactorization(U, V), problem).gram
    J = np.diag([1.0] * 3 + [-1.0] * 4)
    start = np.vstack([U, V]) @ np.vstack([U, V]).T
    for power in (1, 2, 3):
        # Traces of powers of J G: the non-zero eigenvalues of U^T U - V^T V.
        before, after = (np.trace(np.linalg.matrix_power(J @ G, power)) for G in (start, gram))
        assert_allclose(after, before, rtol=1e-12, atol=1e-12)


def test_width_enters_through_the_gram_matrix_alone():
    """Any weights with the same Gram matrix: padded, rotated, or never drawn."""
    rng = np.random.default_rng(4)
    problem = MatrixSensing(diagonal_together(3, 3, 2, rng), rng.standard_normal(2))
    U, V = 0.4 * rng.standard_normal((3, 4)), 0.4 * rng.standard_normal((3, 4))
    turn = orthogonal(9, rng)[:4]
    narrow = diagonal_limit(MatrixFactorization(U, V), problem).M
    wide = diagonal_limit(MatrixFactorization(U @ turn, V @ turn), problem).M
    assert_allclose(wide, narrow, atol=1e-12)
    huge = MatrixFactorization.gaussian((3, 3), width=10**9, scale=1e-5, rng=0)
    assert diagonal_limit(huge, problem).stats.seconds < 1.0


def test_rotating_the_problem_rotates_the_limit():
    rng = np.random.default_rng(5)
    X, y = np.stack([np.diag(rng.standard_normal(4)) for _ in range(2)]), rng.standard_normal(2)
    U, V = 0.5 * rng.standard_normal((4, 3)), 0.5 * rng.standard_normal((4, 3))
    P, Q = orthogonal(4, rng), orthogonal(4, rng)
    plain = diagonal_limit(MatrixFactorization(U, V), MatrixSensing(X, y)).M
    turned = diagonal_limit(MatrixFactorization(P @ U, Q @ V), MatrixSensing(P @ X @ Q.T, y)).M
    assert_allclose(turned, P @ plain @ Q.T, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_symmetric_model_keeps_its_sign(seed):
    rng = np.random.default_rng(seed)
    P, W = orthogonal(4, rng), 0.5 * rng.standard_normal((4, 3))
    X = np.stack([(P * row) @ P.T for row in rng.uniform(0.2, 1.0, (2, 4))])
    target = np.tensordot(X, (P * rng.uniform(0.1, 2.0, 4)) @ P.T, 2)
    solution = diagonal_limit(SymmetricFactorization(W), MatrixSensing(X, target))
    assert_allclose(solution.M, flow_limit(W, W, X, target), atol=FLOW)
    assert np.linalg.eigvalsh(P.T @ solution.M @ P).min() > -1e-12
    impossible = diagonal_limit(SymmetricFactorization(W), MatrixSensing(X, -target))
    assert impossible.status is fb.Status.PROJECTED
    assert np.isfinite(impossible.M).all()


def test_entries_that_share_no_row_or_column():
    """Matching entries, observed one by one, are measurements of this kind."""
    problem = MatrixCompletion([0, 1, 2], [2, 0, 3], [1.0, -2.0, 0.5], (3, 4))
    model = MatrixFactorization.gaussian((3, 4), width=6, scale=0.7, rng=1)
    M = diagonal_limit(model, problem).M
    assert_allclose(problem.measure(M), problem.target, atol=1e-12)
    flowed = flow_limit(*model.factors, problem.matrices, problem.target)
    assert_allclose(M, flowed, atol=FLOW)


def test_tends_to_infinite_width_like_one_over_root_width():
    rng = np.random.default_rng(6)
    problem = MatrixSensing(diagonal_together(5, 5, 3, rng), rng.standard_normal(3))
    wide = schatten_limit(problem, scale=0.3).M
    widths, errors = 10 ** np.arange(2, 9, 2), []
    for width in map(int, widths):
        models = (
            MatrixFactorization.gaussian(
                (5, 5), width=width, scale=np.sqrt(2.0 * 0.09 / width), rng=seed
            )
            for seed in range(15)
        )
        errors.append(
            np.median([np.linalg.norm(diagonal_limit(model, problem).M - wide) for model in models])
        )
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    # Medians of 15 draws scatter by 15%, over six decades: 0.01 in the slope.
    assert abs(slope + 0.5) < 0.03


def test_tiny_starts_do_not_overflow():
    problem = MatrixSensing(np.stack([np.diag([1.0, 2.0, 0.5])]), [1.0])
    model = MatrixFactorization.gaussian((3, 3), width=4, scale=1e-140, rng=0)
    solution = diagonal_limit(model, problem)
    assert solution.status is fb.Status.CERTIFIED
    # The rich limit of one measurement: all weight on the largest entry.
    assert_allclose(np.diag(solution.M), [0.0, 0.5, 0.0], atol=1e-10)


def test_rows_of_very_different_sizes():
    """Squares of the second row underflow; it still grows to what is asked of it."""
    rows = np.array([[1.0], [1e-170]])
    problem = MatrixSensing([np.diag([1.0, 0.0]), np.diag([0.0, 1.0])], [2.0, 3.0])
    model = MatrixFactorization(rows * [[1.0, 2.0]], rows * [[1.0, 1.0]])
    solution = diagonal_limit(model, problem)
    assert solution.status is fb.Status.CERTIFIED
    assert_allclose(np.diag(solution.M), [2.0, 3.0], rtol=1e-10)
    assert not _grown(np.zeros((1, 2)), np.array([800.0])).any()


def test_wrong_basis_is_not_certified():
    rng = np.random.default_rng(8)
    problem, other = (MatrixSensing(diagonal_together(3, 3, 2, rng), np.ones(2)) for _ in range(2))
    model = MatrixFactorization.gaussian((3, 3), width=5, scale=0.5, rng=0)
    with pytest.raises(fb.SolveError, match="not certified"):
        diagonal_limit(model, problem, basis=common_basis(other))


def test_refuses_measurements_without_a_common_basis():
    model = MatrixFactorization.gaussian((2, 2), width=4, scale=0.1, rng=0)
    problem = MatrixSensing([np.eye(2), [[0, 1], [0, 0]]], [1.0, 1.0])
    with pytest.raises(InputError, match=r"problem: .*fb\.flow"):
        diagonal_limit(model, problem)


def test_refuses_another_shape():
    model = MatrixFactorization.gaussian((3, 2), width=4, scale=0.1, rng=0)
    with pytest.raises(InputError, match="shape"):
        diagonal_limit(model, MatrixSensing([np.eye(2)], [1.0]))
