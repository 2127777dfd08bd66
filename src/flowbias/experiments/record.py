"""What a run leaves: the table, the verdicts, what failed, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flowbias.experiments._base import Check, Experiment, Preset
from flowbias.experiments.preflight import command_for
from flowbias.experiments.table import Table
from flowbias.ground.html import table
from flowbias.theory import Verdict

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
    skipped: int = 0

    @property
    def total(self) -> int:
        return sum(vars(self).values())

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
    #: CPU seconds that the table stands for, summed over tasks, cached ones included
    compute_seconds: float
    #: what it needs and is not at hand: then it is skipped
    lacks: tuple[str, ...] = ()

    @property
    def stand_in(self) -> str:
        """What was computed with in the place of the paper's data, or nothing."""
        return self.experiment.stand_ins(self.preset)

    @property
    def title(self) -> str:
        """What the figure is about, and where its data or settings are not the paper's, that."""
        changes = (f"{name} = {value}" for name, value in self.experiment.changes.items())
        remarks = ", ".join(filter(None, [self.stand_in, *changes]))
        return f"{self.experiment.title}{f' ({remarks})' if remarks else ''}"

    @property
    def complete(self) -> bool:
        return self.table is not None

    @property
    def skipped(self) -> str:
        """Why it was not computed, and what changes that; nothing where it was."""
        if not self.lacks:
            return ""
        return f"skipped: needs {', '.join(self.lacks)}. To get that: {command_for(self.lacks)}"

    @property
    def holds(self) -> bool:
        """Whether every task was computed, and every check that says something holds."""
        failing = any(check.verdict is Verdict.FAILS for check in self.checks)
        return not self.failures and not failing and not self.lacks

    def plot(self, path: str | Path | None = None) -> Figure:
        """The figure, written to `path` if given; nothing is computed."""
        if self.lacks:
            raise ValueError(f"{self.experiment.label}: {self.skipped}")
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
        verdict = "skipped" if self.lacks else verdict
        return table(
            f"{self.experiment.label}, {self.preset}: {verdict}",
            [
                *((c.name, _HOLDS[c.verdict], c.claim, c.measured) for c in self.checks),
                *(("failed", "", failure.task, failure.cause) for failure in self.failures),
                *((("skipped", "", self.skipped, ""),) if self.lacks else ()),
            ],
            head=("check", "holds", "claim", "measured"),
            note=f"{self.title} [{self.experiment.reference}]. Tasks: {self.counts}.",
        )

    def __repr__(self) -> str:
        named = f"{self.experiment.label}{f' ({self.stand_in})' if self.stand_in else ''}"
        lines = [f"Record({named}, {self.preset}: {self.counts}"]
        lines += [f"  {check}" for check in self.checks]
        lines += [f"  failed: {failure}" for failure in self.failures]
        lines += [f"  {self.skipped}"] if self.lacks else []
        return "\n".join(lines) + ")"


_HOLDS = {Verdict.HOLDS: "yes", Verdict.FAILS: "NO", Verdict.SILENT: "-"}


def checks_on_stand_ins(records: Sequence[Record]) -> dict[str, int]:
    """How many checks were made on something else than the paper's data, by what that was."""
    counts: Counter[str] = Counter()
    for record in records:
        counts[record.stand_in] += len(record.checks)
    return {what: count for what, count in counts.items() if what and count}


def tally(records: Sequence[Record]) -> str:
    """`217 of 217 checks hold (21 of the 217 on made-up pictures)`."""
    checks = [check for record in records for check in record.checks]
    if not checks:
        return "nothing checked"
    among = [
        f"{count} of the {len(checks)} on {what}"
        for what, count in checks_on_stand_ins(records).items()
    ]
    silent = sum(check.verdict is Verdict.SILENT for check in checks)
    among += [f"{silent} of the {len(checks)} say nothing here"] if silent else []
    hold = "check holds" if len(checks) == 1 else "checks hold"
    remark = f" ({', '.join(among)})" if among else ""
    return f"{sum(check.holds for check in checks)} of {len(checks)} {hold}{remark}"
