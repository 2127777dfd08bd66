"""Worker processes on this machine, kept from one pass over X to the next."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import Any


class Processes:
    """The processes of one design, started when first needed. They end with it.

    Dask by itself starts new ones for every graph, which takes seconds where a pass takes
    milliseconds.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def options_for(self, schedule: Any) -> dict[str, Any]:
        """What Dask's scheduler is to be called with: a pool, where it would make one itself."""
        import dask
        from dask import multiprocessing

        own = (dask.config.get(name, None) for name in ("pool", "multiprocessing.initializer"))
        if schedule is not multiprocessing.get or any(setting is not None for setting in own):
            return {}
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                dask.config.get("num_workers", None) or multiprocessing.CPU_COUNT,
                mp_context=multiprocessing.get_context(),
                initializer=multiprocessing.initialize_worker_process,
            )
        return {"pool": self._pool}

    def drop(self) -> None:
        """Forget a pool that has lost a process: it does nothing any more."""
        self._pool = None
