"""Flows followed in the factors: saddles, projections and what is carried along."""

import numpy as np
import pytest

from flowbias.ground.arguments import InputError
from flowbias.models import LinearNet, MatrixFactorization
from flowbias.problems.matrix import MatrixRegression, MatrixSensing
from flowbias.theory.measured_flow import ENDED, follow_factors, follow_weights


def test_a_saddle_is_refused_but_one_that_is_passed_is_not():
    problem = MatrixRegression(np.eye(2), 1.5 * np.eye(2))
    with pytest.raises(InputError, match="at or near a saddle"):
        follow_weights(LinearNet(np.diag([1.0, 0.0]), np.diag([1.0, 0.0])), problem)
    path = follow_weights(LinearNet(np.diag([1.0, 1e-6]), np.diag([1.0, 1e-6])), problem)
    np.testing.assert_allclose(path.M[-1], 1.5 * np.eye(2), atol=1e-9)


def test_both_doors_follow_the_same_flow_with_their_own_losses():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 3)), rng.standard_normal((2, 2))
    U, V = rng.standard_normal((3, 4)), rng.standard_normal((2, 4))
    problem = MatrixRegression(X, Y)
    weights = follow_weights(LinearNet(U, V), problem, [0.3], loss="half")
    factors = follow_factors(MatrixFactorization(U, V), problem, [0.15], loss="sum")
    np.testing.assert_allclose(weights.M[-1], factors.M[-1], rtol=1e-9)
    assert weights.error_integral[-1] == pytest.approx(2.0 * factors.error_integral[-1], rel=1e-9)
    np.testing.assert_allclose(weights.error[-1], np.linalg.norm(Y - X @ weights.M[-1]), rtol=1e-9)


def test_targets_out_of_reach_are_projected():
    """Two measurements of the same entry that disagree: the flow ends at their mean."""
    problem = MatrixSensing([[[1.0]], [[1.0]]], [1.0, 2.0])
    path = follow_factors(MatrixFactorization([[0.5]], [[0.7]]), problem)
    assert path.M[-1].item() == pytest.approx(1.5, rel=1e-9)
    assert path.error[-1] <= 10.0 * ENDED


def test_a_start_of_zero_error_has_ended():
    path = follow_weights(LinearNet([[2.0]], [[3.0]]), MatrixRegression([[1.0]], [[6.0]]))
    assert path.t.tolist() == [0.0]
