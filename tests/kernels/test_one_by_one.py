"""Modules whose samples share a step size: one sample at a time, each is a function of its own."""

import pytest

from flowbias.ground.arguments import InputError
from flowbias.kernels import (
    TangentMap,
    tangent_kernel,
    tangent_operator,
    tangent_vector_product,
    top_eigenpairs,
)
from tests.kernels.architectures import build, explicit_kernel, torch
from tests.kernels.test_tangent import REDUCED, assert_kernel


class AdaptiveEuler(torch.nn.Module):
    """dx/dt = A tanh(B x) up to t = 1, in steps that the largest velocity of the batch allows."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(3, 4), torch.nn.Linear(4, 3, bias=False)
        self.steps = []

    def forward(self, x):
        t, steps = 0.0, 0
        while t < 1.0:
            velocity = self.outer(torch.tanh(self.inner(x)))
            h = min(1.0 - t, 0.2 / (0.1 + float(velocity.detach().abs().max())))
            x, t, steps = x + h * velocity, t + h, steps + 1
        self.steps.append(steps)
        return x


@pytest.fixture
def adaptive():
    torch.manual_seed(0)
    module = AdaptiveEuler().double()
    x = torch.linspace(0.2, 3.0, 5, dtype=torch.float64)[:, None] * torch.randn(5, 3).double()
    return module, x


@pytest.mark.parametrize("budget", ["1GiB", 120_000])
@pytest.mark.parametrize("reduce", REDUCED)
def test_steps_that_differ_from_sample_to_sample(adaptive, reduce, budget):
    module, x = adaptive
    expected = explicit_kernel(module, x)
    assert len(set(module.steps)) > 1  # or nothing is tried
    module.steps.clear()
    found = tangent_kernel(module, x, reduce=reduce, one_by_one=True, max_memory=budget)
    assert_kernel(found, REDUCED[reduce](expected))
    cross = tangent_kernel(module, x[:2], x, reduce=reduce, one_by_one=True, max_memory=budget)
    assert_kernel(cross, REDUCED[reduce](expected[:2]))


def test_is_refused_otherwise(adaptive):
    with pytest.raises(InputError, match="must map each sample to outputs of its own"):
        tangent_kernel(*adaptive)


def test_products(adaptive):
    module, x = adaptive
    kernel = explicit_kernel(module, x)
    vector = torch.randn(5, 3).double()
    expected = torch.einsum("ijab,jb->ia", kernel, vector)
    found = tangent_vector_product(module, x, vector, one_by_one=True)
    assert_kernel(found, expected)
    assert tangent_operator(module, x, one_by_one=True).shape == (15, 15)
    flat = kernel.permute(0, 2, 1, 3).reshape(15, 15)
    top = top_eigenpairs(module, x, 1, one_by_one=True).values[0]
    assert abs(top - float(torch.linalg.eigvalsh(flat)[-1])) <= 1e-10 * top


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
@pytest.mark.parametrize(
    "name", ["two inputs", "experts", "other orders of samples", "patched layers"]
)
def test_modules_of_all_kinds(name):
    module, x = build(name, 5)
    assert_kernel(tangent_kernel(module, x, one_by_one=True), explicit_kernel(module, x))


def test_structure_is_kept():
    """As many calls as samples and those of the trial, not as many as pairs."""
    calls = []
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    module.register_forward_hook(lambda *_: calls.append(1))
    tangent = TangentMap(module, torch.randn(40, 3), one_by_one=True).ready()
    calls.clear()
    tangent.kernel()
    assert len(calls) == 40
