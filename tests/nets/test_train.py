"""Training: the steps it takes, how it ends, and that a killed run continues as if it had not."""

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
    stable_step_size,
    train,
    train_last_layer,
    unbiased,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = RNG.standard_normal(12)
LABELS = RNG.integers(0, 4, 12)


def linear(seed=0):
    return mlp((3, 1), rng=seed, dtype=torch.float64)


def small(outputs=1, seed=0, **options):
    return mlp((3, 16, outputs), rng=seed, dtype=torch.float64, **options)


@given(
    loss=st.sampled_from([("half", 1), ("sum", 2), ("half_mean", 1 / 12), ("mean", 1 / 6)]),
    momentum=st.sampled_from([0.0, 0.5]),
)
def test_full_batch_steps_are_those_of_the_formula(loss, momentum):
    name, constant = loss
    net = linear()
    w, v = net[0].weight.detach().numpy().copy()[0], np.zeros(3)
    result = train(net, X, Y, loss=name, step_size=0.01, momentum=momentum, max_epochs=5)
    losses = []
    for _ in range(6):
        losses.append(0.5 * constant * np.sum((X @ w - Y) ** 2))
        v = momentum * v + constant * X.T @ (X @ w - Y)
        w = w - 0.01 * v
    # Rounding of some ten operations in double precision.
    np.testing.assert_allclose(result.losses, losses, rtol=1e-12)
    assert result.recorded.tolist() == [0, 1, 2, 3, 4, 5]
    assert result.status is TrainingStatus.COMPLETED


def test_squared_is_the_librarys_default_and_numbers_are_constants():
    runs = [train(linear(), X, Y, loss=name, step_size=0.01, max_epochs=3) for name in
            ("squared", "half", 1.0)]  # fmt: skip
    assert np.array_equal(runs[0].losses, runs[1].losses)
    assert np.array_equal(runs[0].losses, runs[2].losses)


def test_batches_visit_each_sample_once_an_epoch():
    seen = []

    class Noting(torch.nn.Linear):
        def forward(self, x):
            if torch.is_grad_enabled():
                seen.append(x[:, 0].clone())
            return super().forward(x)

    net = Noting(1, 1).double()
    train(net, np.arange(10.0)[:, None], np.zeros(10), step_size=1e-6, batch_size=4, max_epochs=2)
    assert [len(part) for part in seen] == [4, 4, 2, 4, 4, 2]
    orders = torch.cat(seen).reshape(2, 10)
    assert torch.equal(orders.sort(1).values[0], torch.arange(10.0).double())
    assert torch.equal(orders.sort(1).values[1], torch.arange(10.0).double())
    assert not torch.equal(orders[0], orders[1])


@pytest.mark.parametrize("loss", ["half", "sum", "half_mean", "mean"])
def test_a_loss_evaluated_in_pieces_is_the_loss(loss):
    x, y = RNG.standard_normal((1100, 3)), RNG.standard_normal(1100)
    whole = train(linear(), x, y, loss=loss, step_size=1e-9, max_epochs=0)
    pieces = train(linear(), x, y, loss=loss, step_size=1e-9, max_epochs=0, batch_size=7)
    assert pieces.loss == pytest.approx(whole.loss, rel=1e-12)


def test_descent_finds_the_least_squares_solution():
    net = linear()
    values = np.linalg.eigvalsh(X.T @ X)
    # Each error shrinks by (1 - q) / (1 + q) a step, q = smallest over largest eigenvalue.
    steps = int(25 / np.log((values[-1] + values[0]) / (values[-1] - values[0])))
    train(net, X, Y, step_size=2 / (values[0] + values[-1]), max_epochs=steps)
    expected = np.linalg.lstsq(X, Y, rcond=None)[0]
    np.testing.assert_allclose(net[0].weight.detach().numpy()[0], expected, atol=1e-9)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_cross_entropy_reaches_both_targets(batch_size):
    net = small(4)
    result = train(net, X, LABELS, loss="cross_entropy", step_size=0.5, batch_size=batch_size,
                   max_epochs=5000, stop_at_loss=1e-2, stop_at_accuracy=1.0)  # fmt: skip
    assert result.status is TrainingStatus.CONVERGED
    assert result.status.ok
    outputs = net(torch.from_numpy(X))
    assert result.accuracy == 1.0
    assert result.loss == pytest.approx(
        float(torch.nn.functional.cross_entropy(outputs, torch.from_numpy(LABELS)).detach()),
        rel=1e-12,
    )
    assert result.loss <= 1e-2 < result.losses[-2] or result.accuracies[-2] < 1.0


