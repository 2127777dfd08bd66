"""A bar for long trainings, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

# Seconds before a bar appears and between two changes of it: shorter trainings need none.
_PATIENCE = 1.0
_INTERVAL = 0.1


class Shown(Protocol):
    """Takes the number of epochs done and a few words."""

    def __call__(self, done: int, words: str) -> None: ...


@contextmanager
def epochs_shown(total: int, progress: bool | None) -> Iterator[Shown]:
    """A bar over `total` epochs: None shows one where standard error is a terminal."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if progress is False or sys.stderr is None or not (terminal or progress):
        yield lambda done, words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns: tuple[Any, ...] = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        Remaining(),
        TextColumn("{task.fields[words]}", markup=False),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        row = bar.add_task("training", total=total, visible=False, words="")
        started = last = time.monotonic()

        def show(done: int, words: str) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _INTERVAL:
                last = now
                bar.update(row, completed=done, words=words, visible=now - started > _PATIENCE)

        yield show
