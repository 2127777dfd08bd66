"""What a run came to: the verdicts, the files, and the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from flowbias.apps.cli.console import columns, complain, results, show
from flowbias.apps.cli.program import ExitCode
from flowbias.experiments import Check, Record
from flowbias.experiments.record import checks_on_stand_ins, tally
from flowbias.theory import Verdict


@dataclass(frozen=True)
class RunReport:
    """The records of a run and where they were written."""

    records: Sequence[Record]
    page: Path
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """Failed tasks count before failed checks: without its tasks a figure has no verdict.

        A figure that was skipped did not fail.
        """
        if any(record.failures for record in self.records):
            return ExitCode.TASKS_FAILED
        holds = all(record.holds for record in self.records if not record.lacks)
        return ExitCode.ALL_WELL if holds else ExitCode.DOUBTFUL

    def show(self, *, debug: bool) -> None:
        """For people: a verdict per check, then where the page is."""
        for record in self.records:
            _show_record(record)
        failures = [failure for record in self.records for failure in record.failures]
        summary = tally(self.records)
        if failures:
            summary += f", failures: {len(failures)}"
        if skipped := sum(bool(record.lacks) for record in self.records):
            summary += f", figures skipped: {skipped}"
        style = "bold green" if self.exit_code is ExitCode.ALL_WELL else "bold red"
        results().print(f"{summary}, {self.seconds:.1f} s", style=style)
        results().print(f"page: {self.page}", soft_wrap=True)
        if debug:
            for failure in failures:
                complain(f"{failure.task}\n{failure.traceback}")
        elif failures:
            complain("The same command tries failed tasks again; --debug shows where they failed.")

    def document(self) -> dict[str, Any]:
        """For machines."""
        return {
            "records": [_entry(record, self.page) for record in self.records],
            "checks": {
                "total": sum(len(record.checks) for record in self.records),
                "hold": sum(check.holds for record in self.records for check in record.checks),
                "on_stand_ins": checks_on_stand_ins(self.records),
            },
            "seconds": self.seconds,
            "page": str(self.page),
            "exit_code": int(self.exit_code),
        }


_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "bold red", Verdict.SILENT: "dim"}


def _show_record(record: Record) -> None:
    console = results()
    experiment = record.experiment
    heading = Text(experiment.label, style="bold")
    heading.append(f"  {record.title} ({experiment.reference})", style="not bold")
    console.print(heading, soft_wrap=True)
    table = columns("", "", "")
    table.show_header = False
    for check in record.checks:
        verdict = Text(check.verdict.value, _STYLES[check.verdict])
        table.add_row("  ", verdict, f"{check.claim} ({check.measured})")
    for failure in record.failures:
        table.add_row("  ", Text("failed", "bold red"), str(failure))
    if record.lacks:
        table.add_row("  ", Text("skipped", "yellow"), record.skipped.removeprefix("skipped: "))
    show(table)
    console.print(f"   {record.counts}, {record.compute_seconds:.1f} s of computing\n", style="dim")


def _entry(record: Record, page: Path) -> dict[str, Any]:
    name = record.experiment.file_name
    files = [page.with_name(f"{name}.{kind}") for kind in ("png", "svg", "csv")]
    return {
        "name": record.experiment.name,
        "changes": dict(record.experiment.changes),
        # What it needs and is not at hand: then it is skipped.
        "lacks": list(record.lacks),
        "preset": record.preset.value,
        # In the place of the paper's data: "made-up pictures", or nothing.
        "stand_in": record.stand_in,
        "counts": vars(record.counts),
        "complete": record.complete,
        "holds": record.holds,
        "checks": [_check(check) for check in record.checks],
        "failures": [vars(failure) for failure in record.failures],
        "seconds": record.compute_seconds,
        # With a failure, some of them may not be there, or be those of an earlier run.
        "files": [] if record.failures or record.lacks else [str(file) for file in files],
        "page": str(page),
    }


def _check(check: Check) -> dict[str, Any]:
    """The words of a check, and the numbers of the comparison that decides."""
    decisive = check.decisive
    return {
        "name": check.name,
        "claim": check.claim,
        "measured": check.measured,
        "holds": check.holds,
        "silence": check.silence,
        "verdict": check.verdict.value,
        "comparison": [decisive.measured, decisive.kind.value, decisive.predicted],
    }
