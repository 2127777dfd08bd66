"""Tasks side by side on this machine, in processes that end with this one.

A task gives a result or a cause of failure, never an exception; a process that dies takes no other
task with it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import resource_tracker
from pathlib import Path
from pickle import PicklingError
from typing import TypeVar

from flowbias.experiments._base import Task
from flowbias.experiments.provenance import fingerprint_of, source_file
from flowbias.experiments.record import Failure
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.torch_task import checkpoint_at
from flowbias.ground.sources import fingerprint, require_same
from flowbias.ground.threads import one_thread_in_every_pool

Given = TypeVar("Given")
Made = TypeVar("Made")


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
    #: of the processor, which others who share it do not change
    seconds: float
    failure: Failure | None


def attempt(job: Job) -> Outcome:
    """Compute a task with one BLAS thread."""
    started = time.process_time()
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
    return Outcome(job, rows, time.process_time() - started, failure)


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


# --- many tasks ----------------------------------------------------------------------------------


def run_locally(jobs: Sequence[Job], workers: int) -> Iterator[Outcome]:
    """Outcomes as they come, from `workers` processes; from this one where one is enough."""
    if workers == 1 or len(jobs) <= 1:
        yield from map(attempt, jobs)
        return
    waiting = {job.task.name: job for job in jobs}
    while waiting:
        before = len(waiting)
        try:
            for outcome in spread(attempt, list(waiting.values()), workers):
                del waiting[outcome.job.task.name]
                yield outcome
        except _lost_on_the_way():
            # A process that dies takes the pool with it, as does a task that cannot be sent. As
            # long as tasks still get done, go on with a new pool; when none does, one of those that
            # wait is what kills it.
            if len(waiting) == before:
                yield from _one_by_one(waiting.values())
                return


def _one_by_one(jobs: Iterable[Job]) -> Iterator[Outcome]:
    """Each task in a process of its own, so that one that dies fails alone."""
    for job in jobs:
        try:
            yield from spread(attempt, [job], 1)
        except _lost_on_the_way() as error:
            yield Outcome(job, None, 0.0, failure_of(job.task.name, error))


def _lost_on_the_way() -> tuple[type[Exception], ...]:
    """What is raised where a process died, or a task or its result cannot travel."""
    from joblib.externals.loky.process_executor import BrokenProcessPool

    return BrokenProcessPool, PicklingError


# --- processes -----------------------------------------------------------------------------------


def spread(
    function: Callable[[Given], Made], things: Sequence[Given], workers: int
) -> Iterator[Made]:
    """Results as they come. Raises joblib's TerminatedWorkerError where a process dies."""
    from joblib import Parallel, delayed

    # A process that has loaded torch has grown so much that the pool takes it for a leak and puts
    # another in its place, at no loss; it says so from a thread, out of reach of a context.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    # At least two, or joblib would not use processes; one at a time, so that each result is here
    # as soon as it is there.
    count = max(2, min(workers, len(things)))
    pool = Parallel(n_jobs=count, batch_size=1, return_as="generator_unordered")
    with _interrupts_kept_from_children():
        results = pool(delayed(_apply)(function, thing, os.getpid()) for thing in things)
    yield from results


def _apply(function: Callable[[Given], Made], thing: Given, parent: int) -> Made:
    _leave_with(parent)
    return function(thing)


@contextmanager
def _interrupts_kept_from_children() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal; the parent alone answers it.

    Blocked while processes are started, because they inherit that; what arrives meanwhile is
    delivered to this one at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows, whose Ctrl-C works otherwise
        yield
        return
    from joblib.externals.loky.backend import resource_tracker as joblibs_tracker

    # They start with the first process, and the start of either lifts the block: up to Python 3.13
    # and up to joblib 1.5.
    resource_tracker.ensure_running()
    joblibs_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@cache
def _leave_with(parent: int, every: float = 0.5) -> None:
    """End this process soon after its parent, which may have been killed and cannot end it.

    It looks whether its parent is still there `every` so many seconds.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