def test_a_function_may_be_the_loss():
    def mean_square(outputs, targets):
        return (outputs[:, 0] - targets).square().mean()

    own = train(small(), X, Y, loss=mean_square, step_size=0.05, max_epochs=20)
    named = train(small(), X, Y, loss="mean", step_size=0.05, max_epochs=20)
    np.testing.assert_allclose(own.losses, named.losses, rtol=1e-12)


def test_a_target_that_is_not_reached_is_said():
    result = train(small(), X, Y, step_size=1e-6, max_epochs=3, stop_at_loss=1e-9)
    assert result.status is TrainingStatus.STOPPED
    assert not result.status.ok
    assert "max_epochs" in result.message
    assert "STOPPED" not in repr(result)
    assert "3 epochs" in repr(result)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_divergence_ends_training_at_once(batch_size):
    result = train(small(), X, Y, step_size=10.0, batch_size=batch_size, max_epochs=10_000)
    assert result.status is TrainingStatus.DIVERGED
    assert result.epochs < 20
    assert "lower step_size" in result.message


def test_a_start_at_the_solution_is_no_reference_for_divergence():
    net = linear()
    # Far above rounding, which another BLAS rounds differently, and far below y.
    y = X @ net[0].weight.detach().numpy()[0] + 1e-9 * np.linalg.svd(X)[0][:, 0]
    # Just unstable: that error grows by 1.2 a step.
    step = 2.2 / np.linalg.eigvalsh(X.T @ X)[-1]
    result = train(net, X, y, step_size=step, max_epochs=80)
    assert result.loss > 1e7 * result.losses[0]
    assert result.loss < 0.5 * np.sum(y**2)
    assert result.status is TrainingStatus.COMPLETED


@pytest.mark.parametrize("loss", ["half", "sum", "half_mean", "mean"])
def test_steps_below_the_stable_one_shrink_the_loss_and_those_above_do_not(loss):
    for fraction, shrinks in ((0.95, True), (1.05, False)):
        net = linear()
        step = stable_step_size(net, X, loss=loss, fraction=fraction)
        # Targets along the stiffest direction alone: the loss changes by one factor each step.
        y = np.linalg.svd(X)[0][:, 0] * 5 + X @ net[0].weight.detach().numpy()[0]
        result = train(net, X, y, loss=loss, step_size=step, max_epochs=10)
        ratio = (1 - 2 * fraction) ** 2
        np.testing.assert_allclose(result.losses[1:] / result.losses[:-1], ratio, rtol=1e-9)
        assert (ratio < 1) is shrinks


def test_a_callback_sees_each_epoch_and_may_halt():
    seen = []

    def watch(moment):
        seen.append((moment.epoch, moment.loss, moment.accuracy))
        return moment.epoch == 6

    result = train(small(), X, Y, step_size=0.01, evaluate_every=2, callback=watch)
    assert result.status is TrainingStatus.HALTED
    assert [epoch for epoch, *_ in seen] == [0, 2, 4, 6] == result.recorded.tolist()
    assert [loss for _, loss, _ in seen] == result.losses.tolist()


@pytest.mark.parametrize("batch_size", [None, 5])
def test_how_often_the_loss_is_evaluated_changes_no_step(batch_size):
    nets = [small(), small()]
    for net, every in zip(nets, (1, 7), strict=True):
        train(net, X, Y, step_size=0.01, batch_size=batch_size, max_epochs=20, evaluate_every=every)
    assert all(map(torch.equal, nets[0].parameters(), nets[1].parameters()))


def test_frozen_parameters_stay():
    net = small()
    net[0].weight.requires_grad_(False)
    before = net[0].weight.clone()
    result = train(net, X, Y, step_size=0.01, max_epochs=10)
    assert torch.equal(net[0].weight, before)
    assert result.loss < result.losses[0]


