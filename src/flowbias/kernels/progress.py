"""A bar for long computations, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
# Seconds before a bar appears: shorter waits need none.
_PATIENCE = 1.0


def shown(steps: Iterable[T], total: int, label: str) -> Iterator[T]:
    """The steps, with a bar on standard error once they take long."""
    if total < 2 or sys.stderr is None or not sys.stderr.isatty():
        yield from steps
        return
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        row = bar.add_task(label, total=total, visible=False)
        for step in steps:
            yield step
            bar.update(row, advance=1, visible=time.monotonic() - started > _PATIENCE)
