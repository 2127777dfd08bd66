"""Kernel and laziness of scaled starts: against a norm that is searched for, and made to fail."""

import re

import numpy as np
import pytest

import flowbias as fb
from flowbias import theory
from flowbias.theory.diagonal_networks import _laziness
from tests.theory.verdicts import why_nothing

X = np.array([[1.0, -2.0, 0.5], [0.3, 0.7, -1.1]])
Y = np.array([1.0, -0.4])


class OfAnotherDegree(fb.DiagonalNet):
    """Gradients of depth D where the predictor is said to have depth D + 1e-3."""

    def parameter_gradient(self, parameters, g):
        gradient = super().parameter_gradient(parameters, g)
        return type(gradient)(*(part * np.abs(parameters[0]) ** 1e-3 for part in gradient))


@pytest.mark.parametrize("depth", [2, 2.5, 3, 5])
def test_another_degree_fails(depth):
    model, other = (kind(depth=depth, scale=0.5) for kind in (fb.DiagonalNet, OfAnotherDegree))
    assert all(claim.holds for claim in theory.homogeneous_start(model, X, Y, 3.0))
    assert not any(claim.holds for claim in theory.homogeneous_start(other, X, Y, 3.0))


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_norm_of_the_second_derivative_is_that_of_its_largest_column(depth):
    """No pair of directions found by alternating maximization does better, and one does as well."""
    model = fb.DiagonalNet(depth=depth, scale=0.8, w0=[0.5, 1.0, 2.0])
    weights = model.initial_parameters()
    factor = depth * (depth - 1.0) * np.concatenate(weights) ** (depth - 2.0)
    columns = np.hstack([X, -X]) * factor  # D^2 f[u, v] = columns (u v)
    rng, best = np.random.default_rng(0), 0.0
    for _ in range(30):
        u, v = rng.standard_normal((2, 6))
        for _ in range(200):
            v = np.linalg.svd(columns * (u / np.linalg.norm(u)))[2][0]
            u = np.linalg.svd(columns * v)[2][0]
        best = max(best, np.linalg.norm(columns @ (u * v)))
    jacobian = depth * np.hstack([X, -X]) * np.concatenate(weights) ** (depth - 1.0)
    kappa = np.linalg.norm(Y) * best / np.linalg.norm(jacobian, 2) ** 2
    assert _laziness(model, fb.Regression(X, Y), weights) == pytest.approx(kappa, rel=1e-8)


@pytest.mark.parametrize(
    ("model", "factor", "message"),
    [
        (fb.DiagonalNet.from_weights([1, 2, 1], [1, 1, 1]), 2.0, "model: must start unbiased"),
        (fb.DiagonalNet(depth=2, scale=1.0), -2.0, "factor: must be > 0"),
    ],
)
def test_needs_an_unbiased_start_and_a_factor(model, factor, message):
    assert re.search(message, why_nothing(theory.homogeneous_start, model, X, Y, factor))
