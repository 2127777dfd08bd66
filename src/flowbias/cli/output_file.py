"""Files that a command was asked to write: refused early where hopeless, written whole or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flowbias._atomic import write_atomically
from flowbias.problem import InputError


class OutputError(OSError):
    """Output that could not be written, with the file and the reason."""


def check_output(file: Path, suffixes: Sequence[str], data: Path) -> None:
    """Refuse, before anything is computed, what cannot or must not be written afterwards."""
    if file.exists() and data.exists() and file.samefile(data):
        raise InputError(f"--out: must not be DATA itself, got {str(file)!r}. It would be lost.")
    if file.suffix.lower() not in suffixes:
        raise InputError(f"--out: must end in {' or '.join(suffixes)}, got {str(file)!r}.")
    if file.is_dir():
        raise InputError(f"--out: must be a file, got the folder {str(file)!r}.")
    nearest = next((place for place in file.parents if place.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise InputError(f"--out: must be in a folder, but {str(nearest)!r} is a file.")


def write_file(file: Path, content: bytes) -> None:
    """Write the file, or leave what was there and raise OutputError."""
    try:
        write_atomically(file, content)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"--out: cannot write {str(file)!r}: {reason}.") from error
