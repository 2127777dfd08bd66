"""How far a long solve is: the relative gap on its way from where it began to the tolerance."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from flowbias.limits.blocks.newton import Watch


def _silence(step: int, gap: float) -> None:
    """Says nothing."""


@contextmanager
def watching(wanted: bool, tol: float) -> Iterator[Watch]:
    """A bar on standard error, in decades of the gap; silent where not wanted or no terminal."""
    if not (wanted and sys.stderr.isatty()):
        yield _silence
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("step {task.fields[step]}, gap {task.fields[gap]:.1e}"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None, step=0, gap=np.nan)
        first: list[float] = []

        def report(step: int, gap: float) -> None:
            if 0.0 < gap < np.inf:
                first.append(gap)
            # The gap is 0 at the start and after the last step; decades are counted in between.
            begin = max(first, default=1.0)
            total = max(float(np.log10(begin / tol)), 1.0)
            done = total if gap <= tol else min(total, float(np.log10(begin / gap)))
            progress.update(bar, total=total, completed=max(done, 0.0), step=step, gap=gap)

        yield report
