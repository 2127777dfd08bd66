"""Results kept on disk: one file per task, whole or not at all, never a pickle.

An entry is a NumPy archive with its columns and a description of itself, followed by a digest of
all its bytes. Anything that does not match, to the last bit, is not used.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.atomic import write_atomically
from flowbias.ground.sources import PACKAGE, fingerprint

_SEAL = b"\nsha256 "


class DamagedEntryError(Exception):
    """An entry whose bytes are not those that were written, or that cannot be read."""


@dataclass(frozen=True)
class Key:
    """What a result depends on."""

    experiment: str
    task: str
    #: sources and versions, from `fingerprint_of`
    fingerprint: str


def source_file(compute: Callable[..., Any]) -> Path | None:
    """The file that defines a function, under its decorators; None where there is none."""
    code = getattr(inspect.unwrap(compute), "__code__", None)
    file = Path(code.co_filename) if code is not None else None
    return file if file is not None and file.is_file() else None


@cache
def fingerprint_of(compute: Callable[..., Any]) -> str:
    """Changes with any line that `compute` may run: a mended solver leaves no stale figure.

    Of this package those are the modules behind its own, and a comment in the explorer is none of
    them; where its file is not of this package, that file and all of the package.
    """
    file = source_file(compute)
    if file is None:
        raise InputError(
            f"compute: must be a function defined in a file, got {compute!r}. Put it into a "
            "module: the cache has to see whether it changed."
        )
    if PACKAGE in file.resolve().parents:
        return fingerprint(module=inspect.unwrap(compute).__module__)
    own = hashlib.sha256(file.read_bytes()).hexdigest()
    return hashlib.sha256(f"{fingerprint()} {own}".encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Entry:
    """A result: its columns, their CPU seconds, and whether other sources computed them."""

    columns: Mapping[str, np.ndarray[Any, Any]]
    seconds: float
    stale: bool = False


def default_folder() -> Path:
    """$FLOWBIAS_CACHE, or flowbias in the user's cache folder."""
    if chosen := os.environ.get("FLOWBIAS_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowbias"
    except RuntimeError as error:
        raise InputError(
            "cache: must be given where there is no home folder. Pass one, or set FLOWBIAS_CACHE."
        ) from error


@dataclass(frozen=True)
class Cache:
    """A folder of entries: experiment/task.fingerprint.npz. Presets share the tasks they share."""

    folder: Path

    def file(self, key: Key) -> Path:
        """Where the entry of `key` is, or would be."""
        return self._home(key) / f"{_short(key.task)}.{key.fingerprint}.npz"

    def checkpoint(self, key: Key) -> Path:
        """Where a task that takes long keeps what it has so far; gone once its entry is kept."""
        return self.file(key).with_suffix(".checkpoint")

    def load(self, key: Key) -> Entry | None:
        """The entry of exactly this key, or None. Raises DamagedEntryError."""
        return _read(self.file(key), key)

    def load_stale(self, key: Key) -> Entry | None:
        """The newest intact entry of the same task by whatever sources and versions, or None."""
        files = self._home(key).glob(f"{_short(key.task)}.*.npz")
        for file in sorted(files, key=_written, reverse=True):
            fingerprint = file.name.split(".")[1]
            try:
                entry = _read(file, Key(key.experiment, key.task, fingerprint))
            except DamagedEntryError:
                continue  # an older one may be whole; if none is, the task is computed
            if entry is not None:
                return replace(entry, stale=True)
        return None

    def store(self, key: Key, entry: Entry) -> None:
        """Keep an entry. Raises OSError where the folder cannot be written or is full."""
        buffer = io.BytesIO()
        names = list(entry.columns)
        description = json.dumps({**vars(key), "seconds": entry.seconds, "columns": names})
        # Numbered: a column may have any name, also one that NumPy uses itself.
        members = {f"column{i}": entry.columns[name] for i, name in enumerate(names)}
        np.savez(buffer, allow_pickle=False, description=np.array(description), **members)
        write_atomically(self.file(key), _sealed(buffer.getvalue()))
        # Those that other sources left behind are of no use to anyone.
        for unfinished in self._home(key).glob(f"{_short(key.task)}.*.checkpoint"):
            unfinished.unlink(missing_ok=True)

    def _home(self, key: Key) -> Path:
        return self.folder / key.experiment


def _written(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:  # deleted meanwhile, or a link to nowhere
        return 0


def _short(task: str) -> str:
    return hashlib.sha256(task.encode()).hexdigest()[:24]


def _sealed(archive: bytes) -> bytes:
    # Bytes behind an archive do not disturb its readers: np.load opens a sealed file as it is.
    return archive + _SEAL + hashlib.sha256(archive).hexdigest().encode()


def _read(file: Path, key: Key) -> Entry | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedEntryError(f"{file} cannot be read: {error.strerror}") from error
    archive = content[: -len(_sealed(b""))]
    # Before anything is parsed: what passes is what was written.
    if content != _sealed(archive):
        raise DamagedEntryError(f"{file} is damaged: its bytes do not match their digest")
    try:
        columns, description = _parsed(archive)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DamagedEntryError(f"{file} is not a cache entry: {error}") from error
    seconds = description.pop("seconds", 0.0)
    if description != vars(key):
        raise DamagedEntryError(f"{file} holds another result: {description}")
    return Entry(columns, seconds)


def _parsed(archive: bytes) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    with np.load(io.BytesIO(archive), allow_pickle=False) as members:
        description = json.loads(str(members["description"]))
        names = enumerate(description.pop("columns"))
        return {name: members[f"column{i}"] for i, name in names}, description
