"""How kernel and laziness scale with the start.  [docs/theory/overview.md, section 10]

A model of degree D, f(alpha theta) = alpha^D f(theta), has derivatives of degree D - 1 and D - 2:

    K -> alpha^(2 (D-1)) K,     kappa = ||f_0 - y|| ||D^2 f||/||D f||^2 -> alpha^(-D) kappa, f_0 = 0

Here for diagonal networks, whose degree is their depth; fb.regime.predict takes any module.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.models import DiagonalNet
from flowbias.models._base import Parameters
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Statement, beyond_the_papers
from flowbias.theory.conditions import positive, unbiased_log_start
from flowbias.theory.kernel_rich import relative

# Relative step of central differences: their error is its square, plus rounding divided by it.
_STEP, _DIFFERENCES = 1e-5, 1e-8
_REFERENCE = beyond_the_papers("10 Homogeneous starts")


@checked
def homogeneous_start(model: DiagonalNet, X: Any, y: Any, factor: float) -> tuple[Claim, Claim]:
    """With all weights times `factor`: K by factor^(2D-2), kappa by factor^(-D), D the depth.

    kappa is what decides the regime [Chizat, Oyallon and Bach 2019]; at an unbiased start

        kappa = ||y|| max_i D (D-1) a_i^(D-2) ||X e_i|| / lmax(X diag(2 D^2 a^(2D-2)) X^T).

    Measured from the gradients of the scaled weights and their differences.

    >>> model = fb.DiagonalNet(depth=3, scale=0.5)
    >>> all(c.holds for c in fb.theory.homogeneous_start(model, [[1.0, 2.0]], [1.0], factor=2.0))
    True
    """
    problem, alpha = Regression(X, y), positive("factor", factor, "It multiplies the weights.")
    d, depth = problem.X.shape[1], model.depth
    a = np.exp(unbiased_log_start(model, d))
    start = [np.broadcast_to(part, (d,)) for part in model.initial_parameters()]
    weights = tuple(alpha * part for part in start)
    kernel = (problem.X * (2.0 * depth**2 * a ** (2.0 * depth - 2.0))) @ problem.X.T
    bend = depth * (depth - 1.0) * a ** (depth - 2.0) * np.linalg.norm(problem.X, axis=0)
    kappa = float(np.linalg.norm(problem.y) * bend.max() / np.linalg.norm(kernel, 2))
    grown, jacobian = alpha ** (2.0 * depth - 2.0) * kernel, _jacobian(model, problem, weights)
    off = relative(jacobian @ jacobian.T - grown, grown)
    scaling = "a model of degree D has a tangent kernel of degree 2 (D - 1) and a laziness of -D"
    exact = Statement(_REFERENCE, scaling, "rounding of one product of matrices and of two powers")
    measured = Statement(_REFERENCE, scaling, "central differences with steps of 1e-5")
    return (
        exact.equal("kernel of a homogeneous start", off, atol=1e-13),
        measured.equal(
            "laziness of a homogeneous start",
            _laziness(model, problem, weights),
            alpha**-depth * kappa,
            rtol=_DIFFERENCES,
        ),
    )


def _jacobian(model: DiagonalNet, problem: Regression, weights: Parameters) -> FloatArray:
    """D f, (samples, weights)."""
    rows = [model.parameter_gradient(weights, row) for row in problem.X]
    return np.array([np.concatenate(row) for row in rows])


def _laziness(model: DiagonalNet, problem: Regression, weights: Parameters) -> float:
    """kappa; D^2 f is diagonal, so that its norm is that of the largest column."""
    up, down = (
        _jacobian(model, problem, tuple(stretch * part for part in weights))
        for stretch in (1.0 + _STEP, 1.0 - _STEP)
    )
    second = (up - down) / (2.0 * _STEP * np.concatenate(weights))
    residual = np.linalg.norm(problem.X @ model.predictor(weights) - problem.y)
    slope = np.linalg.norm(_jacobian(model, problem, weights), 2)
    return float(residual * np.linalg.norm(second, axis=0).max() / slope**2)
