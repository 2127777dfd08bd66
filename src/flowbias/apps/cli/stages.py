"""`flowbias stages`: the whole path of a vanishing start, which feature wakes and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowbias.apps.cli.console import columns, results, show, show_data
from flowbias.apps.cli.program import (
    FILE,
    DataOptions,
    Depth,
    ExitCode,
    Json,
    Tolerance,
    with_options,
)

if TYPE_CHECKING:
    from flowbias.apps.data_files.regression_data import RegressionData
    from flowbias.limits import StagePath


@with_options
def stages(
    data: DataOptions,
    depth: Depth = 2.0,
    max_stages: Annotated[
        int | None,
        typer.Option(help="Stop after so many stages, the first of which is w = 0."),
    ] = None,
    tol: Tolerance = 1e-10,
    json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Picture (.png, .svg) or all numbers (.csv, .npz).", **FILE),
    ] = None,
) -> ExitCode:
    """Follow gradient flow from a vanishing start, from one resting point to the next.

    At each a feature wakes or falls asleep. Every stage is the least-squares
    fit on its features; the last one fits DATA with the least l1 norm.
    Nothing is integrated, all of it is proved; exit code 1 says that it could not be.
    """
    from flowbias.apps.cli.files import check_output, deliver
    from flowbias.limits import stages as solve
    from flowbias.models import DiagonalNet

    # Of a start that vanishes only the shape is left: any scale will do.
    network = DiagonalNet(depth, 1.0)
    check_output(out, tuple(_WRITERS), data.data)
    read = data.read()
    path = solve(network, read.problem, max_stages=max_stages, tol=tol, throw=False)
    document = (lambda: _document(read, path)) if json else None
    deliver(out, lambda ending: _WRITERS[ending](read, path), document, lambda: _show(read, path))
    return ExitCode.ALL_WELL if path.status.ok else ExitCode.DOUBTFUL


def _show(data: RegressionData, path: StagePath) -> None:
    console = results()
    show_data(data)
    names = ("stage", "tau", "features", "residual", "what happens")
    table = columns(*names, right=names[:-1])
    for k, stage in enumerate(path):
        told = (event.told_of(data.name(event.feature)) for event in path.events_at(k))
        cells = f"{stage.time:.6g}", f"{len(stage.support)}", f"{path.residual[k]:.1e}"
        table.add_row(f"{k}", *cells, ", ".join(told))
    show(table)
    style = "bold green" if path.status.ok else "bold red"
    console.print(f"{path.status.name}: {path.message}", style=style, soft_wrap=True)


def _document(data: RegressionData, path: StagePath) -> dict[str, Any]:
    return data.document(
        depth=path.model.depth,
        status=path.status.name,
        certified=path.status.ok,
        whole=path.is_whole,
        message=path.message,
        certificate=asdict(path.certificate),
        seconds=path.stats.seconds,
        tau=path.times.tolist(),
        residual=path.residual.tolist(),
        events=[event._asdict() for event in path.events],
        w=path.w.tolist(),
    )


def _picture(data: RegressionData, path: StagePath, kind: str) -> bytes:
    from flowbias.apps.cli.files import picture_bytes

    return picture_bytes(path.plot(names=data.names), kind)


def _csv(data: RegressionData, path: StagePath) -> bytes:
    from flowbias.apps.data_files import csv_bytes

    names = [data.name(i) for i in range(data.problem.X.shape[1])]
    rows = (
        [float(tau), float(residual), *map(float, w)]
        for tau, residual, w in zip(path.times, path.residual, path.w, strict=True)
    )
    return csv_bytes(["tau", "residual", *names], rows)


def _npz(data: RegressionData, path: StagePath) -> bytes:
    from flowbias.apps.data_files import npz_bytes

    return npz_bytes(
        {
            "tau": path.times,
            "residual": path.residual,
            "w": path.w,
            "depth": path.model.depth,
            "status": path.status.name,
            "whole": path.is_whole,
            **asdict(path.certificate),
        }
    )


_WRITERS: dict[str, Callable[[RegressionData, StagePath], bytes]] = {
    ".png": partial(_picture, kind="png"),
    ".svg": partial(_picture, kind="svg"),
    ".csv": _csv,
    ".npz": _npz,
}
