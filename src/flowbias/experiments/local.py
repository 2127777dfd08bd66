"""Tasks side by side on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pickle import PicklingError

from flowbias.experiments.attempt import Job, Outcome, attempt, failure_of
from flowbias.experiments.processes import spread


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
