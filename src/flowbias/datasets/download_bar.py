"""How far a download is, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flowbias.ground.progress import terminal


class DownloadBar:
    """What pooch expects of a bar, drawn by rich."""

    def __init__(self, bar: Any, row: Any) -> None:
        self._bar, self._row = bar, row

    @property
    def total(self) -> int:
        """Bytes to come, as the server announced them; 0 where it did not."""
        return int(self._bar.tasks[0].total or 0)

    @total.setter
    def total(self, size: int) -> None:
        self._bar.update(self._row, total=size or None)

    def update(self, size: int) -> None:
        """More bytes have come."""
        self._bar.update(self._row, advance=size)

    def reset(self) -> None:
        """Back to the start."""
        self._bar.update(self._row, completed=0)

    def close(self) -> None:
        """Nothing to do: leaving `download_bar` takes the bar away."""


@contextmanager
def download_bar(name: str) -> Iterator[DownloadBar | bool]:
    """A bar for one file; False, which pooch takes for none, where nobody looks at a terminal."""
    if not terminal(sys.stderr):
        yield False
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        yield DownloadBar(bar, bar.add_task(name, total=None))
