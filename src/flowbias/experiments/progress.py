"""How far a run is: a bar with the remaining time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import IO, Protocol

from flowbias.experiments.record import Counts, Failure
from flowbias.ground import progress


class RunProgress(Protocol):
    """What a run tells while it goes on."""

    def start(self, counts: Counts, waiting: int) -> None:
        """Before the first task: what the cache held, and how many tasks are to be computed."""

    def finished(self, task: str, seconds: float, failure: Failure | None) -> None:
        """A task was computed, or failed."""

    def note(self, message: str) -> None:
        """Something that the user should know."""

    def stop(self) -> None:
        """No more tasks; also called when a run is interrupted."""

    def row(self, label: str, total: float) -> AbstractContextManager[progress.Show]:
        """How far a task is that is computed in this process and takes long."""


class Silence:
    """Says nothing."""

    def start(self, counts: Counts, waiting: int) -> None: ...
    def finished(self, task: str, seconds: float, failure: Failure | None) -> None: ...
    def note(self, message: str) -> None: ...
    def stop(self) -> None: ...
    def row(self, label: str, total: float) -> AbstractContextManager[progress.Show]:
        return nullcontext(progress.silence)


class Lines:
    """Plain lines, for logs and pipes, with seconds between two of them.

    A log wants to know, not to be filled.
    """

    def __init__(self, stream: IO[str], between: float = 2.0, within: float = 60.0) -> None:
        self._stream = stream
        self._between, self._within = between, within
        self._waiting = self._done = 0
        self._spoke = 0.0

    def start(self, counts: Counts, waiting: int) -> None:
        self._waiting, self._done, self._spoke = waiting, 0, time.monotonic()
        if waiting:
            held = counts.cached + counts.stale
            self._say(f"{waiting} tasks to compute, {held} from the cache")

    def finished(self, task: str, seconds: float, failure: Failure | None) -> None:
        self._done += 1
        if failure is not None:
            self._say(f"failed: {failure}")
        elif self._done == self._waiting or time.monotonic() - self._spoke >= self._between:
            self._say(f"{self._done} of {self._waiting} done, last {task} ({seconds:.1f} s)")

    def note(self, message: str) -> None:
        self._say(message)

    def stop(self) -> None:
        self._stream.flush()

    @contextmanager
    def row(self, label: str, total: float) -> Iterator[progress.Show]:
        """A line a minute about a task that takes long, with the time that it takes at most."""
        began = spoke = time.monotonic()
        planned = total
        first: float | None = None  # a training that is resumed does not begin at zero

        def show(done: float, words: str = "", total: float | None = None) -> None:
            nonlocal spoke, first
            now, whole = time.monotonic(), planned if total is None else total
            first = done if first is None else first
            if now - spoke >= self._within and done > first:
                spoke = now
                left = round((whole - done) * (now - began) / (done - first))
                text = f"{label}: {done:g} of {whole:g}, remaining {timedelta(seconds=left)}"
                self._say(f"{text}, {words}" if words else text)

        yield show

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        self._stream.write(f"{text}\n")
        self._stream.flush()


class TaskBar:
    """A bar with the number of tasks done and the time that remains."""

    def __init__(self, stream: IO[str]) -> None:
        # At once: a run has said nothing yet.
        self._bar = progress.Bar(stream, patience=0.0)
        self._done = 0

    def start(self, counts: Counts, waiting: int) -> None:
        if waiting:
            self._bar.start("computing", waiting)

    def finished(self, task: str, seconds: float, failure: Failure | None) -> None:
        if failure is not None:
            self.note(f"failed: {failure}")
        self._done += 1
        self._bar.show(self._done, task.split(" ")[0])

    def note(self, message: str) -> None:
        self._bar.say(message)

    def stop(self) -> None:
        self._bar.stop()

    def row(self, label: str, total: float) -> AbstractContextManager[progress.Show]:
        """A bar under that of the tasks."""
        return self._bar.row(label, total)


def progress_for(stream: IO[str] | None = None) -> RunProgress:
    """A bar where `stream` (standard error) is a terminal, plain lines where it is not."""
    chosen = sys.stderr if stream is None else stream
    if chosen is None:  # the process was started without it
        return Silence()
    return TaskBar(chosen) if progress.terminal(chosen) else Lines(chosen)
