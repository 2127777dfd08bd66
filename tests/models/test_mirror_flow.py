"""Every model against its own potential: the closed forms of the weights are those of the flow."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from flowbias.potentials import Provides
from tests.registry import EXTREME_MODELS, FEATURES, MODELS

ORDINARY = pytest.mark.parametrize("model", [pytest.param(m, id=name) for name, m in MODELS])
ALL = pytest.mark.parametrize(
    "model", [pytest.param(m, id=name) for name, m in MODELS + EXTREME_MODELS]
)
# A few dozen roundings, some of them in exponents of order ten.
ROUNDING = 1e-13


def dual_radius(model):
    """Per feature, how far z can move before w'(z) grows a hundredfold: well inside the domain."""
    shift = np.zeros(FEATURES) + model.shift
    radius = np.zeros(FEATURES)
    for exponent in range(-1000, 1000):
        growth = model.potential.hess_growth(shift, 2.0**exponent)
        radius = np.where(growth < 100.0, 2.0**exponent, radius)
    return radius


@pytest.fixture(params=range(3), ids="seed-{}".format)
def rng(request):
    return np.random.default_rng(request.param)


@ALL
def test_weights_give_the_predictor_of_the_dual_map(model, rng):
    z = rng.uniform(-1.0, 1.0, FEATURES) * dual_radius(model)
    w = model.predictor(model.parameters(z))
    expected = model.potential.grad_dual(model.shift + z)
    # The difference of the branches cancels near w = 0; there w' times the radius is the size.
    slope = model.potential.hess_dual(model.shift + z)
    size = np.abs(expected) + slope * (np.abs(z) + np.abs(model.shift)) + np.abs(model.initial)
    assert np.all(np.abs(w - expected) <= ROUNDING * size)


@ORDINARY
def test_gradient_of_the_potential_returns_the_dual_point(model, rng):
    z = rng.uniform(-1.0, 1.0, FEATURES) * dual_radius(model)
    z[model.potential.hess_dual(model.shift + np.zeros(FEATURES)) == 0.0] = 0.0  # frozen
    back = model.potential.grad(model.predictor(model.parameters(z)))
    scale = np.abs(z) + np.abs(model.shift) + dual_radius(model)
    # Rounding of w, divided by w', is at most a few radii.
    assert np.all(np.abs(back - model.shift - z) <= 100 * ROUNDING * scale)


@ALL
def test_start(model):
    start = model.initial_parameters()
    for moved, begun in zip(model.parameters(np.zeros(FEATURES)), start, strict=True):
        assert_allclose(moved, np.broadcast_to(begun, FEATURES), rtol=1e-15)
    initial = np.broadcast_to(model.initial, FEATURES)
    size = np.abs(model.predictor(start)) + np.max(np.abs(start)) ** model.depth
    assert np.all(np.abs(model.predictor(start) - initial) <= 1e-15 * size)
    dual_start = model.potential.grad_dual(model.shift + np.zeros(FEATURES))
    assert_allclose(dual_start, initial, rtol=ROUNDING, atol=ROUNDING * np.max(size))


@ALL
def test_metric_is_rate_times_slope_everywhere(model, rng):
    # d w/dt = J J^T G and d w/dt = w'(z) g G: the one identity that fixes the mirror rate.
    if model.mirror_rate == 0.0:
        pytest.skip("the clock of this scale leaves the double range")
    z = rng.uniform(-1.0, 1.0, FEATURES) * dual_radius(model)
    metric = np.broadcast_to(model.metric(model.parameters(z)), FEATURES)
    slope = model.potential.hess_dual(model.shift + z)
    assert_allclose(metric, model.mirror_rate * slope, rtol=ROUNDING)


@ORDINARY
def test_conserved_quantities(model, rng):
    z = rng.uniform(-1.0, 1.0, FEATURES) * dual_radius(model)
    start = model.conserved(model.parameters(np.zeros(FEATURES)))
    weights = model.parameters(z)
    # Differences of squares of the moved weights cancel to the start's.
    size = np.abs(start) + sum(np.square(part) for part in weights)
    assert np.all(np.abs(model.conserved(weights) - start) <= ROUNDING * size)


@ORDINARY
def test_signs_are_kept_in_tied_networks(model, rng):
    weights = model.parameters(rng.uniform(-1.0, 1.0, FEATURES) * dual_radius(model))
    if len(weights) == 2:
        for moved, begun in zip(weights, model.initial_parameters(), strict=True):
            assert_array_equal(np.sign(moved), np.broadcast_to(np.sign(begun), FEATURES))


@ORDINARY
def test_parameter_gradient_is_the_derivative(model, rng):
    weights = model.parameters(0.5 * rng.uniform(-1.0, 1.0, FEATURES) * dual_radius(model))
    g = rng.standard_normal(FEATURES)
    gradient = model.parameter_gradient(weights, g)
    assert type(gradient) is type(weights)
    step = 1e-6
    for i in range(len(weights)):
        ahead = [part + step * (j == i) for j, part in enumerate(weights)]
        behind = [part - step * (j == i) for j, part in enumerate(weights)]
        if not float(model.depth).is_integer():
            ahead, behind = np.abs(ahead), np.abs(behind)
        quotient = g * (model.predictor(tuple(ahead)) - model.predictor(tuple(behind))) / (2 * step)
        # Central difference: error of order step^2 and of rounding / step.
        assert_allclose(gradient[i], quotient, rtol=1e-6, atol=1e-8)


@ORDINARY
def test_tangent_kernel_is_that_of_the_explicit_jacobian(model, rng):
    X1, X2 = rng.standard_normal((3, FEATURES)), rng.standard_normal((2, FEATURES))
    start = [np.broadcast_to(part, FEATURES) for part in model.initial_parameters()]
    features = [
        np.stack([np.concatenate(model.parameter_gradient(tuple(start), x)) for x in X])
        for X in (X1, X2)
    ]
    assert_allclose(model.tangent_kernel(X1, X2), features[0] @ features[1].T, rtol=1e-12)
    assert_allclose(model.tangent_kernel(X1), features[0] @ features[0].T, rtol=1e-12)


@ALL
def test_declares_what_it_has(model):
    of_all = {Provides.PARAMETERS, Provides.SCALE, Provides.RESTART}
    squares = {Provides.SQUARES} if model.depth == 2 else set()
    assert model.provides == model.potential.provides | of_all | squares
    assert type(model).__name__ in repr(model)
