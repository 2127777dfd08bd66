"""One task, computed where a worker is: a result or a cause of failure, never an exception."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flowbias.experiments._base import Task
from flowbias.experiments.provenance import fingerprint_of, source_file
from flowbias.experiments.record import Failure
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.torch_task import checkpoint_at
from flowbias.ground.sources import fingerprint, require_same
from flowbias.ground.threads import one_thread_in_every_pool


@dataclass(frozen=True)
class Job:
    """What is sent to a worker."""

    task: Task
    compute: Callable[[Task], Columns]
    #: what its result is kept under, with the file of `compute`
    fingerprint: str
    #: of the sender's package: a worker with other sources would compute another figure
    sender: str
    #: where a long task may keep what it has so far
    checkpoint: Path | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What comes back: the rows of a task, or why there are none."""

    job: Job
    rows: Table | None
    seconds: float
    failure: Failure | None


def attempt(job: Job) -> Outcome:
    """Compute a task with one BLAS thread."""
    started = time.perf_counter()
    rows, failure = None, None
    try:
        _require_same_sources(job)
        with one_thread_in_every_pool(), checkpoint_at(job.checkpoint):
            rows = rows_of(job.task, job.compute(job.task))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of Rust is no Exception, nor is a call of sys.exit
        # It is reported, and the other tasks go on.
        failure = failure_of(job.task.name, error)
    return Outcome(job, rows, time.perf_counter() - started, failure)


def rows_of(task: Task, columns: Columns) -> Table:
    """The computed columns beside the part and the settings of their task."""
    if not isinstance(columns, Mapping):
        raise TypeError(f"compute must return columns by name, got {type(columns).__name__}")
    settings = {"part": task.part, **dict(task.settings)}
    if taken := settings.keys() & columns.keys():
        raise ValueError(f"columns {sorted(taken)} are settings of the task: rename them")
    return Table.of({**settings, **columns})


def failure_of(task: str, error: BaseException) -> Failure:
    """The cause in a line, and where it arose."""
    try:
        text = str(error) or "no message"
    except Exception:  # an exception may be broken itself
        text = "its message cannot be shown"
    where = "".join(traceback.format_exception(error))
    return Failure(task, f"{type(error).__name__}: {text}", where)


def _require_same_sources(job: Job) -> None:
    # A function that was sent by value has no file here, and needs none.
    by_value = source_file(job.compute) is None
    here = fingerprint() if by_value else fingerprint_of(job.compute)
    require_same(here, job.sender if by_value else job.fingerprint)
