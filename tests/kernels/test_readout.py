"""Few outputs read off many: against the whole kernel of the same module."""

import pytest
from torch.nn import functional

from flowbias.ground.arguments import InputError
from flowbias.kernels import (
    chosen_outputs,
    estimated_trace,
    loss_outputs,
    tangent_kernel,
    tangent_vector_product,
)
from tests.kernels.architectures import explicit_jacobian, torch
from tests.kernels.test_tangent import assert_kernel


class Characters(torch.nn.Module):
    """A language model, small: logits for each position, causal by cumulative means."""

    def __init__(self, vocabulary=7, width=6):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.norm, self.mix = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, x):
        h = self.embedding(x)
        before = h.cumsum(1) / torch.arange(1.0, 1.0 + x.shape[1])[:, None].to(h)
        return self.head(self.norm(h + torch.tanh(self.mix(before))))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Characters().double(), torch.randint(0, 7, (4, 5)), torch.randint(0, 7, (4, 5))


def test_chosen_outputs_are_a_block_of_the_kernel(model):
    module, x, _ = model
    places = [0, 11, 34]
    whole = tangent_kernel(module, x)
    picked = chosen_outputs(module, places)
    assert_kernel(tangent_kernel(picked, x), whole[:, :, places][:, :, :, places])
    vector = torch.randn(4, 3, dtype=torch.float64)
    product = torch.einsum("ijab,jb->ia", whole[:, :, places][:, :, :, places], vector)
    assert_kernel(tangent_vector_product(picked, x, vector), product)


def test_kernel_of_the_gradients_of_losses(model):
    module, x, y = model
    losses = loss_outputs(
        module, lambda f, t: functional.cross_entropy(f.transpose(1, 2), t, reduction="none")
    )
    found = tangent_kernel(losses, (x, y), reduce="trace")
    J, logits = explicit_jacobian(module, x), module(x).detach()
    slope = (torch.softmax(logits, 2) - functional.one_hot(y, 7)).flatten(1)
    gradient = torch.einsum("ia,iap->ip", slope, J)
    assert_kernel(found, gradient @ gradient.T)


def test_random_combinations_estimate_the_trace_and_their_error(model):
    module, x, _ = model
    exact = tangent_kernel(module, x, reduce="trace")
    estimate = estimated_trace(module, x, draws=200)
    off = (estimate.kernel - exact) / estimate.error
    # Sixteen entries of about standard normal numbers: none beyond four and a half, not all tiny.
    assert 0.1 < float(off.abs().max()) < 4.5
    fewer = estimated_trace(module, x, x[:2], draws=50, seed=1)
    assert fewer.kernel.shape == (4, 2)
    assert 1.5 < float((fewer.error / estimate.error[:, :2]).mean()) < 2.7  # about sqrt(200 / 50)


def test_the_module_is_shared_and_left_alone(model):
    module, x, _ = model
    picked = chosen_outputs(module, [1])
    before = tangent_kernel(picked, x)
    with torch.no_grad():
        module.head.weight *= 2.0
    assert not torch.equal(tangent_kernel(picked, x), before)
    assert not module.training or picked.training


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda module, x: chosen_outputs(module, []), "outputs"),
        (lambda module, x: chosen_outputs(module, [1.5]), "outputs"),
        (lambda module, x: estimated_trace(module, x, draws=1), "draws"),
        (lambda module, x: loss_outputs("module", len), "module"),
    ],
)
def test_bad_input(model, use, name):
    with pytest.raises(InputError, match=f"^{name}: must "):
        use(model[0], model[1])
