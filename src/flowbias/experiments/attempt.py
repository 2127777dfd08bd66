"""One task, computed where a worker is: a result or a cause of failure, never an exception."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from flowbias.experiments._base import Task
from flowbias.experiments.one_thread import one_thread
from flowbias.experiments.provenance import fingerprint
from flowbias.experiments.record import Failure
from flowbias.experiments.table import Columns, Table


@dataclass(frozen=True)
class Job:
    """What is sent to a worker."""

    task: Task
    compute: Callable[[Task], Columns]
    #: what its result is kept under, with the file of `compute`
    fingerprint: str
    #: of the sender's package: a worker with other sources would compute another figure
    sender: str


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
        with one_thread():
            rows = rows_of(job.task, job.compute(job.task))
    except Exception as error:  # whatever it is, it is reported and the other tasks go on
        failure = failure_of(job.task.name, error)
    return Outcome(job, rows, time.perf_counter() - started, failure)


def rows_of(task: Task, columns: Columns) -> Table:
    """The computed columns beside the part and the settings of their task."""
    settings = {"part": task.part, **dict(task.settings)}
    if taken := settings.keys() & columns.keys():
        raise ValueError(f"columns {sorted(taken)} are settings of the task: rename them")
    return Table.of({**settings, **columns})


def failure_of(task: str, error: BaseException) -> Failure:
    """The cause in a line, and where it arose."""
    text = str(error) or "no message"
    where = "".join(traceback.format_exception(error))
    return Failure(task, f"{type(error).__name__}: {text}", where)


def _require_same_sources(job: Job) -> None:
    if (here := fingerprint()) != job.sender:
        raise RuntimeError(
            f"this worker runs other sources or versions of flowbias, numpy, scipy or torch "
            f"({here}) than the sender ({job.sender}). Install the same ones on both."
        )
