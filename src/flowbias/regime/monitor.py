"""While a network trains: how far it is from its start, at bounded cost.

    with Monitor(module, x) as monitor:
        for batch in batches:
            ...                       # any optimizer, any loss
            monitor.step(loss)
    monitor.history.plot("regime.png")

It looks at steps of a schedule, and only when all that it has used, the look to come and one more
for the end stay within a share of the time that training took. What a look costs is known before
the first one from the gradients of one input; it starts with as few inputs as leave time for ten
looks within a hundred steps, and takes more as time allows. A look that is due and cannot be paid
for is made up for later.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flowbias.ground.arguments import InputError, as_float, read_count, shown, takes
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.memory import read_bytes
from flowbias.kernels.network import Network, copied, outputs_of_each, unwrapped
from flowbias.regime.data import (
    evenly_spread,
    read_label_rows,
    read_numbers,
    read_practice,
    read_targets,
)
from flowbias.regime.history import Geometric, History, Schedule
from flowbias.regime.probe import Probe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Monitor:
    """Follows a module that somebody else trains.

    The module is measured in eval mode by a copy: dropout and normalization may stay in training
    mode, and neither it nor torch's random state is touched. The loss of every step is kept.

    Parameters
    ----------
    module : the module in training
    x : inputs, as for `diagnose`, of which at most `most_inputs`, evenly spread, are the probe
    y : their labels, numbers or integer classes, for the alignment of the kernel with them
    schedule : at which steps to look, `Geometric(1.25)` by default, or `Every(100)`
    budget : bound of the time of all that the monitor does, its making and the last look too, as a
        share of the training's: one of a few steps may have no record. None for no bound, with all
        outputs of all inputs at each look as far as max_memory holds their gradients
    most_inputs : of the probe
    max_memory : bytes, "1GiB" or "500MB", of the gradients that are held
    clock : what seconds are read from

    >>> import torch
    >>> net, x = torch.nn.Linear(2, 1), torch.eye(2)
    >>> with fb.regime.Monitor(net, x, schedule=fb.regime.Every(1), budget=None) as monitor:
    ...     monitor.step(torch.tensor(1.0))
    >>> [record.step for record in monitor.history.records]
    [1]
    """

    #: looks to be made within the first so many steps, if need be at fewer inputs
    promised: ClassVar[int] = 10
    within: ClassVar[int] = 100

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
        share = None if budget is None else as_float(budget)
        if budget is not None and (share is None or not share > 0.0):
            raise InputError(
                f"budget: must be > 0, a share of the training time, got {budget!r}. "
                "Pass None for no bound."
            )
        read_count("most_inputs", most_inputs, "It is the size of the probe.")
        if not takes(clock, 0) or as_float(clock()) is None:
            raise InputError(
                f"clock: must be a function that returns seconds, got {shown(clock)}. Leave it out "
                "for time.perf_counter."
            )
        self.budget, self._clock = share, clock
        began = clock()
        self.module = unwrapped(module)
        self.schedule: Schedule = Geometric() if schedule is None else schedule
        self._due, self._owed = self._following(0), 0
        with _uncollected():
            self._probe, self._most, forward = self._made(x, y, most_inputs, read_bytes(max_memory))
            self.history = History(spent=clock() - began)
        #: seconds that an input took, act by act; ahead of them a guess, as back takes two forward
        self._rows: list[float] = []
        self._guess = 3.0 * forward
        # Losses on a device, which to read at each step would make training wait.
        self._unread: list[int] = []
        # When training went on, and what its clock and the monitor's own showed then.
        self._entered: float | None = None
        self._before = 0.0

    def _made(self, x: Any, y: Any, most: int, memory: int) -> tuple[Probe, int, float]:
        """The probe, the most inputs that memory is for, and the seconds of a pass forward."""
        (copy,), x, y = read_practice([copied(self.module).eval()], x, y)
        network = Network.read(copy)
        inputs, called = network.cast_inputs("x", x), self._clock()
        outputs = outputs_of_each(network, "x", inputs)
        forward = self._clock() - called
        rows = _spread_order(len(inputs[0]), most)
        labels = None if y is None else _read_labels(y, len(inputs[0]), outputs)[rows]
        # Of each input: at the start, at the start for a new one, now; and half of them once more
        # where they become more.
        held = 4.5 * network.size * network.like.element_size()
        in_full = self.budget is None and outputs * len(rows) * held <= memory
        some = tuple(part[rows] for part in inputs)
        probe = Probe(self.module, network, some, labels, outputs if in_full else 1)
        return probe, max(1, min(len(rows), int(memory // held))), forward

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
        """A last look, where training came to its end, if there is time for it."""
        seen = self.history.records[-1].step if self.history.records else 0
        if kind is None and self.history.failure is None and self.history.steps > seen:
            self._look_if_affordable(last=True)
        self._elapse()
        self._read_losses()
        self._entered = None

    def step(self, loss: Any = None) -> None:
        """To be called after each step of the optimizer; its `loss` is kept."""
        if self._entered is None:
            self._start_clock()
        self.history.steps += 1
        self._keep(loss)
        while self._due <= self.history.steps:
            self._owed, self._due = self._owed + 1, self._following(self._due)
        if self._owed and self.history.failure is None:
            self._look_if_affordable()

    def save(self, path: str | Path) -> None:
        """The history as JSON; `History.load` reads it."""
        self._elapse()
        self._read_losses()
        self.history.save(path)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The history so far: see `History.plot`."""
        self._read_losses()
        return self.history.plot(path, ax=ax)

    def _repr_html_(self) -> str:
        return self.history._repr_html_()

    def _elapse(self) -> float:
        """Seconds of training so far, the monitor's own left out."""
        if self._entered is not None:
            passed = self._clock() - self._entered
            self.history.elapsed = self._before + passed - self.history.spent
        return self.history.elapsed

    def _keep(self, loss: Any) -> None:
        torch = require_torch()
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.device.type != "cpu":
            self._unread.append(len(self.history.losses))
            self.history.losses.append(loss.detach())
        else:
            self.history.losses.append(_as_loss(loss))

    def _read_losses(self) -> None:
        for place in self._unread:
            self.history.losses[place] = _as_loss(self.history.losses[place])
        self._unread.clear()

    def _look_if_affordable(self, *, last: bool = False) -> None:
        if self.budget is None:
            self._look(self._most)
            return
        step = self._elapse() / self.history.steps
        # What an input costs is tried by what the first look needs: its gradient at the start and
        # that of a new one. It takes half a step at the most, or is estimated to take less.
        if not self._probe.inputs and self._room() >= max(2.0 * self._row, 0.5 * step):
            self._grow(1)
        if self._probe.inputs:
            inputs = self._affordable(self._room(), last)
            if inputs:
                self._look(inputs)

    def _room(self) -> float:
        """Seconds that may be spent now."""
        return (self.budget or 0.0) * self._elapse() - self.history.spent

    @property
    def _row(self) -> float:
        """Seconds that an input takes; an act that was interrupted says nothing of the next."""
        return median(self._rows[-3:] or [self._guess])

    @property
    def _each(self) -> int:
        """Gradients of an input; while running statistics move, those of the start once more."""
        return 3 if self._probe.unsettled else 1

    def _affordable(self, room: float, last: bool) -> int:
        """How many inputs to look at in so many seconds, or 0.

        As many as before, or one; more where the looks that are promised can still be made at this
        size, and after these where time for ten such looks is left, or no look is owed. Another
        look must fit in, for the end, unless this is that.
        """
        have, found, history = self._probe.inputs, 0, self.history
        missing = self.promised - len(history.records)
        to_come = max(self.within - history.steps, 0) * history.elapsed / history.steps
        ahead = room + (self.budget or 0.0) * to_come
        inputs = have
        while inputs <= self._most:
            look = 1.1 * self._row * (self._each * inputs + 2 * (inputs - have))
            end = 0.0 if last else self._row * self._each * inputs
            many = self.promised if self._owed > 1 else 1
            further = missing * look <= ahead if missing > 0 else many * look + end <= room
            if look + end > room or not (further or inputs == have):
                break
            found = inputs
            if last or inputs == self._most:
                break
            inputs = min(2 * inputs, self._most)
        return found

    def _grow(self, inputs: int) -> None:
        """Take gradients of the start on more inputs, and note what they cost."""
        more = inputs - self._probe.inputs
        if more and self.history.failure is None:
            cost = self._measured(lambda: self._probe.grow(inputs))
            self._rows.append(cost / (2 * more))

    def _look(self, inputs: int) -> None:
        """Record where the module is now."""
        if inputs > self._probe.inputs:
            self._grow(inputs)
        if self.history.failure is None:
            cost = self._measured(self._record)
            self._rows.append(cost / (self._each * inputs))
            self._owed = max(self._owed - 1, 0)

    def _record(self) -> None:
        self._read_losses()
        history = self.history
        loss = history.losses[-1] if history.losses else None
        history.records.append(self._probe.look(history.steps, history.elapsed, loss))
        self.history.inputs = self._probe.inputs

    def _measured(self, act: Callable[[], None]) -> float:
        """Seconds that it took, counted; what cannot be measured ends the recording, aloud."""
        self._elapse()
        # Without a bound on its time a look may be of thousands of gradients, and needs its memory.
        with nullcontext() if self.budget is None else _uncollected():
            began = self._clock()
            try:
                act()
            except InputError as error:
                self.history.failure = f"step {self.history.steps}: {error}"
                warnings.warn(f"the monitor stopped at {self.history.failure}", stacklevel=4)
            cost = self._clock() - began
        self.history.spent += cost
        return cost


