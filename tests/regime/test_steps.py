"""How far steps are from the flow: the modified loss, measured."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flowbias.ground.arguments import InputError  # noqa: E402
from flowbias.models import DiagonalNet  # noqa: E402
from flowbias.nets import mlp, train, unbiased  # noqa: E402
from flowbias.regime import diagnose, step_effect  # noqa: E402

RNG = np.random.default_rng(2)
X = torch.tensor(RNG.standard_normal((6, 3)))
Y = torch.tensor(RNG.standard_normal((6, 1)))


def network(scale=1.0):
    return unbiased(mlp((3, 8, 1), scale=scale, rng=0, dtype=torch.float64))


def test_it_is_the_gradient_by_differences():
    net, h = network(), 1e-2
    effect = step_effect(net, X, Y, step_size=h, loss="sum")
    with torch.no_grad():
        loss = float(torch.sum((net(X) - Y) ** 2))
        squared = 0.0
        for part in net.parameters():
            flat = part.view(-1)
            for i in range(flat.numel()):
                values = []
                for shift in (1e-5, -2e-5):
                    flat[i] += shift
                    values.append(float(torch.sum((net(X) - Y) ** 2)))
                flat[i] += 1e-5
                squared += ((values[0] - values[1]) / 2e-5) ** 2
    np.testing.assert_allclose(effect.loss, loss, rtol=1e-12)
    # Differences of 1e-5 are right to 1e-5 or so of each slope; ReLU has kinks.
    np.testing.assert_allclose(effect.added, 0.25 * h * squared, rtol=1e-3)


def test_it_is_proportional_to_the_step():
    net = network(0.5)
    short, long = (step_effect(net, X, Y, step_size=h) for h in (1e-4, 1.0))
    np.testing.assert_allclose(long.added / short.added, 1e4, rtol=1e-12)
    assert short.share < 0.05 < long.share
    assert "close to the flow" in str(short)
    assert "another path" in str(long)


def test_the_report_says_it():
    net = network(10.0)
    start = copy.deepcopy(net)
    train(net, X, Y, step_size=1e-4, stop_at_loss=1e-4)
    found = diagnose(start, net, X, Y, step_size=1e-4)
    assert found.step == step_effect(start, X, Y, step_size=1e-4)
    assert "Steps of 0.0001 add" in found.explanation
    assert diagnose(start, net, X, Y).step is None


def test_what_is_missing_is_named():
    net = network()
    with pytest.raises(InputError, match="step_size: must be > 0 and finite, got 0"):
        step_effect(net, X, Y, step_size=0)
    with pytest.raises(InputError, match="step_size: must come with labels y and a torch module"):
        diagnose(net, net, X, step_size=0.1)
    with pytest.raises(InputError, match=r"fb.gradient_descent tells"):
        diagnose(DiagonalNet(2, 0.1), DiagonalNet(2, 0.1), X, Y, step_size=0.1)
