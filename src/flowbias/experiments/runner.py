"""Runs experiments: what the cache holds is taken from there, the rest is computed and kept.

Results are collected by the name of their task and put together in the order of the task list, so
that a table does not depend on who computed what when, nor on how often the run was interrupted.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from flowbias.experiments._base import Check, Experiment, Preset, Task
from flowbias.experiments.cache import (
    Cache,
    DamagedEntryError,
    Entry,
    Key,
    default_folder,
    fingerprint_of,
)
from flowbias.experiments.catalogue import find_experiment, find_preset
from flowbias.experiments.progress import RunProgress, progress_for
from flowbias.experiments.record import Counts, Failure, Record, command_for, cores, missing
from flowbias.experiments.table import Table
from flowbias.experiments.workers import (
    Job,
    Outcome,
    check_address,
    failure_of,
    run_locally,
    run_on_cluster,
)
from flowbias.ground.arguments import InputError
from flowbias.ground.progress import SCREEN
from flowbias.ground.sources import fingerprint


@dataclass(frozen=True)
class Options:
    """How to run: how much, where, and what to do with results of other sources."""

    preset: Preset = Preset.LAPTOP
    #: processes on this machine; one per core unless given
    jobs: int | None = None
    #: address of a Dask scheduler, instead of this machine
    cluster: str | None = None
    cache: Path | None = None
    #: use results that other sources or versions computed, where there are no current ones
    keep_stale: bool = False

    def __post_init__(self) -> None:
        _check_jobs(self.jobs)
        if self.cluster is not None:
            check_address(self.cluster)
        check_folder("cache", self.cache_folder)

    @property
    def cache_folder(self) -> Path:
        return default_folder() if self.cache is None else Path(self.cache)

    @property
    def workers(self) -> int:
        return cores() if self.jobs is None else int(self.jobs)


def check_folder(what: str, folder: Path) -> None:
    """Refuse, before hours of computing, what is no folder and cannot become one."""
    for place in (folder, *folder.parents):
        try:
            found = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is made when it is needed, unless a parent is a file
        except (OSError, ValueError) as error:  # too long, not to be looked at, a null byte
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"{what}: must be a folder, but {str(place)!r} cannot be one ({reason}). "
                "Pass another one."
            ) from error
        if stat.S_ISDIR(found.st_mode) or place.is_dir():
            return
        raise InputError(f"{what}: must be a folder, but {place} is none. Pass another one.")


def _check_jobs(jobs: object) -> None:
    if jobs is not None and not (isinstance(jobs, Integral) and int(jobs) >= 1):
        raise InputError(
            f"jobs: must be an integer >= 1, got {jobs!r}. "
            f"Leave it out for one process per core ({cores()} here)."
        )


def run(
    experiment: str | Experiment,
    *,
    preset: str = Preset.LAPTOP,
    settings: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: str | Path | None = None,
    keep_stale: bool = False,
    progress: RunProgress | None = None,
) -> Record:
    """Run one experiment, by name or of your own, and judge its table.

    Parameters
    ----------
    experiment : a name, such as "woodworth-fig1", or an `Experiment`
    preset : "smoke", "laptop", "paper" or "full"
    settings : those that are not to be as in the preset; `flowbias list woodworth-fig1` shows what
        there is. What a caption says of other settings than its own is then silent
    jobs : processes at a time
    cluster : address of a Dask scheduler, in place of processes
    cache : folder of results, by default $FLOWBIAS_CACHE
    keep_stale : whether kept results of other sources or versions are used where none are current
    progress : who is told of finished tasks

    Returns
    -------
    Record with table and checks; `.plot()` draws it

    Raises
    ------
    InputError for an unknown name, preset or setting
    ClusterError where the cluster cannot be reached

    >>> record = fb.experiments.run("woodworth-fig2", preset="smoke", jobs=1)
    >>> record.holds, len(record.checks)
    (True, 9)
    >>> record = fb.experiments.run("min-fig1", preset="smoke", settings={"points": 6}, jobs=1)
    >>> record.experiment.label, len(record.table)
    ('min-fig1 points=6', 36)
    """
    chosen = find_experiment(experiment) if isinstance(experiment, str) else experiment
    chosen = chosen.varied(settings or {})
    folder = None if cache is None else Path(cache)
    options = Options(find_preset(preset), jobs, cluster, folder, keep_stale)
    return run_many([chosen], options, progress)[0]


def run_many(
    experiments: Sequence[Experiment], options: Options, progress: RunProgress | None = None
) -> list[Record]:
    """Run experiments with their tasks in one queue, so that no core waits for a figure to end."""
    this = _Run(options, progress_for() if progress is None else progress)
    experiments = [_on_data_at_hand(experiment, options) for experiment in experiments]
    for experiment in experiments:
        this.look_up(experiment)
    this.compute_rest()
    return [this.record(experiment) for experiment in experiments]


def _on_data_at_hand(experiment: Experiment, options: Options) -> Experiment:
    """Smoke with the paper's data where they are here; nobody knows what workers elsewhere have."""
    if not experiment.genuine or options.preset is not Preset.SMOKE or options.cluster is not None:
        return experiment
    genuine = experiment.on_genuine_data
    lacks = _lacks(genuine, genuine.task_list(Preset.SMOKE))
    # A changed setting may ask for stand-ins, and those have their own sizes.
    return experiment if lacks or genuine.stand_ins(Preset.SMOKE) else genuine


