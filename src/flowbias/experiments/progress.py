"""How far a run is: a bar with the remaining time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import IO, Protocol

from flowbias.experiments.record import Counts, Failure
from flowbias.ground import progress

# Seconds between two plain lines: a log wants to know, not to be filled.
_INTERVAL = 2.0


class Progress(Protocol):
    """What a run tells while it goes on."""

    def start(self, counts: Counts, waiting: int) -> None:
        """Before the first task: what the cache held, and how many tasks are to be computed."""

    def finished(self, task: str, seconds: float, failure: Failure | None) -> None:
        """A task was computed, or failed."""

    def note(self, message: str) -> None:
        """Something that the user should know."""

    def stop(self) -> None:
        """No more tasks; also called when a run is interrupted."""


class Silence:
    """Says nothing."""

    def start(self, counts: Counts, waiting: int) -> None: ...
    def finished(self, task: str, seconds: float, failure: Failure | None) -> None: ...
    def note(self, message: str) -> None: ...
    def stop(self) -> None: ...


class Lines:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
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
        elif self._done == self._waiting or time.monotonic() - self._spoke >= _INTERVAL:
            self._say(f"{self._done} of {self._waiting} done, last {task} ({seconds:.1f} s)")

    def note(self, message: str) -> None:
        self._say(message)

    def stop(self) -> None:
        self._stream.flush()

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


def progress_for(stream: IO[str] | None = None) -> Progress:
    """A bar where `stream` (standard error) is a terminal, plain lines where it is not."""
    chosen = sys.stderr if stream is None else stream
    if chosen is None:  # the process was started without it
        return Silence()
    return TaskBar(chosen) if progress.terminal(chosen) else Lines(chosen)
