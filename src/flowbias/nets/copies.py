"""Many copies of a small network, each at its own scale, seed and step size, trained in one loop.

Full-batch descent on squared loss, the same steps as `train` takes with each copy alone. A copy
that has reached its target, or diverged, leaves the batch; the others go on.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError, read_count, read_positive, real_array
from flowbias.ground.drawing import course, picture
from flowbias.ground.html import some, table
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import Axes, Figure, FloatArray
from flowbias.kernels.network import copied
from flowbias.nets.copies_batch import Batch, Shape
from flowbias.nets.losses import SquaredLoss, as_tensor, read_loss
from flowbias.nets.settings import read_module
from flowbias.nets.training import Training, TrainingStatus, epochs_shown


@dataclass(frozen=True, eq=False)
class TrainedCopies:
    """The copies before and after, in the order given; `trainings[i]` is the course of copy i."""

    before: tuple[Any, ...]
    modules: tuple[Any, ...]
    trainings: tuple[Training, ...]
    #: outputs on x_test, (copies, samples, outputs); None where there was none
    predictions: FloatArray | None
    seconds: float

    @property
    def losses(self) -> FloatArray:
        """The loss of each copy at its end."""
        return np.array([training.loss for training in self.trainings])

    @property
    def epochs(self) -> NDArray[np.int64]:
        """The steps that each copy took."""
        return np.array([training.epochs for training in self.trainings], dtype=np.int64)

    @property
    def statuses(self) -> tuple[TrainingStatus, ...]:
        """How each copy ended."""
        return tuple(training.status for training in self.trainings)

    @property
    def _ends(self) -> str:
        counts = {s: self.statuses.count(s) for s in TrainingStatus}
        return ", ".join(f"{count} {s.name}" for s, count in counts.items() if count)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The loss of each copy over steps; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            for training in self.trainings:
                course(axes, training.recorded.astype(float), training.losses, label="loss")
            axes.set_xlabel("steps")
            axes.set_title(self._ends)

        return picture(panel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        rows = [
            (f"{i}", f"{one.epochs}", f"{one.loss:.3e}", one.status.name)
            for i, one in ((i, self.trainings[i]) for i in some(len(self.trainings)))
        ]
        caption = f"{len(self.trainings)} copies: {self._ends}"
        return table(caption, rows, head=("copy", "steps", "loss", "status"))

    def __repr__(self) -> str:
        return (
            f"TrainedCopies({self._ends}; at most {self.epochs.max()} steps, "
            f"loss at most {np.nanmax(self.losses):.3e}, {self.seconds:.1f} s)"
        )


def train_copies(
    modules: Sequence[Any],
    x: Any,
    y: Any,
    *,
    step_size: float | Sequence[float] | FloatArray,
    loss: str | float = "squared",
    max_epochs: int = 1000,
    stop_at_loss: float | None = None,
    record_every: int = 100,
    x_test: Any = None,
    progress: bool | None = None,
) -> TrainedCopies:
    """Train copies of networks from `mlp` or `univariate`, plain or `unbiased`, together.

    Parameters
    ----------
    modules : the networks, which stay as they are: the trained ones are new
    x : (n, features) for all, or (copies, n, features) for data of their own
    y : (n,) or (n, outputs), or (copies, n, outputs)
    step_size : one number, or one per copy
    loss, max_epochs, stop_at_loss : as for `train`
    record_every : steps between records of the loss, which is also recorded at the end of each copy
    x_test : inputs whose outputs are wanted at the end
    progress : a bar on a terminal

    Returns
    -------
    TrainedCopies

    Raises
    ------
    InputError for networks or data that cannot be used

    >>> from flowbias.nets import mlp
    >>> nets = [mlp((1, 20, 1), scale=s, rng=seed) for s in (0.5, 2.0) for seed in (0, 1)]
    >>> done = train_copies(nets, [[1.0], [-1.0]], [1.0, 2.0], step_size=[0.02, 0.02, 1e-3, 1e-3],
    ...                     stop_at_loss=1e-6, max_epochs=5000)
    >>> [status.name for status in done.statuses]
    ['CONVERGED', 'CONVERGED', 'CONVERGED', 'CONVERGED']
    """
    started = time.perf_counter()
    before = read_modules(modules)
    batch, count = Batch.of(before), len(before)
    cost = read_loss(loss)
    if not isinstance(cost, SquaredLoss):
        raise InputError(
            f"loss: must be squared loss for copies in one batch, got {cost.name}. "
            "Train one by one with train(module, ..., loss=...)."
        )
    inputs = read_inputs("x", x, batch.shape, count)
    targets = read_targets(y, batch.shape, count, inputs)
    rates = _read_rates(step_size, batch.shape, count)
    loop = _DescentLoop(
        # One by one: a tuple is copied with what its entries share.
        modules=tuple(copied(module) for module in before),
        batch=batch,
        inputs=inputs,
        targets=targets,
        rates=rates,
        constant=cost.constant(inputs.shape[1]),
        goal=None if stop_at_loss is None else read_positive("stop_at_loss", stop_at_loss, "Loss."),
        last=read_count("max_epochs", max_epochs, "Steps to take at most.", at_least=0),
        every=read_count("record_every", record_every, "Steps between two records."),
    )
    return loop.run(before, x_test, progress, started)


@dataclass
class CopiesLoop(ABC):
    """The copies that still move; `alive` holds their places among all copies."""

    modules: tuple[Any, ...]
    batch: Batch
    inputs: Any
    targets: Any
    constant: float
    goal: float | None
    last: int
    every: int
    steps: int = field(default=0, init=False)
    alive: Any = field(default=None, init=False)
    trainings: dict[int, Training] = field(default_factory=dict, init=False)
    records: dict[int, list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )

    @abstractmethod
    def prepare(self) -> None:
        """What each copy needs beside its weights, before the first step."""

    @abstractmethod
    def going(self, losses: Any) -> Any:
        """Which copies are not done."""

    @abstractmethod
    def move(self, inputs: list[Any], residual: Any) -> None:
        """Take a step, from what each layer was given and how far off the outputs were."""

    @abstractmethod
    def keep(self, places: Any) -> None:
        """Forget what `prepare` made for all but these."""

    def run(
        self, before: tuple[Any, ...], x_test: Any, progress: bool | None, started: float
    ) -> TrainedCopies:
        """Advance until no copy is left."""
        torch, count = require_torch(), len(before)
        test = None if x_test is None else read_inputs("x_test", x_test, self.batch.shape, count)
        self.alive = torch.arange(count, device=self.inputs.device)
        self.started = started
        with torch.no_grad(), epochs_shown(self.last, progress) as show:
            self.prepare()
            while len(self.alive):
                self.advance()
                show(self.steps, f"{len(self.alive)} of {count} copies left")
            predictions = None if test is None else Batch.of(self.modules).forward(test)[0]
        return TrainedCopies(
            before=before,
            modules=self.modules,
            trainings=tuple(self.trainings[i] for i in range(count)),
            predictions=None if predictions is None else predictions.double().cpu().numpy(),
            seconds=time.perf_counter() - started,
        )

    def advance(self) -> None:
        """Let go whoever is done, or move all by one step."""
        outputs, inputs = self.batch.forward(self.inputs)
        residual = outputs - self.targets
        losses = self.losses(residual)
        going = self.going(losses)
        if self.steps == self.last or not bool(going.all()):
            self.release(losses, going)
            return
        if self.steps % self.every == 0:
            self.note(losses)
        self.move(inputs, residual)
        self.steps += 1

    def losses(self, residual: Any) -> Any:
        return 0.5 * self.constant * residual.square().sum((1, 2))

    def note(self, losses: Any) -> None:
        for i, value in zip(self.alive.tolist(), losses.tolist(), strict=True):
            self.records[i].append((self.steps, value))

    def release(self, losses: Any, going: Any) -> None:
        """End the copies that do not go on; the next call moves those that do."""
        torch = require_torch()
        stay = going if self.steps < self.last else torch.zeros_like(going)
        for place in (~stay).nonzero()[:, 0].tolist():
            i, loss = int(self.alive[place]), float(losses[place])
            self.batch.write(place, self.modules[i])
            self.records[i].append((self.steps, loss))
            steps, course = zip(*self.records[i], strict=True)
            self.trainings[i] = Training(
                recorded=np.array(steps, dtype=np.int64),
                losses=np.array(course),
                accuracies=None,
                status=self.status(place, loss),
                seconds=time.perf_counter() - self.started,
            )
        places = stay.nonzero()[:, 0]
        rows = self.batch.rows(places)
        self.batch, self.inputs = self.batch.kept(rows), self.inputs[rows]
        self.targets, self.alive = self.targets[places], self.alive[places]
        self.keep(places)

    def status(self, place: int, loss: float) -> TrainingStatus:
        if self.goal is None:
            return TrainingStatus.COMPLETED
        return TrainingStatus.CONVERGED if loss <= self.goal else TrainingStatus.STOPPED


@dataclass
class _DescentLoop(CopiesLoop):
    """Full-batch descent, each copy with its own step size."""

    rates: Any

    def prepare(self) -> None:
        """The losses beyond which a copy has diverged, as `train` has them."""
        torch = require_torch()
        first = self.losses(self.batch.forward(self.inputs)[0] - self.targets)
        if not bool(torch.isfinite(first).all()):
            bad = int((~torch.isfinite(first)).nonzero()[0, 0])
            raise InputError(
                f"modules: must have a finite loss at the start, got {float(first[bad])} at index "
                f"{bad}. Check parameters and x for overflow or NaN; a smaller scale may do."
            )
        self.limits = Training.diverged_above * torch.maximum(first, self.losses(self.targets))

    def going(self, losses: Any) -> Any:
        # False for NaN too: such a copy does not go on.
        going = losses <= self.limits
        return going if self.goal is None else going & (losses > self.goal)

    def move(self, inputs: list[Any], residual: Any) -> None:
        self.batch.descend(inputs, self.constant * self.rates * residual)

    def keep(self, places: Any) -> None:
        self.rates, self.limits = self.rates[places], self.limits[places]

    def status(self, place: int, loss: float) -> TrainingStatus:
        if not loss <= float(self.limits[place]):
            return TrainingStatus.DIVERGED
        return super().status(place, loss)


def read_modules(modules: Any) -> tuple[Any, ...]:
    if not isinstance(modules, Sequence) or not len(modules):
        raise InputError(
            f"modules: must list one network or more, got {type(modules).__name__}. "
            "Pass for instance [mlp((2, 30, 1), scale=s) for s in scales]."
        )
    return tuple(read_module(module) for module in modules)


def read_inputs(name: str, x: Any, shape: Shape, count: int) -> Any:
    """x as (copies * halves, n, features), one tensor seen by all where it is shared."""
    like = require_torch().empty(0, dtype=shape.dtype, device=shape.device)
    samples = as_tensor(name, x, like)
    own = samples.ndim == 3 and len(samples) == count
    if not (samples.ndim == 2 or own) or samples.shape[-1] != shape.widths[0] or 0 in samples.shape:
        raise InputError(
            f"{name}: must be (n, {shape.widths[0]}), or ({count}, n, {shape.widths[0]}) for data "
            f"of each copy's own, got {tuple(samples.shape)}. Reshape it."
        )
    if own:
        return samples.repeat_interleave(shape.halves, dim=0)
    return samples.expand(count * shape.halves, -1, -1)


def read_targets(y: Any, shape: Shape, count: int, inputs: Any) -> Any:
    """y as (copies, n, outputs)."""
    targets = as_tensor("y", y, inputs)
    n, outputs = inputs.shape[1], shape.widths[-1]
    if targets.shape == (n,) and outputs == 1:
        targets = targets[:, None]
    if targets.shape not in ((n, outputs), (count, n, outputs)):
        raise InputError(
            f"y: must be ({n}, {outputs}), or ({count}, {n}, {outputs}) for targets of each "
            f"copy's own, got {tuple(targets.shape)}. Reshape it."
        )
    return targets.expand(count, n, outputs)


def _read_rates(step_size: Any, shape: Shape, count: int) -> Any:
    """Step sizes as (copies, 1, 1)."""
    torch = require_torch()
    many = isinstance(step_size, Sequence | np.ndarray) and not isinstance(step_size, str | bytes)
    if many:
        fix = f"Pass one number, or one per copy ({count})."
        many = real_array("step_size", step_size, fix).ndim == 1
    given = list(step_size) if many else [step_size] * count
    if len(given) != count:
        raise InputError(
            f"step_size: must be one number or one per copy ({count}), got {len(given)}. "
            "Pass them in the order of the modules."
        )
    rates = [read_positive("step_size", rate, "It multiplies the gradient.") for rate in given]
    return torch.tensor(rates, dtype=shape.dtype, device=shape.device)[:, None, None]
