"""`flowbias run` and `flowbias reproduce`: compute experiments, judge them, write the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flowbias.apps.cli.console import write_json
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
        help="How much: smoke (seconds), laptop (minutes), paper (the paper's own settings).",
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


def run(
    context: typer.Context,
    names: Names,
    preset: Preset = "laptop",
    jobs: Jobs = None,
    cluster: Cluster = None,
    cache: CacheFolder = None,
    keep_stale: KeepStale = False,
    out: Out = Path("out"),
    json: Json = False,
) -> ExitCode:
    """Compute experiments, check what the papers say of them, write a page.

    Finished tasks are kept: after Ctrl-C, the same command goes on.
    """
    from flowbias.experiments.catalogue import find_experiment

    # Each once, in the order given.
    chosen = [find_experiment(name) for name in dict.fromkeys(names)]
    options = _options(preset, jobs, cluster, cache, keep_stale)
    # Not the page of `reproduce`, which holds all figures.
    page_name = f"{chosen[0].name if len(chosen) == 1 else 'selection'}.html"
    return _run(chosen, options, out, page_name, context.obj, json=json)


def reproduce(
    context: typer.Context,
    preset: Preset = "laptop",
    jobs: Jobs = None,
    cluster: Cluster = None,
    cache: CacheFolder = None,
    keep_stale: KeepStale = False,
    out: Out = Path("out"),
    json: Json = False,
) -> ExitCode:
    """Compute all experiments: `flowbias run` with every name."""
    from flowbias.experiments.catalogue import EXPERIMENTS

    options = _options(preset, jobs, cluster, cache, keep_stale)
    return _run(EXPERIMENTS, options, out, "index.html", context.obj, json=json)


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
) -> ExitCode:
    from flowbias.apps.cli.run_report import RunReport
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
    report = RunReport(published.records, published.page, published.seconds)
    if json:
        write_json(report.document())
    else:
        report.show(debug=invocation.debug)
    return report.exit_code