@contextmanager
def _uncollected() -> Iterator[None]:
    """The collector waits until training goes on: the garbage of a few gradients is next to none.

    To go over all objects there are takes it 0.2 s once torch is loaded, as long as fifty looks.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _read_labels(y: Any, samples: int, outputs: int) -> FloatArray:
    """One row per input: of numbers as they are, of classes one-hot."""
    given = read_numbers(y)
    classes = np.issubdtype(given.dtype, np.integer) and 0 < given.size < samples * outputs
    if classes and given.ndim and len(given) == samples:
        return read_targets(y, (samples, outputs)).numbers
    return read_label_rows(y, samples)


def _spread_order(count: int, most: int) -> list[int]:
    """An evenly spread selection of places, halves before quarters before eighths."""
    places = evenly_spread(count, most)
    binary = max(1, (len(places) - 1).bit_length())
    reversed_bits = [int(f"{i:0{binary}b}"[::-1], 2) for i in range(2**binary)]
    return [places[i] for i in reversed_bits if i < len(places)]


def _as_loss(loss: Any) -> float | None:
    """A number from what a training loop has at hand: a float, or a tensor of one entry."""
    try:
        if isinstance(loss, require_torch().Tensor):
            loss = loss.detach()  # its graph would be kept alive, and `float` warn of it
        return None if loss is None else float(loss)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"loss: must be one number, or None, got {type(loss).__name__}: {error}. "
            "Pass for instance loss.mean()."
        ) from error
