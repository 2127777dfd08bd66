"""What commands are given and what they write. Nothing is ever unpickled, or written by halves."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from flowbias.apps.cli.console import results, write_json
from flowbias.apps.data_files.regression_data import (
    AS_IT_IS,
    FileReading,
    RegressionData,
    arrays_of,
    from_csv,
    from_npz,
)
from flowbias.ground.arguments import InputError
from flowbias.ground.atomic import write_atomically
from flowbias.ground.drawing import STYLE
from flowbias.ground.typing import Figure

T = TypeVar("T")
STDIN = Path("-")


def read_data(file: Path, reading: FileReading = AS_IT_IS) -> RegressionData:
    """The data of a file, or an InputError that says where in the file the trouble is."""
    data = read_kind(
        file,
        {
            ".npz": lambda content: from_npz(content, reading),
            ".csv": lambda content: from_csv(content, reading),
        },
    )
    return data._replace(source="standard input" if file == STDIN else str(file))


def read_kind(file: Path, readers: Mapping[str, Callable[[BinaryIO], T]]) -> T:
    """What is in DATA, by its ending; `-` is standard input, and read by what it holds."""
    if file == STDIN:
        content = sys.stdin.buffer.read()
        try:
            return readers[".npz" if content.startswith(b"PK") else ".csv"](io.BytesIO(content))
        except InputError as error:
            raise InputError(f"standard input: {error}") from error
    try:
        read = readers[file.suffix.lower()]
    except KeyError:
        kinds = " or ".join(readers)
        alone = file.suffix.lower() == ".npy"
        fix = "Put both arrays into one file" if alone else "In Python"
        raise InputError(
            f"DATA: must end in {kinds}, got {str(file)!r}. {fix}: np.savez('data.npz', X=X, y=y)."
        ) from None
    return read_file("DATA", file, read)


def read_file(argument: str, file: Path, read: Callable[[BinaryIO], T]) -> T:
    """What is in the file of an argument; InputError where it cannot be had."""
    try:
        if file.is_dir():
            raise InputError(f"{argument}: must be a file, got the folder {str(file)!r}.")
        with file.open("rb") as content:
            return read(content)
    except FileNotFoundError:
        raise InputError(
            f"{argument}: must be a file, but {str(file)!r} does not exist. Check the path."
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{argument}: cannot read {str(file)!r}: {reason}.") from error
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def require_extra() -> None:
    # Looked for, not loaded: bad words on the command line are complained about at once.
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "regime: must have torch to differentiate modules with, which is not installed. "
            "Install the extra `nets`: pip install 'flowbias[nets]'."
        )


def read_scales(text: str) -> list[float]:
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0.0 < value < float("inf") for value in values):
        raise InputError(
            f"--scales: must be numbers > 0 with commas between them, got {text!r}. "
            "Pass for instance 0.1,1,10."
        )
    return values


def read_module(place: str) -> Any:
    """What the factory returns; whatever the user's code raises is shown as theirs."""
    name, colon, function = place.partition(":")
    if not (name and colon and function):
        raise InputError(
            f"FACTORY: must name a module and a function in it, got {place!r}. "
            "Pass for instance my_networks:make."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"FACTORY: must be a module that can be imported, got {name!r}: "
            f"{type(error).__name__}: {error}. Run from the folder that holds it, or set "
            "PYTHONPATH."
        ) from error
    make = getattr(found, function, None)
    if not callable(make):
        raise InputError(
            f"FACTORY: must name a function of {name}, got {function!r}, which "
            f"{'it does not have' if make is None else 'cannot be called'}. Check its spelling."
        )
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise InputError(
            f"FACTORY: must return a module when called without arguments, got "
            f"{type(error).__name__} from {place}: {error}. Wrap it in a function that takes none."
        ) from error


def read_arrays(file: Path) -> tuple[Any, Any]:
    """X and y of a .npz file; X may have any number of dimensions."""
    return read_file("--data", file, arrays_of)


class OutputError(OSError):
    """Output that could not be written, with the file and the reason."""


def check_output(
    file: Path | None, suffixes: Sequence[str], data: Path, option: str = "--out"
) -> None:
    """Refuse, before anything is computed, what cannot or must not be written afterwards."""
    if file is None:
        return
    if file.exists() and data.exists() and file.samefile(data):
        raise InputError(f"{option}: must not be DATA itself, got {str(file)!r}. It would be lost.")
    if file.suffix.lower() not in suffixes:
        raise InputError(f"{option}: must end in {' or '.join(suffixes)}, got {str(file)!r}.")
    if file.is_dir():
        raise InputError(f"{option}: must be a file, got the folder {str(file)!r}.")
    nearest = next((place for place in file.parents if place.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise InputError(f"{option}: must be in a folder, but {str(nearest)!r} is a file.")


def write_file(file: Path, content: bytes, option: str = "--out") -> None:
    """Write the file, or leave what was there and raise OutputError."""
    try:
        write_atomically(file, content)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{option}: cannot write {str(file)!r}: {reason}.") from error


def deliver(
    out: Path | None,
    content: Callable[[str], bytes],
    document: Callable[[], Mapping[str, Any]] | None,
    show: Callable[[], None],
) -> None:
    """What a command on DATA ends with: its file, made for an ending, then a document or words."""
    if out is not None:
        write_file(out, content(out.suffix.lower()))
    if document is not None:
        write_json(document())
        return
    show()
    if out is not None:
        results().print(f"written to {out}", soft_wrap=True)


def picture_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a file. The same figure gives the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    dateless = {"Date": None} if kind == "svg" else None
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=kind, dpi=150, metadata=dateless)
    return buffer.getvalue()
