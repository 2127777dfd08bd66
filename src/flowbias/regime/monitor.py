"""While a network trains: how far it is from its start, at bounded cost.

    with Monitor(module, x) as monitor:
        for batch in batches:
            ...                       # any optimizer, any loss
            monitor.step(loss)
    monitor.history.plot("regime.png")

It looks at steps of a schedule, on a fixed probe of a few inputs, and only when the time it has
used stays within a share of the time that training took: a look that is due waits until it does.
The first look and, at the end of the block, the last are taken whatever they cost, so that the
shortest training has both.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from flowbias.kernels.compare import label_alignment, parameter_movement, relative_kernel_change
from flowbias.kernels.feature_distance import grad_distance
from flowbias.kernels.network import Network, copied, gradients
from flowbias.kernels.tangent import tangent_kernel
from flowbias.problem import InputError
from flowbias.regime.history import History, Record, as_loss, detached
from flowbias.regime.labels import read_label_rows, vary
from flowbias.regime.schedule import Geometric, Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A look is taken to cost this much more than the last one.
SAFETY = 1.2


class Monitor:
    """Follows a module that somebody else trains.

    `x` are inputs, of which at most `most_inputs`, evenly spread, are the probe; `y` their labels
    (classes one-hot), for the alignment of the kernel with them. `schedule` says at which steps to
    look (`Geometric(1.25)` by default, or `Every(100)`); `budget` bounds the time of all looks but
    the first and the last as a share of the training's, None for no bound. The module is measured
    in eval mode by a copy: dropout and normalization may stay in training mode, and neither it nor
    torch's random state is touched.

    >>> import torch
    >>> net, x = torch.nn.Linear(2, 1), torch.eye(2)
    >>> with fb.regime.Monitor(net, x, schedule=fb.regime.Every(1)) as monitor:
    ...     monitor.step(torch.tensor(1.0))
    >>> [record.step for record in monitor.history.records]
    [1]
    """

    def __init__(
        self,
        module: Any,
        x: Any,
        y: Any = None,
        *,
        schedule: Schedule | None = None,
        budget: float | None = 0.1,
        most_inputs: int = 32,
        max_memory: int | str = "1GiB",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if budget is not None and not budget > 0.0:
            raise InputError(
                f"budget: must be > 0, a share of the training time, got {budget!r}. "
                "Pass None for no bound."
            )
        if not most_inputs >= 1:
            raise InputError(
                f"most_inputs: must be >= 1, got {most_inputs!r}. It is the size of the probe."
            )
        self.module = module
        self.schedule: Schedule = Geometric() if schedule is None else schedule
        self.budget, self.max_memory, self._clock = budget, max_memory, clock
        self._start = copied(module).eval()
        self._now = copied(self._start)
        inputs = Network.read(self._start).read_inputs("x", x)
        rows = np.unique(np.linspace(0, len(inputs[0]) - 1, most_inputs).round().astype(int))
        self._probe = tuple(part[rows.tolist()] for part in inputs)
        self._labels = None if y is None else read_label_rows(y, len(inputs[0]))[rows]
        self._kernel: Any = None
        self._last_cost = 0.0
        self._loss: Any = None
        self.history = History(inputs=len(rows))
        self._due = self._following(0)
        # When training went on, and what its clock and the monitor's own showed then.
        self._entered: float | None = None
        self._before = 0.0

    def __enter__(self) -> Self:
        self._start_clock()
        return self

    def _start_clock(self) -> None:
        """Go on from where training was left, so that pauses between do not count as training."""
        self._before = self.history.elapsed + self.history.spent
        self._entered = self._clock()

    def _following(self, step: int) -> int:
        try:
            return self.schedule.following(step)
        except AttributeError as error:
            raise InputError(
                f"schedule: must have a method `following`, got {self.schedule!r}. "
                "Pass for instance Every(100) or Geometric(1.25)."
            ) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A last look, where training came to its end."""
        seen = self.history.records[-1].step if self.history.records else 0
        if kind is None and self.history.failure is None and self.history.steps > seen:
            self._look()
        self._elapse()
        self._entered = None

    def step(self, loss: Any = None) -> None:
        """To be called after each step of the optimizer; `loss` is kept with the record."""
        if self._entered is None:
            self._start_clock()
        self.history.steps += 1
        self._loss = detached(loss)
        if self.history.steps < self._due or self.history.failure is not None:
            return
        if self._affordable():
            self._look()
            self._due = self._following(self.history.steps)

    def save(self, path: str | Path) -> None:
        """The history as JSON; `History.load` reads it."""
        self._elapse()
        self.history.save(path)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The history so far: see `History.plot`."""
        return self.history.plot(path, ax=ax)

    def _repr_html_(self) -> str:
        return self.history._repr_html_()

    def _elapse(self) -> float:
        """Seconds of training so far, the monitor's own left out."""
        if self._entered is not None:
            passed = self._clock() - self._entered
            self.history.elapsed = self._before + passed - self.history.spent
        return self.history.elapsed

    def _affordable(self) -> bool:
        if self.budget is None or not self.history.records:
            return True
        return self.history.spent + SAFETY * self._last_cost <= self.budget * self._elapse()

    def _look(self) -> None:
        """Record where the module is now; what cannot be measured ends the recording, aloud."""
        seconds, loss = self._elapse(), as_loss(self._loss)
        began = ready = self._clock()
        try:
            if self._kernel is None:
                self._kernel = self._trace_kernel(self._start)
                # No later look makes this kernel, nor loads what the first one had to load.
                ready = self._clock()
            record = self._measure(loss, seconds)
        except InputError as error:
            self.history.failure = f"step {self.history.steps}: {error}"
            warnings.warn(f"the monitor stopped at {self.history.failure}", stacklevel=3)
        else:
            self.history.records.append(record)
        done = self._clock()
        self._last_cost = done - ready
        self.history.spent += done - began

    def _measure(self, loss: float | None, seconds: float) -> Record:
        self._catch_up()
        kernel = self._trace_kernel(self._now)
        turned = grad_distance(self._start, self._now, self._probe, max_memory=self.max_memory)
        return Record(
            step=self.history.steps,
            seconds=seconds,
            loss=loss,
            kernel_change=relative_kernel_change(self._kernel, kernel),
            grad_distance=turned.overall,
            parameter_movement=parameter_movement(self._start, self._now).overall,
            label_alignment=self._aligned(kernel),
        )

    def _catch_up(self) -> None:
        """Our copy takes the values of the module that is trained."""
        with gradients(on=False):
            for ours, theirs in (
                (self._now.parameters(), self.module.parameters()),
                (self._now.buffers(), self.module.buffers()),
            ):
                pairs = list(zip_longest(ours, theirs))
                if any(a is None or b is None or a.shape != b.shape for a, b in pairs):
                    raise InputError(
                        "module: must keep the parameters and buffers that it had at the start, "
                        "got others. Make a new Monitor where the module changes."
                    )
                for target, source in pairs:
                    target.copy_(source)

    def _aligned(self, kernel: Any) -> float | None:
        """None without labels, or where those of the probe are all the same."""
        if self._labels is None or not vary(self._labels):
            return None
        return label_alignment(kernel, self._labels)

    def _trace_kernel(self, module: Any) -> Any:
        return tangent_kernel(module, self._probe, reduce="trace", max_memory=self.max_memory)
