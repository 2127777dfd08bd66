"""Where results come from: the package's own sources and the versions that it computed with."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from flowbias._version import __version__
from flowbias.ground.arguments import InputError
from flowbias.ground.sources import COMPUTING, PACKAGE, fingerprint, version_of


@dataclass(frozen=True)
class RunStart:
    """When a run began: the date for the reader, and a clock that nobody sets to measure from."""

    date: datetime
    ticks: float

    @classmethod
    def now(cls) -> RunStart:
        return cls(datetime.now(UTC), time.monotonic())

    @property
    def seconds_since(self) -> float:
        return time.monotonic() - self.ticks


@dataclass(frozen=True)
class Provenance:
    """How a page came about."""

    command: str
    preset: str
    versions: Mapping[str, str]
    sources: str
    machine: str
    cores: int
    jobs: int | None
    cluster: str | None
    started: datetime
    seconds: float
    keep_stale: bool


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


def versions() -> dict[str, str]:
    """What a reader needs to know to get the same numbers."""
    names = (*COMPUTING, "matplotlib")
    return {
        "flowbias": __version__,
        "python": platform.python_version(),
        **{name: version_of(name) for name in names},
    }


def machine() -> str:
    """System and processor, without the host's name."""
    return f"{platform.system()} {platform.machine()}"


def processor() -> str:
    """The model of the processor where the system tells it, else its kind."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """The cores that this process may use, which a container may have fewer of than the host."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