def test_the_last_layer_alone_descends_over_fixed_features():
    net = small(seed=3)
    start = copy.deepcopy(net)
    result = train_last_layer(net, X, Y, step_size=0.02, max_epochs=100)
    assert torch.equal(net[0].weight, start[0].weight)
    features = np.maximum(X @ start[0].weight.detach().numpy().T, 0.0)
    w = start[2].weight.detach().numpy()[0]
    for _ in range(100):
        w = w - 0.02 * features.T @ (features @ w - Y)
    np.testing.assert_allclose(net[2].weight.detach().numpy()[0], w, atol=1e-11)
    assert result.loss == pytest.approx(0.5 * np.sum((features @ w - Y) ** 2), rel=1e-10)


def test_a_last_layer_that_is_not_used_is_refused():
    net = small()
    net.append(torch.nn.Identity())
    net[-1].register_module("spare", torch.nn.Linear(1, 1, dtype=net[0].weight.dtype))
    with pytest.raises(InputError, match=r"^module: must end with its last Linear layer"):
        train_last_layer(net, X, Y, step_size=0.1)


def test_the_last_layer_is_refused_where_the_output_is_something_else():
    with pytest.raises(InputError, match="must end with its last Linear layer"):
        train_last_layer(unbiased(small()), X, Y, step_size=0.1)
    with pytest.raises(InputError, match="must end with its last Linear layer"):
        train_last_layer(torch.nn.Sequential(small(), torch.nn.Tanh()), X, Y, step_size=0.1)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": float("nan")}, "step_size"),
        ({"loss": "hinge"}, "loss"),
        ({"loss": -1.0}, "loss"),
        ({"loss": lambda outputs, targets: outputs}, "loss"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"stop_at_loss": 0.0}, "stop_at_loss"),
        ({"stop_at_accuracy": 1.0}, "stop_at_accuracy"),
        ({"loss": "cross_entropy", "stop_at_accuracy": 100}, "module"),
        ({"momentum": 1.0}, "momentum"),
        ({"rng": "seed"}, "rng"),
        ({"resume": True}, "resume"),
        ({"checkpoint": 3}, "checkpoint"),
        ({"checkpoint": "run.pt", "checkpoint_every": -1.0}, "checkpoint_every"),
        ({"x": X[:, :2]}, "x"),
        ({"x": X[:0]}, "x"),
        ({"x": X.astype(complex)}, "x"),
        ({"x": np.full_like(X, np.nan)}, "x"),
        ({"x": torch.ones(12, 3, dtype=torch.int64)}, "x"),
        ({"x": "data"}, "x"),
        ({"y": Y[:5]}, "y"),
        ({"y": np.outer(Y, Y)}, "y"),
        ({"y": [*Y[:-1], np.inf]}, "y"),
        ({"module": torch.nn.ReLU()}, "module"),
        ({"module": small().requires_grad_(False)}, "module"),
        ({"module": torch.nn.Sequential(small(), torch.nn.Dropout())}, "module"),
        ({"module": mlp((3, 9, 1), scale=1e200, dtype=torch.float64)}, "module"),
        ({"module": small(3), "loss": "cross_entropy", "y": Y}, "y"),
        ({"module": small(3), "loss": "cross_entropy", "y": np.arange(12)}, "y"),
        ({"module": small(3), "loss": "cross_entropy", "y": ["a"] * 12}, "y"),
    ],
)
def test_bad_input_is_refused_by_name(change, argument):
    given_ = {"module": small(), "x": X, "y": Y, "step_size": 0.1, "max_epochs": 1} | change
    with pytest.raises(InputError, match=rf"(?s)^{argument}: must .* got "):
        train(given_.pop("module"), given_.pop("x"), given_.pop("y"), **given_)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"loss": "cross_entropy"}, "loss"),
        ({"fraction": 0.0}, "fraction"),
        ({"x": X * 0}, "module"),
    ],
)
def test_stable_steps_of_nothing_are_refused(options, argument):
    with pytest.raises(InputError, match=rf"^{argument}: must .* got "):
        stable_step_size(linear(), **({"x": X} | options))
    with pytest.raises(InputError, match=r"^module: must .* got int"):
        stable_step_size(3, X)


def test_dropout_is_welcome_once_it_is_off():
    net = torch.nn.Sequential(small(), torch.nn.Dropout()).eval()
    assert train(net, X, Y, step_size=0.01, max_epochs=2).epochs == 2


def test_a_terminal_alone_gets_a_bar(capsys):
    train(small(), X, Y, step_size=0.01, max_epochs=2)
    assert capsys.readouterr().err == ""
