"""The effective start of a training that torch has done."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flowbias.flows import gradient_descent  # noqa: E402
from flowbias.ground.arguments import InputError  # noqa: E402
from flowbias.limits import limit  # noqa: E402
from flowbias.models import DiagonalNet, Neuron, UntiedDiagonalNet  # noqa: E402
from flowbias.nets import record_descent  # noqa: E402

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((4, 9)), RNG.standard_normal(4)
INPUTS, TARGETS = torch.tensor(X), torch.tensor(Y)


def tensors(*arrays):
    return [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays]


def trained(optimizer, predictor, steps=3000, batch_size=4):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        chosen = torch.randperm(4, generator=generator)[:batch_size]
        optimizer.zero_grad()
        left = INPUTS[chosen] @ predictor() - TARGETS[chosen]
        (0.5 * torch.sum(left**2)).backward()
        optimizer.step()
    return predictor().detach().numpy()


@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": 0.8}, {"momentum": 0.6, "nesterov": True}],
    ids=["plain", "momentum", "nesterov"],
)
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("batch_size", [2, 4])
def test_tied_layers(options, depth, batch_size):
    u, v = tensors(np.full(9, 0.4), np.full(9, 0.4))
    optimizer = torch.optim.SGD([u, v], lr=8e-3 if depth == 2 else 2e-3, **options)
    recorder = record_descent(DiagonalNet(depth, 0.4), optimizer, [u, v])
    w = trained(optimizer, lambda: u**depth - v**depth, 8000, batch_size)
    assert recorder.steps == 8000
    assert recorder.start.is_identity
    assert np.linalg.norm(X @ w - Y) < 1e-10
    ended = limit(recorder.effective_start(), X, Y)
    assert ended.certificate.ok
    # Rounding of thousands of steps.
    assert np.linalg.norm(ended.w - w) < 1e-8 * np.linalg.norm(w)
    assert np.linalg.norm(limit(DiagonalNet(depth, 0.4), X, Y).w - w) > 1e-4 * np.linalg.norm(w)


def test_an_untied_layer_with_one_branch():
    """w = u v from starts of both signs: what torch users write."""
    first, second = RNG.normal(0.0, 0.7, (2, 9))
    u, v = tensors(first, second)
    optimizer = torch.optim.SGD([u, v], lr=1e-2, momentum=0.5)
    model = UntiedDiagonalNet.from_weights(first, 0.0, second, 0.0)
    recorder = record_descent(model, optimizer, [u, None, v, None])
    w = trained(optimizer, lambda: u * v, steps=6000)
    assert np.linalg.norm(X @ w - Y) < 1e-8
    assert np.linalg.norm(limit(recorder.effective_start(), X, Y).w - w) < 1e-6 * np.linalg.norm(w)
    recorder.close()
    optimizer.step()
    assert recorder.steps == 6000


def test_it_is_the_effective_start_of_our_own_descent():
    u, v = tensors(np.full(9, 0.3), np.full(9, 0.3))
    optimizer = torch.optim.SGD([u, v], lr=5e-3)
    recorder = record_descent(DiagonalNet(2, 0.3), optimizer, [u, v])
    trained(optimizer, lambda: u**2 - v**2, steps=200)
    run = gradient_descent(DiagonalNet(2, 0.3), X, Y, step_size=5e-3, max_steps=200, residual=1e-15)
    np.testing.assert_allclose(recorder.start.gain, run.gain, rtol=0, atol=1e-10)


def test_gradients_of_a_closure_are_those_of_the_step():
    """Before the step there are those of the step before, or none."""
    u, v = tensors(np.full(9, 0.4), np.full(9, 0.4))
    optimizer = torch.optim.SGD([u, v], lr=8e-3)
    recorder = record_descent(DiagonalNet(2, 0.4), optimizer, [u, v])

    def loss():
        optimizer.zero_grad()
        value = 0.5 * torch.sum((INPUTS @ (u**2 - v**2) - TARGETS) ** 2)
        value.backward()
        return value

    for _ in range(3000):
        optimizer.step(loss)
    w = (u**2 - v**2).detach().numpy()
    assert np.linalg.norm(X @ w - Y) < 1e-10
    # Rounding of thousands of steps.
    assert np.linalg.norm(limit(recorder.effective_start(), X, Y).w - w) < 1e-8 * np.linalg.norm(w)


@pytest.mark.filterwarnings("error")
def test_a_training_that_diverged_says_so():
    u, v = tensors(np.full(9, 0.4), np.full(9, 0.4))
    optimizer = torch.optim.SGD([u, v], lr=1.0)
    recorder = record_descent(DiagonalNet(2, 0.4), optimizer, [u, v])
    trained(optimizer, lambda: u**2 - v**2, steps=30)
    with pytest.raises(InputError, match=r"after 30 steps\. The training has diverged: lower lr"):
        recorder.effective_start()


def test_what_cannot_be_recorded_is_refused():
    u, v = tensors(np.full(9, 0.3), np.full(9, 0.3))
    model = DiagonalNet(2, 0.3)
    with pytest.raises(InputError, match=r"optimizer: must be a torch.optim.SGD"):
        record_descent(model, torch.optim.Adam([u, v]), [u, v])
    with pytest.raises(InputError, match="optimizer: must have dampening=0"):
        record_descent(model, torch.optim.SGD([u, v], momentum=0.5, dampening=0.1), [u, v])
    sgd = torch.optim.SGD([u, v], lr=0.1)
    with pytest.raises(InputError, match="weights: must be 2 tensors"):
        record_descent(model, sgd, [u])
    (short,) = tensors(np.full(8, 0.3))
    uneven = torch.optim.SGD([u, short], lr=0.1)
    with pytest.raises(InputError, match=r"weights: must have one entry per feature.*\[9, 8\]"):
        record_descent(model, uneven, [u, short])
    with pytest.raises(InputError, match="model: must start where the weights are"):
        record_descent(DiagonalNet(2, 0.4), sgd, [u, v])
    with pytest.raises(InputError, match="model: must be a diagonal network"):
        record_descent(Neuron(1.0, np.ones(9)), sgd, [u, v])
