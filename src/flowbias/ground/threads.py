"""One BLAS thread for small products and for tasks that run side by side.

A flow or a solve takes many products of a few microseconds each. Threads that wait for each other
at every one of them cost more than they save, and on a busy machine ten times as much. With one
thread sums are also taken in one order, so that a result is the same to the last bit wherever it
is computed.

The number of threads of a BLAS belongs to the process, while callers come from many threads: so
those who hold it are counted, and only the last one out puts back what the first one found. Were
each to restore what it found itself, the one who came second would leave one thread for good.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Generic, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from flowbias.ground.typing import FloatArray

Found = TypeVar("Found")


class SharedHold(Generic[Found]):
    """A setting of the process that any number of threads hold at once, in whatever order."""

    def __init__(self, take: Callable[[], Found], give_back: Callable[[Found], object]) -> None:
        """`take` makes the setting and returns what was there, for `give_back` to restore."""
        self._take, self._give_back = take, give_back
        self._lock, self._holders = threading.Lock(), 0
        self._found: Found

    def is_needless(self, is_made: Callable[[], bool]) -> bool:
        """Whether nobody holds the setting and it is made all the same: nobody will undo it."""
        with self._lock:
            return self._holders == 0 and is_made()

    @contextmanager
    def held(self) -> Iterator[Found]:
        """Hold the setting; gives what the first of those who hold it now has found."""
        with self._lock:
            if self._holders == 0:
                self._found = self._take()
            self._holders += 1
        try:
            yield self._found
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._give_back(self._found)


def threads_for(rows: FloatArray) -> AbstractContextManager[Any]:
    """A context with as many BLAS threads as products with these rows are worth."""
    # Multiplications in one Jacobian X diag(.) X^T from which a second thread pays.
    worth_threads = 5e8
    # And up to which, beside entries, no BLAS takes one: asking takes longer than such a product.
    never_threaded, few_entries = 2**16, 2**13
    n, d = rows.shape
    work = float(n) * n * d
    if work >= worth_threads or (work <= never_threaded and n * d <= few_entries):
        return nullcontext()
    return one_thread()


def one_thread() -> AbstractContextManager[Any]:
    """A context with one BLAS thread."""
    return nullcontext() if _SHARED_BLAS.is_needless(_is_single) else _one_thread()


@contextmanager
def _one_thread() -> Iterator[None]:
    with _SHARED_BLAS.held(), _held_here([each for each in _blas() if _is_own(each)]):
        yield


@contextmanager
def one_thread_in_every_pool() -> Iterator[None]:
    """A context with one thread of BLAS and of OpenMP, in the libraries loaded until now."""
    _libraries.cache_clear()
    _blas.cache_clear()
    with _SHARED_BLAS.held(), _held_here([each for each in _libraries() if _is_own(each)]):
        yield


@cache
def _libraries() -> list[Any]:
    """What threadpoolctl knows to set."""
    # Looking for them takes milliseconds, so it is not done at every solve.
    with _ctrl_c_waits():
        found: list[Any] = ThreadpoolController().lib_controllers
    return found


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C is dealt with at the end: a callback of ctypes would swallow what it raises."""
    given = signal.getsignal(signal.SIGINT)
    if given is None or threading.current_thread() is not threading.main_thread():
        yield  # not Python's to deal with, or not here
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, given)
        if came:
            signal.raise_signal(signal.SIGINT)


@cache
def _blas() -> list[Any]:
    return [each for each in _libraries() if each.user_api == "blas"]


def _is_single() -> bool:
    return {library.num_threads for library in _blas()} <= {1}


def _is_own(library: Any) -> bool:
    """Whether each thread has a number of its own there: OpenMP, and OpenBLAS built upon it."""
    on_openmp = getattr(library, "threading_layer", None) == "openmp"
    return library.user_api == "openmp" or (library.internal_api == "openblas" and on_openmp)


@contextmanager
def _held_here(libraries: list[Any]) -> Iterator[None]:
    """One thread in libraries that keep a number for each caller, who so restores its own."""
    found = _set_to_one(libraries)
    try:
        yield
    finally:
        _set_threads(found)


def _set_to_one(libraries: list[Any]) -> list[tuple[Any, int]]:
    # What has one thread already is left alone: to set it takes longer than a small solve.
    found = [(library, n) for library in libraries if (n := library.num_threads) and n > 1]
    _set_threads([(library, 1) for library, _ in found])
    return found


def _set_threads(found: list[tuple[Any, int]]) -> None:
    for library, threads in found:
        # threadpoolctl >= 3.8 lets only the thread that has set a shared pool first set it again,
        # and does nothing for others. Here they agree among themselves: see `SharedHold`.
        release = getattr(library, "clear_controlling_thread", lambda **options: None)
        release(force=True)
        library.set_num_threads(threads)
        release(force=True)


_SHARED_BLAS: SharedHold[list[tuple[Any, int]]] = SharedHold(
    take=lambda: _set_to_one([each for each in _blas() if not _is_own(each)]),
    give_back=_set_threads,
)
