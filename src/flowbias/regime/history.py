"""What a monitor has seen: records that can be saved, loaded and drawn."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowbias._atomic import write_atomically
from flowbias.problem import InputError
from flowbias.regime.diagnosis import finite
from flowbias.regime.thresholds import THRESHOLDS, Verdict

if TYPE_CHECKING:
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

    def plot(self, path: str | Path | None = None) -> Figure:
        """Kernel change, grad distance and loss over steps; written to `path` where given."""
        from flowbias.regime.drawing import draw_history, finished

        return finished(draw_history(self), path)

    def __repr__(self) -> str:
        head = (
            f"History: {len(self.records)} records over {self.steps} steps, {self.inputs} inputs, "
            f"{self.overhead:.1%} of the training time"
        )
        lines = [head, *([f"  ended early: {self.failure}"] if self.failure else [])]
        title = f"  {'step':>9} {'loss':>10} {'kernel change':>14} {'grad distance':>14}"
        rows = [
            f"  {r.step:>9} {'' if r.loss is None else f'{r.loss:.3e}':>10} "
            f"{r.kernel_change:>14.4g} {r.grad_distance:>14.4g}"
            for r in _some(self.records)
        ]
        return "\n".join([*lines, title, *rows])


def _some(records: list[Record], most: int = 12) -> list[Record]:
    """Evenly spread over the list, both ends included."""
    if len(records) <= most:
        return records
    return [records[round(i * (len(records) - 1) / (most - 1))] for i in range(most)]


def as_loss(loss: Any) -> float | None:
    """A number from what a training loop has at hand: a float, or a tensor of one entry."""
    try:
        return None if loss is None else float(loss)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"loss: must be one number, or None, got {type(loss).__name__}: {error}. "
            "Pass for instance loss.mean()."
        ) from error
