"""What would more workers than there are cores here make of a limit on Dask?

The rounds of one solve are counted on X of fewer columns, of which their number hardly depends:
each is one pass over X, with a matrix A diag(c) A^T or without. What it costs a worker is measured
there as well, in processor time per column: reading a block is not counted. What is sent is
that of the model: nu to every block, sums of size n, or n^2 with a matrix, up a tree of workers.
Network and scheduler are what you say they are. Predicted, for each number of workers:

    seconds = sum over rounds of  blocks per worker * seconds per block
              + levels of the tree * bytes / bandwidth + blocks * overhead of a task
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
from _common import Report, parser
from threadpoolctl import threadpool_limits

import flowbias as fb
from flowbias.designs.dense import DenseDesign

WORKERS = (1, 2, 4, 8, 16, 32, 64)


class Round(NamedTuple):
    """One pass over X: whether it brings back a matrix, and what it costs a worker."""

    is_matrix: bool
    seconds_per_column: float


class Counted(DenseDesign):
    """Rounds as they come: what they bring back, and processor time."""

    def __init__(self, X: np.ndarray) -> None:
        super().__init__(X)
        self.rounds: list[Round] = []

    def reduce(self, task: Any, *columns: Any) -> Any:
        started = time.process_time()
        totals = super().reduce(task, *columns)
        seconds = time.process_time() - started
        is_matrix = any(np.shape(total) == (self.n, self.n) for total in totals.sums)
        self.rounds.append(Round(is_matrix, seconds / self.d))
        return totals

    def gather(self, task: Any, *columns: Any) -> Any:
        started = time.process_time()
        numbers = super().gather(task, *columns)
        self.rounds.append(Round(False, (time.process_time() - started) / self.d))
        return numbers


def drawn(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    return X, X[:, :5].astype(float).sum(axis=1) / np.sqrt(5) + 0.1 * rng.standard_normal(n)


def predicted(
    rounds: list[Round], blocks: int, n: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for workers in WORKERS:
        levels = int(np.ceil(np.log2(workers)))
        computing = sending = sent = 0.0
        for is_matrix, seconds in rounds:
            numbers = n * n + n if is_matrix else n
            computing += -(-blocks // workers) * options.width * seconds
            sending += levels * 8.0 * numbers / (1e6 * options.bandwidth)
            sent += 8.0 * (n * blocks + numbers * (workers - 1)) / 1e6
        waiting = len(rounds) * blocks * 1e-3 * options.overhead
        total = computing + sending + waiting
        rows.append(
            {
                "workers": workers,
                "seconds": total,
                "computing": computing,
                "network": sending,
                "scheduler": waiting,
                "sent, MB": sent,
                "speed-up": rows[0]["seconds"] / total if rows else 1.0,
            }
        )
    return rows


def fastest(runs: list[list[Round]]) -> list[Round]:
    """The least time of each round, of runs that are alike."""
    return [
        Round(same[0].is_matrix, min(each.seconds_per_column for each in same))
        for same in zip(*runs, strict=True)
    ]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--n", type=int, default=500)
    arguments.add_argument("--d", type=int, default=500_000)
    arguments.add_argument("--width", type=int, default=10_000, help="columns of a block")
    arguments.add_argument("--scales", type=float, nargs="+", default=(0.1, 1e-3))
    arguments.add_argument(
        "--columns", type=int, default=20_000, help="on which rounds are counted"
    )
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--bandwidth", type=float, default=1000.0, help="MB per second")
    arguments.add_argument("--overhead", type=float, default=1.0, help="of a task, milliseconds")
    options = arguments.parse_args()
    n, blocks = options.n, -(-options.d // options.width)
    with threadpool_limits(1):
        report = Report(options.json)
        for scale in options.scales:
            X, y = drawn(n, options.columns)
            runs = []
            for _ in range(options.repeats):
                design = Counted(X)
                solution = fb.limit(fb.DiagonalNet(2, scale), design, y, tol=1e-8, throw=False)
                runs.append(design.rounds)
            rounds = fastest(runs)
            each = [1e3 * options.width * seconds for _, seconds in rounds]
            report.table(
                f"n = {n}, d = {options.d}, blocks of {options.width}, alpha = {scale:g}: "
                f"{solution.status.name}, {len(rounds)} rounds, "
                f"{sum(is_matrix for is_matrix, _ in rounds)} with matrix",
                predicted(rounds, blocks, n, options),
                f"a block takes {', '.join(f'{ms:.0f}' for ms in each)} ms, round by round; "
                f"{options.bandwidth:g} MB/s, {options.overhead:g} ms a task",
            )
        report.finish()


if __name__ == "__main__":
    main()
