"""The package's own sources and the versions that it computes with, here and where work is sent.

Two machines that differ in any of these compute different numbers, if only in the last bits, and
put together they are nobody's. So what is sent to a worker carries the sender's, and is computed
only where they are the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]
#: A change in any of these may change the last bits of a result.
COMPUTING = ("numpy", "scipy", "torch")
ABSENT = "not installed"

#: Called, but not imported, by the module that it is handed to: what stands behind that one too.
HANDED_IN = {"flowbias.flows.destination": "flowbias.limits.solve"}


class OtherSourcesError(RuntimeError):
    """A worker that would compute something else than the sender."""


_IMPORT = re.compile(r"^ *from (flowbias[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_COMMENT = re.compile(r"#.*")
_NAME = re.compile(r"(\w+)(?: as (\w+))?")


class Import(NamedTuple):
    """`from module import name as alias`."""

    module: str
    name: str
    alias: str


@dataclass(frozen=True)
class Sources:
    """A package's files as they are now, by the names of their modules."""

    digests: Mapping[str, bytes]
    #: by module: the names that it has from others, inside functions too, and whose they are
    imports: Mapping[str, tuple[Import, ...]]
    packages: frozenset[str]

    @classmethod
    def of(cls, folder: Path) -> Sources:
        files = {_module_of(file, folder): file for file in sorted(folder.rglob("[!.]*.py"))}
        texts = {name: file.read_bytes() for name, file in files.items()}
        return cls(
            {name: hashlib.sha256(text).digest() for name, text in texts.items()},
            {name: tuple(_imported(text.decode())) for name, text in texts.items()},
            frozenset(name for name, file in files.items() if file.stem == "__init__"),
        )

    def behind(self, module: str) -> set[str]:
        """The modules from which `module` has what it calls, itself among them."""
        found: set[str] = set()
        left = [module]
        while left:
            here = left.pop()
            if here in self.digests and here not in found:
                found.add(here)
                left += [HANDED_IN[here]] if here in HANDED_IN else []
                for taken in self.imports[here]:
                    *passed, home = self._way_home(taken)
                    found.update(passed)
                    left.append(home)
        return found

    def _way_home(self, taken: Import) -> list[str]:
        """The packages that hand a name on, whatever else they hand on, then where it is made."""
        if f"{taken.module}.{taken.name}" in self.digests:
            return [f"{taken.module}.{taken.name}"]
        if taken.module in self.packages:
            for inner in self.imports[taken.module]:
                if inner.alias == taken.name:
                    return [taken.module, *self._way_home(inner)]
        return [taken.module]

    def digest(self, modules: Iterable[str] | None = None) -> str:
        """Of these modules, or of all: changes with any line of theirs."""
        state = hashlib.sha256()
        for name in sorted(self.digests if modules is None else modules):
            state.update(f"{name}\0".encode() + self.digests[name])
        return state.hexdigest()


def _module_of(file: Path, folder: Path) -> str:
    """`package.folder.file`, where a folder's own file has the folder's name."""
    parts = file.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(text: str) -> Iterator[Import]:
    for module, names in _IMPORT.findall(_COMMENT.sub("", text)):
        for name, alias in _NAME.findall(names):
            yield Import(module, name, alias or name)


#: Taken when this is imported, like the code itself: an edit made later has not been loaded.
SOURCES = Sources.of(PACKAGE)


@cache
def version_of(package: str) -> str:
    """The installed version, found without importing the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ABSENT


@cache
def fingerprint(computing: tuple[str, ...] = COMPUTING, module: str | None = None) -> str:
    """One word for the versions that results depend on, and the sources: all, or behind one."""
    sources = SOURCES.digest(None if module is None else SOURCES.behind(module))
    versions = " ".join(f"{name}={version_of(name)}" for name in computing)
    return hashlib.sha256(f"{sources} {versions}".encode()).hexdigest()[:16]


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
