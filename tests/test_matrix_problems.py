"""Matrix problems: measurements and their adjoints, what is reachable, and bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.ground.arguments import InputError
from flowbias.problems.matrix import (
    MatrixCompletion,
    MatrixRegression,
    MatrixSensing,
    SymmetrizedProblem,
    as_matrix_problem,
)
from flowbias.problems.regression import Regression

# Sums of a few dozen products of ordinary numbers.
ROUNDING = 1e-12


def regression(rng, shape, count):
    return MatrixRegression(
        rng.standard_normal((count, shape[0])), rng.standard_normal((count, shape[1]))
    )


def sensing(rng, shape, count):
    return MatrixSensing(rng.standard_normal((count, *shape)), rng.standard_normal(count))


def completion(rng, shape, count):
    rows, cols = rng.integers(shape[0], size=count), rng.integers(shape[1], size=count)
    return MatrixCompletion(rows, cols, rng.standard_normal(shape)[rows, cols], shape)


def symmetrized(rng, shape, count):
    return SymmetrizedProblem(sensing(rng, (shape[0], shape[0]), count))


KINDS = [regression, sensing, completion, symmetrized]


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    count=st.integers(1, 12),
)
def test_measurements(kind, seed, shape, count):
    rng = np.random.default_rng(seed)
    problem = kind(rng, shape, count)
    M = rng.standard_normal(problem.shape)
    r = rng.standard_normal(len(problem.target))
    # adjoint is the transpose of measure ...
    assert_allclose(
        problem.measure(M) @ r, np.vdot(problem.adjoint(r), M), rtol=ROUNDING, atol=ROUNDING
    )
    # ... both are those of the matrices X_n ...
    assert_allclose(np.einsum("nij,ij->n", problem.matrices, M), problem.measure(M), atol=ROUNDING)
    # ... and a least-squares fit leaves nothing of the reachable target.
    rows = problem.matrices.reshape(len(problem.target), -1)
    fit = np.linalg.lstsq(rows, problem.target)[0].reshape(problem.shape)
    assert problem.relative_residual(fit) < 1e-9
    assert_allclose(problem.adjoint(problem.target - problem.reachable), 0.0, atol=1e-9)


def test_what_is_out_of_reach_is_projected():
    X = np.array([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]])
    problem = MatrixRegression(X, [[1.0], [2.0], [3.0]])
    assert_allclose(problem.reachable, [1.0, 2.0, 0.0], atol=1e-14)
    twice = MatrixSensing(np.ones((2, 2, 3)), [1.0, 2.0])
    assert_allclose(twice.reachable, [1.5, 1.5], atol=1e-14)
    mirrored = SymmetrizedProblem(MatrixCompletion([0, 1], [1, 0], [1.0, 2.0], (3, 3)))
    assert_allclose(mirrored.reachable, [1.5, 1.5], atol=1e-14)
    # Where all can be reached, the target is not touched by the rounding of a projection.
    reached = regression(np.random.default_rng(0), (5, 2), 3)
    assert reached.reachable is reached.target


def test_residual_of_a_zero_target_is_absolute():
    problem = MatrixSensing(np.ones((1, 2, 2)), [0.0])
    assert problem.relative_residual(np.ones((2, 2))) == 4.0


@pytest.mark.parametrize(("n", "d", "rank"), [(4, 9, 4), (9, 4, 4), (6, 6, 6), (6, 9, 3)])
def test_spectrum(n, d, rank):
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
    problem = MatrixRegression(1e-30 * X, rng.standard_normal((n, 2)))  # the rank is relative
    s = problem.spectrum
    assert s.rank == rank
    assert (s.W.shape, s.root.shape) == ((n, rank), (rank,))
    assert (s.P1.shape, s.P2.shape) == ((d, rank), (d, d - rank))
    basis = np.hstack([s.P1, s.P2])
    assert_allclose(basis.T @ basis, np.eye(d), atol=1e-13)
    assert_allclose(1e30 * (s.W * s.root) @ s.P1.T, X, atol=1e-13)
    assert np.all(np.diff(s.root) <= 0)
    M = rng.standard_normal((d, 3))
    assert_allclose(s.off_range(M), s.P2 @ (s.P2.T @ M), atol=1e-13)
    assert_allclose(problem.min_norm, np.linalg.pinv(1e-30 * X) @ problem.Y, rtol=1e-9)


def test_a_vector_of_outputs_is_one_column():
    X = np.eye(3)
    assert MatrixRegression(X, [1.0, 2.0, 3.0]).Y.shape == (3, 1)
    assert_allclose(as_matrix_problem(X, [1.0, 2.0, 3.0]).target, [1.0, 2.0, 3.0])
    problem = MatrixRegression(X, X)
    assert as_matrix_problem(problem) is problem
    assert_allclose(as_matrix_problem(Regression(X, [1.0, 2.0, 3.0])).target, [1.0, 2.0, 3.0])


def test_repeated_entries_are_merged_where_they_agree():
    problem = MatrixCompletion([2, 0, 2], [1, 3, 1], [5.0, 7.0, 5.0], (3, 4))
    assert len(problem.target) == 2
    expected = np.zeros((3, 4))
    expected[0, 3], expected[2, 1] = 7.0, 5.0
    assert_allclose(problem.adjoint(problem.target), expected)
    assert_allclose(problem.mask, expected != 0.0)


def test_arrays_are_read_only():
    problem = MatrixRegression(np.eye(2), np.eye(2))
    for array in (problem.X, problem.Y, problem.target):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


EYES = np.stack([np.eye(2)] * 2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MatrixRegression([1.0, 2.0], [1.0]), r"X: must have 2 dim.*shape \(2,\)\. Pass"),
        (
            lambda: MatrixRegression(np.eye(2), [1.0]),
            r"Y: must have one row per row of X \(2\), go",
        ),
        (
            lambda: MatrixRegression(np.eye(2), np.ones((2, 2, 2))),
            r"Y: must have 2 dimension.*outp",
        ),
        (
            lambda: MatrixRegression(np.zeros((2, 2)), np.eye(2)),
            "X: must have a nonzero entry, got",
        ),
        (
            lambda: MatrixRegression([[np.nan]], [1.0]),
            r"X: must be finite, got nan at index \(0, 0",
        ),
        (lambda: MatrixRegression([[1.0, 2.0], [3.0]], [1.0]), "X: must be a rectangular array"),
        (
            lambda: as_matrix_problem(np.eye(2)),
            "Y: must be given with X, got None and X of ty",
        ),
        (lambda: MatrixSensing(np.eye(2), [1.0]), r"matrices: must have 3 dim.*\(measurements, d1"),
        (
            lambda: MatrixSensing(EYES, [1.0]),
            r"values: must have one entry per measurement \(2\), g",
        ),
        (lambda: MatrixSensing(0.0 * EYES, [1.0, 2.0]), "matrices: must have a nonzero entry"),
        (
            lambda: MatrixSensing(np.zeros((0, 2, 2)), []),
            "matrices: must hold at least one meas",
        ),
        (lambda: MatrixCompletion([], [], [], (2, 2)), "rows: must hold at least one measurement"),
        (
            lambda: MatrixCompletion([0, 2], [0, 1], [1.0, 2.0], (2, 2)),
            r"rows: must lie in 0 \.\. 1, got 2 at index 1\. Indices count from 0",
        ),
        (lambda: MatrixCompletion([0], [-1], [1.0], (2, 2)), r"cols: must lie in 0 \.\. 1, got -1"),
        (lambda: MatrixCompletion([0.5], [0], [1.0], (2, 2)), "rows: must be a vector of integers"),
        (
            lambda: MatrixCompletion([0, 0], [1, 1], [1.0, 2.0], (2, 2)),
            r"values: must agree where an entry is observed twice, got 1 and 2 for entry \(0, 1\)",
        ),
        (
            lambda: MatrixCompletion([0, 1], [0], [1.0], (2, 2)),
            "rows, cols, values: must have the same length, got 2, 1 and 1",
        ),
        (lambda: MatrixCompletion([0], [0], [np.inf], (2, 2)), "values: must be finite, got inf"),
        (
            lambda: MatrixCompletion([0], [0], [1.0], (2, 0)),
            r"shape: must be two integers >= 1, go",
        ),
        (lambda: MatrixCompletion([0], [0], [1.0], 4), r"shape: must be two integers >= 1, got 4"),
        (
            lambda: SymmetrizedProblem(MatrixCompletion([0], [0], [1.0], (2, 3))),
            r"problem: must measure square matrices .* got shape \(2, 3\)",
        ),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()
