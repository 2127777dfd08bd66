"""Infinitely wide networks: expectations by quadrature, and wide networks by their own kernel."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import erf

from flowbias.ground.arguments import InputError
from flowbias.kernels import infinite_width_kernels, tangent_kernel
from flowbias.kernels.infinite_width import relu_moments
from tests.kernels.architectures import torch

KINDS = {
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: 1.0 * (z > 0)),
    "erf": (erf, lambda z: 2.0 / math.sqrt(math.pi) * np.exp(-(z**2))),
}


def by_quadrature(covariance, function):
    """E[function(z) function(z')], by a fine grid of angles and of radii: kinks lie on rays."""
    radii, weights = np.polynomial.laguerre.laggauss(60)  # r^2 / 2 is exponential
    angles = (np.arange(20_000) + 0.5) * (2.0 * np.pi / 20_000)
    points = np.sqrt(2.0 * radii)[:, None, None] * np.stack([np.cos(angles), np.sin(angles)])
    first, second = np.einsum("ab,rbt->art", np.linalg.cholesky(covariance), points)
    return float(weights @ (function(first) * function(second)).mean(axis=1))


@pytest.mark.parametrize("activation", KINDS)
def test_one_hidden_layer_is_its_expectations(activation):
    rng = np.random.default_rng(0)
    x = 0.7 * rng.standard_normal((3, 2))
    weight, bias = 1.7, 0.3
    K = weight * x @ x.T / 2 + bias
    found = infinite_width_kernels(x, activation=activation, weight_var=weight, bias_var=bias)
    unit, slope = KINDS[activation]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        block = K[np.ix_([i, j], [i, j])]
        nngp = weight * by_quadrature(block, unit) + bias
        # The grid's own error: a jump of slopes falls between two of 20,000 angles.
        assert_allclose(found.nngp[i, j], nngp, rtol=1e-4)
        expected = nngp + weight * by_quadrature(block, slope) * K[i, j]
        assert_allclose(found.ntk[i, j], expected, rtol=1e-3)


@pytest.mark.parametrize("activation", KINDS)
def test_a_wide_network_comes_close(activation):
    """Weights are drawn from N(0, 1) and scaled in the forward, which is what ntk measures by."""
    torch.manual_seed(0)
    width, weight, bias = 2048, 1.5, 0.2
    units = torch.relu if activation == "relu" else torch.erf

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            sizes = ((width, 3), (width, width), (1, width))
            self.weights = torch.nn.ParameterList(torch.randn(*size) for size in sizes)
            self.biases = torch.nn.ParameterList(torch.randn(size[0]) for size in sizes)

        def forward(self, x):
            for number, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
                scaled = x @ W.T * math.sqrt(weight / W.shape[1]) + math.sqrt(bias) * b
                x = scaled if number == 2 else units(scaled)
            return x

    x = torch.randn(4, 3)
    found = tangent_kernel(Network(), x, reduce="trace").numpy()
    expected = infinite_width_kernels(
        x.numpy(), depth=2, activation=activation, weight_var=weight, bias_var=bias
    ).ntk
    # Sums of 2048 independent terms, of about their own size each: five standard deviations.
    assert_allclose(found, expected, atol=5.0 / math.sqrt(width) * expected.max())


def test_close_points_keep_their_digits():
    """1 - cos of an angle of 1e-7 is 5e-15: by arccos it would have one digit."""
    angle = 1e-7
    u, v = np.array([[1.0, 0.0]]), np.array([[math.cos(angle), math.sin(angle)]])
    distance = np.array([[4.0 * math.sin(angle / 2.0) ** 2]])
    moments = relu_moments(np.sum(u**2, axis=1), np.sum(v**2, axis=1), distance)
    assert_allclose(1.0 - 2.0 * moments.slopes, angle / math.pi, rtol=1e-8)
    same = infinite_width_kernels(u, depth=3)
    assert_allclose(same.ntk, 4.0 * same.nngp, rtol=1e-14)  # each layer adds K, all slopes on


def test_sides_and_permutations():
    rng = np.random.default_rng(1)
    x, z = rng.standard_normal((5, 4)), rng.standard_normal((3, 4))
    for activation in KINDS:
        both = infinite_width_kernels(np.vstack([x, z]), depth=3, activation=activation)
        cross = infinite_width_kernels(x, z, depth=3, activation=activation)
        for whole, part in zip(both, cross, strict=True):
            assert_allclose(whole[:5, 5:], part, rtol=1e-13)
            assert np.linalg.eigvalsh(whole).min() > 0.0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"depth": 0}, "depth"),
        ({"activation": "tanh"}, "activation"),
        ({"weight_var": -1.0}, "weight_var"),
        ({"bias_var": math.inf}, "bias_var"),
        ({"x2": np.eye(3)}, "x2"),
    ],
)
def test_bad_input(options, name):
    with pytest.raises(InputError, match=f"^{name}: must "):
        infinite_width_kernels(np.eye(2), **options)
