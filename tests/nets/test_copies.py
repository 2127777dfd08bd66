"""Copies trained together are the copies trained alone."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowbias.ground.arguments import InputError
from flowbias.nets import (
    TrainingStatus,
    mlp,
    train,
    train_copies,
    unbiased,
    univariate,
)

RNG = np.random.default_rng(2)
X = RNG.standard_normal((6, 2))
Y = RNG.standard_normal(6)
# What rounding may make of a few hundred steps.
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-10}


def assert_same(done, nets, x, y, rates, **options):
    for i, net in enumerate(nets):
        alone = copy.deepcopy(net)
        result = train(alone, x, y, step_size=rates[i], **options)
        tolerance = CLOSE[next(net.parameters()).dtype]
        assert done.trainings[i].status is result.status
        # A loss that crosses its target by rounding may do so one step earlier or later.
        assert abs(int(done.epochs[i]) - result.epochs) <= (tolerance > 1e-6)
        for mine, theirs in zip(done.modules[i].parameters(), alone.parameters(), strict=True):
            scale = float(theirs.detach().abs().max())
            torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance * max(scale, 1.0))
        assert done.losses[i] == pytest.approx(result.loss, rel=100 * tolerance)


@pytest.mark.parametrize("dtype", list(CLOSE), ids=str)
@pytest.mark.parametrize("doubled", [False, True], ids=["plain", "unbiased"])
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_copies_are_trained_as_alone(depth, doubled, dtype):
    nets = [
        mlp((2, *(8,) * (depth - 1), 1), scale=scale, rng=seed, dtype=dtype)
        for scale in (0.7, 1.2)
        for seed in (0, 1)
    ]
    nets = [unbiased(net) for net in nets] if doubled else nets
    rates = [0.02, 0.01, 0.005, 0.002]
    options = {"loss": "half", "stop_at_loss": 0.4, "max_epochs": 150}
    done = train_copies(nets, X, Y, step_size=rates, x_test=X[:4], **options)
    assert_same(done, nets, X, Y, rates, **options)
    for net, outputs in zip(done.modules, done.predictions, strict=True):
        expected = net(torch.as_tensor(X[:4], dtype=dtype)).detach().numpy()
        np.testing.assert_allclose(outputs, expected, atol=10 * CLOSE[dtype])


@given(
    slope=st.sampled_from([0.0, 0.3, 1.0]),
    bias=st.booleans(),
    outputs=st.integers(1, 3),
    loss=st.sampled_from(["half", "sum", "half_mean", "mean"]),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_loss(slope, bias, outputs, loss, seed):
    y = np.random.default_rng(seed).standard_normal((6, outputs))
    nets = [
        mlp((2, 5, outputs), slope=slope, bias=bias, rng=seed + i, dtype=torch.float64)
        for i in range(2)
    ]
    done = train_copies(nets, X, y, step_size=0.01, loss=loss, max_epochs=15)
    assert_same(done, nets, X, y, [0.01, 0.01], loss=loss, max_epochs=15)


def test_data_of_their_own():
    x, y = RNG.standard_normal((3, 6, 2)), RNG.standard_normal((3, 6, 1))
    nets = [unbiased(mlp((2, 5, 1), rng=i, dtype=torch.float64)) for i in range(3)]
    done = train_copies(nets, x, y, step_size=0.01, max_epochs=40, x_test=x)
    for i in range(3):
        one = train_copies(nets[i : i + 1], x[i], y[i], step_size=0.01, max_epochs=40)
        assert done.losses[i] == pytest.approx(one.losses[0], rel=1e-10)
        expected = done.modules[i](torch.from_numpy(x[i])).detach().numpy()
        np.testing.assert_allclose(done.predictions[i], expected, rtol=1e-10, atol=1e-12)


def test_each_ends_in_its_own_way_and_none_disturbs_the_others():
    nets = [univariate(30, rng=0, dtype=torch.float64)] * 3
    x, y = [[-1.0], [0.0], [1.0]], [1.0, 0.0, 1.0]
    rates = [0.01, 10.0, 1e-7]
    options = {"loss": "half", "stop_at_loss": 1e-3, "max_epochs": 3000}
    done = train_copies(nets, x, y, step_size=np.array(rates), **options)
    assert done.statuses == (
        TrainingStatus.CONVERGED,
        TrainingStatus.DIVERGED,
        TrainingStatus.STOPPED,
    )
    assert done.epochs[1] < 30
    assert done.epochs[2] == 3000
    assert_same(done, nets[:1], x, y, rates, **options)
    assert repr(done).startswith("TrainedCopies(1 CONVERGED, 1 STOPPED, 1 DIVERGED")
    first = done.trainings[0]
    assert first.losses[0] == done.trainings[2].losses[0]
    assert first.recorded[:2].tolist() == [0, 100]
    assert first.loss <= 1e-3 < first.losses[-2]


def test_what_is_given_stays_as_it_is():
    net = mlp((2, 5, 1), rng=0)
    kept = copy.deepcopy(net)
    done = train_copies([net, net], X, Y, step_size=0.01, max_epochs=3)
    assert all(map(torch.equal, net.parameters(), kept.parameters()))
    assert done.before[0] is net
    assert not torch.equal(done.modules[0][0].weight, net[0].weight)
    assert done.predictions is None


class Squared(torch.nn.Linear):
    """A subclass that computes something else."""

    def forward(self, x):
        return super().forward(x) ** 2


def tied():
    layer = torch.nn.Linear(2, 2)
    return torch.nn.Sequential(layer, torch.nn.ReLU(), layer)


def broken(change):
    layers = list(mlp((2, 5, 1)))
    return torch.nn.Sequential(*change(layers))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"modules": []}, "modules"),
        ({"modules": [mlp((2, 5, 1)), mlp((2, 6, 1))]}, "modules"),
        ({"modules": [mlp((2, 5, 1)), unbiased(mlp((2, 5, 1)))]}, "modules"),
        ({"modules": [mlp((2, 5, 1)), mlp((2, 5, 1), dtype=torch.float64)]}, "modules"),
        ({"modules": [mlp((2, 5, 1)), mlp((2, 5, 1), slope=0.1)]}, "modules"),
        ({"modules": [torch.nn.GRUCell(2, 1)]}, "modules"),
        ({"modules": [broken(lambda parts: [parts[0], torch.nn.Tanh(), parts[2]])]}, "modules"),
        ({"modules": [broken(lambda parts: parts[:2])]}, "modules"),
        ({"modules": [broken(lambda parts: [Squared(2, 5), *parts[1:]])]}, "modules"),
        ({"modules": [tied()], "y": X}, "modules"),
        ({"modules": [unbiased(tied())], "y": X}, "modules"),
        ({"modules": [mlp((2, 5, 1)).requires_grad_(False)]}, "modules"),
        ({"modules": [mlp((2, 5, 5, 1), scale=1e30)]}, "modules"),
        ({"x": X[:, :1]}, "x"),
        ({"x": X[0]}, "x"),
        ({"x": np.stack([X] * 3)}, "x"),
        ({"x_test": X[:, :1]}, "x_test"),
        ({"y": Y[:4]}, "y"),
        ({"y": Y * np.nan}, "y"),
        ({"step_size": [0.1]}, "step_size"),
        ({"step_size": [0.1, -0.1]}, "step_size"),
        ({"loss": "cross_entropy"}, "loss"),
        ({"max_epochs": 1.5}, "max_epochs"),
        ({"stop_at_loss": -1}, "stop_at_loss"),
        ({"record_every": 0}, "record_every"),
    ],
)
def test_bad_input_is_refused_by_name(change, argument):
    nets = [mlp((2, 5, 1), rng=i) for i in range(2)]
    options = {"modules": nets, "x": X, "y": Y, "step_size": 0.1, "max_epochs": 1} | change
    with pytest.raises(InputError, match=rf"(?s)^{argument}: must .* got "):
        train_copies(options.pop("modules"), options.pop("x"), options.pop("y"), **options)


def test_a_loss_at_its_target_is_enough():
    options = {"step_size": 0.01, "loss": "half", "progress": False}
    nets = [mlp((2, 8, 1), rng=0, dtype=torch.float64)]
    course = train_copies(nets, X, Y, max_epochs=3, record_every=1, **options).trainings[0]
    for epoch, reached in zip(course.recorded, course.losses, strict=True):
        done = train_copies(nets, X, Y, max_epochs=3, stop_at_loss=reached, **options)
        assert done.statuses == (TrainingStatus.CONVERGED,)
        assert done.epochs.tolist() == [epoch]


def test_a_start_that_fits_has_not_diverged_when_its_loss_is_far_below_that_of_zero():
    """From 1e-20 to 1e-7 of it, up by (1 - 3)^2 a step: more than the factor that ends it."""
    net = mlp((1, 1), rng=0, dtype=torch.float64)
    with torch.no_grad():
        net[0].weight.fill_(1.0 + 1e-10)
    one = np.ones((1, 1))
    options = {"step_size": 3.0, "loss": "half", "max_epochs": 22}
    done = train_copies([net], one, one[:, 0], **options)
    assert done.losses[0] / done.trainings[0].losses[0] > 1e7
    assert done.statuses == (TrainingStatus.COMPLETED,)
    # As alone; the losses are differences of numbers that agree in ten digits.
    assert train(net, one, one[:, 0], **options).status is TrainingStatus.COMPLETED
