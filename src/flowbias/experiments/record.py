"""What a run leaves: the table, the verdicts, what failed, what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flowbias._html import table
from flowbias.experiments._base import Check, Experiment, Preset
from flowbias.experiments.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Failure:
    """A task that could not be computed, and why."""

    task: str
    cause: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.task}: {self.cause}"


@dataclass(frozen=True)
class Counts:
    """Where the results of the tasks came from."""

    computed: int = 0
    cached: int = 0
    stale: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.computed + self.cached + self.stale + self.failed

    def __str__(self) -> str:
        parts = vars(self).items()
        return ", ".join(f"{count} {name}" for name, count in parts if count) or "no tasks"


@dataclass(frozen=True, eq=False)
class Record:
    """One experiment, run at one preset. Without every task there is no table and no verdict."""

    experiment: Experiment
    preset: Preset
    table: Table | None
    checks: tuple[Check, ...]
    failures: tuple[Failure, ...]
    counts: Counts
    #: seconds of computing that the table stands for, summed over tasks, cached ones included
    compute_seconds: float

    @property
    def complete(self) -> bool:
        return self.table is not None

    @property
    def holds(self) -> bool:
        """Whether every task was computed and every check holds."""
        return not self.failures and all(check.holds for check in self.checks)

    def plot(self, path: str | Path | None = None) -> Figure:
        """The figure, written to `path` if given; nothing is computed."""
        if self.table is None:
            raise ValueError(
                f"{self.experiment.name}: {len(self.failures)} tasks failed, the first because "
                f"{self.failures[0]}. Run it again: the tasks that succeeded are kept."
            )
        figure = self.experiment.plot(self.table)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _repr_html_(self) -> str:
        verdict = "holds" if self.holds else "does NOT hold" if self.complete else "INCOMPLETE"
        return table(
            f"{self.experiment.name}, {self.preset}: {verdict}",
            [
                *((c.name, "yes" if c.holds else "NO", c.claim, c.measured) for c in self.checks),
                *(("failed", "", failure.task, failure.cause) for failure in self.failures),
            ],
            head=("check", "holds", "claim", "measured"),
            note=f"{self.experiment.title} [{self.experiment.reference}]. Tasks: {self.counts}.",
        )

    def __repr__(self) -> str:
        lines = [f"Record({self.experiment.name}, {self.preset}: {self.counts}"]
        lines += [f"  {check}" for check in self.checks]
        lines += [f"  failed: {failure}" for failure in self.failures]
        return "\n".join(lines) + ")"
