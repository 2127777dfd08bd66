"""Comparisons of kernels: by hand, and what must not change them."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias import DiagonalNet, LinearNet
from flowbias.kernels import (
    grad_distance,
    kernel_alignment,
    label_alignment,
    parameter_movement,
    relative_kernel_change,
    tangent_kernel,
)
from flowbias.models import UntiedDiagonalNet
from tests.kernels.architectures import ARCHITECTURES, build, explicit_jacobian, torch

seeds = st.integers(0, 2**32 - 1)


def gram(seed, shape=(6, 9)):
    features = np.random.default_rng(seed).standard_normal(shape)
    return features @ features.T


def moved(module, size, seed=1):
    """A copy with its parameters moved by `size`, relative to each."""
    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            step = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += size * step * parameter.abs().mean()
    return other


@given(seed=seeds, factor=st.floats(1e-3, 1e3))
def test_relative_change_of_a_multiple(seed, factor):
    K = gram(seed)
    assert_allclose(relative_kernel_change(K, factor * K), abs(factor - 1.0), rtol=1e-9, atol=1e-14)


@given(seed=seeds, factor=st.floats(1e-3, 1e3))
def test_alignment_ignores_scale_order_and_common_features(seed, factor):
    first, second = gram(seed), gram(seed + 1)
    expected = kernel_alignment(first, second)
    assert -1.0 <= expected <= 1.0 + 1e-12
    assert_allclose(kernel_alignment(first, factor * second), expected, rtol=1e-9)
    assert_allclose(kernel_alignment(second, first), expected, rtol=1e-9)
    # A feature that all samples share is a constant added to the kernel.
    assert_allclose(kernel_alignment(first + factor, second), expected, rtol=1e-6)
    assert_allclose(kernel_alignment(first, first), 1.0, rtol=1e-12)


def test_alignment_of_features_is_that_of_centered_features():
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((5, 2, 7)) for _ in range(2)]
    full = [np.einsum("iap,jbp->ijab", part, part) for part in features]
    centered = [part - part.mean(axis=0) for part in features]
    plain = [np.einsum("iap,jbp->ijab", part, part) for part in centered]
    expected = kernel_alignment(*plain, centered=False)
    assert_allclose(kernel_alignment(*full), expected, rtol=1e-12)


@given(seed=seeds)
def test_label_alignment_is_largest_for_the_labels_own_kernel(seed):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((6, 2))
    own = np.einsum("ia,jb->ijab", y, y)
    assert_allclose(label_alignment(own, y), 1.0, rtol=1e-12)
    assert_allclose(label_alignment(y @ y.T, y), 1.0, rtol=1e-12)
    assert 0.0 <= label_alignment(gram(seed), y[:, 0]) <= 1.0


def cosine_distance(before, after, x):
    first, second = (explicit_jacobian(m, x).flatten(1).detach().numpy() for m in (before, after))
    cosines = np.sum(first * second, 1) / np.linalg.norm(first, axis=1)
    overall = np.vdot(first, second) / (np.linalg.norm(first) * np.linalg.norm(second))
    return 1.0 - cosines / np.linalg.norm(second, axis=1), 1.0 - overall


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
# Patched: copies of it call the layers of the original.
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "patched layers"])
def test_grad_distance_is_the_cosine_distance_of_jacobians(name):
    module, x = build(name, 4)
    after = moved(module, 0.3)
    expected, overall = cosine_distance(module, after, x)
    found = grad_distance(module, after, x)
    assert_allclose(found.per_sample, expected, rtol=1e-8, atol=1e-12)
    assert_allclose(found.overall, overall, rtol=1e-8)


def test_grad_distance_in_blocks():
    module, x = build("convolutions", 6)
    after = moved(module, 0.3)
    small = grad_distance(module, after, x, max_memory="150kB")
    assert_allclose(small.per_sample, grad_distance(module, after, x).per_sample, rtol=1e-10)


def test_grad_distance_keeps_its_digits_near_the_kernel_regime():
    """It falls with the square of the movement; 1 - cos would be rounding below 1e-16."""
    module, x = build("mlp", 4)
    module[1] = torch.nn.Tanh()  # smooth, so that there is a second order at all
    sizes = [1e-4, 1e-7, 1e-10]
    found = [grad_distance(module, moved(module, size), x).overall for size in sizes]
    assert found[0] > 1e-9
    assert_allclose(found[1] / found[0], 1e-6, rtol=1e-2)
    assert_allclose(found[2] / found[1], 1e-6, rtol=1e-2)


def test_grad_distance_of_rescaled_features_is_zero():
    module, x = build("layer norm", 4)
    module = torch.nn.Sequential(*list(module)[3:])
    x = torch.randn(4, 6, dtype=torch.float64)
    found = grad_distance(module, moved(module, 0.5), x)
    assert_allclose(found.per_sample, 0.0, atol=1e-15)  # a linear layer: features do not move


def test_grad_distance_of_vanishing_features():
    module = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.ReLU())
    torch.nn.init.ones_(module[0].weight)
    other = copy.deepcopy(module)
    torch.nn.init.constant_(other[0].weight, -1.0)
    found = grad_distance(module, other, torch.tensor([[1.0], [0.0]]))
    assert found.per_sample.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_grad_distance_of_a_diagonal_network_is_that_of_a_module(depth):
    class Diagonal(torch.nn.Module):
        def __init__(self, plus, minus):
            super().__init__()
            self.plus = torch.nn.Parameter(torch.tensor(plus))
            self.minus = torch.nn.Parameter(torch.tensor(minus))

        def forward(self, x):
            return x @ (self.plus**depth - self.minus**depth)

    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((6, 4)), rng.uniform(0.5, 1.5, (4, 4))
    models = [DiagonalNet.from_weights(a, b, depth) for a, b in (weights[:2], weights[2:])]
    modules = [Diagonal(a, b) for a, b in (weights[:2], weights[2:])]
    found, expected = grad_distance(*models, X), grad_distance(*modules, torch.tensor(X))
    assert_allclose(found.per_sample, expected.per_sample, rtol=1e-10)
    assert_allclose(found.overall, expected.overall, rtol=1e-10)
    movements = parameter_movement(*models), parameter_movement(*modules)
    assert_allclose(movements[0].overall, movements[1].overall, rtol=1e-12)
    kernels = [tangent_kernel(models[0], X), tangent_kernel(modules[0], torch.tensor(X))]
    assert_allclose(*kernels, rtol=1e-10)


def test_grad_distance_of_linear_networks():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 4))
    nets = [LinearNet(rng.standard_normal((4, 6)), rng.standard_normal((3, 6))) for _ in range(2)]
    modules = []
    for net in nets:
        module = torch.nn.Sequential(
            torch.nn.Linear(4, 6, bias=False), torch.nn.Linear(6, 3, bias=False)
        ).double()
        module[0].weight.data = torch.tensor(net.factors.U.T.copy())
        module[1].weight.data = torch.tensor(net.factors.V.copy())
        modules.append(module)
    x = torch.tensor(X)
    assert_allclose(tangent_kernel(nets[0], X), tangent_kernel(modules[0], x), rtol=1e-10)
    expected = grad_distance(*modules, x)
    assert_allclose(grad_distance(*nets, X).per_sample, expected.per_sample, rtol=1e-10)
    assert_allclose(
        parameter_movement(*nets).overall, parameter_movement(*modules).overall, rtol=1e-12
    )


def test_grad_distance_of_an_untied_network_that_did_not_move():
    X = np.random.default_rng(0).standard_normal((5, 4))
    model = UntiedDiagonalNet(scale=0.4, shape=0.5)
    assert grad_distance(model, model, X).overall == 0.0
    assert parameter_movement(model, model).overall == 0.0


def test_parameter_movement_by_parameter():
    module, _ = build("mlp", 1)
    after = copy.deepcopy(module)
    with torch.no_grad():
        after[2].weight *= -1.0
    found = parameter_movement(module, after)
    assert found.per_parameter["2.weight"] == pytest.approx(2.0)
    assert found.per_parameter["0.bias"] == 0.0
    sizes = [float(p.detach().norm()) for p in module.parameters()]
    expected = 2.0 * float(module[2].weight.detach().norm()) / np.linalg.norm(sizes)
    assert found.overall == pytest.approx(expected)


def test_a_parameter_that_starts_at_zero_moves_without_bound():
    module = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(module.bias)
    moved = copy.deepcopy(module)
    assert parameter_movement(module, moved).per_parameter == {"weight": 0.0, "bias": 0.0}
    torch.nn.init.ones_(moved.bias)
    found = parameter_movement(module, moved)
    assert found.per_parameter == {"weight": 0.0, "bias": float("inf")}
    assert found.overall == pytest.approx(1.0 / float(module.weight.detach().norm()))
