"""Compute on whatever scheduler Dask is set to; a cluster that goes away is said in words."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.ground.sources import OtherSourcesError
from flowbias.ground.threads import one_thread

# Seconds without a finished computation after which it is asked whether any worker is left, and
# for which a new one is then waited for: a nanny takes a few to restart what it has lost.
WORKER_PATIENCE = 15.0


class ClusterError(RuntimeError):
    """A cluster that cannot go on, with advice."""


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


def active_client() -> Any:
    """The client of the cluster that Dask would compute on; None for threads and processes."""
    # Dask tells its schedulers apart by their function alone; a cluster's is a client's method.
    owner = getattr(_scheduler(), "__self__", None)
    return owner if "Client" in type(owner).__name__ else None


def client_of(X: Any) -> Any:
    """The client of the cluster that holds blocks of X already, else the active one."""
    # Optional; where a cluster holds blocks it is loaded.
    distributed: Any = sys.modules.get("distributed")
    nodes = () if distributed is None else dict(X.dask).values()
    future = next((node for node in nodes if isinstance(node, distributed.Future)), None)
    if future is None:
        return active_client()
    if _is_gone(future.client):
        raise ClusterError(
            "cluster: blocks of X were held by a cluster whose client is closed (X.persist()), and "
            "are gone with it. Make X anew, with a distributed.Client(address) that stays open."
        )
    return future.client


def computed(
    graph: Mapping[Any, Any], keys: Sequence[Any], client: Any, processes: Processes
) -> tuple[Any, ...]:
    """The values of some keys of a graph, in their order; on this machine where client is None."""
    import dask
    from dask.delayed import optimize

    # A block is read, used and dropped by one task: no scheduler can then keep it or send it on.
    with dask.config.set({"optimization.fuse.delayed": True}):
        ready = _without_aliases(optimize(graph, list(keys)).to_dict(), graph)
    return tuple(_here(ready, keys, processes) if client is None else _there(client, ready, keys))


def _without_aliases(fused: dict[Any, Any], graph: Mapping[Any, Any]) -> dict[Any, Any]:
    """Fused tasks under the keys that ask for them.

    Dask names them anew, and puts beside each one more task that hands its result on.
    """
    from dask.task_spec import Alias

    made = [node for node in fused.values() if isinstance(node, Alias) and node.target not in graph]
    for alias in made:
        fused[alias.key] = fused.pop(alias.target).substitute({}, key=alias.key)
    return fused


def _scheduler(**options: Any) -> Any:
    from dask.base import get_scheduler

    try:
        return get_scheduler(**options)
    except ValueError as error:
        raise InputError(
            f"dask.config: its scheduler must be one that Dask knows, got {error}. "
            "Use dask.config.set(scheduler='threads'), or a distributed.Client."
        ) from error
    except RuntimeError as error:
        raise ClusterError(
            f"cluster: must be running, got: {error} Connect to one with "
            "distributed.Client(address), or use dask.config.set(scheduler='threads')."
        ) from error


def _here(graph: dict[Any, Any], keys: Sequence[Any], processes: Processes) -> Sequence[Any]:
    """With the threads or processes of this machine."""
    import dask.array
    from dask.multiprocessing import RemoteException

    schedule = _scheduler(cls=dask.array.Array)
    try:
        # The threads are Dask's: those of the BLAS would only be in each other's way.
        with one_thread():
            options = processes.options_for(schedule)
            values: Sequence[Any] = schedule(graph, list(keys), **options)
    except RemoteException as error:
        raise _told(error.exception) from error
    except BrokenExecutor as error:
        processes.drop()
        raise ClusterError(
            "cluster: one of Dask's processes on this machine died, most often for want of memory. "
            "Use narrower chunks, or fewer processes: dask.config.set(num_workers=...)."
        ) from error
    except Exception as error:
        raise _told(error) from error
    return values


def _there(client: Any, graph: dict[Any, Any], keys: Sequence[Any]) -> Sequence[Any]:
    """On a cluster. What a lost worker was doing is done again by another."""
    import distributed

    try:
        if _is_gone(client):
            raise distributed.client.ClosedClientError
        futures = client.get(graph, list(keys), sync=False)
        _wait_for(client, futures)
        values: Sequence[Any] = client.gather(futures)
    except distributed.scheduler.KilledWorker as error:
        raise ClusterError(
            f"cluster: a block of X cost several workers their life ({error.last_worker!r} was "
            "the last). Most often it does not fit their memory: use narrower chunks, for "
            "example X.rechunk((-1, 1000)), or workers with more memory."
        ) from error
    except ClusterError:
        raise
    except Exception as error:
        lost = distributed.CancelledError, distributed.comm.CommClosedError
        # A client that is closed meanwhile may be missed by any of these calls, in its own way.
        if isinstance(error, lost) or _is_gone(client):
            raise ClusterError(
                f"cluster: the scheduler of {client} went away, or its client was closed. Connect "
                "to a running one with distributed.Client(address) and solve again."
            ) from error
        raise _told(error) from error
    return values


def _is_gone(client: Any) -> bool:
    return client.status in ("closing", "closed")


def _wait_for(client: Any, futures: Sequence[Any]) -> None:
    """Until all are done; ClusterError where nobody is left to do them."""
    import distributed

    while True:
        try:
            distributed.wait(futures, timeout=WORKER_PATIENCE)
            return
        except TimeoutError:
            _require_workers(client)


def _require_workers(client: Any) -> None:
    try:
        client.wait_for_workers(1, timeout=WORKER_PATIENCE)
    except TimeoutError as error:
        raise ClusterError(
            f"cluster: no worker of {client} is running: all are gone, or paused with their memory "
            "full. Start some with `dask worker`, give them more memory, or use narrower chunks."
        ) from error


def _told(error: Exception) -> Exception:
    """What a block raised: the library's own words, or what went wrong in the array's graph."""
    if isinstance(error, InputError):
        return InputError(str(error))
    if isinstance(error, OtherSourcesError):
        return ClusterError(f"cluster: must compute as this process does, got: {error}")
    return InputError(
        f"X: its blocks must be computable, got {type(error).__name__}: {error}. "
        "Check that X.compute() works, and that every worker sees the same files and packages."
    )
