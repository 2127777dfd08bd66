"""Steps of a long computation, with a bar on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from flowbias import _progress

T = TypeVar("T")


def shown(steps: Iterable[T], total: int, label: str) -> Iterator[T]:
    """The steps, with a bar on standard error once they take long; one step needs none."""
    with _progress.shown(label, total, wanted=total > 1) as show:
        for done, step in enumerate(steps, start=1):
            yield step
            show(done)
