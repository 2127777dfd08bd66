"""What a `Monitor` keeps of a training, and the schedules that it looks by."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flowbias.ground.arguments import InputError, as_float
from flowbias.ground.atomic import write_atomically
from flowbias.ground.drawing import picture
from flowbias.ground.html import some, table
from flowbias.regime.diagnosis import finite
from flowbias.regime.drawing import history_panels
from flowbias.regime.thresholds import THRESHOLDS, Grounds, Verdict

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
        ratio = as_float(self.ratio)
        if ratio is None or not 1.0 < ratio < math.inf:
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
        steps = as_float(self.steps)
        if steps is None or not 1.0 <= steps < math.inf:
            raise InputError(
                f"steps: must be >= 1, got {self.steps!r}. It is the number between two looks."
            )

    def following(self, step: int) -> int:
        return (step // self.steps + 1) * self.steps


@dataclass(frozen=True)
class Record:
    """The network after `step` steps, against its start, on the probe of so many inputs.

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
    inputs: int | None = None


@dataclass
class History:
    """Records in the order of steps, the loss at every step, and what records cost.

    spent and elapsed: seconds of the monitor, and of training without it. `inputs` are those of the
    last record. `failure` says why recording ended early, if it did.

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
    losses: list[float | None] = field(default_factory=list)

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
        return THRESHOLDS.decide(Grounds(beyond=last.beyond, turned=last.grad_distance))

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

    def write_scalars(self, writer: Any, prefix: str = "regime") -> None:
        """All numbers to a TensorBoard SummaryWriter, or whatever has its `add_scalar`."""
        for step, loss in enumerate(self.losses, 1):
            if loss is not None:
                writer.add_scalar(f"{prefix}/loss", loss, step)
        for record in self.records:
            for name, value in asdict(record).items():
                if value is not None and name not in ("step", "loss"):
                    writer.add_scalar(f"{prefix}/{name}", value, record.step)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Kernel change, features, what was learned and movement over steps; the loss of each."""
        return picture(*history_panels(self), path=path, ax=ax)

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{r.step}",
                "" if r.loss is None else f"{r.loss:.3e}",
                f"{r.kernel_change:.4g}",
                f"{r.grad_distance:.4g}",
                "" if r.beyond is None else f"{r.beyond:.1%}",
            )
            for r in _some(self.records)
        ]
        return table(
            self._title,
            rows,
            head=("step", "loss", "kernel change", "grad distance", "beyond"),
            note=self._note or "",
        )

    @property
    def _note(self) -> str | None:
        if self.failure:
            return f"ended early: {self.failure}"
        if self.steps and not self.records:
            return "no look fitted into the budget: a longer training has some, budget=None all"
        return None

    @property
    def _title(self) -> str:
        count, listed = len(self.records), len(_some(self.records))
        some = "" if listed == count else f" ({listed} of them listed)"
        return (
            f"History: {count} records{some} over {self.steps} steps, {self.inputs} inputs, "
            f"{self.overhead:.1%} of the training time"
        )

    def __repr__(self) -> str:
        lines = [self._title, *([f"  {self._note}"] if self._note else [])]
        title = (
            f"  {'step':>9} {'loss':>10} {'kernel change':>14} {'grad distance':>14} {'beyond':>8}"
        )
        rows = [
            f"  {r.step:>9} {'' if r.loss is None else f'{r.loss:.3e}':>10} "
            f"{r.kernel_change:>14.4g} {r.grad_distance:>14.4g} "
            f"{'' if r.beyond is None else f'{r.beyond:.1%}':>8}"
            for r in _some(self.records)
        ]
        return "\n".join([*lines, title, *rows])


def _some(records: list[Record]) -> list[Record]:
    return [records[i] for i in some(len(records))]
