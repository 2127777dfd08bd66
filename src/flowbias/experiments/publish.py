"""A run as files: the page, and for each figure PNG, SVG and its table as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flowbias.experiments import provenance
from flowbias.experiments.drawing import Drawing
from flowbias.experiments.gallery import drawings_of
from flowbias.experiments.provenance import Provenance, RunStart
from flowbias.experiments.record import Failure, Record
from flowbias.experiments.report import page
from flowbias.experiments.runner import Options, check_folder
from flowbias.ground.atomic import write_atomically
from flowbias.ground.sources import SOURCES

PAGE = "index.html"


class PublishError(OSError):
    """Output that could not be written: which file, and why."""


class Publication(NamedTuple):
    """Where the page is, the records with what could not be drawn, and how long it all took."""

    page: Path
    records: list[Record]
    seconds: float


def publish(
    records: Sequence[Record],
    folder: Path,
    options: Options,
    *,
    command: str,
    start: RunStart,
    page_name: str = PAGE,
) -> Publication:
    """Write the files of every figure, and the page over all of them."""
    check_folder("out", folder)
    hung = drawings_of(records, options)
    shown = [_with_failure(record, hung.get(record.experiment.name)) for record in records]
    drawings = {name: drawing for name, drawing in hung.items() if isinstance(drawing, Drawing)}
    for record in records:
        if record.experiment.name in drawings:
            _write_figure(folder, record, drawings[record.experiment.name])
    seconds = start.seconds_since
    about = Provenance(
        command=command,
        preset=options.preset,
        versions=provenance.versions(),
        sources=SOURCES.digest(),
        machine=provenance.machine(),
        cores=provenance.cores(),
        jobs=None if options.cluster else options.workers,
        cluster=options.cluster,
        started=start.date,
        seconds=seconds,
        keep_stale=options.keep_stale,
    )
    # Last, so that a page never points at files that are not there.
    _write(folder / page_name, page(shown, drawings, about).encode())
    return Publication(folder / page_name, shown, seconds)


def _with_failure(record: Record, drawing: Drawing | Failure | None) -> Record:
    if not isinstance(drawing, Failure):
        return record
    return replace(record, failures=(*record.failures, drawing))


def _write_figure(folder: Path, record: Record, drawing: Drawing) -> None:
    name = record.experiment.name
    _write(folder / f"{name}.png", drawing.png)
    _write(folder / f"{name}.svg", drawing.svg.encode())
    if record.table is not None:
        _write(folder / f"{name}.csv", record.table.csv().encode())


def _write(file: Path, data: bytes) -> None:
    try:
        write_atomically(file, data)
    except OSError as error:
        raise PublishError(
            error.errno,
            f"cannot write {file} ({error.strerror}). Results are kept in the cache: free some "
            "space or pass another folder as out, and run the same command again",
        ) from error
