"""Bad input names the argument, the constraint, the value and the fix."""

import numpy as np
import pytest

from flowbias.flows import FlowError, flow
from flowbias.ground.arguments import InputError
from flowbias.models import DiagonalNet, UntiedDiagonalNet

MODEL = DiagonalNet(2, 0.3)
X, Y = np.array([[1.0, 2.0, -1.0], [0.0, 1.0, 1.0]]), np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"t": [1.0, 0.5]}, "t: must be finite, non-negative and increasing, got 0.5 at index 1"),
        ({"t": [0.1, 0.1]}, r"increasing, got 0.1 at index 1\. Sort the times with np.unique"),
        ({"t": [-1.0]}, "non-negative and increasing, got -1 at index 0"),
        ({"t": [0.1, np.inf]}, "must be finite.*got inf at index 1"),
        ({"t": [np.nan]}, "must be finite.*got nan at index 0"),
        ({"t": []}, r"t: must be a list of times, got shape \(0,\)"),
        ({"t": [[1.0]]}, r"t: must be a list of times, got shape \(1, 1\)"),
        ({"t": "soon"}, "t: must be a list of times, got 'soon'"),
        ({"loss": "squared"}, "loss: must be one of 'half', 'sum', .*got 'squared'"),
        ({"loss": -1.0}, r"finite number c > 0, got -1.0\. A number c means"),
        ({"loss": None}, "got None"),
        ({"loss": np.nan}, "got nan"),
        ({"residual": 0.0}, r"residual: must lie in \(0, 1\), got 0.0"),
        ({"rtol": -1e-8}, r"rtol: must lie in \(0, 1\), got -1e-08"),
        ({"atol": "tight"}, r"atol: must lie in \(0, 1\), got 'tight'"),
        (
            {"route": "straight"},
            "route: must be one of 'neuron', 'dual', 'parameter', got 'straight'",
        ),
    ],
)
def test_message(arguments, message):
    with pytest.raises(InputError, match=message):
        flow(MODEL, X, Y, **arguments)


@pytest.mark.parametrize(
    "model",
    [
        DiagonalNet(2, 0.3, w0=[1.0, 2.0]),
        DiagonalNet(3, 0.3, w0=[1.0, 2.0]),
        DiagonalNet.from_weights([0.1, 0.2], [0.1, 0.3], depth=3),
        UntiedDiagonalNet([0.1, 0.2]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("route", ["dual", "parameter"])
def test_a_model_of_the_wrong_size(model, route):
    with pytest.raises(InputError, match="X: must have one column per coordinate of the model"):
        flow(model, X, Y, route=route)


def test_data():
    with pytest.raises(InputError, match="y: must be given with X"):
        flow(MODEL, X)
    with pytest.raises(InputError, match="y: must have one entry per row of X"):
        flow(MODEL, X, [1.0])
    with pytest.raises(InputError, match="model: must declare what it `provides`, got ndarray"):
        flow(X, X, Y)


def test_a_clock_at_the_end_of_the_doubles():
    """Rates of 1e-320: the flow has not begun at t = 1e300."""
    with pytest.raises(FlowError, match="its clock is at the end of the doubles; multiply X and y"):
        flow(MODEL, np.multiply(1e-160, X), np.multiply(1e-160, Y))
