"""The same tasks on a Dask cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from flowbias.experiments.attempt import Job, Outcome, attempt, failure_of
from flowbias.problem import InputError

# Seconds to wait for a scheduler, and for its first worker, before saying that there is none.
PATIENCE = 8.0


class ClusterError(RuntimeError):
    """A cluster that cannot be used, with advice."""


def check_address(address: str) -> None:
    """Refuse what is no address: Dask would wait long for it."""
    if not re.fullmatch(r"(\w+://)?[^\s/]+:\d{1,5}", address):
        raise InputError(
            f"cluster: must be an address such as tcp://host:8786, got {address!r}. "
            "`dask scheduler` prints its own when it starts."
        )


def run_on_cluster(jobs: Sequence[Job], address: str) -> Iterator[Outcome]:
    """Outcomes as they come. A task whose worker dies is given to another by the scheduler."""
    distributed = _library()
    client = _connected(distributed, address)
    try:
        futures = {
            client.submit(attempt, job, key=f"flowbias {job.fingerprint} {job.task.name}"): job
            for job in jobs
        }
        for future in distributed.as_completed(futures, loop=client.loop):
            yield _outcome(future, futures[future])
            future.release()
    finally:
        # Also on Ctrl-C: futures that nobody holds are dropped by the scheduler.
        client.close(timeout=PATIENCE)


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
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError(
            f"cluster: no scheduler answers at {address!r} ({error}). Start one with "
            "`dask scheduler` and pass the tcp:// address that it prints."
        ) from error
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close(timeout=PATIENCE)
        raise ClusterError(
            f"cluster: the scheduler at {address!r} has no workers. "
            f"Start some with `dask worker {address}`."
        ) from None
    return client


def _outcome(future: Any, job: Job) -> Outcome:
    try:
        outcome: Outcome = future.result()
    except Exception as error:  # the worker was lost, or cannot import what it was sent
        return Outcome(job, None, 0.0, failure_of(job.task.name, error))
    return outcome
