"""Neurons at their start: input, scale and shape, what they conserve, when many are one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.potentials import Provides

NAN = float("nan")
W = np.array([1.0, -2.0, 2.0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Neuron(0.0, [0.0, 0.0]), "a, w: must not both be zero.*saddle.*from_scale_shape"),
        (lambda: Neuron([1.0], W), "a: must be one finite real number, got .*NeuronSum"),
        (lambda: Neuron(NAN, W), "a: must be one finite real number, got nan"),
        (lambda: Neuron("1", W), "a: must be one finite real number, got '1'"),
        (lambda: Neuron(1.0, np.eye(2)), r"w: must have 1 dimension\(s\), got shape \(2, 2\)"),
        (lambda: Neuron(1.0, [1.0, np.inf]), "w: must be finite, got inf at index"),
        (lambda: Neuron(1e101, W), r"a, w: .* between 1e-100 and 1e\+100 in size, got 1e\+101"),
        (lambda: Neuron(1e-120, 1e-120 * W), "their cubes leave the double range. Rescale"),
        (lambda: Neuron(1.0, W, slope=0.0), "slope: must be > 0, got 0.0. At slope 0"),
        (lambda: Neuron(1.0, W, slope=-1.0), "slope: must be > 0, got -1.0"),
        (lambda: Neuron.from_scale_shape(-1.0, 0.0, W), "scale: must be > 0, got -1.0"),
        (lambda: Neuron.from_scale_shape(1.0, 1.0, W), "shape: must lie strictly between -1 and 1"),
        (lambda: Neuron.from_scale_shape(1.0, 0.0, 0 * W), "direction: must not be zero"),
        (lambda: Neuron.from_scale_shape(1.0, 0.0, W, sign=0), "sign: must be 1 or -1"),
        (lambda: Neuron(0.0, W).shift, "a: must not be 0 for the start to have a dual point"),
        (lambda: Neuron(1.0, W).tangent_kernel(np.ones((2, 2))), r"X1: .* per weight \(3\), got 2"),
        (lambda: Neuron(1.0, W, 0.5).tangent_kernel([W]), "slope: must be 1 for the kernel"),
        (lambda: NeuronSum([1.0, 2.0], [W, W, W]), r"W: .* per neuron \(2\), got shape \(3, 3\)"),
        (lambda: NeuronSum([1.0, 2.0, 3.0, 4.0], np.ones((3, 4))), "Pass W.T: neurons are rows"),
        (lambda: NeuronSum([0.0], [0.0 * W]), "a, W: must not both be zero.*saddle"),
        (lambda: NeuronSum([1e120], [W]), "a, W: must have a largest entry between"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_zero_outer_or_inner_weight_alone_is_a_start():
    assert Neuron(0.0, W).delta == -9.0
    assert Neuron(2.0, 0 * W).delta == 4.0
    assert not Neuron(2.0, 0 * W).shift.any()


@given(
    log_scale=st.floats(-20.0, 20.0),
    shape=st.floats(-0.999, 0.999),
    sign=st.sampled_from([-1, 1]),
)
def test_scale_and_shape_round_trip(log_scale, shape, sign):
    scale = float(np.exp(log_scale))
    model = Neuron.from_scale_shape(scale, shape, W, sign=sign)
    assert_allclose(model.scale, scale, rtol=1e-14)
    # (|a| - ||w||)/(|a| + ||w||): a rounding of either is one of the result, absolutely.
    assert_allclose(model.shape, shape, rtol=0, atol=1e-15)
    assert np.sign(model.a) == sign
    assert_allclose(model.w / np.linalg.norm(model.w), W / 3.0, rtol=1e-14)
    delta = 4.0 * scale**2 * shape / ((1.0 - shape) * (1.0 + shape))
    size = model.a**2 + float(model.w @ model.w)
    assert_allclose(model.delta, delta, atol=1e-13 / (1.0 - abs(shape)) * size)


def test_shift_is_minus_the_papers_linear_term():
    for a in (2.0, -0.5):
        model = Neuron(a, W)
        length = np.linalg.norm(model.initial)
        root = np.sqrt(np.hypot(length, model.delta / 2) - model.delta / 2)
        assert_allclose(model.shift, 1.5 * root * model.initial / length)
        assert_allclose(model.shift, model.potential.grad(model.initial))


@pytest.mark.parametrize("model", [Neuron(-0.7, W), NeuronSum([1.0, -0.3], [W, [0.1, 0.2, 0.0]])])
def test_gradient_is_that_of_the_predictor(model):
    weights, g = model.initial_parameters(), np.array([0.3, -1.0, 0.4])
    gradient = model.parameter_gradient(weights, g)
    rng = np.random.default_rng(0)
    moves = [rng.standard_normal(part.shape) for part in weights]
    ends = [
        g @ model.predictor(tuple(w + h * m for w, m in zip(weights, moves, strict=True)))
        for h in (1e-6, -1e-6)
    ]
    expected = sum(float(np.sum(p * m)) for p, m in zip(gradient, moves, strict=True))
    assert_allclose((ends[0] - ends[1]) / 2e-6, expected, rtol=1e-8)
    assert_allclose(model.predictor(weights), model.initial)


def test_tangent_kernel_is_that_of_the_gradients():
    rng = np.random.default_rng(1)
    model, X1, X2 = Neuron(-0.7, W), rng.standard_normal((2, 3)), rng.standard_normal((4, 3))
    weights = model.initial_parameters()

    def features(X):
        return np.stack([np.concatenate(model.parameter_gradient(weights, row)) for row in X])

    assert_allclose(model.tangent_kernel(X1, X2), features(X1) @ features(X2).T)


def test_what_neurons_provide():
    assert Neuron(1.0, W).provides == {Provides.NEURON, Provides.PARAMETERS}
    assert Neuron(1.0, W, slope=0.1).provides == {Provides.ACTIVATED_NEURON}
    assert NeuronSum([1.0], [W]).provides == {Provides.NEURON_SUM, Provides.PARAMETERS}
    assert "slope=0.1" in repr(Neuron(1.0, W, slope=0.1))
    assert "delta=-8" in repr(Neuron(1.0, W))


def test_copies_of_one_neuron_are_one():
    u = np.array([0.6, 0.0, -0.8])
    model = NeuronSum(2.0 * u, np.outer(u, W))
    one = model.as_one_neuron
    assert one is not None
    assert_allclose(one.a, 2.0)
    assert_allclose(one.w, W)
    assert not model.is_strictly_balanced
    assert "copies of one" in repr(model)


def test_strict_balance_needs_all_directions():
    a, e = np.array([0.4, -1.0]), W / 3.0
    assert NeuronSum(a, np.outer(a, e)).is_strictly_balanced
    # Each neuron balanced, in a direction of its own: of Delta only the diagonal vanishes.
    turned = NeuronSum(a, np.stack([a[0] * e, a[1] * np.array([2.0, 2.0, 1.0]) / 3.0]))
    assert_allclose(np.diag(turned.balance), 0.0, atol=1e-15)
    assert not turned.is_strictly_balanced
    assert turned.as_one_neuron is None
    # A turn by 1e-9 is below the rounding of Delta, and still seen.
    across = np.array([2.0, 2.0, 1.0]) / 3.0
    nearly = NeuronSum(a, np.stack([a[0] * e, a[1] * (e + 1e-9 * across)]))
    assert np.abs(nearly.balance).max() < 1e-15
    assert not nearly.is_strictly_balanced


def test_network_has_the_same_predictor():
    rng = np.random.default_rng(2)
    model = NeuronSum(rng.standard_normal(4), rng.standard_normal((4, 3)))
    assert_allclose(model.network.product[:, 0], model.initial)
