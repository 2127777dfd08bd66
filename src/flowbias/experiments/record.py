"""What a run leaves: the table, the verdicts, what failed or was skipped, what it cost, and where.

`flowbias run NAME --costs FILE` and `flowbias reproduce --costs FILE` add what they measured to a
file; costs.json beside this module is such a file.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from flowbias._version import __version__
from flowbias.datasets.image_sets import CIFAR10, MNIST, ImageSet
from flowbias.datasets.images import shelf_of
from flowbias.experiments._base import Check, Experiment, Preset
from flowbias.experiments.table import Table
from flowbias.ground.arguments import InputError
from flowbias.ground.atomic import write_atomically
from flowbias.ground.html import table
from flowbias.ground.sources import COMPUTING, version_of
from flowbias.ground.typing import Figure
from flowbias.theory import Verdict

# --- what figures need beyond the package: told once before a run, not by tasks that fail ---------


@dataclass(frozen=True)
class Package:
    """A package that an extra of this one brings."""

    name: str
    extra: str

    def there(self) -> bool:
        return find_spec(self.name) is not None


@dataclass(frozen=True)
class Pictures:
    """A data set of pictures in the data folder."""

    images: ImageSet

    def there(self) -> bool:
        shelf = shelf_of(self.images)
        return all(shelf.find(file) is not None for file in self.images.files)


NEEDS: dict[str, Package | Pictures] = {
    "torch": Package("torch", "nets"),
    "cvxpy": Package("cvxpy", "sdp"),
    "MNIST": Pictures(MNIST),
    "CIFAR-10": Pictures(CIFAR10),
}


def missing(needs: Iterable[str]) -> tuple[str, ...]:
    """What of these is not at hand, each once."""
    return tuple(need for need in dict.fromkeys(needs) if not NEEDS[need].there())


def command_for(needs: Iterable[str]) -> str:
    """One line for a shell that gets all of them."""
    chosen = [NEEDS[need] for need in dict.fromkeys(needs)]
    extras = dict.fromkeys(need.extra for need in chosen if isinstance(need, Package))
    pictures = [need.images.name for need in chosen if isinstance(need, Pictures)]
    parts = [f"pip install 'flowbias[{','.join(extras)}]'"] if extras else []
    parts += [f"flowbias data fetch {' '.join(pictures)}"] if pictures else []
    return " && ".join(parts)


# --- one figure -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A task that could not be computed, and why."""

    task: str
    cause: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.task}: {self.cause}"


@dataclass(frozen=True)
class Counts:
    """Where the results of the tasks came from."""

    computed: int = 0
    cached: int = 0
    stale: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        return sum(vars(self).values())

    def __str__(self) -> str:
        parts = vars(self).items()
        return ", ".join(f"{count} {name}" for name, count in parts if count) or "no tasks"


@dataclass(frozen=True, eq=False)
class Record:
    """One experiment, run at one preset. Without every task there is no table and no verdict."""

    experiment: Experiment
    preset: Preset
    table: Table | None
    checks: tuple[Check, ...]
    failures: tuple[Failure, ...]
    counts: Counts
    #: CPU seconds of each task that the table stands for, in their order, cached ones included
    task_seconds: tuple[float, ...]
    #: what it needs and is not at hand: then it is skipped
    lacks: tuple[str, ...] = ()

    @property
    def stand_in(self) -> str:
        """What was computed with in the place of the paper's data, or nothing."""
        return self.experiment.stand_ins(self.preset)

    @property
    def title(self) -> str:
        """What the figure is about, and where its data or settings are not the paper's, that."""
        changes = (f"{name} = {value}" for name, value in self.experiment.changes.items())
        remarks = ", ".join(filter(None, [self.stand_in, *changes]))
        return f"{self.experiment.title}{f' ({remarks})' if remarks else ''}"

    @property
    def complete(self) -> bool:
        return self.table is not None

    @property
    def compute_seconds(self) -> float:
        """CPU seconds of all tasks."""
        return sum(self.task_seconds)

    def seconds_on(self, cores: int) -> float:
        """How long so many idle cores are at it: the next task to the first that is free."""
        free_at = [0.0] * cores
        for seconds in self.task_seconds:
            heapq.heapreplace(free_at, free_at[0] + seconds)
        return max(free_at)

    @property
    def skipped(self) -> str:
        """Why it was not computed, and what changes that; nothing where it was."""
        if not self.lacks:
            return ""
        return f"skipped: needs {', '.join(self.lacks)}. To get that: {command_for(self.lacks)}"

    @property
    def holds(self) -> bool:
        """Whether every task was computed, and every check that says something holds."""
        failing = any(check.verdict is Verdict.FAILS for check in self.checks)
        return not self.failures and not failing and not self.lacks

    def plot(self, path: str | Path | None = None) -> Figure:
        """The figure, written to `path` if given; nothing is computed."""
        if self.lacks:
            raise ValueError(f"{self.experiment.label}: {self.skipped}")
        if self.table is None:
            raise ValueError(
                f"{self.experiment.name}: {len(self.failures)} tasks failed, the first because "
                f"{self.failures[0]}. Run it again: the tasks that succeeded are kept."
            )
        figure = self.experiment.plot(self.table)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _repr_html_(self) -> str:
        verdict = "holds" if self.holds else "does NOT hold" if self.complete else "INCOMPLETE"
        verdict = "skipped" if self.lacks else verdict
        return table(
            f"{self.experiment.label}, {self.preset}: {verdict}",
            [
                *((c.name, _HOLDS[c.verdict], c.claim, c.measured) for c in self.checks),
                *(("failed", "", failure.task, failure.cause) for failure in self.failures),
                *((("skipped", "", self.skipped, ""),) if self.lacks else ()),
            ],
            head=("check", "holds", "claim", "measured"),
            note=f"{self.title} [{self.experiment.reference}]. Tasks: {self.counts}.",
        )

    def __repr__(self) -> str:
        named = f"{self.experiment.label}{f' ({self.stand_in})' if self.stand_in else ''}"
        lines = [f"Record({named}, {self.preset}: {self.counts}"]
        lines += [f"  {check}" for check in self.checks]
        lines += [f"  failed: {failure}" for failure in self.failures]
        lines += [f"  {self.skipped}"] if self.lacks else []
        return "\n".join(lines) + ")"


