"""What does the limit of one linear neuron cost? Its unit: one product X @ X.T.

n = 100 samples of d = 1000 features by default, from bare data, certificate included. Starts with
delta > 0, = 0 and < 0, and one from which the outer weight has to be followed to see its sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _common import Report, interleaved, parser, problem, progress

from flowbias.limits.neurons.linear import neuron_limit
from flowbias.models.neuron import Neuron

# Products timed together, so that one of them is not a matter of the clock.
PRODUCTS = 10
TOL = 1e-10


def starts(X: np.ndarray, y: np.ndarray) -> dict[str, Neuron]:
    """One neuron for each way to its limit."""
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    against = -float(np.sign(direction @ X.T @ y))
    w = direction / np.linalg.norm(direction)
    return {
        "delta > 0": Neuron.from_scale_shape(1.0, 0.5, direction),
        "delta = 0": Neuron.from_scale_shape(1.0, 0.0, direction),
        "delta < 0, a kept": Neuron.from_scale_shape(1.0, -0.5, direction),
        "delta < 0, a followed": Neuron(0.05 * against, w),
    }


def row(name: str, model: Neuron, X: np.ndarray, y: np.ndarray, repeats: int) -> dict[str, Any]:
    runs = {
        "product": lambda: [X @ X.T for _ in range(PRODUCTS)],
        "limit": lambda: neuron_limit(model, X, y, TOL),
    }
    seconds, results = interleaved(runs, repeats)
    solution, unit = results["limit"], seconds["product"] / PRODUCTS
    return {
        "start": name,
        "status": solution.status.name,
        "factorizations": solution.stats.factorizations,
        "steps": solution.stats.steps,
        "ms": 1e3 * seconds["limit"],
        "X @ X.T": seconds["limit"] / unit,
        "of which solving": solution.stats.seconds / unit,
        "gap": solution.certificate.gap,
        "error bound": solution.certificate.error_bound,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--samples", type=int, default=100)
    arguments.add_argument("--features", type=int, default=1000)
    arguments.add_argument("--repeats", type=int, default=15)
    options = arguments.parse_args()
    report = Report(options.json)
    X, y, _ = problem(options.samples, options.features)
    rows = []
    for name, model in starts(X, y).items():
        progress(name)
        rows.append(row(name, model, X, y, options.repeats))
    title = f"limit of one linear neuron, n = {options.samples}, d = {options.features}"
    report.table(title, rows, "columns 6 and 7 in units of one X @ X.T")
    report.finish()


if __name__ == "__main__":
    main()
