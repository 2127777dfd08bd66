"""What does the limit of one neuron cost? Its unit: one product X @ X.T.

n = 100 samples of d = 1000 features by default, from bare data, certificate included. Starts with
delta > 0, = 0 and < 0, and one from which the outer weight has to be followed to see its sign:
linear, as a network with one hidden unit, and as a leaky ReLU of slope 0.3. A second table sets
limits of small data beside the flow of all weights to a residual of 1e-9, in processor time.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from _common import Report, interleaved, parser, problem, progress

import flowbias as fb
from flowbias.models.neuron import Neuron

# Products timed together, so that one of them is not a matter of the clock.
PRODUCTS = 10
SLOPE, RESIDUAL = 0.3, 1e-9


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


def models(neuron: Neuron) -> dict[str, Any]:
    """The start as each model that it is one of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fb.models.lifted.NarrowWarning)
        network = fb.LinearNet(neuron.w[:, None], [[neuron.a]])
    return {
        "linear": neuron,
        "network": network,
        "leaky": Neuron(neuron.a, neuron.w, SLOPE),
    }


def row(start: str, kind: str, model: Any, X: Any, y: Any, repeats: int) -> dict[str, Any]:
    runs = {
        "product": lambda: [X @ X.T for _ in range(PRODUCTS)],
        "limit": lambda: fb.limit(model, X, y),
    }
    seconds, results = interleaved(runs, repeats)
    solution, unit = results["limit"], seconds["product"] / PRODUCTS
    return {
        "start": start,
        "model": kind,
        "status": solution.status.name,
        "steps": solution.stats.steps,
        "ms": 1e3 * seconds["limit"],
        "X @ X.T": seconds["limit"] / unit,
        "of which solving": solution.stats.seconds / unit,
    }


def against_flow(kind: str, seed: int) -> dict[str, Any]:
    """Processor time of a limit and of the flow there, on 2 samples of 4 features."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((2, 4)), rng.standard_normal(2)
    a, w = 10.0 ** rng.uniform(-3, 1) * rng.choice([-1, 1]), rng.standard_normal(4)
    model = models(Neuron(a, 10.0 ** rng.uniform(-3, 1) * w))[kind]
    spent = [time.process_time()]
    fb.limit(model, X, y, throw=False)
    spent.append(time.process_time())
    fb.flow(model, X, y, residual=RESIDUAL, throw=False)
    spent.append(time.process_time())
    limit, flow = np.diff(spent)
    return {"model": kind, "limit": limit, "flow": flow}


def summary(kind: str, starts: int) -> dict[str, Any]:
    rows = [against_flow(kind, seed) for seed in range(starts)]
    limits, flows = (np.array([row[name] for row in rows]) for name in ("limit", "flow"))
    return {
        "model": kind,
        "starts": starts,
        "limit, median ms": 1e3 * float(np.median(limits)),
        "limit, worst ms": 1e3 * float(limits.max()),
        "flow / limit, median": float(np.median(flows / limits)),
        "flow / limit, largest": float((flows / limits).max()),
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--samples", type=int, default=100)
    arguments.add_argument("--features", type=int, default=1000)
    arguments.add_argument("--repeats", type=int, default=15)
    arguments.add_argument("--starts", type=int, default=60)
    options = arguments.parse_args()
    report = Report(options.json)
    X, y, _ = problem(options.samples, options.features)
    rows = []
    for name, neuron in starts(X, y).items():
        for kind, model in models(neuron).items():
            progress(f"{name}, {kind}")
            rows.append(row(name, kind, model, X, y, options.repeats))
    title = f"limit of one neuron, n = {options.samples}, d = {options.features}"
    report.table(title, rows, "columns 6 and 7 in units of one X @ X.T")
    progress("flows")
    small = [summary(kind, options.starts) for kind in ("linear", "network", "leaky")]
    report.table("limit against the flow, n = 2, d = 4, processor time", small)
    report.finish()


if __name__ == "__main__":
    main()
