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

import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from flowbias.ground.arguments import InputError
from flowbias.ground.atomic import write_atomically
from flowbias.ground.drawing import picture
from flowbias.ground.html import some, table
from flowbias.ground.torch import require_torch
from flowbias.kernels.compare import (
    as_array,
    label_alignment,
    parameter_movement,
    relative_kernel_change,
)
from flowbias.kernels.feature_distance import map_distance
from flowbias.kernels.network import Network, copied, gradients, share_statistics
from flowbias.kernels.tangent import TangentMap
from flowbias.regime.beyond import Beyond, beyond_kernel
from flowbias.regime.data import evenly_spread, fresh_tensors, read_label_rows, vary
from flowbias.regime.diagnosis import finite
from flowbias.regime.drawing import history_panels
from flowbias.regime.thresholds import THRESHOLDS, Evidence, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FORMAT = "flowbias regime history 1"


class Schedule(Protocol):
    """Any object that says which step comes after a given one.

    >>> class OnlyOnce:
    ...     def following(self, step):
    ...         return 1 if step < 1 else 10**9
    >>> schedule: fb.regime.Schedule = OnlyOnce()
    >>> schedule.following(0)
    1
    """

    def following(self, step: int) -> int:
        """The first step after `step` at which to look."""
        ...


@dataclass(frozen=True)
class Geometric:
    """Each step `ratio` times the last, at least one later: 1, 2, 3, 4, 5, 7, 9, ... at 1.25.

    Training moves by factors, not by steps: a million steps are 60 looks.

    Parameters
    ----------
    ratio : > 1

    >>> step, steps = 0, []
    >>> for _ in range(7):
    ...     step = Geometric(1.5).following(step)
    ...     steps.append(step)
    >>> steps
    [1, 2, 3, 5, 8, 12, 18]
    """

    ratio: float = 1.25

    def __post_init__(self) -> None:
        if not 1.0 < self.ratio < math.inf:
            raise InputError(
                f"ratio: must be > 1, got {self.ratio!r}. It is the factor between two looks."
            )

    def following(self, step: int) -> int:
        return max(step + 1, math.ceil(self.ratio * step))


@dataclass(frozen=True)
class Every:
    """Every so many steps.

    Parameters
    ----------
    steps : between two looks

    >>> fb.regime.Every(10).following(3)
    10
    """

    steps: int

    def __post_init__(self) -> None:
        if not self.steps >= 1:
            raise InputError(
                f"steps: must be >= 1, got {self.steps!r}. It is the number between two looks."
            )

    def following(self, step: int) -> int:
        return (step // self.steps + 1) * self.steps


@dataclass(frozen=True)
class Record:
    """The network after `step` steps, against its start, on the probe.

    seconds is time since the start, the monitor's own left out.
    """

    step: int
    seconds: float
    loss: float | None
    kernel_change: float
    grad_distance: float
    parameter_movement: float | None
    label_alignment: float | None
    #: share of what was learned that is beyond the kernel of the start, and its error
    beyond: float | None = None
    beyond_error: float | None = None


@dataclass
class History:
    """Records in the order of steps, and what they cost.

    spent and elapsed: seconds of the monitor, and of training without it. `failure` says why
    recording ended early, if it did.

    >>> import torch
    >>> monitor = fb.regime.Monitor(torch.nn.Linear(2, 1), torch.eye(2))
    >>> type(monitor.history).__name__, len(monitor.history.records)
    ('History', 0)
    """

    records: list[Record] = field(default_factory=list)
    inputs: int = 0
    steps: int = 0
    spent: float = 0.0
    elapsed: float = 0.0
    failure: str | None = None

    @property
    def overhead(self) -> float:
        """The monitor's time as a share of training's."""
        return self.spent / self.elapsed if self.elapsed > 0.0 else 0.0

    @property
    def verdict(self) -> Verdict | None:
        """By the last record, as `diagnose` decides where functions are not compared."""
        if not self.records:
            return None
        last = self.records[-1]
        return THRESHOLDS.decide(Evidence(beyond=last.beyond, turned=last.grad_distance))

    def to_json(self) -> str:
        """All of it; infinities (of a parameter that started at 0) become null."""
        entries = {**asdict(self), "format": _FORMAT}
        return json.dumps(finite(entries), indent=1, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write it as JSON, at once or not at all."""
        text = self.to_json()
        write_atomically(Path(path), text.encode())

    @classmethod
    def load(cls, path: str | Path) -> History:
        """What `save` wrote."""
        file = Path(path)
        try:
            entries = json.loads(file.read_text(encoding="utf-8"))
            if entries.pop("format") != _FORMAT:
                raise KeyError("format")
            records = [Record(**entry) for entry in entries.pop("records")]
            found = cls(records=records, **entries)
            # Texts in the place of numbers would only show when it is drawn or printed.
            repr(found)
            return found
        except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"path: must be a history that Monitor.save wrote, got {str(file)!r}: "
                f"{type(error).__name__}: {error}. Save it again, or pass another file."
            ) from error

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Kernel change and grad distance over steps, and the loss where it was given."""
        return picture(*history_panels(self), path=path, ax=ax)

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{r.step}",
                "" if r.loss is None else f"{r.loss:.3e}",
                f"{r.kernel_change:.4g}",
                f"{r.grad_distance:.4g}",
            )
            for r in _some(self.records)
        ]
        return table(
            self._title,
            rows,
            head=("step", "loss", "kernel change", "grad distance"),
            note=f"ended early: {self.failure}" if self.failure else "",
        )

    @property
    def _title(self) -> str:
        return (
            f"History: {len(self.records)} records over {self.steps} steps, {self.inputs} inputs, "
            f"{self.overhead:.1%} of the training time"
        )

    def __repr__(self) -> str:
        lines = [self._title, *([f"  ended early: {self.failure}"] if self.failure else [])]
        title = f"  {'step':>9} {'loss':>10} {'kernel change':>14} {'grad distance':>14}"
        rows = [
            f"  {r.step:>9} {'' if r.loss is None else f'{r.loss:.3e}':>10} "
            f"{r.kernel_change:>14.4g} {r.grad_distance:>14.4g}"
            for r in _some(self.records)
        ]
        return "\n".join([*lines, title, *rows])


