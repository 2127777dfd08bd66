"""What the benchmarks share: the problem, interleaved timing, progress and tables."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

import flowbias as fb

# The 50-digit solver is the tests'; both are run from a checkout.
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

Row = Mapping[str, Any]
# exp(-23025.85) = 1e-10000, which no double holds.
TINIEST_LOG_SCALE = -23025.85


def problem(n: int = 100, d: int = 1000, noise_var: float = 0.01) -> fb.datasets.SparseRegression:
    """The problem of [woodworth2020, Section 4] on which everything here is measured."""
    return fb.datasets.sparse_regression(n=n, d=d, sparsity=5, noise_var=noise_var, rng=0)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Arguments with the one option that every benchmark has."""
    arguments = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return arguments


def interleaved(
    runs: Mapping[str, Callable[[], Any]],
    repeats: int,
    once_above: float = math.inf,
    watch: Callable[[str], None] = lambda name: None,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Median seconds and last result of each run; once is enough above that many seconds.

    One of each in turn, so that whatever slows the machine down slows all of them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    results: dict[str, Any] = {}
    for _ in range(repeats):
        for name, run in runs.items():
            if max(seconds[name], default=0.0) > once_above:
                continue
            watch(name)
            started = time.perf_counter()
            results[name] = run()
            seconds[name].append(time.perf_counter() - started)
    return {name: median(times) for name, times in seconds.items()}, results


def least_seconds(
    runs: Mapping[str, Callable[[], Any]], repeats: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Processor seconds of the fastest of several runs of each in turn, and the last result."""
    seconds, results = dict.fromkeys(runs, math.inf), {}
    for _ in range(repeats):
        for name, run in runs.items():
            progress(name)
            started = time.process_time()
            results[name] = run()
            seconds[name] = min(seconds[name], time.process_time() - started)
    return seconds, results


def weighted_product(X: np.ndarray) -> Callable[[], np.ndarray]:
    """The unit of cost: one X diag(c) X^T, which every Newton step on the dual needs."""
    c = np.random.default_rng(0).uniform(0.5, 1.5, X.shape[1])
    return lambda: (X * c) @ X.T


def relative_error(w: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(w - reference) / np.linalg.norm(reference))


def progress(text: str) -> None:
    """One line that overwrites itself, only where someone is watching."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


class Report:
    """Tables printed as they are finished, or all of them as JSON at the end."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.tables: dict[str, Any] = {"machine": machine()}
        if not as_json:
            print(machine() + "\n")

    def table(self, title: str, rows: Sequence[Row], note: str = "") -> None:
        progress("")
        self.tables[title] = {"rows": [dict(row) for row in rows], "note": note}
        if not self.as_json:
            print(format_table(title, rows, note), flush=True)

    def finish(self) -> None:
        if self.as_json:
            print(json.dumps(_plain(self.tables), indent=2))


def machine() -> str:
    """Where it was measured, and with how many threads: they decide over small products."""
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    threads = max((pool["num_threads"] for pool in blas), default=1)
    versions = (
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    return f"{versions}, {os.cpu_count()} cores, BLAS threads {threads}"


def format_table(title: str, rows: Sequence[Row], note: str = "") -> str:
    """Aligned plain text: the first column to the left, the others to the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([title, *lines, *([note] if note else []), ""])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def _plain(value: Any) -> Any:
    """With what JSON does not know spelled out: NumPy's scalars, infinity and NaN."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
