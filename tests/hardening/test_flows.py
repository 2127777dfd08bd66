"""Whatever the data: a trajectory that says how it ended, or one of the library's own errors."""

import numpy as np
import pytest
from hypothesis import given

import flowbias as fb
from flowbias.flows.trajectory import FlowError
from tests.hardening.awkward import assert_explains_itself, regression_data

FLOWS = {
    "to a residual": lambda X, y: fb.flow(
        fb.DiagonalNet(depth=2, scale=0.3), X, y, residual=1e-4, throw=True
    ),
    "at times": lambda X, y: fb.flow(
        fb.UntiedDiagonalNet(scale=0.5, shape=0.3), X, y, t=[0.0, 0.1, 10.0]
    ),
    "in steps": lambda X, y: fb.gradient_descent(
        fb.DiagonalNet(depth=2, scale=0.3), X, y, step_size=1e-2, max_steps=20
    ),
}


@pytest.mark.parametrize("follow", FLOWS.values(), ids=FLOWS)
@given(regression_data())
def test_flow(follow, data):
    try:
        trajectory = follow(data.X, data.y)
    except (fb.InputError, FlowError) as refusal:
        assert_explains_itself(refusal)
    else:
        assert np.isfinite(trajectory.w).all() or not trajectory.status.ok