def _some(records: list[Record]) -> list[Record]:
    return [records[i] for i in some(len(records))]


class Monitor:
    """Follows a module that somebody else trains.

    The module is measured in eval mode by a copy: dropout and normalization may stay in training
    mode, and neither it nor torch's random state is touched.

    Parameters
    ----------
    module : the module in training
    x : inputs, of which at most `most_inputs`, evenly spread, are the probe
    y : their labels (classes one-hot), for the alignment of the kernel with them
    schedule : at which steps to look, `Geometric(1.25)` by default, or `Every(100)`
    budget : bound of the time of all looks but the first and the last, as a share of the
        training's; None for none
    most_inputs : of the probe
    max_memory : as for `tangent_kernel`
    clock : what seconds are read from

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
        self.budget, self._clock = budget, clock
        self._start = copied(module).eval()
        self._now = copied(self._start)
        inputs = Network.read(self._start).read_inputs("x", x)
        rows = evenly_spread(len(inputs[0]), most_inputs)
        self._probe = tuple(part[rows] for part in inputs)
        self._labels = None if y is None else read_label_rows(y, len(inputs[0]))[rows]
        self._maps, self._elsewhere = (
            [TangentMap(net, x, max_memory=max_memory) for net in (self._start, self._now)]
            for x in (self._probe, fresh_tensors(self._probe, len(rows)))
        )
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
        self._loss = _detached(loss)
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
        # A look is taken to cost a fifth more than the last one.
        return self.history.spent + 1.2 * self._last_cost <= self.budget * self._elapse()

    def _look(self) -> None:
        """Record where the module is now; what cannot be measured ends the recording, aloud."""
        seconds, loss = self._elapse(), _as_loss(self._loss)
        began = ready = self._clock()
        try:
            self._catch_up()
            if self._kernel is None:
                self._kernel = self._maps[0].kernel(reduce="trace")
                # No later look makes this kernel, nor loads what the first one had to load; one
                # under other statistics does make it.
                ready = began if self.history.records else self._clock()
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
        kernel = self._maps[1].kernel(reduce="trace")
        turned = map_distance(*self._maps)
        learned = self._learned()
        return Record(
            step=self.history.steps,
            seconds=seconds,
            loss=loss,
            kernel_change=relative_kernel_change(self._kernel, kernel),
            grad_distance=turned.overall,
            parameter_movement=parameter_movement(self._start, self._now).overall,
            label_alignment=self._aligned(kernel),
            beyond=learned.share,
            beyond_error=learned.error,
        )

    def _learned(self) -> Beyond:
        """As in a diagnosis: on the probe, or on new inputs where it is more."""
        start, now = (tangent.network.parameters for tangent in self._maps)
        moved = {name: now[name].detach() - part.detach() for name, part in start.items()}
        shares = (
            beyond_kernel(*(as_array(part) for part in (*(at.values() for at in maps), linear)))
            for maps in (self._maps, self._elsewhere)
            for linear in [maps[0].jvp(moved)]
        )
        return max(shares, key=lambda beyond: beyond.share)

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
        if share_statistics(self._start, self._now):
            self._kernel = None

    def _aligned(self, kernel: Any) -> float | None:
        """None without labels, or where those of the probe are all the same."""
        if self._labels is None or not vary(self._labels):
            return None
        return label_alignment(kernel, self._labels)


def _detached(loss: Any) -> Any:
    """A loss without its graph, which would be kept alive, and which `float` warns about."""
    return loss.detach() if isinstance(loss, require_torch().Tensor) else loss


def _as_loss(loss: Any) -> float | None:
    """A number from what a training loop has at hand: a float, or a tensor of one entry."""
    try:
        return None if loss is None else float(loss)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"loss: must be one number, or None, got {type(loss).__name__}: {error}. "
            "Pass for instance loss.mean()."
        ) from error
