"""The same tasks on a Dask cluster."""

from __future__ import annotations

import logging
import queue
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flowbias.designs.dask_cluster import ClusterError
from flowbias.experiments.local import Job, Outcome, attempt, failure_of
from flowbias.ground.arguments import InputError

# Seconds to wait for a scheduler, and for its first worker, before saying that there is none.
PATIENCE = 8.0


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
            client.close(timeout=PATIENCE)


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
            future = done.get(timeout=PATIENCE)
        except queue.Empty:
            _require_workers(client, address)
            continue
        yield _outcome(future, futures.pop(future))


def _require_workers(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
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
            found.put(distributed.Client(address, timeout=PATIENCE, set_as_default=False))
        except Exception as error:  # handed over to the thread that waits
            found.put(error)

    # In a thread, because what answers but is no scheduler would be waited for without end.
    threading.Thread(target=connect, daemon=True).start()
    try:
        client = found.get(timeout=PATIENCE + 2.0)
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
        client.close(timeout=PATIENCE)
        raise
    return client


def _outcome(future: Any, job: Job) -> Outcome:
    try:
        outcome: Outcome = future.result()
    except Exception as error:  # the worker was lost, or cannot import what it was sent
        return Outcome(job, None, 0.0, failure_of(job.task.name, error))
    return outcome
