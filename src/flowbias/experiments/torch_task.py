"""Where a task computes with torch, and where it keeps what it has so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from flowbias.ground.threads import SharedHold
from flowbias.ground.torch import require_torch

# How many threads torch had before any task: one that begins while another runs would find 1.
_BEFORE_TASKS: SharedHold[int] = SharedHold(
    take=lambda: int(require_torch().get_num_threads()), give_back=lambda threads: None
)


@contextmanager
def torch_device() -> Iterator[str]:
    """The GPU where there is one; otherwise one thread, since tasks run side by side already.

    `one_thread_in_every_pool` does not reach a torch that a task is the first to load.
    """
    torch = require_torch()
    with _BEFORE_TASKS.held() as before:
        # A number for each thread that calls torch, so each of them sets and restores its own.
        torch.set_num_threads(1)
        try:
            yield "cuda" if torch.cuda.is_available() else "cpu"
        finally:
            torch.set_num_threads(before)


# Where the task that is being computed may keep its checkpoint; None outside of a run.
_CHECKPOINT: ContextVar[Path | None] = ContextVar("checkpoint", default=None)


def checkpoint_file() -> Path | None:
    """A file beside the task's place in the cache, which a run that was interrupted finds again.

    It is gone once the task is done.
    """
    return _CHECKPOINT.get()


@contextmanager
def checkpoint_at(file: Path | None) -> Iterator[None]:
    """Let what is computed here keep its checkpoint in `file`."""
    token = _CHECKPOINT.set(file)
    try:
        yield
    finally:
        _CHECKPOINT.reset(token)
