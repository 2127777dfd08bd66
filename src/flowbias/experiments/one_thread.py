"""One BLAS thread per task.

Tasks run side by side already, so more threads would only wait for each other; and with one thread
sums are taken in one order, so that a result is the same to the last bit wherever it is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

_lock = threading.Lock()
_tasks = 0
_limits: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold every BLAS of this process to one thread while any task runs in it.

    Counted, because the threads of a cluster's worker share one process: the first task in sets
    the limit and the last one out lifts it.
    """
    global _tasks, _limits
    with _lock:
        if _tasks == 0:
            _limits = threadpool_limits(limits=1)
        _tasks += 1
    try:
        yield
    finally:
        with _lock:
            _tasks -= 1
            if _tasks == 0:
                _limits.restore_original_limits()
