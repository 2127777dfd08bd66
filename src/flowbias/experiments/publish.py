"""A run as files: the page, and for each figure PNG, SVG and its table as CSV.

Drawings are kept like any other result: a figure whose table has not changed is not redrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flowbias.experiments.cache import Cache, DamagedEntryError, Entry, Key, fingerprint_of
from flowbias.experiments.drawing import Drawing, PanelDrawing, draw
from flowbias.experiments.record import (
    Failure,
    Provenance,
    Record,
    RunStart,
    cores,
    machine,
    versions,
)
from flowbias.experiments.report import page
from flowbias.experiments.runner import Options, check_folder
from flowbias.experiments.table import Table
from flowbias.experiments.workers import failure_of, spread
from flowbias.ground.atomic import write_atomically
from flowbias.ground.sources import SOURCES, version_of

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
        versions=versions(),
        sources=SOURCES.digest(),
        machine=machine(),
        cores=cores(),
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
    name = record.experiment.file_name
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


# --- drawings ------------------------------------------------------------------------------------

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def drawings_of(records: Sequence[Record], options: Options) -> dict[str, Drawing | Failure]:
    """The drawing of every complete record by name, or why it could not be drawn."""
    cache = Cache(options.cache_folder)
    complete = [record for record in records if record.complete]
    drawings = {record.experiment.name: _from_cache(cache, record) for record in complete}
    missing = [record for record in complete if drawings[record.experiment.name] is None]
    keys = {record.experiment.name: _key(record) for record in missing}
    for name, drawing in _draw_all(missing, options.workers):
        drawings[name] = drawing
        if isinstance(drawing, Drawing):
            # That results cannot be kept, the run has said already.
            with suppress(OSError):
                cache.store(keys[name], Entry(_packed(drawing), 0.0))
    return {name: drawing for name, drawing in drawings.items() if drawing is not None}


def _draw_all(records: Sequence[Record], workers: int) -> Iterable[tuple[str, Drawing | Failure]]:
    if workers == 1 or len(records) <= 1:
        return map(_attempt, records)
    return spread(_attempt, records, workers)


def _attempt(record: Record) -> tuple[str, Drawing | Failure]:
    name = record.experiment.name
    try:
        return name, draw(record.experiment.panels, _table(record))
    except Exception as error:  # one broken panel must not cost the other figures
        return name, failure_of(f"{name}: its drawing", error)


def _from_cache(cache: Cache, record: Record) -> Drawing | Failure | None:
    try:
        entry = cache.load(_key(record))
    except DamagedEntryError:
        return None  # nothing is lost: the same table gives the same drawing
    return None if entry is None else _unpacked(entry.columns)


def _table(record: Record) -> Table:
    if record.table is None:
        raise ValueError(f"{record.experiment.name}: without its table there is nothing to draw")
    return record.table


def _key(record: Record) -> Key:
    experiment = record.experiment
    task = f"drawing of {_table(record).digest} by matplotlib {version_of('matplotlib')}"
    return Key(experiment.name, task, fingerprint_of(experiment.compute))


def _packed(drawing: Drawing) -> dict[str, np.ndarray[Any, Any]]:
    """A drawing as arrays of bytes; panels are numbered."""
    packed = {"png": _bytes(drawing.png), "svg": _bytes(drawing.svg.encode())}
    for i, panel in enumerate(drawing.panels):
        packed |= {f"{i} {field}": _bytes(text.encode()) for field, text in panel._asdict().items()}
    return packed


def _unpacked(packed: Mapping[str, np.ndarray[Any, Any]]) -> Drawing:
    return Drawing(
        packed["png"].tobytes(), packed["svg"].tobytes().decode(), tuple(_panels(packed))
    )


def _panels(packed: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[PanelDrawing]:
    i = 0
    while f"{i} svg" in packed:
        fields = (packed[f"{i} {field}"].tobytes().decode() for field in PanelDrawing._fields)
        yield PanelDrawing(*fields)
        i += 1


def _bytes(data: bytes) -> _Bytes:
    return np.frombuffer(data, dtype=np.uint8)
