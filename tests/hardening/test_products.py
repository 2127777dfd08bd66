"""Whatever the data, for neurons and matrices: a limit that says what it is, or a library error."""

import numpy as np
import pytest
from hypothesis import given

import flowbias as fb
from tests.hardening.awkward import regression_data
from tests.hardening.test_limits import dense, solved_or_refused


def completion(X: object) -> fb.MatrixCompletion:
    matrix = dense(X)
    rows, columns = np.nonzero(np.random.default_rng(0).random(matrix.shape) < 0.7)
    return fb.MatrixCompletion(rows, columns, matrix[rows, columns], matrix.shape)


def neuron(X: object, slope: float) -> fb.Neuron:
    return fb.Neuron(a=1.5, w=np.linspace(0.3, 1.0, np.shape(X)[1]), slope=slope)


LIMITS = {
    "linear neuron": lambda X, y: fb.limit(neuron(X, 1.0), X, y),
    "leaky neuron": lambda X, y: fb.limit(neuron(X, 0.5), X, y),
    "nuclear norm": lambda X, _: fb.nuclear_norm(completion(X)),
    "frobenius norm": lambda X, _: fb.frobenius_norm(completion(X)),
}


@pytest.mark.parametrize("solve", LIMITS.values(), ids=LIMITS)
@given(regression_data())
def test_limit(solve, data):
    solution = solved_or_refused(solve, data)
    assert solution is None or solution.status.ok
