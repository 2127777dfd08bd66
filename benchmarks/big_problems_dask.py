"""Does the limit come out of a cluster whose workers cannot hold X, and what does it send?

A float32 matrix in a file, 1 GB by default, solved through dask.array by worker processes whose
memory is capped, against the solver in memory. Then again with one of two workers killed half-way,
and with one worker alone. The cap is the nanny's memory limit, which kills what exceeds it; the
resident set of every worker is sampled as well. What is sent is counted where Dask writes to its
connections, in the client, the scheduler and the workers. The model says n^2 + 2 n numbers a block
for a pass with a Gram matrix: nu there, and n x n and n numbers back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import psutil
from _common import Report, parser, progress, relative_error

import flowbias as fb
from flowbias.designs.dask_array import DaskDesign, mapped_columns

TOL = 1e-8
MEGABYTE = 1e6
# Seconds between two looks at the workers' memory.
SAMPLED_EVERY = 0.02
# Columns drawn at a time.
DRAWN = 10_000
# Share of the first run's time after which a worker is killed in the second.
KILLED_AT = 0.4
SECONDS, PROCESSORS = TIMES = "seconds", "seconds of processors"


def draw(path: Path, n: int, d: int) -> tuple[np.memmap, np.ndarray]:
    """Gaussian X in a file, and y from five of its columns."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, d, DRAWN):
        width = min(DRAWN, d - start)
        X[:, start : start + width] = rng.standard_normal((n, width), dtype=np.float32)
    y = X[:, :5].astype(float).sum(axis=1) / np.sqrt(5) + 0.1 * rng.standard_normal(n)
    X.flush()
    return np.load(path, mmap_mode="r"), y


class WrittenBytes(distributed.WorkerPlugin):
    """Counts what a process writes to its connections; a plugin, so that new workers count too."""

    name = "written bytes"

    def setup(self, worker: Any) -> None:
        count_writes()


def count_writes() -> None:
    """Once in each process; the count is kept with Dask's own class, which all code shares."""
    from distributed.comm.tcp import TCP

    if hasattr(TCP, "written"):
        return
    plain_write, TCP.written = TCP.write, 0

    async def write(comm: Any, *message: Any, **options: Any) -> int:
        sent = await plain_write(comm, *message, **options)
        TCP.written += sent
        return int(sent)

    TCP.write = write


def written_here() -> int:
    from distributed.comm.tcp import TCP

    return int(TCP.written)


class Watched(DaskDesign):
    """The design, with its passes and the bytes that those with a Gram matrix send."""

    def __init__(self, X: Any, client: distributed.Client | None) -> None:
        super().__init__(X)
        # Without a client nothing is counted: a killed worker takes its count with it.
        self.client, self.sent, self.passes = client, list[int](), 0

    def reduce(self, task: Any, *columns: Any) -> Any:
        before = self._written()
        totals = super().reduce(task, *columns)
        self.passes += 1
        if any(np.shape(total) == (self.n, self.n) for total in totals.sums):
            self.sent.append(self._written() - before)
        return totals

    def _written(self) -> int:
        if self.client is None:
            return 0
        return written_here() + sum(self.client.run(written_here).values())


