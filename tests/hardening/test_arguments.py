"""Arguments that are no data: every front door takes them, or says what is wrong with them."""

from fractions import Fraction

import numpy as np
import pytest

import flowbias as fb
from tests.hardening.awkward import assert_explains_itself

X, Y = np.array([[1.0, 2.0, 0.5], [0.0, 1.0, -1.0]]), np.array([1.0, 2.0])
NET = fb.DiagonalNet(depth=2, scale=0.1)
Q = NET.potential


def descent(**given):
    return fb.gradient_descent(NET, X, Y, **{"step_size": 0.1, "max_steps": 3, "rng": 0, **given})


DOORS = {
    "depth": lambda value: fb.DiagonalNet(depth=value, scale=0.1),
    "scale": lambda value: fb.DiagonalNet(depth=2, scale=value),
    "shape": lambda value: fb.UntiedDiagonalNet(scale=0.1, shape=value),
    "a": lambda value: fb.Neuron(value, [1.0, 2.0]),
    "layer scale": lambda value: fb.LinearNet.gaussian(3, 1, width=5, scale=value, rng=0),
    "tol": lambda value: fb.limit(NET, X, Y, tol=value),
    "weights": lambda value: fb.basis_pursuit(X, Y, weights=value),
    "t": lambda value: fb.flow(NET, X, Y, t=value),
    "rtol": lambda value: fb.flow(NET, X, Y, t=[1.0], rtol=value),
    "route": lambda value: fb.flow(NET, X, Y, t=[1.0], route=value),
    "batch_size": lambda value: descent(batch_size=value),
    "record_every": lambda value: descent(record_every=value),
    "momentum": lambda value: descent(momentum=value),
    "label_noise": lambda value: descent(label_noise=value),
    "w": lambda value: fb.certify(X, Y, value, np.ones(2), Q),
    "potential": lambda value: fb.certify(X, Y, np.ones(3), np.ones(2), value),
    "shift": lambda value: fb.certify(X, Y, np.ones(3), np.ones(2), Q, value),
    "noise_var": lambda value: fb.datasets.sparse_regression(
        n=5, d=10, sparsity=2, noise_var=value, rng=0
    ),
    "measurements": lambda value: fb.nuclear_norm(fb.MatrixRegression(value, [1.0, 2.0])),
}
VALUES = {
    "none": None,
    "integer beyond the doubles": 10**400,
    "end of the doubles": 1e308,
    "subnormal array": np.full((2, 3), 5e-324),
    "minus infinity": -np.inf,
    "number in words": "1",
    "ragged": [[1, 2], [3]],
    "complex": 1 + 1j,
    "array": np.ones((2, 2)),
    "fraction": Fraction(1, 2),
    "eight bits": np.int8(2),
    "model": NET,
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_taken_or_explained(door, value):
    """Warnings are errors here: numbers that overflow on the way are not taken."""
    try:
        door(value)
    except (fb.InputError, fb.SolveError) as refusal:
        assert_explains_itself(refusal)
