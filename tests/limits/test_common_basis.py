"""One orthogonal pair for all measurements: found where it exists, refused where it does not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.ground.arguments import InputError
from flowbias.limits.lifted.diagonal_measurements import (
    common_basis,
    lifted_commutator,
    plain_commutator,
    require_common_basis,
)
from flowbias.problems.matrix import MatrixCompletion, MatrixSensing
from tests.limits.factor_flow import diagonal_together, orthogonal

COMMUTING = np.array([np.eye(2), [[0.0, 1.0], [0.0, 0.0]]])


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 6), (1, 4)])
@pytest.mark.parametrize("seed", range(10))
def test_pair_is_found_and_reproduces_the_measurements(shape, seed):
    rng = np.random.default_rng(seed)
    X = diagonal_together(*shape, 3, rng) * np.array([1e-8, 1.0, 1e8])[:, None, None]
    basis = common_basis(MatrixSensing(X, np.ones(3)))
    assert basis is not None
    for side in (basis.left, basis.right):
        assert_allclose(side.T @ side, np.eye(len(side)), atol=1e-13)
    for matrix, values in zip(X, basis.values, strict=True):
        assert_allclose(basis.assemble(values), matrix, atol=1e-12 * np.linalg.norm(matrix))


@pytest.mark.parametrize("seed", range(10))
def test_equal_opposite_and_vanishing_columns(seed):
    """Singular values of every combination then meet; the pair must hold all the same."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((2, 6))
    values[:, 1], values[:, 2], values[:, 3] = values[:, 0], -values[:, 0], 0.0
    P, Q = orthogonal(6, rng), orthogonal(6, rng)
    X = np.stack([(P * row) @ Q.T for row in values])
    assert common_basis(MatrixSensing(X, np.ones(2))).defect < 1e-12


def test_diagonal_measurements_are_left_alone():
    X = np.zeros((2, 3, 4))
    X[0, 1, 1], X[1, 2, 2] = 2.0, -1.0
    basis = common_basis(MatrixSensing(X, [1.0, 2.0]))
    assert (basis.left == np.eye(3)).all()
    assert (basis.right == np.eye(4)).all()


def test_commuting_is_not_enough():
    assert plain_commutator(COMMUTING) == 0.0
    assert lifted_commutator(COMMUTING) > 0.5
    problem = MatrixSensing(COMMUTING, [1.0, 1.0])
    assert common_basis(problem) is None
    with pytest.raises(InputError, match=r"problem: .*They commute, but that is not enough"):
        require_common_basis(problem)


def test_commuting_is_not_needed():
    """Rectangular or not symmetric measurements may be diagonal together without commuting."""
    rng = np.random.default_rng(0)
    X = diagonal_together(3, 3, 2, rng)
    assert plain_commutator(X) > 0.1
    assert lifted_commutator(X) < 1e-14
    assert common_basis(MatrixSensing(X, [1.0, 1.0])) is not None


@pytest.mark.parametrize(
    ("cols", "fits"), [((1, 2, 0), True), ((1, 1, 0), False)], ids=["matching", "shared column"]
)
def test_completion_fits_where_no_row_or_column_is_shared(cols, fits):
    problem = MatrixCompletion([0, 1, 2], list(cols), [1.0, 2.0, 3.0], (3, 3))
    assert (common_basis(problem) is not None) == fits


def test_small_disturbance_is_seen():
    rng = np.random.default_rng(1)
    X = diagonal_together(4, 4, 3, rng) + 1e-7 * rng.standard_normal((3, 4, 4))
    problem = MatrixSensing(X, np.ones(3))
    assert common_basis(problem) is None
    assert common_basis(problem, tol=1e-5) is not None
    with pytest.raises(InputError, match="asymmetry of"):
        require_common_basis(problem)
