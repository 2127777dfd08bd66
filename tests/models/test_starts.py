"""Starts: scales, shapes, signs and zeros, and how they become potentials."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.potentials import (
    BiasedDepthPotential,
    DepthPotential,
    Hypentropy,
    HyperbolicPotential,
    UntiedPotential,
)
from tests.registry import FEATURES, MODELS

Z = np.linspace(-1.5, 1.5, FEATURES)


def test_unbiased_starts_use_the_plain_potentials_with_the_scale_as_given():
    assert isinstance(DiagonalNet(2, 0.1).potential, Hypentropy)
    assert isinstance(DiagonalNet(3, 0.1).potential, DepthPotential)
    assert isinstance(UntiedDiagonalNet(0.1).potential, UntiedPotential)
    assert DiagonalNet(2, 0.1, w0=[3.0, -7.0]).potential.scale.tolist() == [0.1 * 3.0, 0.1 * 7.0]
    assert isinstance(DiagonalNet.from_weights([0.1], [-0.1], 2).potential, Hypentropy)


@pytest.mark.parametrize(("depth", "kind"), [(2, HyperbolicPotential), (3, BiasedDepthPotential)])
def test_biased_starts(depth, kind):
    model = DiagonalNet.from_weights([0.1, 0.2], [0.1, 0.1], depth)
    assert type(model.potential) is kind
    assert_allclose(model.initial, [0.0, 0.2**depth - 0.1**depth], rtol=1e-14)


@pytest.mark.parametrize("depth", [2, 3, 4, 7])
def test_tangent_kernel_at_an_unbiased_start(depth):
    # 2 D^2 scale^(2D-2) <x, x'>  [woodworth2020, section 2; 8 scale^2 at depth 2]
    X = np.arange(6.0).reshape(2, 3)
    kernel = DiagonalNet(depth, 0.3).tangent_kernel(X)
    assert_allclose(kernel, 2 * depth**2 * 0.3 ** (2 * depth - 2) * X @ X.T, rtol=1e-14)


def test_tangent_kernel_after_training_uses_the_weights_given():
    model, X = DiagonalNet(2, 0.3), np.eye(FEATURES)
    weights = model.parameters(Z)
    expected = 4.0 * (np.square(weights.w_plus) + np.square(weights.w_minus))
    assert_allclose(np.diag(model.tangent_kernel(X, parameters=weights)), expected, rtol=1e-14)


def test_conserved_quantities_by_name():
    tied = DiagonalNet.from_weights([0.5, 0.0], [0.25, 0.5], 2)
    assert tied.conserved(tied.initial_parameters()).tolist() == [0.125, 0.0]
    deep = DiagonalNet.from_weights([0.5, 0.0], [0.25, 0.5], 3)
    assert deep.conserved(deep.initial_parameters()).tolist() == [2.0 + 4.0, 0.0]
    untied = UntiedDiagonalNet.from_weights(1.0, 2.0, 3.0, 4.0)
    assert untied.conserved(untied.initial_parameters()).tolist() == [8.0, 12.0, 24.0, 4.0]


def test_negative_weights_at_odd_depth_swap_the_branches():
    # w+ = -a, w- = -b: w = -a^3 + b^3 is the network with w+ = b, w- = a.
    mirrored = DiagonalNet.from_weights([-0.4], [-0.7], 3)
    plain = DiagonalNet.from_weights([0.7], [0.4], 3)
    z = np.array([0.3])
    assert_allclose(mirrored.parameters(z).w_plus, -plain.parameters(z).w_minus, rtol=1e-15)
    assert_allclose(mirrored.parameters(z).w_minus, -plain.parameters(z).w_plus, rtol=1e-15)
    assert_allclose(mirrored.initial, plain.initial, rtol=1e-15)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_zero_weights_stay_zero(depth):
    model = DiagonalNet.from_weights([0.5, 0.0, 0.0], [0.0, 0.5, 0.0], depth)
    z = np.array([0.4, 0.4, 0.4])
    weights = model.parameters(z)
    assert weights.w_minus[0] == weights.w_plus[1] == weights.w_plus[2] == weights.w_minus[2] == 0.0
    w = model.potential.grad_dual(model.shift + z)
    assert w[0] > 0.5**depth
    assert -(0.5**depth) < w[1] < 0.0
    assert w[2] == 0.0


def test_untied_shape_zero_is_half_the_tied_potential():
    w = np.linspace(-2.0, 2.0, 5)
    untied, tied = UntiedDiagonalNet(0.3).potential, DiagonalNet(2, 0.3).potential
    assert_allclose(untied.value_terms(w), 0.5 * tied.value_terms(w), rtol=1e-14)


@given(scale=st.floats(1e-3, 1e3), shape=st.floats(-0.999, 0.999))
def test_untied_scale_and_shape_are_those_of_the_weights(scale, shape):
    u, _, v, _ = UntiedDiagonalNet(scale, shape=shape).initial_parameters()
    assert_allclose(np.sqrt(u * v), scale, rtol=1e-14)
    assert_allclose((v - u) / (v + u), shape, rtol=1e-12, atol=1e-15)


@given(
    weights=st.tuples(*[st.floats(-2.0, 2.0) for _ in range(4)]),
    nudge=st.sampled_from([0.0, 1e-3, 1e-9]),
)
def test_untied_level_and_shift_are_free_of_cancellation(weights, nudge):
    # Nearly u = v: k = P M in exact arithmetic, against exp(log_plus + log_minus) = P M / 16.
    u_plus, u_minus, v_minus, _ = weights
    v_plus = u_plus + nudge
    model = UntiedDiagonalNet.from_weights(u_plus, u_minus, v_plus, v_minus)
    a, b, c, e = (Fraction(x) for x in (u_plus, u_minus, v_plus, v_minus))
    P, M = (a + c) ** 2 + (b - e) ** 2, (a - c) ** 2 + (b + e) ** 2
    if min(P, M) < Fraction(1, 10**200):
        return
    potential = model.potential
    log_level = float(potential.log_plus + potential.log_minus)
    # A logarithm of size up to 100, rounded.
    assert_allclose(log_level, np.log(float(P)) + np.log(float(M)) - np.log(16.0), atol=1e-13)
    assert_allclose(model.shift, 0.25 * (np.log(float(P)) - np.log(float(M))), atol=1e-13)


@pytest.mark.parametrize("model", [pytest.param(m, id=name) for name, m in MODELS])
def test_rescaling_multiplies_the_weights(model):
    smaller = model.at_log_scale(-2.0)
    assert type(smaller) is type(model)
    spread = np.exp(-2.0 - np.mean(model.log_scale))
    for after, before in zip(smaller.initial_parameters(), model.initial_parameters(), strict=True):
        assert_allclose(after, spread * before, rtol=1e-14)


def test_rescaling_is_the_model_of_that_scale():
    moved = DiagonalNet(3, 0.5, w0=[1.0, -2.0]).at_log_scale(np.log(0.1))
    direct = DiagonalNet(3, 0.1, w0=[1.0, -2.0])
    w = np.array([0.3, -0.7])
    assert_allclose(moved.potential.grad(w), direct.potential.grad(w), rtol=1e-14)


def test_weights_of_a_scale_that_underflows():
    # w+ = exp(-10000 + z/2): ordinary numbers again once z has grown to about 20000.
    model = DiagonalNet(2, log_scale=-1e4)
    weights = model.parameters(np.array([2e4 - 2.0, -2e4]))
    assert_allclose(weights.w_plus, [np.exp(-1.0), 0.0], rtol=1e-11)
    assert_allclose(weights.w_minus, [0.0, 1.0], rtol=1e-11)
    assert_allclose(model.predictor(weights), [np.exp(-2.0), -1.0], rtol=1e-11)


def test_reprs_say_what_was_given():
    assert repr(DiagonalNet(3, 0.5)) == "DiagonalNet(depth=3, scale=0.5)"
    assert repr(DiagonalNet(log_scale=-9.0, w0=[1.0, 2.0])) == (
        "DiagonalNet(depth=2, log_scale=-9, w0=<2 values in [1, 2]>)"
    )
    assert repr(UntiedDiagonalNet(0.5, shape=0.1)) == "UntiedDiagonalNet(scale=0.5, shape=0.1)"
    biased = DiagonalNet.from_weights([0.1, 0.2], 0.3, depth=4)
    assert "from_weights(w_plus=<2 values in [0.1, 0.2]>, w_minus=0.3, depth=4)" in repr(biased)
    assert repr(biased.at_log_scale(-5.0)).endswith(".at_log_scale(-5)")
