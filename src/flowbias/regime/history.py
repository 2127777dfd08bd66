"""What a monitor has seen: records that can be saved, loaded and drawn."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowbias._atomic import write_atomically
from flowbias._drawing import picture
from flowbias._html import some, table
from flowbias._torch import require_torch
from flowbias.problem import InputError
from flowbias.regime.diagnosis import finite
from flowbias.regime.drawing import history_panels
from flowbias.regime.thresholds import THRESHOLDS, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FORMAT = "flowbias regime history 1"


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
        """By the kernel's change at the last record: rough, `diagnose` is better."""
        if not self.records:
            return None
        return THRESHOLDS.by_kernel_change(self.records[-1].kernel_change)

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


def detached(loss: Any) -> Any:
    """A loss without its graph, which would be kept alive, and which `float` warns about."""
    return loss.detach() if isinstance(loss, require_torch().Tensor) else loss


def as_loss(loss: Any) -> float | None:
    """A number from what a training loop has at hand: a float, or a tensor of one entry."""
    try:
        return None if loss is None else float(loss)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"loss: must be one number, or None, got {type(loss).__name__}: {error}. "
            "Pass for instance loss.mean()."
        ) from error