def _lacks(experiment: Experiment, tasks: Iterable[Task]) -> tuple[str, ...]:
    return missing(need for task in tasks for need in experiment.needs(task))


def _verdicts(experiment: Experiment, table: Table, preset: Preset) -> tuple[Check, ...]:
    """The checks; where the data are not the paper's, each claim says so itself."""
    varied = bool(experiment.changes)
    checks = _at_other_settings(experiment, table) if varied else tuple(experiment.check(table))
    for check in checks:
        if not isinstance(check, Check):
            raise TypeError(f"check must give Check objects, got {check!r}")
    stand_in = experiment.stand_ins(preset)
    if not stand_in:
        return checks
    return tuple(check.reworded(f"{stand_in}: {check.claim}") for check in checks)


def _at_other_settings(experiment: Experiment, table: Table) -> tuple[Check, ...]:
    """A caption is about its own settings: at others there may be nothing to measure it on."""
    why = f"the changed settings ({', '.join(experiment.changes)}) leave nothing to measure it on"
    try:
        checks = tuple(experiment.check(table))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        said = "what the paper says of the figure"
        return (
            Check("caption", said, "", False, silence=f"{why}: {type(error).__name__} {error}"),
        )
    return tuple(check.silenced(why) if check.unmeasured else check for check in checks)


