"""How do time and memory grow with samples, features, sparsity and the number of scales?

Tied depth 2 at alpha = 1e-3, processor time of one thread, the least of several runs; the exponent
is that of the straight line through the logarithms. Memory is what a solve needs beyond X, measured
in a process of its own: Python's and NumPy's allocations (tracemalloc) and the growth of the
resident set. The promise is 0.2 of X plus five n x n matrices.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import Report, least_seconds, parser, problem, progress, weighted_product
from threadpoolctl import threadpool_limits

import flowbias as fb

SCALE = 1e-3
BY_FEATURES = ((100, 1000), (100, 2000), (100, 5000), (100, 10_000), (100, 20_000))
BY_SAMPLES = ((50, 5000), (100, 5000), (200, 5000), (500, 5000), (1000, 5000))
BY_SPARSITY = (1, 5, 20, 80)
BY_SCALES = (10, 30, 100, 300)
IN_MEMORY = ((100, 20_000), (500, 10_000), (1000, 20_000))
MEGABYTE = 2.0**20
PROCESS = Path("/proc/self")


def solve(X: np.ndarray, y: np.ndarray) -> fb.Solution:
    return fb.limit(fb.DiagonalNet(2, SCALE), X, y, throw=False)


def time_row(n: int, d: int, repeats: int, sparsity: int = 5) -> dict[str, Any]:
    progress(f"n = {n}, d = {d}, sparsity {sparsity}")
    X, y, _ = fb.datasets.sparse_regression(n, d, sparsity=sparsity, noise_var=0.01, rng=0)
    runs: dict[str, Callable[[], Any]] = {
        "product": weighted_product(X),
        "limit": lambda: solve(X, y),
    }
    seconds, results = least_seconds(runs, repeats)
    solution = results["limit"]
    return {
        "n": n,
        "d": d,
        "sparsity": sparsity,
        "status": solution.status.name,
        "factorizations": solution.stats.factorizations,
        "seconds": seconds["limit"],
        "products": seconds["limit"] / seconds["product"],
        "error bound": solution.certificate.error_bound,
    }


def scales_row(count: int, repeats: int) -> dict[str, Any]:
    """A path over the same decades, more and more densely."""
    X, y, _ = problem()
    logs = np.linspace(np.log(10.0), np.log(1e-30), count)
    model = fb.DiagonalNet(2, 1.0)
    runs: dict[str, Callable[[], Any]] = {
        "path": lambda: fb.limit_path(model, X, y, log_scales=logs, throw=False)
    }
    seconds, results = least_seconds(runs, repeats)
    path = results["path"]
    return {
        "scales": count,
        "certified": sum(solution.certificate.ok for solution in path),
        "factorizations": path.stats.factorizations,
        "seconds": seconds["path"],
    }


def exponent(rows: list[dict[str, Any]], name: str) -> str:
    """Of the growth of the seconds."""
    sizes, seconds = ([float(row[key]) for row in rows] for key in (name, "seconds"))
    slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0] if len(rows) > 1 else np.nan
    return f"the time grows as {name}^{slope:.2f}"


def memory_row(n: int, d: int) -> dict[str, Any]:
    """In a fresh process: the peak of the resident set never comes down again in this one."""
    progress(f"memory, n = {n}, d = {d}")
    command = [sys.executable, __file__, "--measure", str(n), str(d)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured = json.loads(done.stdout)
    size, allowed = 8.0 * n * d, 8.0 * (0.2 * n * d + 5 * n * n)
    return {
        "n": n,
        "d": d,
        "status": measured["status"],
        "X, MB": size / MEGABYTE,
        "allowed, MB": allowed / MEGABYTE,
        "allocated, MB": measured["allocated"] / MEGABYTE,
        "resident, MB": measured["resident"] / MEGABYTE,
        "seconds": measured["seconds"],
        "kept": "yes" if measured["allocated"] <= allowed else "NO",
    }


def measure(n: int, d: int) -> dict[str, Any]:
    """Peak memory of one solve beyond its data, in bytes."""
    solve(*problem(20, 100)[:2])  # loads what is loaded on first use, BLAS buffers included
    X, y, _ = problem(n, d)
    _reset_peak()
    before = _resident(peak=False)
    solution = solve(X, y)
    resident = _resident(peak=True) - before
    tracemalloc.start()
    solve(X, y)
    allocated = tracemalloc.get_traced_memory()[1]
    return {
        "status": solution.status.name,
        "seconds": solution.stats.seconds,
        "resident": resident,
        "allocated": allocated,
    }


def _resident(peak: bool) -> int:
    """Bytes resident now, or at most since the last reset; without /proc only the peak ever."""
    if PROCESS.exists():
        name = "VmHWM:" if peak else "VmRSS:"
        fields = (PROCESS / "status").read_text().split()
        return 1024 * int(fields[fields.index(name) + 1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def _reset_peak() -> None:
    # Importing and drawing the data may have needed more than the solve will.
    with contextlib.suppress(OSError):
        (PROCESS / "clear_refs").write_text("5")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="leave out n = 1000")
    arguments.add_argument("--measure", type=int, nargs=2, metavar=("N", "D"), help="for itself")
    options = arguments.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    largest = 999 if options.quick else np.inf
    with threadpool_limits(1):
        report = Report(options.json)
        for name, sizes in (("d", BY_FEATURES), ("n", BY_SAMPLES)):
            rows = [time_row(n, d, options.repeats) for n, d in sizes if n <= largest]
            title = f"growth in {name}, depth 2 at alpha = {SCALE:g}"
            report.table(title, rows, exponent(rows, name))
        rows = [time_row(100, 1000, options.repeats, sparsity) for sparsity in BY_SPARSITY]
        report.table("growth in the sparsity of the cause", rows, exponent(rows, "sparsity"))
        rows = [scales_row(count, options.repeats) for count in BY_SCALES]
        report.table("growth in the number of scales", rows, exponent(rows, "scales"))
    rows = [memory_row(n, d) for n, d in IN_MEMORY if n <= largest]
    report.table("memory beyond X", rows, "allowed: 0.2 X + 5 n^2 doubles")
    report.finish()


if __name__ == "__main__":
    main()
