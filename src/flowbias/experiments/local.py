"""Tasks side by side on this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache

from flowbias.experiments.attempt import Job, Outcome, attempt, failure_of

# How often a process looks whether its parent is still there.
_WATCH_SECONDS = 0.5


def run_locally(jobs: Sequence[Job], workers: int) -> Iterator[Outcome]:
    """Outcomes as they come, from `workers` processes; from this one where one is enough."""
    if workers == 1 or len(jobs) <= 1:
        yield from map(attempt, jobs)
        return
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    waiting = {job.task.name: job for job in jobs}
    while waiting:
        before = len(waiting)
        try:
            for outcome in _run_in_processes(list(waiting.values()), workers):
                del waiting[outcome.job.task.name]
                yield outcome
        except TerminatedWorkerError as error:
            # A process that dies takes the pool with it. As long as tasks still get done, go on
            # with a new pool; when none does, one of those that wait is what kills it.
            if len(waiting) == before:
                for job in waiting.values():
                    yield Outcome(job, None, 0.0, failure_of(job.task.name, error))
                return


def _run_in_processes(jobs: Sequence[Job], workers: int) -> Iterator[Outcome]:
    from joblib import Parallel, delayed

    # One task at a time, so that each result reaches the cache as soon as it is there.
    pool = Parallel(n_jobs=workers, batch_size=1, return_as="generator_unordered")
    yield from pool(delayed(_attempt_in_process)(job, os.getpid()) for job in jobs)


def _attempt_in_process(job: Job, parent: int) -> Outcome:
    # Ctrl-C reaches every process of a terminal; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave_with(parent)
    return attempt(job)


@cache
def _leave_with(parent: int) -> None:
    """End this process soon after its parent, which may have been killed and cannot end it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
