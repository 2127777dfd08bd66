"""How good are leave-one-out residuals from one fit, and what do exact refits cost?

The problem of [woodworth2020, Section 4] with noise. For each start: the error of the one-fit
residuals nu_i / (H^-1)_ii (root mean square over the samples, relative to that of the exact ones);
the new factorizations per warm-started refit, the conjugate-gradient iterations (each a product
with X and one with its transpose), and how many had to start from scratch; beside it what a solve
from scratch takes, and the largest difference between the two. Milliseconds are processor time per
refit, the full fit and its response included, and per solve from scratch.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _common import Report, parser, problem, progress

import flowbias as fb
from flowbias.estimators import leave_one_out, leave_one_out_refits

SCALES = {
    2: (100.0, 10.0, 1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10),
    3: (10.0, 1.0, 0.3, 0.1, 0.03, 0.01),
}
# Samples whose refit is repeated from scratch.
CHECKED = 10


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def measured(
    model: Any, X: np.ndarray, y: np.ndarray, name: str, intercept: bool
) -> dict[str, Any]:
    progress(name)
    linear = leave_one_out(model, X, y, fit_intercept=intercept)
    started = time.process_time()
    refits = leave_one_out_refits(model, X, y, fit_intercept=intercept)
    seconds = time.process_time() - started
    counts, off, cold_seconds = from_scratch(model, X, y, refits.residuals, intercept)
    exact = root_mean_square(refits.residuals)
    return {
        "start": name,
        "rms residual": exact,
        "one-fit error": root_mean_square(linear - refits.residuals) / exact,
        "refit: mean": float(refits.factorizations.mean()),
        "max": int(refits.factorizations.max()),
        "iterations": float(refits.iterations.mean()),
        "from scratch": int(refits.from_scratch.sum()),
        "ms": 1e3 * seconds / len(y),
        "cold: mean": float(np.mean(counts)),
        "cold ms": 1e3 * cold_seconds / len(counts),
        "refit - cold": off,
    }


def from_scratch(
    model: Any, X: np.ndarray, y: np.ndarray, residuals: np.ndarray, intercept: bool
) -> tuple[list[int], float, float]:
    """Factorizations of solves from scratch, the largest difference of a residual, the seconds."""
    counts, differences, seconds = [], [], 0.0
    for i in range(0, len(y), max(1, len(y) // CHECKED)):
        others = np.arange(len(y)) != i
        x_mean = X[others].mean(axis=0) * intercept
        y_mean = y[others].mean() * intercept
        started = time.process_time()
        solution = fb.limit(model, X[others] - x_mean, y[others] - y_mean)
        seconds += time.process_time() - started
        counts.append(solution.stats.factorizations)
        differences.append(y[i] - y_mean - (X[i] - x_mean) @ solution.w - residuals[i])
    return counts, float(np.abs(differences).max()), seconds


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--n", type=int, default=60)
    arguments.add_argument("--d", type=int, default=600)
    options = arguments.parse_args()
    report = Report(options.json)
    X, y, _ = problem(options.n, options.d)
    for intercept in (False, True):
        rows = [measured(fb.L2(), X, y, "min-norm", intercept)]
        for depth, scales in SCALES.items():
            for scale in scales:
                model = fb.DiagonalNet(depth=depth, scale=scale)
                rows.append(measured(model, X, y, f"depth {depth}, {scale:g}", intercept))
        title = f"n={options.n}, d={options.d}, {'centred' if intercept else 'no intercept'}"
        report.table(title, rows)
    report.finish()


if __name__ == "__main__":
    main()
