"""From the sources to the data folder: what is missing or damaged is fetched, checked and kept."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flowbias.datasets.image_sets import ImageSet
from flowbias.datasets.image_sources import Source, SourceError, files_of
from flowbias.datasets.image_store import (
    FileState,
    ImageFileError,
    PinnedFile,
    Shelf,
    data_folder,
)


class FetchError(OSError):
    """No source could serve: names each with its reason, and what to do by hand."""


@dataclass(frozen=True)
class Fetched:
    """Where the files are now, and which sources they came from; none where all were there."""

    folder: Path
    sources: tuple[str, ...]


def shelf_of(image_set: ImageSet, folder: str | os.PathLike[str] | None = None) -> Shelf:
    """Where a data set is looked for: its folders below the data folder, then that itself."""
    root = data_folder(folder)
    command = f"flowbias data fetch {image_set.name}"
    if folder is not None:
        command += f" --folder {shlex.quote(str(folder))}"
    folders = (*(root / name for name in image_set.folders), root)
    return Shelf(folders, f"To get it: {command}")


def fetch_images(
    image_set: ImageSet,
    folder: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Fetched:
    """Get the files that are missing or damaged, from the first source that has them.

    `tell` hears which source is tried and why one was given up. Raises FetchError.
    """
    shelf = shelf_of(image_set, folder)
    reports = [shelf.inspect(file) for file in image_set.files]
    wanted = {r.file.name: r.file for r in reports if r.state is not FileState.GENUINE}
    served, reasons = [], []
    for source in image_set.sources:
        if not wanted:
            break
        _tell(tell, f"{image_set.name}: {source.title}")
        before = len(wanted)
        try:
            _take(source, wanted, shelf)
        except SourceError as error:
            reasons.append(f"{source.title}: {error}")
            _tell(tell, f"{image_set.name}: not from there: {error}")
        if len(wanted) < before:
            served.append(source.title)
    if wanted:
        raise FetchError(
            f"{image_set.name}: could not be fetched ({'; '.join(reasons)}). "
            f"Put {', '.join(wanted)} into {shelf.home} yourself, compressed (.gz) or not."
        )
    return Fetched(shelf.home, tuple(served))


def _take(source: Source, wanted: dict[str, PinnedFile], shelf: Shelf) -> None:
    """Keep what a source has of the wanted files, and cross it off."""
    with tempfile.TemporaryDirectory(prefix="flowbias-") as scratch:
        for name, content in files_of(source, Path(scratch)):
            if (file := wanted.get(name)) is None:
                continue
            try:
                file.require(content, name, "It is not used.")
            except ImageFileError as error:
                raise SourceError(str(error)) from None
            shelf.put(file, content)
            del wanted[name]
    if wanted:
        raise SourceError(f"it lacks {', '.join(wanted)}")


def _tell(tell: Callable[[str], None] | None, text: str) -> None:
    if tell is not None:
        tell(text)
