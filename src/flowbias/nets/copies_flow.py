"""Gradient flow of many small networks at once, by steps that follow the kernel instead of time.

Where J is frozen, gradient flow on (1/2) ||f - y||^2 is linear and solved exactly,

    r(t + h) = exp(-K h) r(t),   theta(t + h) = theta(t) - J^T K^+ (I - exp(-K h)) r(t),  K = J J^T,

with J taken at half the step (the exponential midpoint rule, of second order). h is limited by how
much the kernel changes over a step and not by its largest eigenvalue: tens to hundreds of steps
where descent needs thousands or more. A step is shortened while over it

- the kernel changes by more than `tol`, the units that are on staying on;
- the loss falls by less than half of what the frozen kernel promises.

Units that switch are only held by the second rule. Gradient flow of ReLU networks slides along
such switches, which no method with a finite step resolves; there the path is followed to first
order in h and `tol` bounds nothing. Read the result as the end of a fast descent that is close to
gradient flow, and compare two values of `tol`, or `train_copies`, where the difference matters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flowbias.ground.arguments import InputError, read_count, read_positive
from flowbias.ground.torch import require_torch
from flowbias.kernels.network import copied
from flowbias.nets.copies import (
    CopiesLoop,
    TrainedCopies,
    read_inputs,
    read_modules,
    read_targets,
)
from flowbias.nets.copies_batch import Batch
from flowbias.nets.losses import SquaredLoss, read_loss
from flowbias.nets.settings import read_fraction


@dataclass(frozen=True)
class StepControl:
    """How steps of the flow are chosen."""

    #: the first, in units of 1 / (largest eigenvalue of K)
    first: float = 0.01
    #: growth of a step at most, after one that was accepted
    growth: float = 4.0
    #: where a unit switches, the kernel jumps however short the step: after a step has been
    #: shortened this often in a row, it is taken as it is
    patience: int = 3
    #: share of the loss that the frozen kernel says will go which has to go
    least_drop: float = 0.5
    #: a fault that halves the step
    halved: float = 1.6
    #: eigenvalues of K below this fraction of the largest are rounding and never divided by
    noise: float = 1e-13


STEPS = StepControl()


def flow_copies(
    modules: Sequence[Any],
    x: Any,
    y: Any,
    *,
    loss: str | float = "squared",
    stop_at_loss: float = 1e-9,
    tol: float = 0.05,
    max_steps: int = 10_000,
    x_test: Any = None,
    progress: bool | None = None,
) -> TrainedCopies:
    """Gradient flow (step size to zero) of networks with one output until the loss is reached.

    Computed in double precision. Not a certified limit: the text of this module says where the path
    is approximate, and a copy that did not reach its loss has the status STOPPED.

    Parameters
    ----------
    modules, x, y, x_test, progress : as for `train_copies`
    loss : what `stop_at_loss` means and nothing else: its constant only sets the clock
    stop_at_loss : where to stop
    tol : how far a step may change the kernel, relatively
    max_steps : when to give up

    Returns
    -------
    TrainedCopies, networks in double precision before and after; `epochs` counts the steps taken

    Raises
    ------
    InputError for networks or data that cannot be used

    >>> from flowbias.nets import mlp
    >>> nets = [mlp((1, 20, 1), scale=scale) for scale in (0.01, 1.0, 100.0)]
    >>> done = flow_copies(nets, [[1.0], [-1.0]], [1.0, 2.0])
    >>> [status.name for status in done.statuses]
    ['CONVERGED', 'CONVERGED', 'CONVERGED']
    """
    started = time.perf_counter()
    before = tuple(copied(module).double() for module in read_modules(modules))
    batch, count = Batch.of(before), len(before)
    cost = read_loss(loss)
    if not isinstance(cost, SquaredLoss) or batch.shape.widths[-1] != 1:
        raise InputError(
            "modules: must have one output, and the loss must be squared loss, got "
            f"{batch.shape.widths[-1]} outputs and {cost.name}. Use train_copies, or train."
        )
    inputs = read_inputs("x", x, batch.shape, count)
    level = read_positive("stop_at_loss", stop_at_loss, "Loss to reach.")
    path = _FlowLoop(
        modules=tuple(copied(module) for module in before),
        batch=batch,
        inputs=inputs,
        targets=read_targets(y, batch.shape, count, inputs),
        constant=cost.constant(inputs.shape[1]),
        goal=level,
        tol=_read_tol(tol),
        last=read_count("max_steps", max_steps, "Steps to take at most.", at_least=0),
        every=1,
    )
    return path.run(before, x_test, progress, started)


def _read_tol(tol: Any) -> float:
    number = read_positive("tol", tol, "It bounds the change of the kernel over one step.")
    return read_fraction("tol", number, "At 1 the kernel could change altogether.", one=False)


@dataclass
class _FlowLoop(CopiesLoop):
    """Exponential midpoint steps, each copy with a length of its own."""

    tol: float

    def prepare(self) -> None:
        """The length of the next step, and how often it was shortened in a row."""
        torch = require_torch()
        outputs, inputs = self.batch.forward(self.inputs)
        if not bool(torch.isfinite(outputs).all()):
            raise InputError(
                "modules: must have finite outputs at the start, got infinity or NaN. Check "
                "parameters and x for overflow; a smaller scale may do."
            )
        largest = torch.linalg.eigvalsh(self.batch.kernel(inputs))[:, -1]
        self.length = STEPS.first / largest.clamp_min(torch.finfo(largest.dtype).tiny)
        self.shortened = torch.zeros_like(self.alive)

    def going(self, losses: Any) -> Any:
        return ~(losses <= self.goal)

    def keep(self, places: Any) -> None:
        self.length, self.shortened = self.length[places], self.shortened[places]

    def move(self, inputs: list[Any], residual: Any) -> None:
        """The exponential midpoint rule for all copies; taken where the kernel allows it."""
        torch = require_torch()
        kernel = self.batch.kernel(inputs)
        half, new = self.batch.copied(), self.batch.copied()
        half.descend(inputs, _solved(kernel, 0.5 * self.length) @ residual)
        _, inputs_half = half.forward(self.inputs)
        kernel_half = half.kernel(inputs_half)
        change = _solved(kernel_half, self.length) @ residual
        half.descend(inputs_half, change, into=new)
        moved = new.forward(self.inputs)[0] - self.targets - residual
        expected = -kernel_half @ change
        held = half.kernel(half.held_inputs(self.inputs, inputs), inputs)
        bend = 2.0 * _size(held - kernel) / _size(kernel)
        promised = _drop(residual, expected)
        fell = _drop(residual, moved) >= STEPS.least_drop * promised
        fault = torch.where(fell, bend / self.tol, (bend / self.tol).clamp_min(STEPS.halved))
        # A trial that overflowed is as wrong as can be.
        fault = fault.nan_to_num(nan=torch.inf)
        taken = (fault <= 1.0) | ((self.shortened >= STEPS.patience) & fault.isfinite())
        self.batch.replace(new, taken)
        factor = torch.where(
            fault <= 1.0, (0.8 / fault).clamp(max=STEPS.growth), (0.8 / fault).clamp(0.2, 0.5)
        )
        self.length = self.length * torch.where(taken & (fault > 1.0), STEPS.growth, factor)
        self.shortened = torch.where(taken, 0, self.shortened + 1)


def _solved(kernel: Any, length: Any) -> Any:
    """K^+ (I - exp(-K h)); directions whose eigenvalue is zero up to rounding do not move."""
    torch = require_torch()
    values, vectors = torch.linalg.eigh(kernel)
    usable = values > STEPS.noise * values[:, -1:]
    safe = torch.where(usable, values, 1.0)
    weights = torch.where(usable, -torch.expm1(-safe * length[:, None]) / safe, 0.0)
    return (vectors * weights[:, None, :]) @ vectors.transpose(1, 2)


def _drop(residual: Any, change: Any) -> Any:
    """||r||^2 - ||r + change||^2 for each copy, without cancellation."""
    return -(change * (2.0 * residual + change)).sum((1, 2))


def _size(tensors: Any) -> Any:
    """The Euclidean size of each copy's tensor, never zero."""
    torch = require_torch()
    return tensors.flatten(1).norm(dim=1).clamp_min(torch.finfo(tensors.dtype).tiny)
