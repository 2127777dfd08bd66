"""What training returns: its course, how it ended, and what to try if that is not the wish."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.drawing import course, picture
from flowbias.ground.html import facts
from flowbias.ground.progress import Show, shown
from flowbias.ground.typing import Axes, Figure, FloatArray


def epochs_shown(total: int, progress: bool | None) -> AbstractContextManager[Show]:
    """A bar over `total` epochs on a terminal, unless `progress` is False."""
    return shown("training", total, wanted=progress is not False)


class TrainingStatus(Enum):
    """How training ended; each failure carries its remedy."""

    CONVERGED = "converged: the target was reached after {epochs} epochs, loss {loss:.3e}"
    STOPPED = (
        "stopped after {epochs} epochs at loss {loss:.3e} with the target not reached; raise "
        "max_epochs, or step_size as long as it is stable"
    )
    COMPLETED = "completed: {epochs} epochs as asked, with no target to reach, loss {loss:.3e}"
    HALTED = "halted by the callback after {epochs} epochs at loss {loss:.3e}"
    DIVERGED = (
        "diverged after {epochs} epochs: loss {loss:.3e} from {first:.3e} at the start; lower "
        "step_size (stable below 2 / (c lambda), lambda the largest eigenvalue of the tangent "
        "kernel, c the constant of the loss), or start at a smaller scale"
    )

    @property
    def ok(self) -> bool:
        return self in (TrainingStatus.CONVERGED, TrainingStatus.COMPLETED)


@dataclass(frozen=True, eq=False)
class Training:
    """The course of a training: the loss of all samples after `recorded` epochs.

    Entry 0 belongs to the start, before any step. `accuracies` is None where targets are no
    classes.
    """

    recorded: NDArray[np.int64]
    losses: FloatArray
    accuracies: FloatArray | None
    status: TrainingStatus
    seconds: float
    #: what a callback returned at each of the epochs, NaN where that was no number
    notes: FloatArray = field(default_factory=lambda: np.empty(0))
    #: above this many times the larger of the loss at the start and that of the zero predictor it
    #: has left for good: a stable step never multiplies the loss by so much
    diverged_above: ClassVar[float] = 1e6

    @property
    def epochs(self) -> int:
        """Epochs done: passes over the data, which are steps where the batch is all of it."""
        return int(self.recorded[-1])

    @property
    def loss(self) -> float:
        """The loss at the end."""
        return float(self.losses[-1])

    @property
    def accuracy(self) -> float | None:
        """The share of samples classified rightly at the end."""
        return None if self.accuracies is None else float(self.accuracies[-1])

    @property
    def message(self) -> str:
        """How it ended, in words."""
        return self.status.value.format(
            epochs=self.epochs, loss=self.loss, first=float(self.losses[0])
        )

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The loss over epochs; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            course(axes, self.recorded.astype(float), self.losses, label="loss")
            axes.set_xlabel("epochs")
            axes.set_title(self.status.name)

        return picture(panel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        return facts(
            f"Training: {self.status.name}",
            {
                "epochs": f"{self.epochs}",
                "loss at the start": float(self.losses[0]),
                "loss at the end": self.loss,
                "accuracy": self.accuracy,
                "seconds": f"{self.seconds:.3g}",
            },
            note=self.message,
        )

    def __repr__(self) -> str:
        share = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        return f"Training({self.message}{share}, {self.seconds:.1f} s)"
