"""How far a long computation is: one bar, on a terminal only, gone when it is done."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import IO, Any, Protocol

# Seconds before a bar appears, and between two changes of it: shorter waits need none.
BAR_AFTER = 1.0


class Show(Protocol):
    """Takes how much is done, a few words, and of how much, where that has changed."""

    def __call__(self, done: float, words: str = "", total: float | None = None) -> None: ...


class Screen(Protocol):
    """What shows a long computation, and what goes on within it."""

    def row(self, label: str, total: float) -> AbstractContextManager[Show]:
        """A place for one more, until it is done."""


# The screen of the run that this computation is a part of: a terminal has room for one bar.
SCREEN: ContextVar[Screen | None] = ContextVar("screen", default=None)


def terminal(stream: IO[str] | None) -> bool:
    """Whether a bar can be drawn there; a process may be started without standard error."""
    able = os.environ.get("TERM", "") not in ("dumb", "unknown")
    return stream is not None and able and stream.isatty()


class Bar:
    """A label, the bar, the count where things are counted, the time left, and a few words."""

    def __init__(self, stream: IO[str], *, counted: bool = True, patience: float | None = None):
        from rich import progress
        from rich.console import Console

        columns: tuple[Any, ...] = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            *([progress.MofNCompleteColumn()] if counted else []),
            progress.TextColumn("remaining"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[words]}", style="dim", markup=False),
        )
        self._patience = BAR_AFTER if patience is None else patience
        self._rich = progress.Progress(*columns, console=Console(file=stream), transient=True)
        self._row: Any = None
        self._began = self._moved = 0.0
        self._drawn = False

    def start(self, label: str, total: float) -> None:
        """Measure time from now on; it is drawn as soon as patience is at its end."""
        self._row = self._rich.add_task(label, total=total, words="")
        self._began = self._moved = time.monotonic()
        self._draw(self._began)

    def _draw(self, now: float) -> None:
        if not self._drawn and now - self._began >= self._patience:
            self._drawn = True
            self._rich.start()

    def show(self, done: float, words: str = "", total: float | None = None) -> None:
        """Move it, unless it was moved just now; the end is always shown."""
        now = time.monotonic()
        whole = self._rich.tasks[0].total if total is None else total
        if now - self._moved < 0.1 and done != whole:
            return
        self._moved = now
        self._rich.update(self._row, completed=done, total=whole, words=words)
        self._draw(now)

    @contextmanager
    def row(self, label: str, total: float) -> Iterator[Show]:
        """A second bar under this one, for a part that takes long itself."""
        row = self._rich.add_task(label, total=total, words="")

        def show(done: float, words: str = "", total: float | None = None) -> None:
            self._rich.update(row, completed=done, total=total, words=words)

        try:
            yield show
        finally:
            self._rich.remove_task(row)

    def say(self, text: str) -> None:
        """A line above the bar, as it is."""
        self._rich.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        """Take it away, where it was drawn."""
        if self._drawn:
            self._rich.stop()


@contextmanager
def shown(label: str, total: float, *, wanted: bool = True, counted: bool = True) -> Iterator[Show]:
    """A bar on standard error where that is a terminal, unless it is not wanted.

    Within a run that shows how far it is, a row of that.
    """
    screen, stream = SCREEN.get(), sys.stderr
    if wanted and screen is not None:
        with screen.row(label, total) as show:
            yield show
        return
    if stream is None or not wanted or not terminal(stream):
        yield silence
        return
    bar = Bar(stream, counted=counted)
    bar.start(label, total)
    try:
        yield bar.show
    finally:
        bar.stop()


def silence(done: float, words: str = "", total: float | None = None) -> None:
    """Nobody looks."""