_HOLDS = {Verdict.HOLDS: "yes", Verdict.FAILS: "NO", Verdict.SILENT: "-"}


def checks_on_stand_ins(records: Sequence[Record]) -> dict[str, int]:
    """How many checks were made on something else than the paper's data, by what that was."""
    counts: Counter[str] = Counter()
    for record in records:
        counts[record.stand_in] += len(record.checks)
    return {what: count for what, count in counts.items() if what and count}


def tally(records: Sequence[Record]) -> str:
    """`217 of 217 checks hold (21 of the 217 on made-up pictures)`."""
    checks = [check for record in records for check in record.checks]
    if not checks:
        return "nothing checked"
    among = [
        f"{count} of the {len(checks)} on {what}"
        for what, count in checks_on_stand_ins(records).items()
    ]
    silent = sum(check.verdict is Verdict.SILENT for check in checks)
    among += [f"{silent} of the {len(checks)} say nothing here"] if silent else []
    hold = "check holds" if len(checks) == 1 else "checks hold"
    remark = f" ({', '.join(among)})" if among else ""
    return f"{sum(check.holds for check in checks)} of {len(checks)} {hold}{remark}"


# --- how it came about ----------------------------------------------------------------------------


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


# --- what each preset of each figure costs: CPU seconds, as runs measured them --------------------


#: Where a maintainer's runs put what `flowbias list` shows.
FILE = "costs.json"


class Cost(NamedTuple):
    """CPU seconds, summed over tasks, the machine that took them, and how many checks held."""

    seconds: float
    machine: str
    held: int = 0
    #: 0 where nobody noted it
    checks: int = 0
    #: from start to end on two idle cores, which share the tasks; None where nobody noted it
    on_two_cores: float | None = None

    @property
    def verdict(self) -> str:
        """`13 of 13`, or `-` where nobody noted it."""
        return f"{self.held} of {self.checks}" if self.checks else "-"


#: By the name of a figure, then by preset.
Costs = Mapping[str, Mapping[str, Cost]]


def known_costs() -> Costs:
    """Those that came with the package."""
    return _parsed(resources.files("flowbias.experiments").joinpath(FILE).read_text("utf-8"))


def note_costs(file: Path, records: Iterable[Record]) -> None:
    """Add to `file` what the records cost: whole ones at the settings of their preset."""
    costs = {name: dict(known) for name, known in _in(file).items()}
    here = f"{processor()}, {cores()} cores"
    for record in records:
        if record.complete and not record.counts.stale and not record.experiment.changes:
            for preset in same_presets(record.experiment, record.preset):
                held = sum(check.holds for check in record.checks)
                seconds, on_two = round(record.compute_seconds, 1), round(record.seconds_on(2), 1)
                cost = Cost(seconds, here, held, len(record.checks), on_two)
                costs.setdefault(record.experiment.name, {})[preset] = cost
    write_atomically(file, _text(costs).encode())


def same_presets(experiment: Experiment, preset: Preset) -> list[Preset]:
    """The presets of a figure that do what this one does."""
    return [each for each in Preset if experiment.settings[each] == experiment.settings[preset]]


def total(costs: Costs, names: Sequence[str], preset: str) -> float | None:
    """Of all of these figures together; None where one was not measured."""
    found = [costs.get(name, {}).get(preset) for name in names]
    known = [cost.seconds for cost in found if cost is not None]
    return sum(known) if len(known) == len(found) else None


def _in(file: Path) -> Costs:
    try:
        return _parsed(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"costs: must be a file that a run has written, but {file} is none ({error}). "
            "Pass the name of a new file."
        ) from error


def _parsed(text: str) -> Costs:
    return {
        name: {preset: Cost(**cost) for preset, cost in known.items()}
        for name, known in json.loads(text).items()
    }


def _text(costs: Costs) -> str:
    plain = {
        name: {preset: known[preset]._asdict() for preset in Preset if preset in known}
        for name, known in sorted(costs.items())
    }
    return json.dumps(plain, indent=1) + "\n"
