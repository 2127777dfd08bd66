"""Gradient descent and SGD to a target, with divergence seen, and resumed where it was killed.

    theta <- theta - step_size * v,    v <- momentum * v + grad L(theta)

Full batch: one epoch is one step, the discretization of gradient flow that the papers use. In
batches: an order drawn anew for each epoch from the seed and the number of the epoch alone, so
that a resumed run takes the same steps as one that was never stopped.

The largest stable step comes from the tangent kernel: squared loss (c/2) ||f - y||^2 in the kernel
regime contracts each of its eigenvectors by 1 - step * c * lambda per step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError, read_count, read_positive, read_rng, shown, takes
from flowbias.ground.torch import require_torch
from flowbias.kernels.compare import kernel_matrix
from flowbias.kernels.tangent import tangent_kernel
from flowbias.nets.checkpoint import Keeper
from flowbias.nets.losses import (
    Loss,
    OwnLoss,
    SquaredLoss,
    TrainingData,
    evaluate,
    in_parts,
    read_data,
    read_loss,
    read_samples,
    right_labels,
)
from flowbias.nets.settings import read_fraction, read_module
from flowbias.nets.training import Training, TrainingStatus, epochs_shown


@dataclass(frozen=True)
class Moment:
    """What a callback is told: how far training is. The module is the one being trained.

    >>> import torch
    >>> net, x, seen = fb.nets.mlp((1, 4, 1), rng=0), torch.linspace(-1.0, 1.0, 4)[:, None], []
    >>> _ = fb.nets.train(net, x, x, step_size=0.05, max_epochs=2, callback=seen.append)
    >>> [moment.epoch for moment in seen]
    [0, 1, 2]
    """

    epoch: int
    loss: float
    accuracy: float | None
    module: Any


#: Called at each recorded epoch; True ends the training there, a number is kept in `notes`.
Callback = Callable[[Moment], Any]


def train(
    module: Any,
    x: Any,
    y: Any,
    *,
    step_size: float,
    loss: str | float | OwnLoss = "squared",
    batch_size: int | None = None,
    max_epochs: int = 1000,
    stop_at_loss: float | None = None,
    stop_at_accuracy: float | None = None,
    momentum: float = 0.0,
    rng: int | np.random.Generator = 0,
    evaluate_every: int = 1,
    callback: Callback | None = None,
    checkpoint: Any = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
    progress: bool | None = None,
) -> Training:
    """Train `module` in place on its own device, by full-batch descent unless `batch_size` is set.

    Ends when all targets that are given (`stop_at_loss`, `stop_at_accuracy`) hold for all of the
    data, after `max_epochs`, or when the loss diverges; `status` says which.

    Parameters
    ----------
    module : any torch.nn.Module; in training mode with dropout or batch statistics it is refused
    x, y : inputs and targets
    step_size, momentum, batch_size : of the descent
    loss : "squared", "cross_entropy", a constant c in (c/2) ||.||^2, or a function of outputs and
        targets
    max_epochs, stop_at_loss, stop_at_accuracy : when to end; the last from 0 to 1
    rng : seed or generator of the batches
    evaluate_every : epochs between evaluations, which cost a forward pass in batches
    callback : is told each evaluation; a float that it returns is kept in the result's `notes`
    checkpoint, checkpoint_every : a file that is written every so many seconds and at the end
    resume : whether training continues from that file if it is there, to the same numbers as
        without the stop
    progress : a bar on a terminal

    Returns
    -------
    Training with status, losses and notes

    Raises
    ------
    InputError for a module or data that cannot be used

    >>> from flowbias.nets import mlp
    >>> net = mlp((1, 20, 1), rng=0)
    >>> result = train(net, [[1.0], [-1.0]], [1.0, 2.0], step_size=0.02, stop_at_loss=1e-6)
    >>> result.status.name, result.loss < 1e-6
    ('CONVERGED', True)
    """
    cost = read_loss(loss)
    data = read_data(module, x, y, cost)
    goal = _Goal.read(cost, stop_at_loss, stop_at_accuracy)
    if callback is not None and not takes(callback, 1):
        raise InputError(
            f"callback: must be a function of a Moment, got {shown(callback)}. Pass for instance "
            "moments.append, of a list."
        )
    batch = None if batch_size is None else read_count("batch_size", batch_size, "Samples a step.")
    run = TrainingRun(
        module=module,
        data=data,
        loss=cost,
        # All samples in one batch are the full batch: no order to draw.
        batch=None if batch is None or batch >= len(data) else batch,
        step_size=read_positive("step_size", step_size, "It multiplies the gradient."),
        momentum=read_fraction("momentum", momentum, "0 is plain descent.", one=False),
        seed=_read_seed(rng),
    )
    last = read_count("max_epochs", max_epochs, "Passes over the data.", at_least=0)
    every = read_count("evaluate_every", evaluate_every, "Epochs between two evaluations.")
    keeper = Keeper.read(run, checkpoint, checkpoint_every, resume)
    with epochs_shown(last, progress) as show:
        status = _loop(run, goal, last, every, callback, keeper, show)
    keeper.write(run)
    return run.result(status)


@dataclass(frozen=True)
class _Goal:
    """What has to hold for training to have converged."""

    loss: float | None
    accuracy: float | None

    @classmethod
    def read(cls, cost: Loss, loss: Any, accuracy: Any) -> _Goal:
        if accuracy is not None and not cost.labels:
            raise InputError(
                f"stop_at_accuracy: must be None for a loss without classes ({cost.name}), got "
                f"{accuracy!r}. Use loss='cross_entropy', or stop_at_loss."
            )
        return cls(
            None if loss is None else read_positive("stop_at_loss", loss, "Loss to reach."),
            None
            if accuracy is None
            else read_fraction("stop_at_accuracy", accuracy, "Share of right labels.", one=True),
        )

    @property
    def given(self) -> bool:
        return self.loss is not None or self.accuracy is not None

    def reached(self, loss: float, accuracy: float) -> bool:
        low = self.loss is None or loss <= self.loss
        return self.given and low and (self.accuracy is None or accuracy >= self.accuracy)


def _loop(
    run: TrainingRun,
    goal: _Goal,
    last: int,
    every: int,
    callback: Callback | None,
    keeper: Keeper,
    show: Callable[[int, str], None],
) -> TrainingStatus:
    while True:
        value: Any = None
        # A resumed run stands where it was recorded last, and has been judged there.
        if run.epoch % every == 0 or run.epoch == last:
            if run.batch is None:
                value, accuracy = run.forward()
                loss = float(value.detach())
            else:
                loss, accuracy = evaluate(run.module, run.data, run.loss)
            status = _judge(run, goal, loss, accuracy, callback)
            if status is not None:
                return status
        if run.epoch >= last:
            return TrainingStatus.STOPPED if goal.given else TrainingStatus.COMPLETED
        keeper.write_if_due(run)
        show(run.epoch, f"loss {run.losses[-1]:.2e}")
        if run.batch is None:
            run.step(run.forward()[0] if value is None else value)
            run.epoch += 1
        else:
            total = run.batches()
            run.epoch += 1
            if not math.isfinite(total):
                run.record(total, math.nan)
                return TrainingStatus.DIVERGED


def _judge(
    run: TrainingRun, goal: _Goal, loss: float, accuracy: float, callback: Callback | None
) -> TrainingStatus | None:
    """Record this epoch, unless a resumed run has done so, and say whether training ends here."""
    if not run.recorded and not math.isfinite(loss):
        raise InputError(
            f"module: must have a finite loss at the start, got {loss}. Check its parameters and "
            "its outputs on x for overflow or NaN; a smaller scale may do."
        )
    if run.recorded[-1:] != [run.epoch]:
        run.record(loss, accuracy)
        shown = accuracy if run.loss.labels else None
        said = None if callback is None else callback(Moment(run.epoch, loss, shown, run.module))
        run.notes.append(said if isinstance(said, float) else math.nan)
        if said is True:
            return TrainingStatus.HALTED
    if run.diverged(loss):
        return TrainingStatus.DIVERGED
    return TrainingStatus.CONVERGED if goal.reached(loss, accuracy) else None


def _read_seed(rng: Any) -> int:
    """One number that all orders come from; of a generator, its next draw."""
    generator = read_rng(rng)
    return int(generator.integers(2**62)) if generator is rng else int(rng)


@dataclass
class TrainingRun:
    """Where a training stands."""

    module: Any
    data: TrainingData
    loss: Loss
    batch: int | None
    step_size: float
    momentum: float
    seed: int
    epoch: int = 0
    recorded: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    notes: list[float] = field(default_factory=list)
    earlier_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    optimizer: Any = None

    def __post_init__(self) -> None:
        torch = require_torch()
        trainable = [p for p in self.module.parameters() if p.requires_grad]
        if any(self.step_size > torch.finfo(p.dtype).max for p in trainable):
            raise InputError(
                f"step_size: must be a number of the module's precision, got {self.step_size:g}. "
                "Lower it, or convert the module with module.double()."
            )
        self.optimizer = torch.optim.SGD(trainable, lr=self.step_size, momentum=self.momentum)

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.perf_counter() - self.started

    def record(self, loss: float, accuracy: float) -> None:
        self.recorded.append(self.epoch)
        self.losses.append(loss)
        self.accuracies.append(accuracy)

    def forward(self) -> tuple[Any, float]:
        """Loss of the full batch, to be differentiated, and accuracy."""
        outputs = self.module(self.data.x)
        right = (
            right_labels(outputs, self.data.y) / len(self.data) if self.loss.labels else math.nan
        )
        return self.loss.of(outputs, self.data.y), right

    def step(self, value: Any) -> None:
        self.optimizer.zero_grad()
        value.backward()
        self.optimizer.step()

    def batches(self) -> float:
        """One epoch in batches; the sum of their losses, which shows a divergence on the way."""
        torch = require_torch()
        data, total = self.data, 0.0
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(data))
        for part in torch.from_numpy(order).to(data.x.device).split(self.batch):
            value = self.loss.of(self.module(data.x[part]), data.y[part])
            self.step(value)
            total = total + value.detach()
        return float(total)

    def diverged(self, loss: float) -> bool:
        reference = max(self.losses[0], self.data.zero_level)
        return not loss <= Training.diverged_above * reference

    def result(self, status: TrainingStatus) -> Training:
        return Training(
            recorded=np.array(self.recorded, dtype=np.int64),
            losses=np.array(self.losses),
            accuracies=np.array(self.accuracies) if self.loss.labels else None,
            status=status,
            seconds=self.seconds,
            # An epoch that diverged on the way is recorded without asking.
            notes=np.array(self.notes + [math.nan] * (len(self.recorded) - len(self.notes))),
        )


def stable_step_size(
    module: Any, x: Any, *, loss: str | float = "squared", fraction: float = 0.5
) -> float:
    """`fraction` of 2 / (c lambda_max), for full-batch descent from where the module is now.

    The kernel of a rich start grows while it learns: take the smaller of this and a step that is
    stable at the end. The n c x n c kernel is formed.

    Parameters
    ----------
    module, x : as for `train`
    loss : as for `train`; c is its constant
    fraction : of the largest stable step

    Returns
    -------
    float

    Raises
    ------
    InputError for a module or inputs that cannot be used

    >>> import torch
    >>> line = torch.nn.Linear(1, 1, bias=False)
    >>> stable_step_size(line, [[2.0]], fraction=1.0)  # 2 / 2^2
    0.5
    """
    cost = read_loss(loss)
    if not isinstance(cost, SquaredLoss):
        raise InputError(
            f"loss: must be squared loss, got {cost.name}. For other losses try a few step sizes."
        )
    part = read_positive("fraction", fraction, "Below 1 the step is stable.")
    samples = read_samples("x", x, next(read_module(module).parameters()))
    kernel = np.asarray(kernel_matrix(tangent_kernel(module, samples)), dtype=float)
    largest = float(np.linalg.eigvalsh(kernel)[-1])
    if not largest > 0.0:
        raise InputError(
            f"module: must have a tangent kernel above zero on x, got {largest}. No step moves it; "
            "start it at another point."
        )
    return 2.0 * part / (cost.constant(len(samples)) * largest)


def train_last_layer(
    module: Any,
    x: Any,
    y: Any,
    *,
    step_size: float,
    loss: str | float | OwnLoss = "squared",
    **options: Any,
) -> Training:
    """Train the last Linear layer of `module` in place, the rest fixed.

    The features below it are computed once, so that a step costs no more than that layer.

    Parameters
    ----------
    module : whose output is that of its last Linear layer itself
    x, y, step_size, loss, options : as for `train`

    Returns
    -------
    Training

    Raises
    ------
    InputError for a module or data that cannot be used

    >>> from flowbias.nets import mlp
    >>> net = mlp((1, 20, 1), rng=0)
    >>> fixed = net[0].weight.detach().clone()
    >>> train_last_layer(net, [[1.0], [-1.0]], [1.0, 2.0], step_size=0.02).loss < 1e-3
    True
    >>> bool((net[0].weight == fixed).all())
    True
    """
    data = read_data(module, x, y, read_loss(loss))
    layer = _last_linear(module)
    features = _features(module, layer, data.x)
    return train(layer, features, data.y, step_size=step_size, loss=loss, **options)


def _last_linear(module: Any) -> Any:
    nn = require_torch().nn
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise InputError(
            f"module: must have a Linear layer, got {type(module).__name__} without one. "
            "Freeze the other parameters by requires_grad_(False) and call train."
        )
    return layers[-1]


def _features(module: Any, layer: Any, x: Any) -> Any:
    """What the layer is given, for all samples; refused where its output is not the module's."""
    torch = require_torch()
    seen: list[Any] = []
    made: list[Any] = []

    def note(_: Any, inputs: tuple[Any, ...], outputs: Any) -> None:
        seen.append(inputs[0])
        made.append(outputs)

    hook = layer.register_forward_hook(note)
    kept = []
    try:
        with torch.no_grad():
            for (part,) in in_parts(x):
                outputs = module(part)
                if len(made) != 1 or not torch.equal(made[0], outputs):
                    raise InputError(
                        "module: must end with its last Linear layer, used once, got one whose "
                        "output is something else. Freeze the other parameters by "
                        "requires_grad_(False) and call train."
                    )
                kept.append(seen[0])
                seen.clear()
                made.clear()
    finally:
        hook.remove()
    return torch.cat(kept)
