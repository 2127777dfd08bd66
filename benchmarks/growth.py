"""How do time and memory grow with the number of samples and features?

Tied depth 2 at alpha = 1e-3. Memory is what a solve needs beyond X, measured in a process of its
own: Python's and NumPy's allocations (tracemalloc) and the growth of the resident set. The promise
is 0.2 of X plus five n x n matrices.
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
from _common import Report, interleaved, parser, problem, progress, weighted_product

import flowbias as fb

SCALE = 1e-3
BY_FEATURES = ((100, 1000), (100, 2000), (100, 5000), (100, 10_000), (100, 20_000))
BY_SAMPLES = ((50, 5000), (100, 5000), (200, 5000), (500, 5000), (1000, 5000))
IN_MEMORY = ((100, 20_000), (500, 10_000), (1000, 20_000))
MEGABYTE = 2.0**20
PROCESS = Path("/proc/self")


def solve(X: np.ndarray, y: np.ndarray) -> fb.Solution:
    return fb.limit(fb.DiagonalNet(2, SCALE), X, y, throw=False)


def time_row(n: int, d: int, repeats: int) -> dict[str, Any]:
    progress(f"n = {n}, d = {d}")
    X, y, _ = problem(n, d)
    runs: dict[str, Callable[[], Any]] = {
        "product": weighted_product(X),
        "limit": lambda: solve(X, y),
    }
    seconds, results = interleaved(runs, repeats, once_above=10.0)
    solution = results["limit"]
    return {
        "n": n,
        "d": d,
        "status": solution.status.name,
        "factorizations": solution.stats.factorizations,
        "seconds": seconds["limit"],
        "products": seconds["limit"] / seconds["product"],
        "of which solving": solution.stats.seconds / seconds["product"],
        "error bound": solution.certificate.error_bound,
    }


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
    report = Report(options.json)
    largest = 999 if options.quick else np.inf
    for title, sizes in (("growth in d", BY_FEATURES), ("growth in n", BY_SAMPLES)):
        rows = [time_row(n, d, options.repeats) for n, d in sizes if n <= largest]
        report.table(f"{title}, depth 2 at alpha = {SCALE:g}", rows)
    rows = [memory_row(n, d) for n, d in IN_MEMORY if n <= largest]
    report.table("memory beyond X", rows, "allowed: 0.2 X + 5 n^2 doubles")
    report.finish()


if __name__ == "__main__":
    main()
