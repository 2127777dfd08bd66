"""The package's own sources and the versions that it computes with, here and where work is sent.

Two machines that differ in any of these compute different numbers, if only in the last bits, and
put together they are nobody's. So what is sent to a worker carries the sender's, and is computed
only where they are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
#: A change in any of these may change the last bits of a result.
COMPUTING = ("numpy", "scipy", "torch")
ABSENT = "not installed"


class OtherSourcesError(RuntimeError):
    """A worker that would compute something else than the sender."""


def digest_of(package: Path) -> str:
    """Changes with any line that computes: a mended solver never leaves a stale figure."""
    state = hashlib.sha256()
    for file in sorted(package.rglob("[!.]*.py")):
        if package / "cli" in file.parents:
            continue  # lies above everything that computes: its words change no number
        state.update(f"{file.relative_to(package).as_posix()}\0".encode())
        state.update(hashlib.sha256(file.read_bytes()).digest())
    return state.hexdigest()


#: Taken when this is imported, like the code itself: an edit made later has not been loaded.
SOURCES = digest_of(PACKAGE)


@cache
def version_of(package: str) -> str:
    """The installed version, found without importing the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ABSENT


@cache
def fingerprint(computing: tuple[str, ...] = COMPUTING) -> str:
    """One word for the sources and the versions that results depend on."""
    versions = " ".join(f"{name}={version_of(name)}" for name in computing)
    return hashlib.sha256(f"{SOURCES} {versions}".encode()).hexdigest()[:16]


def require_same(here: str, sender: str) -> None:
    """Raise OtherSourcesError where two fingerprints differ."""
    if here != sender:
        raise OtherSourcesError(
            "this worker has other sources or versions of what results depend on than the sender "
            f"(flowbias, {', '.join(COMPUTING)}, the file of an experiment). Install the same ones "
            "on both."
        )


@dataclass(frozen=True)
class SameSources:
    """A function on its way to a worker, which calls it only if its sources are the sender's."""

    function: Callable[..., Any]
    computing: tuple[str, ...]
    sender: str

    @classmethod
    def of(cls, function: Callable[..., Any], *computing: str) -> SameSources:
        """To be called where flowbias and the packages that it computes with are those of here."""
        return cls(function, computing, fingerprint(computing))

    def __call__(self, *given: Any) -> Any:
        require_same(fingerprint(self.computing), self.sender)
        return self.function(*given)
