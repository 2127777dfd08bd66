"""`flowbias list`, `run` and `reproduce`: the figures that there are, and the page of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowbias.apps.cli.console import columns, complain, results, show, write_json
from flowbias.apps.cli.program import (
    FILE,
    ExitCode,
    InterruptedRunError,
    Invocation,
    Json,
    known_names,
    with_options,
)

if TYPE_CHECKING:
    from flowbias.experiments import Check, Experiment, Record


def _known() -> Iterable[str]:
    from flowbias.experiments.catalogue import LOADERS

    return LOADERS


def _presets(incomplete: str) -> list[str]:
    from flowbias.experiments import Preset

    return [preset.value for preset in Preset if preset.value.startswith(incomplete)]


_ALL = "Experiments whose settings and claims to show; without a name, all in a line each."


def list_figures(
    names: Annotated[list[str] | None, known_names(_ALL, "[NAME]", _known)] = None,
    json: Json = False,
) -> None:
    """List the experiments, with what each preset costs; of those named, the settings too."""
    from flowbias.experiments.catalogue import EXPERIMENTS, find_experiment

    chosen = [find_experiment(name) for name in dict.fromkeys(names or [])]
    if json:
        write_json({"experiments": [_entry(each) for each in chosen or EXPERIMENTS]})
    elif chosen:
        for each in chosen:
            _show_one(each)
    else:
        _show_all(EXPERIMENTS)


def _show_all(experiments: Sequence[Experiment]) -> None:
    from flowbias.experiments import Preset
    from flowbias.experiments.record import known_costs, total

    known = known_costs()
    presets = tuple(Preset)
    table = columns("name", *presets, "title", right=presets)
    for each in experiments:
        table.add_row(each.name, *(_seconds(_cost(each, preset)) for preset in presets), each.title)
    names = [each.name for each in experiments]
    sums = (_seconds(total(known, names, preset)) for preset in presets)
    table.add_row("all", *sums, "")
    show(table)
    machines = dict.fromkeys(cost.machine for costs in known.values() for cost in costs.values())
    results().print(
        f"\nSeconds of one core ({'; '.join(machines)}), -: not measured.\n"
        "Settings and source: flowbias list NAME. "
        "Run it: flowbias run NAME --preset smoke"
    )


def _show_one(experiment: Experiment) -> None:
    from flowbias.experiments import Preset

    console = results()
    console.print(f"{experiment.name}  {experiment.title} ({experiment.reference})", style="bold")
    console.print(f"{experiment.summary}\n")
    presets = tuple(preset.value for preset in Preset)
    table = columns("setting", "may be", *presets)
    for name, allowed in experiment.allowed.items():
        table.add_row(
            name, allowed.words, *(str(experiment.settings[preset][name]) for preset in Preset)
        )
    table.add_row("(tasks)", "", *(str(len(experiment.task_list(preset))) for preset in Preset))
    costs = (_cost(experiment, preset) for preset in Preset)
    table.add_row("(time of one core)", "", *map(_shown, costs))
    show(table)
    if experiment.genuine:
        settings = ", ".join(f"{name} {value}" for name, value in experiment.genuine.items())
        console.print(f"\nsmoke where the data are at hand: {settings}.")
    at_laptop, smaller = experiment.settings[Preset.LAPTOP], experiment.settings[Preset.SMOKE]
    others = [name for name, value in smaller.items() if value != at_laptop[name]]
    # Numbers first: to set them asks for no other data.
    for setting in sorted(others, key=lambda name: not experiment.allowed[name].number)[:1]:
        value = smaller[setting]
        console.print(f"\nChange one: flowbias run {experiment.name} --set {setting}={value!r}\n")


def _cost(experiment: Experiment, preset: str) -> float | None:
    from flowbias.experiments.record import known_costs, total

    return total(known_costs(), [experiment.name], preset)


def _seconds(cost: float | None) -> str:
    """Short, for a column of seconds: a line has its title on it."""
    if cost is None:
        return "-"
    return f"{cost:.1f}" if cost < 9.95 else f"{cost:.0f}"


def _shown(seconds: float | None) -> str:
    from flowbias.experiments.report import duration

    return "-" if seconds is None else duration(seconds)


def _entry(experiment: Experiment) -> dict[str, Any]:
    from flowbias.experiments import Preset
    from flowbias.experiments.record import known_costs

    known = known_costs().get(experiment.name, {})
    return {
        "name": experiment.name,
        "title": experiment.title,
        "reference": str(experiment.reference),
        "tasks": {preset.value: len(experiment.task_list(preset)) for preset in Preset},
        "cpu_seconds": {preset: cost.seconds for preset, cost in known.items()},
        "seconds_on_two_cores": {preset: cost.on_two_cores for preset, cost in known.items()},
        # Of smoke, where the paper's data are at hand.
        "genuine": dict(experiment.genuine),
        "settings": {
            name: {
                "may_be": allowed.words,
                **{preset.value: experiment.settings[preset][name] for preset in Preset},
            }
            for name, allowed in experiment.allowed.items()
        },
    }


@dataclass(frozen=True)
class RunOptions:
    """How figures are computed, and where they go."""

    preset: Annotated[
        str,
        typer.Option(
            help="How much: smoke (seconds), laptop (minutes), paper (up to hours), full (the "
            "paper's own settings, whatever they cost); `flowbias list` shows what each costs.",
            metavar="PRESET",
            autocompletion=_presets,
        ),
    ] = "laptop"
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes on this machine.", show_default="one per core"),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Compute on this Dask scheduler instead: tcp://host:port.",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            help="Where finished tasks are kept.",
            metavar="FOLDER",
            show_default="$FLOWBIAS_CACHE, or flowbias in your cache folder",
        ),
    ] = None
    keep_stale: Annotated[
        bool,
        typer.Option(
            "--keep-stale",
            help="Use kept results of other sources or versions where none are current.",
        ),
    ] = False
    out: Annotated[
        Path, typer.Option(help="Where page, pictures and tables go.", metavar="FOLDER")
    ] = Path("out")
    costs: Annotated[
        Path | None,
        typer.Option("--costs", help="Add the CPU seconds of each figure to this file.", **FILE),
    ] = None
    json: Json = False


@with_options
def run(
    context: typer.Context,
    names: Annotated[
        list[str], known_names("Experiments, as `flowbias list` shows them.", "NAME", _known)
    ],
    options: RunOptions,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting that is not to be as in the preset, such as sparsity=10; as many as "
            "you like. `flowbias list NAME` shows them.",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
) -> ExitCode:
    """Compute experiments, check what the papers say of them, write a page.

    Finished tasks are kept: after Ctrl-C, the same command goes on. What is not
    at hand (torch, cvxpy, pictures) is said before, and what needs it is skipped.
    """
    from flowbias.experiments.catalogue import find_experiment
    from flowbias.experiments.settings import read_assignments

    changed = read_assignments(changes or [])
    # Each once, in the order given.
    chosen = [find_experiment(name).varied(changed) for name in dict.fromkeys(names)]
    # Not the page of `reproduce`, which holds all figures.
    page_name = f"{chosen[0].file_name if len(chosen) == 1 else 'selection'}.html"
    return _run(chosen, options, page_name, context.obj)


@with_options
def reproduce(context: typer.Context, options: RunOptions) -> ExitCode:
    """Compute all experiments: `flowbias run` with every name."""
    from flowbias.experiments.catalogue import EXPERIMENTS

    return _run(EXPERIMENTS, options, "index.html", context.obj)


def _run(
    experiments: Sequence[Experiment], asked: RunOptions, page_name: str, invocation: Invocation
) -> ExitCode:
    from flowbias.experiments.catalogue import find_preset
    from flowbias.experiments.progress import progress_for
    from flowbias.experiments.publish import publish
    from flowbias.experiments.record import RunStart, note_costs
    from flowbias.experiments.runner import Options, check_folder, run_many

    preset = find_preset(asked.preset)
    options = Options(preset, asked.jobs, asked.cluster, asked.cache, asked.keep_stale)
    check_folder("out", asked.out)
    start = RunStart.now()
    try:
        records = run_many(experiments, options, progress_for())
        published = publish(
            records,
            asked.out,
            options,
            command=invocation.command,
            start=start,
            page_name=page_name,
        )
    except KeyboardInterrupt as stop:
        raise InterruptedRunError(
            "interrupted: finished tasks are kept, and the same command continues from here"
        ) from stop
    if asked.costs is not None:
        note_costs(asked.costs, published.records)
    report = RunReport(published.records, published.page, published.seconds)
    if asked.json:
        write_json(report.document())
    else:
        report.show(debug=invocation.debug)
    return report.exit_code


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
        from flowbias.experiments.record import tally

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
        from flowbias.experiments.record import checks_on_stand_ins

        return {
            "records": [_record_entry(record, self.page) for record in self.records],
            "checks": {
                "total": sum(len(record.checks) for record in self.records),
                "hold": sum(check.holds for record in self.records for check in record.checks),
                "on_stand_ins": checks_on_stand_ins(self.records),
            },
            "seconds": self.seconds,
            "page": str(self.page),
            "exit_code": int(self.exit_code),
        }


def _show_record(record: Record) -> None:
    from rich.text import Text

    from flowbias.theory import Verdict

    styles = {Verdict.HOLDS: "green", Verdict.FAILS: "bold red", Verdict.SILENT: "dim"}
    console = results()
    experiment = record.experiment
    heading = Text(experiment.label, style="bold")
    heading.append(f"  {record.title} ({experiment.reference})", style="not bold")
    console.print(heading, soft_wrap=True)
    table = columns("", "", "")
    table.show_header = False
    for check in record.checks:
        verdict = Text(check.verdict.value, styles[check.verdict])
        table.add_row("  ", verdict, f"{check.claim} ({check.measured})")
    for failure in record.failures:
        table.add_row("  ", Text("failed", "bold red"), str(failure))
    if record.lacks:
        table.add_row("  ", Text("skipped", "yellow"), record.skipped.removeprefix("skipped: "))
    show(table)
    console.print(f"   {record.counts}, {record.compute_seconds:.1f} s of computing\n", style="dim")


def _record_entry(record: Record, page: Path) -> dict[str, Any]:
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
