"""Image files on disk: where they are, and whether they are the genuine ones to the last bit.

Whatever the source, what is kept is the same: the original files of the data set, uncompressed,
each with its SHA-256 pinned. A file that differs is never read as data.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flowbias.ground.atomic import write_atomically

FOLDER_VARIABLE = "FLOWBIAS_DATA"


class ImageFileError(ValueError):
    """A file that is not the genuine one: names it, what was expected, what was got, the fix."""


class AbsentFileError(ImageFileError):
    """A file that is not there."""


@dataclass(frozen=True)
class PinnedFile:
    """An original file of a data set, uncompressed."""

    name: str
    size: int
    sha256: str

    def is_genuine(self, content: bytes) -> bool:
        """Whether these are its bytes."""
        return hashlib.sha256(content).hexdigest() == self.sha256

    def require(self, content: bytes, where: object, fix: str) -> bytes:
        """The content, or an error that says how it differs."""
        if self.is_genuine(content):
            return content
        raise ImageFileError(
            f"{where}: must be the genuine {self.name} of {self.size} bytes with SHA-256 "
            f"{self.sha256}, got {len(content)} bytes with SHA-256 "
            f"{hashlib.sha256(content).hexdigest()}. {fix}"
        )


class FileState(Enum):
    """What `verify` finds."""

    GENUINE = "genuine"
    ABSENT = "absent"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class FileReport:
    """One pinned file as it is on disk."""

    file: PinnedFile
    state: FileState
    #: the error; empty for a genuine file
    detail: str


@dataclass(frozen=True)
class Shelf:
    """The folders that may hold a data set, the first its own, and the command that fills it.

    Only the first is written to: what other programs keep in the others is never touched.
    """

    folders: tuple[Path, ...]
    fix: str

    @property
    def home(self) -> Path:
        """Where fetched files go."""
        return self.folders[0]

    def read(self, file: PinnedFile) -> bytes:
        """The content of a pinned file, checked; a compressed copy (.gz) serves as well."""
        if (path := self.find(file)) is None:
            raise AbsentFileError(
                f"{self.home / file.name}: must exist, got no such file. {self.fix}"
            )
        content = _CONTENT[path.name.removeprefix(file.name)](path, self.fix)
        return file.require(content, path, self.fix)

    def find(self, file: PinnedFile) -> Path | None:
        """The path of a pinned file, if it is there; its content is not looked at."""
        names = [f"{file.name}{suffix}" for suffix in _CONTENT]
        paths = (folder / name for folder in self.folders for name in names)
        return next((path for path in paths if path.is_file()), None)

    def inspect(self, file: PinnedFile) -> FileReport:
        """Whether a pinned file is there and genuine."""
        try:
            self.read(file)
        except AbsentFileError as error:
            return FileReport(file, FileState.ABSENT, str(error))
        except ImageFileError as error:
            return FileReport(file, FileState.DAMAGED, str(error))
        return FileReport(file, FileState.GENUINE, "")

    def put(self, file: PinnedFile, content: bytes) -> None:
        """Keep a genuine content, whole or not at all."""
        write_atomically(self.home / file.name, content)


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """`folder`, or $FLOWBIAS_DATA, or flowbias/data in the user's cache folder."""
    if folder is not None:
        return Path(folder)
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen)
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise ValueError(
            f"folder: must be given where there is no home folder. Pass one, or set "
            f"{FOLDER_VARIABLE}."
        ) from None
    return cache / "flowbias" / "data"


def _bytes_of(path: Path, fix: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageFileError(f"{path}: must be readable, got {error.strerror}. {fix}") from None


def _unpacked(path: Path, fix: str) -> bytes:
    packed = _bytes_of(path, fix)
    try:
        return gzip.decompress(packed)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ImageFileError(
            f"{path}: must be a whole gzip file, got {len(packed)} bytes ({error}). {fix}"
        ) from None


# By what a name has at its end; a plain file counts before a compressed one.
_CONTENT = {"": _bytes_of, ".gz": _unpacked}
