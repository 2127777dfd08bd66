"""`flowbias list`, `run` and `reproduce`: the figures that there are, and the page of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowbias.apps.cli.console import columns, results, show, write_json
from flowbias.apps.cli.program import ExitCode, InterruptedRunError, Invocation, Json

if TYPE_CHECKING:
    from flowbias.experiments import Experiment
    from flowbias.experiments.runner import Options


def _names(incomplete: str) -> list[str]:
    """For the completion of the shell."""
    from flowbias.experiments.catalogue import LOADERS

    return [name for name in LOADERS if name.startswith(incomplete)]


def _presets(incomplete: str) -> list[str]:
    from flowbias.experiments import Preset

    return [preset.value for preset in Preset if preset.value.startswith(incomplete)]


Names = Annotated[
    list[str],
    typer.Argument(
        help="Experiments, as `flowbias list` shows them.",
        metavar="NAME",
        show_default=False,
        autocompletion=_names,
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        help="How much: smoke (seconds), laptop (minutes), paper (up to hours), full (the paper's "
        "own settings, whatever they cost); `flowbias list` shows what each costs.",
        metavar="PRESET",
        autocompletion=_presets,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(help="Processes on this machine.", show_default="one per core"),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Compute on this Dask scheduler instead: tcp://host:port.",
        metavar="ADDRESS",
        show_default=False,
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        help="Where finished tasks are kept.",
        metavar="FOLDER",
        show_default="$FLOWBIAS_CACHE, or flowbias in your cache folder",
    ),
]
KeepStale = Annotated[
    bool,
    typer.Option(
        "--keep-stale", help="Use kept results of other sources or versions where none are current."
    ),
]
Out = Annotated[Path, typer.Option(help="Where page, pictures and tables go.", metavar="FOLDER")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting that is not to be as in the preset, such as sparsity=10; as many as you "
        "like. `flowbias list NAME` shows them.",
        metavar="NAME=VALUE",
        show_default=False,
    ),
]
CostFile = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        help="Add the CPU seconds of each figure to this file.",
        metavar="FILE",
        show_default=False,
    ),
]


SomeNames = Annotated[
    list[str] | None,
    typer.Argument(
        help="Experiments whose settings and claims to show; without a name, all in a line each.",
        metavar="[NAME]",
        show_default=False,
        autocompletion=_names,
    ),
]


def list_figures(names: SomeNames = None, json: Json = False) -> None:
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
    from flowbias.experiments.costs import known_costs, total

    known = known_costs()
    # What a laptop takes on; `list NAME` has the others, and a line has its title on it.
    presets = (Preset.SMOKE, Preset.LAPTOP)
    table = columns("name", *presets, "title", right=presets)
    for each in experiments:
        table.add_row(each.name, *(_seconds(_cost(each, preset)) for preset in presets), each.title)
    names = [each.name for each in experiments]
    sums = (_seconds(total(known, names, preset)) for preset in presets)
    table.add_row("all", *sums, "")
    show(table)
    machines = dict.fromkeys(cost.machine for costs in known.values() for cost in costs.values())
    results().print(
        f"\nTime of one core ({'; '.join(machines)}), -: not measured.\n"
        "Other presets, settings, source: flowbias list NAME. "
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
    for setting, value in list(experiment.settings[Preset.LAPTOP].items())[:1]:
        console.print(f"\nChange one: flowbias run {experiment.name} --set {setting}={value!r}\n")


def _cost(experiment: Experiment, preset: str) -> float | None:
    from flowbias.experiments.costs import known_costs, total

    return total(known_costs(), [experiment.name], preset)


def _seconds(cost: float | None) -> str:
    """Short, for a column: minutes too are counted in seconds."""
    if cost is None:
        return "-"
    return f"{cost:.1f} s" if cost < 9.95 else f"{cost:.0f} s"


def _shown(seconds: float | None) -> str:
    from flowbias.experiments.report import duration

    return "-" if seconds is None else duration(seconds)


def _entry(experiment: Experiment) -> dict[str, Any]:
    from flowbias.experiments import Preset
    from flowbias.experiments.costs import known_costs

    known = known_costs().get(experiment.name, {})
    return {
        "name": experiment.name,
        "title": experiment.title,
        "reference": str(experiment.reference),
        "tasks": {preset.value: len(experiment.task_list(preset)) for preset in Preset},
        "cpu_seconds": {preset: cost.seconds for preset, cost in known.items()},
        "settings": {
            name: {
                "may_be": allowed.words,
                **{preset.value: experiment.settings[preset][name] for preset in Preset},
            }
            for name, allowed in experiment.allowed.items()
        },
    }


def run(
    context: typer.Context,
    names: Names,
    preset: Preset = "laptop",
    changes: Changes = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    cache: CacheFolder = None,
    keep_stale: KeepStale = False,
    out: Out = Path("out"),
    costs: CostFile = None,
    json: Json = False,
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
    options = _options(preset, jobs, cluster, cache, keep_stale)
    # Not the page of `reproduce`, which holds all figures.
    page_name = f"{chosen[0].file_name if len(chosen) == 1 else 'selection'}.html"
    return _run(chosen, options, out, page_name, context.obj, json=json, costs=costs)


def reproduce(
    context: typer.Context,
    preset: Preset = "laptop",
    jobs: Jobs = None,
    cluster: Cluster = None,
    cache: CacheFolder = None,
    keep_stale: KeepStale = False,
    out: Out = Path("out"),
    costs: CostFile = None,
    json: Json = False,
) -> ExitCode:
    """Compute all experiments: `flowbias run` with every name."""
    from flowbias.experiments.catalogue import EXPERIMENTS

    options = _options(preset, jobs, cluster, cache, keep_stale)
    return _run(EXPERIMENTS, options, out, "index.html", context.obj, json=json, costs=costs)


def _options(
    preset: str, jobs: int | None, cluster: str | None, cache: Path | None, keep_stale: bool
) -> Options:
    from flowbias.experiments.catalogue import find_preset
    from flowbias.experiments.runner import Options

    return Options(find_preset(preset), jobs, cluster, cache, keep_stale)


def _run(
    experiments: Sequence[Experiment],
    options: Options,
    out: Path,
    page_name: str,
    invocation: Invocation,
    *,
    json: bool,
    costs: Path | None,
) -> ExitCode:
    from flowbias.apps.cli.run_report import RunReport
    from flowbias.experiments.costs import note_costs
    from flowbias.experiments.progress import progress_for
    from flowbias.experiments.provenance import RunStart
    from flowbias.experiments.publish import publish
    from flowbias.experiments.runner import check_folder, run_many

    check_folder("out", out)
    start = RunStart.now()
    try:
        records = run_many(experiments, options, progress_for())
        published = publish(
            records, out, options, command=invocation.command, start=start, page_name=page_name
        )
    except KeyboardInterrupt as stop:
        raise InterruptedRunError(
            "interrupted: finished tasks are kept, and the same command continues from here"
        ) from stop
    if costs is not None:
        note_costs(costs, published.records)
    report = RunReport(published.records, published.page, published.seconds)
    if json:
        write_json(report.document())
    else:
        report.show(debug=invocation.debug)
    return report.exit_code
