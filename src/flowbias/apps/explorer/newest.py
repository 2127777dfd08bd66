"""Work in threads for a reader who keeps changing their mind: only the newest wish is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from threading import Lock
from typing import Generic, TypeVar

Wish = TypeVar("Wish")
Found = TypeVar("Found")


class Newest(Generic[Wish, Found]):
    """Computes one wish at a time; of those that come meanwhile, the last one is next.

    A wish may be answered more than once, each time better: what is found is delivered as soon as
    it is there, and a newer wish ends what is left of an older one.
    """

    def __init__(
        self,
        pool: Executor,
        compute: Callable[[Wish], Iterable[Found]],
        deliver: Callable[[Found], None],
    ) -> None:
        self._pool, self._compute, self._deliver = pool, compute, deliver
        self._lock = Lock()
        self._busy = False
        self._waiting: list[Wish] = []
        self._closed = False

    def ask(self, wish: Wish) -> None:
        """Compute this as soon as the one under way is done, unless another one is asked first."""
        with self._lock:
            if self._closed:
                return
            self._waiting = [wish]
            if self._busy:
                return
            self._busy = True
        self._pool.submit(self._work)

    def close(self) -> None:
        """Compute and deliver nothing more."""
        with self._lock:
            self._closed, self._waiting = True, []

    def _work(self) -> None:
        # One wish per turn in the pool, so that no tab keeps the others waiting.
        with self._lock:
            wish, self._waiting = self._waiting, []
        try:
            for one in wish:
                for found in self._compute(one):
                    if not self._closed:
                        self._deliver(found)
                    if self._closed or self._waiting:
                        break
        finally:
            with self._lock:
                self._busy = bool(self._waiting)
                more = self._busy
            if more:
                self._pool.submit(self._work)
