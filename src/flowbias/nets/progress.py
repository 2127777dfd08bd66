"""A bar for long trainings."""

from __future__ import annotations

from contextlib import AbstractContextManager

from flowbias._progress import Show, shown


def epochs_shown(total: int, progress: bool | None) -> AbstractContextManager[Show]:
    """A bar over `total` epochs on a terminal, unless `progress` is False."""
    return shown("training", total, wanted=progress is not False)