class _Run:
    """The state of one run: results and failures by the name of their task."""

    def __init__(self, options: Options, progress: RunProgress) -> None:
        self._options = options
        self._progress = progress
        self._cache = Cache(options.cache_folder)
        self._jobs: list[Job] = []
        self._entries: dict[str, Entry] = {}
        self._failures: dict[str, Failure] = {}
        #: by the label of an experiment: what it needs and is not at hand
        self._missing: dict[str, tuple[str, ...]] = {}
        self._fresh: set[str] = set()
        self._damaged: list[str] = []
        self._cache_complained = False

    def look_up(self, experiment: Experiment) -> None:
        """Take what the cache holds; put the rest in the queue."""
        mark = fingerprint_of(experiment.compute)
        jobs = []
        for task in experiment.task_list(self._options.preset):
            entry = self._from_cache(task, mark)
            if entry is None:
                place = self._cache.checkpoint(self._key(task, mark))
                jobs.append(Job(task, experiment.compute, mark, fingerprint(), place))
            else:
                self._entries[task.name] = entry
        # What a cluster has, its workers find out.
        if self._options.cluster is None:
            lacks = _lacks(experiment, (job.task for job in jobs))
            self._missing[experiment.label] = lacks
            jobs = [] if lacks else jobs
        self._jobs += jobs

    def compute_rest(self) -> None:
        """Compute what is in the queue and keep each result as it comes."""
        stale = sum(entry.stale for entry in self._entries.values())
        held = Counts(cached=len(self._entries) - stale, stale=stale)
        if self._damaged:
            self._progress.note(
                f"{len(self._damaged)} cache entries cannot be used and are computed again; "
                f"the first: {self._damaged[0]}"
            )
        skipped = {label: lacks for label, lacks in self._missing.items() if lacks}
        if skipped:
            needs = list(dict.fromkeys(need for lacks in skipped.values() for need in lacks))
            self._progress.note(
                f"{', '.join(skipped)}: skipped, for want of {', '.join(needs)}. "
                f"To get {'them' if len(needs) > 1 else 'it'}: {command_for(needs)}"
            )
        screen = SCREEN.set(self._progress)
        try:
            self._progress.start(held, len(self._jobs))
            for outcome in self._outcomes():
                self._take(outcome)
        finally:
            SCREEN.reset(screen)
            self._progress.stop()

    def record(self, experiment: Experiment) -> Record:
        """The table of an experiment with its verdicts; no table where a task failed."""
        names = [task.name for task in experiment.task_list(self._options.preset)]
        skipped = self._missing.get(experiment.label, ())
        entries = [self._entries[name] for name in names if name in self._entries]
        failures = [self._failures[name] for name in names if name in self._failures]
        table: Table | None = None
        checks: tuple[Check, ...] = ()
        if not failures and not skipped:
            try:
                table = Table.stack(Table(entry.columns) for entry in entries)
                checks = _verdicts(experiment, table, self._options.preset)
            except Exception as error:  # one broken check must not cost the other figures
                failures = [failure_of(f"{experiment.name}: its checks", error)]
        return Record(
            experiment=experiment,
            preset=self._options.preset,
            table=table,
            checks=checks,
            failures=tuple(failures),
            counts=self._count(names),
            task_seconds=tuple(entry.seconds for entry in entries),
            lacks=skipped,
        )

    def _count(self, names: list[str]) -> Counts:
        computed = sum(name in self._fresh for name in names)
        failed = sum(name in self._failures for name in names)
        stale = sum(name in self._entries and self._entries[name].stale for name in names)
        known = sum(name in self._entries for name in names)
        return Counts(
            computed, known - computed - stale, stale, failed, len(names) - known - failed
        )

    def _outcomes(self) -> Iterator[Outcome]:
        if not self._jobs:
            return iter(())
        if self._options.cluster is not None:
            return run_on_cluster(self._jobs, self._options.cluster)
        return run_locally(self._jobs, self._options.workers)

    def _take(self, outcome: Outcome) -> None:
        job, name = outcome.job, outcome.job.task.name
        if outcome.rows is None:
            # Not cached: what failed is tried again by the next run.
            self._failures[name] = outcome.failure or Failure(name, "no result", "")
        else:
            entry = Entry(outcome.rows.columns, outcome.seconds)
            self._entries[name] = entry
            self._fresh.add(name)
            self._keep(self._key(job.task, job.fingerprint), entry)
        self._progress.finished(name, outcome.seconds, outcome.failure)

    def _keep(self, key: Key, entry: Entry) -> None:
        try:
            self._cache.store(key, entry)
        except OSError as error:
            if not self._cache_complained:
                self._progress.note(
                    f"results cannot be kept in {self._cache.folder} ({error.strerror}): this run "
                    "goes on and its figures are right, but it will not be able to resume. Free "
                    "some space there or pass another folder as cache."
                )
            self._cache_complained = True

    def _from_cache(self, task: Task, mark: str) -> Entry | None:
        key = self._key(task, mark)
        try:
            entry = self._cache.load(key)
        except DamagedEntryError as error:
            self._damaged.append(str(error))
            return None  # computed again, not replaced by an older result
        if entry is None and self._options.keep_stale:
            return self._cache.load_stale(key)
        return entry

    def _key(self, task: Task, mark: str) -> Key:
        return Key(task.experiment, task.name, mark)
