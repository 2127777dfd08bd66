"""What would more workers than there are cores here make of a limit on Dask?

The rounds of one solve are counted on X of fewer columns, of which their number hardly depends:
each is one pass over X, with a matrix A diag(c) A^T or without. What a round costs a worker is
measured on one block of the size that is asked about: reading it is not counted. What is sent is
that of the model: nu to every block, sums of size n, or n^2 with a matrix, up a tree of workers.
Network and scheduler are what you say they are. Predicted, for each number of workers:

    seconds = sum over rounds of  blocks per worker * seconds per block
              + levels of the tree * bytes / bandwidth + blocks * overhead of a task
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
from _common import Report, parser
from threadpoolctl import threadpool_limits

import flowbias as fb
from flowbias.designs.dense import DenseBlock, DenseDesign

WORKERS = (1, 2, 4, 8, 16, 32, 64)


class Counted(DenseDesign):
    """Rounds by what they bring back: a vector of length n or so, or a matrix."""

    def __init__(self, X: np.ndarray) -> None:
        super().__init__(X)
        self.rounds: Counter[str] = Counter()

    def reduce(self, task: Any, *columns: Any) -> Any:
        totals = super().reduce(task, *columns)
        is_matrix = any(np.shape(total) == (self.n, self.n) for total in totals.sums)
        self.rounds["matrix" if is_matrix else "vector"] += 1
        return totals

    def gather(self, task: Any, *columns: Any) -> Any:
        self.rounds["vector"] += 1
        return super().gather(task, *columns)


def drawn(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    return X, X[:, :5].astype(float).sum(axis=1) / np.sqrt(5) + 0.1 * rng.standard_normal(n)


def seconds_per_block(n: int, width: int, repeats: int) -> dict[str, float]:
    """A pass without a matrix is two products; one with a matrix adds that."""
    X, y = drawn(n, width)
    block, ones = DenseBlock(X, slice(0, width)), np.ones(n)
    parts = {
        "vector": lambda: block.apply(block.adjoint(y)),
        "matrix": lambda: block.gram(np.ones(width), ones),
    }
    taken = {}
    for name, part in parts.items():
        runs = []
        for _ in range(repeats):
            started = time.process_time()
            part()
            runs.append(time.process_time() - started)
        taken[name] = min(runs)
    return {"vector": taken["vector"], "matrix": taken["vector"] + taken["matrix"]}


def predicted(
    rounds: Counter[str], each: dict[str, float], blocks: int, n: int, options: Any
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for workers in WORKERS:
        levels = int(np.ceil(np.log2(workers)))
        computing = sending = sent = 0.0
        for kind, count in rounds.items():
            numbers = n * n + n if kind == "matrix" else n
            computing += count * -(-blocks // workers) * each[kind]
            sending += count * levels * 8.0 * numbers / (1e6 * options.bandwidth)
            sent += count * 8.0 * (n * blocks + numbers * (workers - 1)) / 1e6
        waiting = sum(rounds.values()) * blocks * 1e-3 * options.overhead
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


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--n", type=int, default=500)
    arguments.add_argument("--d", type=int, default=500_000)
    arguments.add_argument("--width", type=int, default=10_000, help="columns of a block")
    arguments.add_argument("--scales", type=float, nargs="+", default=(0.1, 1e-3))
    arguments.add_argument(
        "--columns", type=int, default=20_000, help="on which rounds are counted"
    )
    arguments.add_argument("--bandwidth", type=float, default=1000.0, help="MB per second")
    arguments.add_argument("--overhead", type=float, default=1.0, help="of a task, milliseconds")
    options = arguments.parse_args()
    n, blocks = options.n, -(-options.d // options.width)
    with threadpool_limits(1):
        report = Report(options.json)
        each = seconds_per_block(n, options.width, repeats=3)
        for scale in options.scales:
            X, y = drawn(n, options.columns)
            design = Counted(X)
            solution = fb.limit(fb.DiagonalNet(2, scale), design, y, tol=1e-8, throw=False)
            rounds = design.rounds
            report.table(
                f"n = {n}, d = {options.d}, blocks of {options.width}, alpha = {scale:g}: "
                f"{solution.status.name}, {rounds.total()} rounds, {rounds['matrix']} with matrix",
                predicted(rounds, each, blocks, n, options),
                f"a block takes {each['vector']:.3f} s without a matrix, {each['matrix']:.3f} s "
                f"with one; {options.bandwidth:g} MB/s, {options.overhead:g} ms a task",
            )
        report.finish()


if __name__ == "__main__":
    main()
