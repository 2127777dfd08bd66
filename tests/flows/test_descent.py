"""Gradient descent against the flow it discretizes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import flow, gradient_descent
from flowbias.flows.descent import DescentStatus
from flowbias.ground.arguments import InputError
from flowbias.models import DiagonalNet, UntiedDiagonalNet

RNG = np.random.default_rng(4)
X, Y = RNG.standard_normal((3, 8)), RNG.standard_normal(3)


@pytest.mark.parametrize(
    "model", [DiagonalNet(2, 0.3), DiagonalNet(3, 0.5), UntiedDiagonalNet(0.3, shape=0.5)], ids=repr
)
def test_small_steps_come_close_to_the_limit_in_first_order(model):
    coarse = gradient_descent(model, X, Y, step_size=4e-3)
    fine = gradient_descent(model, X, Y, step_size=1e-3)
    assert coarse.status is fine.status is DescentStatus.CONVERGED
    assert fine.residual[-1] <= 1e-8
    # The error of Euler's method is of first order in the step.
    assert_allclose(coarse.distance_to_limit / fine.distance_to_limit, 4.0, rtol=0.2)


def test_one_step_is_the_tangent_of_the_flow():
    model, step = DiagonalNet(2, 0.3), 1e-5
    descent = gradient_descent(model, X, Y, step_size=step, max_steps=1, loss="sum")
    assert descent.status is DescentStatus.STOPPED
    assert "raise max_steps" in repr(descent)
    # The flow bends by the square of the step.
    assert_allclose(descent.w, flow(model, X, Y, t=[step], loss="sum").w[0], rtol=1e-3, atol=1e-12)
    assert_allclose(model.predictor(descent.parameters), descent.w, rtol=1e-15)


def test_a_step_that_is_too_long_says_what_would_do():
    model = DiagonalNet(2, 2.0)
    stable = gradient_descent(model, X, Y, step_size=1e-4, max_steps=1).stable_step_size
    # 2 / (largest eigenvalue of the tangent kernel).
    assert_allclose(stable, 2.0 / np.linalg.eigvalsh(model.tangent_kernel(X))[-1], rtol=1e-12)
    descent = gradient_descent(model, X, Y, step_size=100.0)
    assert descent.status is DescentStatus.DIVERGED
    assert "lower step_size = 100" in descent.message
    assert np.isfinite(descent.w).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step_size": 0.0}, "step_size: must be > 0 and finite, got 0.0"),
        ({"step_size": "auto"}, "step_size: must be > 0 and finite, got 'auto'"),
        ({"step_size": 0.1, "max_steps": 0}, "max_steps: must be an integer >= 1, got 0"),
        ({"step_size": 0.1, "residual": 2.0}, r"residual: must lie in \(0, 1\), got 2.0"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        gradient_descent(DiagonalNet(2, 0.3), X, Y, **arguments)
