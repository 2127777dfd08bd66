"""Problems one by one in worker processes that may be killed: a hang is a verdict, not a wait."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.fuzz.problems import as_text, problem
from tests.fuzz.verdict import FOREIGN, GOOD, HANGS, UNJUDGED, WORST, Verdict

# Seconds of processor time for the library's answer, then for the reference: other processes may
# share the machine, and what they take is not held against anybody.
ANSWER_LIMIT, REFERENCE_LIMIT = 30.0, 60.0


@dataclass(frozen=True)
class Record:
    """What is kept of a problem: a line of the file, a count in the table."""

    seed: int
    family: str
    entry: str
    small: bool
    seconds: float
    kind: str
    status: str
    reason: str
    error: float
    bound: float
    #: the problem itself, in exact doubles, where somebody has to look at it
    problem: dict[str, Any] | None = None


def run(seeds: Iterable[int], jobs: int) -> Iterator[Record]:
    """A record per seed, in the order in which they end."""
    todo = iter(seeds)
    workers = [worker for worker in (_Worker() for _ in range(jobs)) if worker.takes_next(todo)]
    try:
        while workers:
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                one = worker.heard()
                if one is not None:
                    yield one
                    if not worker.takes_next(todo):
                        worker.stop()
                        workers.remove(worker)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that examines one problem after the other, and dies of one that takes too long."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def takes_next(self, todo: Iterator[int]) -> bool:
        """Whether there was a problem left for it."""
        seed = next(todo, None)
        if seed is None:
            return False
        self._seed, self._seconds = seed, None
        self.pipe.send(seed)
        return True

    def heard(self) -> Record | None:
        """What its last message completes."""
        try:
            message = self.pipe.recv()
        except EOFError:
            return self._died()
        if isinstance(message, Record):
            return message
        self._seconds = message
        return None

    def _died(self) -> Record:
        self.stop()
        code, seconds = self._process.exitcode, self._seconds
        self._start()
        if code != -signal.SIGPROF:
            verdict = Verdict(FOREIGN, f"the process died with code {code}")
        elif seconds is None:
            verdict = Verdict(HANGS, f"no answer in {ANSWER_LIMIT:.0f} s")
        else:
            verdict = Verdict(UNJUDGED, f"no reference in {REFERENCE_LIMIT:.0f} s")
        return record(self._seed, verdict, ANSWER_LIMIT if seconds is None else seconds)

    def stop(self) -> None:
        self.pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection) -> None:
    def answered(seconds: float) -> None:
        pipe.send(seconds)
        _die_after(REFERENCE_LIMIT)

    while True:
        try:
            seed = pipe.recv()
        except EOFError:
            return
        _die_after(ANSWER_LIMIT)
        pipe.send(examined(seed, tell=answered))


def _die_after(seconds: float) -> None:
    """By the signal's own action, which no loop inside a compiled routine can put off."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def examined(seed: int, tell: Callable[[float], None] = lambda seconds: None) -> Record:
    """The library's answer, and the verdict on it; `tell` hears the seconds as soon as known."""
    from tests.fuzz.answers import ask  # here: it loads the library, which main need not
    from tests.fuzz.judge import judge

    given = problem(seed)
    outcome = ask(given)
    tell(outcome.seconds)
    try:
        verdict = judge(given, outcome)
    except Exception as failure:  # one problem must not end a run of thousands; it is counted
        verdict = Verdict(UNJUDGED, f"the judge failed: {failure!r}")
    return record(seed, verdict, outcome.seconds)


def record(seed: int, verdict: Verdict, seconds: float) -> Record:
    given = problem(seed)
    kept = None if verdict.kind == GOOD else as_text(given)
    facts = asdict(verdict)
    return Record(
        seed, given.family, given.entry, given.is_small, round(seconds, 3), **facts, problem=kept
    )


# --- files ---------------------------------------------------------------------------------------


def as_line(one: Record) -> str:
    return json.dumps(asdict(one)) + "\n"


def read_records(path: Path) -> list[Record]:
    """What an earlier run has written; a line cut short by its end is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [Record(**json.loads(line)) for line in lines if line.endswith("\n")]


def is_offence(one: Record) -> bool:
    return one.kind in WORST
