"""Tasks side by side, in processes of this machine that end with this one, or on a Dask cluster.

A task gives a result or a cause of failure, never an exception; a process that dies takes no other
task with it.
"""

from __future__ import annotations

import logging
import os
import queue
import re
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
from typing import Any, TypeVar

from flowbias.designs.dask_cluster import ClusterError
from flowbias.experiments._base import Task, checkpoint_at
from flowbias.experiments.cache import fingerprint_of, source_file
from flowbias.experiments.record import Failure
from flowbias.experiments.table import Columns, Table
from flowbias.ground.arguments import InputError
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


# --- the same tasks on a Dask cluster -------------------------------------------------------------

# Seconds to wait for a scheduler, and for its first worker, before saying that there is none.
CLUSTER_PATIENCE = 8.0


def check_address(address: str) -> None:
    """Refuse what is no address: Dask would wait long for it."""
    if not re.fullmatch(r"(tcp://)?[^\s/:]+:\d{1,5}", address):
        raise InputError(
            f"cluster: must be an address such as tcp://host:8786, got {address!r}. "
            "`dask scheduler` prints its own when it starts."
        )


def run_on_cluster(jobs: Sequence[Job], address: str) -> Iterator[Outcome]:
    """Outcomes as they come. A task whose worker dies is given to another by the scheduler."""
    distributed = _library()
    with _quiet("distributed"):
        client = _connected(distributed, address)
        try:
            yield from _outcomes(client, jobs, address)
        finally:
            # Also on Ctrl-C: futures that nobody holds are dropped by the scheduler.
            client.close(timeout=CLUSTER_PATIENCE)


def _outcomes(client: Any, jobs: Sequence[Job], address: str) -> Iterator[Outcome]:
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    futures = {
        client.submit(attempt, job, key=f"flowbias {job.fingerprint} {job.task.name}"): job
        for job in jobs
    }
    for future in futures:
        future.add_done_callback(done.put)
    while futures:
        try:
            future = done.get(timeout=CLUSTER_PATIENCE)
        except queue.Empty:
            _require_workers(client, address)
            continue
        yield _outcome(future, futures.pop(future))


def _require_workers(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=CLUSTER_PATIENCE)
    except (TimeoutError, OSError) as error:
        raise ClusterError(
            f"cluster: the scheduler at {address!r} has no workers, or is gone. Start some with "
            f"`dask worker {address}`; tasks that were finished are kept."
        ) from error


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Lost connections are reported as failures of tasks; their tracebacks say nothing more."""
    log = logging.getLogger(logger)
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _library() -> Any:
    try:
        import distributed
    except ImportError:
        raise ClusterError(
            "cluster: needs the package `distributed`, which is not installed. "
            "Install it with: pip install 'flowbias[cluster]'"
        ) from None
    return distributed


def _connected(distributed: Any, address: str) -> Any:
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def connect() -> None:
        try:
            found.put(distributed.Client(address, timeout=CLUSTER_PATIENCE, set_as_default=False))
        except Exception as error:  # handed over to the thread that waits
            found.put(error)

    # In a thread, because what answers but is no scheduler would be waited for without end.
    threading.Thread(target=connect, daemon=True).start()
    try:
        client = found.get(timeout=CLUSTER_PATIENCE + 2.0)
    except queue.Empty:
        client = TimeoutError("something answers that is no scheduler")
    if isinstance(client, Exception):
        raise ClusterError(
            f"cluster: no scheduler answers at {address!r} ({client}). Start one with "
            "`dask scheduler` and pass the tcp:// address that it prints."
        ) from client
    try:
        _require_workers(client, address)
    except ClusterError:
        client.close(timeout=CLUSTER_PATIENCE)
        raise
    return client


def _outcome(future: Any, job: Job) -> Outcome:
    try:
        outcome: Outcome = future.result()
    except Exception as error:  # the worker was lost, or cannot import what it was sent
        return Outcome(job, None, 0.0, failure_of(job.task.name, error))
    return outcome