class Peaks(threading.Thread):
    """Samples the resident sets of all processes below this one, and keeps their largest."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest, self.done = 0, threading.Event()

    def run(self) -> None:
        children: list[psutil.Process] = []
        looked = -math.inf
        while not self.done.wait(SAMPLED_EVERY):
            # The list of processes costs far more than a look at one of them.
            if time.monotonic() > looked + 1.0:
                children, looked = psutil.Process().children(recursive=True), time.monotonic()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.largest = max(self.largest, child.memory_info().rss)


@contextlib.contextmanager
def cluster(workers: int, cap: float) -> Iterator[distributed.Client]:
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=int(cap),
            dashboard_address=":0",
        ) as made,
        distributed.Client(made) as client,
    ):
        count_writes()
        client.register_plugin(WrittenBytes())
        yield client


def kill_one(client: distributed.Client, after: float) -> threading.Timer:
    victim = next(iter(client.run(os.getpid).values()))
    timer = threading.Timer(after, os.kill, (victim, signal.SIGKILL))
    timer.start()
    return timer


def least(first: dict[str, Any] | None, second: dict[str, Any]) -> dict[str, Any]:
    """Seconds and processor seconds of the faster of two runs each, and all else of the last."""
    if first is None:
        return second
    return {**second, **{name: min(first[name], second[name]) for name in TIMES}}


def timed(solve: Callable[[], Any], client: distributed.Client | None) -> tuple[Any, dict]:
    """What is solved, with its seconds: on the clock, and of all processors that worked on it."""

    def spent() -> float:
        workers = {} if client is None else client.run(time.process_time)
        return time.process_time() + sum(workers.values())

    before, started = spent(), time.perf_counter()
    solution = solve()
    seconds = time.perf_counter() - started
    return solution, {SECONDS: seconds, PROCESSORS: spent() - before}


def solved(X: Any, y: np.ndarray, options: Any) -> fb.Solution:
    return fb.limit(fb.DiagonalNet(2, options.scale), X, y, tol=TOL, throw=False)


def dask_row(
    title: str,
    X: np.memmap,
    y: np.ndarray,
    options: Any,
    *,
    workers: int,
    kill_after: float = 0.0,
    in_turn: Callable[[], object] | None = None,
) -> tuple[dict[str, Any], np.ndarray]:
    """One run; where something is to be run in turn with it, as many as are asked for."""
    with cluster(workers, options.cap * MEGABYTE) as client:
        # A killed worker takes its count of bytes and seconds with it.
        counted = None if kill_after else client
        peaks, row = Peaks(), None
        peaks.start()
        timer = kill_one(client, kill_after) if kill_after else None
        for _ in range(1 if in_turn is None else options.repeats):
            progress(title)
            design = Watched(mapped_columns(X, options.width), counted)
            solution, taken = timed(lambda design=design: solved(design, y, options), counted)
            if kill_after:
                taken[PROCESSORS] = math.nan
            row = least(row, {**outcome(title, solution), **taken})
            if in_turn is not None:
                in_turn()
        peaks.done.set()
        if timer is not None and timer.is_alive():
            timer.cancel()
            title += " (ended before)"
    n, blocks = len(y), -(-X.shape[1] // options.width)
    row |= {
        "run": title,
        "peak of a worker, MB": peaks.largest / MEGABYTE,
        "passes": design.passes,
        "sent per Gram pass, MB": None if kill_after else np.median(design.sent) / MEGABYTE,
        "model, MB": 8 * (n * n + 2 * n) * blocks / MEGABYTE,
    }
    return row, np.asarray(solution.w)


def outcome(title: str, solution: fb.Solution) -> dict[str, Any]:
    return {
        "run": title,
        "status": solution.status.name,
        "gap": solution.certificate.gap,
        "factorizations": solution.stats.factorizations,
    }


class InMemory:
    """The solver in memory, run when called."""

    def __init__(self, X: np.memmap, y: np.ndarray, options: Any) -> None:
        self.X, self.y, self.options = np.array(X, dtype=np.float64), y, options
        self.row: dict[str, Any] | None = None

    def __call__(self) -> None:
        title = "in memory, float64"
        progress(title)
        solution, taken = timed(lambda: solved(self.X, self.y, self.options), None)
        self.row = least(self.row, {**outcome(title, solution), **taken})
        self.w = solution.w


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--n", type=int, default=500)
    arguments.add_argument("--d", type=int, default=500_000)
    arguments.add_argument("--scale", type=float, default=0.1, help="alpha, at depth 2")
    arguments.add_argument("--width", type=int, default=10_000, help="columns of a block")
    arguments.add_argument("--cap", type=float, default=600.0, help="memory of a worker, MB")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="2 workers and in memory alone")
    options = arguments.parse_args()
    report = Report(options.json)
    # Dask's warnings about memory and lost connections are what is measured here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        X, y = draw(Path(folder) / "X.npy", options.n, options.d)
        memory = InMemory(X, y, options)
        first, w = dask_row("2 workers", X, y, options, workers=2, in_turn=memory)
        moment = KILLED_AT * first[SECONDS]
        runs = [(first, w)]
        if not options.quick:
            killed = dask_row("2 workers, one killed", X, y, options, workers=2, kill_after=moment)
            runs += [killed, dask_row("1 worker", X, y, options, workers=1)]
    rows = [{**line, "error": relative_error(w, memory.w)} for line, w in runs]
    size = X.nbytes / MEGABYTE
    report.table(
        f"n = {options.n}, d = {options.d}, float32 ({size:.0f} MB) in a file, blocks of "
        f"{options.width} columns, depth 2 at alpha = {options.scale:g}, workers capped at "
        f"{options.cap:.0f} MB",
        [*rows, memory.row],
        "error: distance to the limit in memory, relative to it. sent: median over the passes. "
        f"seconds: 2 workers and in memory in turn, the least of {options.repeats}; of processors: "
        "of all workers and the caller, scheduler included",
    )
    report.finish()


if __name__ == "__main__":
    main()
