"""A function applied to many things side by side, in processes that end with this one."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import resource_tracker
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

# How often a process looks whether its parent is still there.
_WATCH_SECONDS = 0.5


def spread(
    function: Callable[[Given], Made], things: Sequence[Given], workers: int
) -> Iterator[Made]:
    """Results as they come. Raises joblib's TerminatedWorkerError where a process dies."""
    from joblib import Parallel, delayed

    # A process that has loaded torch has grown so much that the pool takes it for a leak and puts
    # another in its place, at no loss; it says so from a thread, out of reach of a context.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    # At least two, or joblib would not use processes; one at a time, so that each result is here
    # as soon as it is there.
    count = max(2, min(workers, len(things)))
    pool = Parallel(n_jobs=count, batch_size=1, return_as="generator_unordered")
    with _interrupts_kept_from_children():
        results = pool(delayed(_apply)(function, thing, os.getpid()) for thing in things)
    yield from results


def _apply(function: Callable[[Given], Made], thing: Given, parent: int) -> Made:
    _leave_with(parent)
    return function(thing)


@contextmanager
def _interrupts_kept_from_children() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal; the parent alone answers it.

    Blocked while processes are started, because they inherit that; what arrives meanwhile is
    delivered to this one at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows, whose Ctrl-C works otherwise
        yield
        return
    from joblib.externals.loky.backend import resource_tracker as joblibs_tracker

    # They start with the first process, and the start of either lifts the block: up to Python 3.13
    # and up to joblib 1.5.
    resource_tracker.ensure_running()
    joblibs_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@cache
def _leave_with(parent: int) -> None:
    """End this process soon after its parent, which may have been killed and cannot end it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
