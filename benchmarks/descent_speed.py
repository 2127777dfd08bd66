"""What a step of a descent costs beside the two products with its batch that it cannot do without.

n = 100, d = 1000, batches of 10. Processor time of one thread, the least of several runs, each in
turn. The products multiply the rows of a batch by w and their transpose by the result: alone, on
rows that lie together as they are, and with the rows of each batch taken from X before. 32 seeds
see 32 batches: what they cannot do without is that 32 times, in the fastest calls that NumPy has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from _common import Report, least_seconds, parser, problem
from threadpoolctl import threadpool_limits

import flowbias as fb

BATCH = 10


def products(X: np.ndarray, steps: int) -> None:
    """The two products with ten rows that lie together."""
    w = np.zeros(X.shape[1])
    for place in range(steps):
        first = place * BATCH % len(X)
        rows = X[first : first + BATCH]
        rows.T @ (rows @ w)


def products_with_batches(X: np.ndarray, steps: int) -> None:
    """The rows of each batch, and the two products with them; the order of samples is at hand."""
    w = np.zeros(X.shape[1])
    for batch in batches(len(X), steps):
        rows = X[batch]
        rows.T @ (rows @ w)


def least(X: np.ndarray, steps: int) -> None:
    """The same in place, without a look at what comes out."""
    w, e, gradient = np.zeros(X.shape[1]), np.zeros(BATCH), np.zeros(X.shape[1])
    rows = np.empty((BATCH, X.shape[1]))
    for batch in batches(len(X), steps):
        X.take(batch, 0, rows, "clip")
        rows.dot(w, e)
        e.dot(rows, gradient)


def batches(n: int, steps: int) -> np.ndarray:
    epochs = -(-steps // (n // BATCH))
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(n), (epochs, 1)), axis=1)
    return orders.reshape(-1, BATCH)[:steps]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--steps", type=int, default=100_000)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    X, y, _ = problem()
    model, steps = fb.DiagonalNet(depth=2, scale=0.1), options.steps
    # As many steps of each seed would take minutes.
    few = max(steps // 10, 1)

    def descend(rng: Any, count: int) -> Callable[[], Any]:
        return lambda: fb.gradient_descent(
            model, X, y, step_size=1e-4, batch_size=BATCH, rng=rng, max_steps=count, residual=1e-15
        )

    runs = {
        "two products alone": lambda: products(X, steps),
        "rows of the batch, two products": lambda: products_with_batches(X, steps),
        "fb.gradient_descent": descend(0, steps),
        "32 seeds: rows and products in place": lambda: least(X, 32 * few),
        "32 seeds at once": descend(range(32), few),
    }
    with threadpool_limits(1):
        seconds, _ = least_seconds(runs, options.repeats)
    counts = dict(zip(runs, (steps, steps, steps, few, few), strict=True))
    micro = {name: 1e6 * taken / counts[name] for name, taken in seconds.items()}
    products_alone, _, alone, _, together = micro.values()
    report = Report(options.json)
    rows = [
        {"what": name, "microseconds a step": taken, "two products = 1": taken / products_alone}
        for name, taken in micro.items()
    ]
    note = f"32 seeds: {together / alone:.1f} times one, {together / 32 / alone:.2f} a seed"
    report.table(f"{steps} steps, n = 100, d = 1000, batches of {BATCH}", rows, note)
    report.finish()


if __name__ == "__main__":
    main()
