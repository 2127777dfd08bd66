"""Where a task computes with torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowbias._torch import require_torch


@contextmanager
def torch_device() -> Iterator[str]:
    """The GPU where there is one; otherwise one thread, since tasks run side by side already.

    `one_thread` does not reach a torch that a task is the first to load.
    """
    torch = require_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield "cuda" if torch.cuda.is_available() else "cpu"
    finally:
        torch.set_num_threads(before)
