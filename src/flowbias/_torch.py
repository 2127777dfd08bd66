"""The optional package behind derive, kernels, nets and regime, loaded when it is first used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flowbias._threads import SharedHold


def require_torch() -> Any:
    """The torch module, or an error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            "flowbias computes with torch modules and functions here, and torch is not installed. "
            "Install the extra `nets`: pip install 'flowbias[nets]'."
        ) from None
    return torch


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
