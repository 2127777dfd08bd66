"""How good are leave-one-out residuals from one fit, and what do exact refits cost?

The problem of [woodworth2020, Section 4] with noise. For each start: the error of the one-fit
residuals nu_i / (H^-1)_ii (root mean square over the samples, relative to that of the exact ones),
the factorizations per warm-started refit, and how many of them had to start from scratch; beside
it what a solve from scratch takes, and the largest difference between the two.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _common import Report, parser, problem, progress

import flowbias as fb
from flowbias.estimators import leave_one_out, leave_one_out_refits

SCALES = {
    2: (100.0, 10.0, 1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6),
    3: (10.0, 1.0, 0.3, 0.1, 0.03),
}
# Samples whose refit is repeated from scratch.
CHECKED = 10


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def measured(
    model: Any, X: np.ndarray, y: np.ndarray, name: str, intercept: bool
) -> dict[str, Any]:
    progress(name)
    started = time.perf_counter()
    linear = leave_one_out(model, X, y, fit_intercept=intercept)
    one_fit = time.perf_counter() - started
    refits = leave_one_out_refits(model, X, y, fit_intercept=intercept)
    seconds = time.perf_counter() - started - one_fit
    cold, off = from_scratch(model, X, y, refits.residuals, intercept)
    exact = root_mean_square(refits.residuals)
    return {
        "start": name,
        "rms residual": exact,
        "one-fit error": root_mean_square(linear - refits.residuals) / exact,
        "refit: mean": float(refits.factorizations.mean()),
        "max": int(refits.factorizations.max()),
        "share <= 3": float(np.mean(refits.factorizations <= 3)),
        "from scratch": int(refits.from_scratch.sum()),
        "cold: mean": cold,
        "refit - cold": off,
        "one fit s": one_fit,
        "refits s": seconds,
    }


def from_scratch(
    model: Any, X: np.ndarray, y: np.ndarray, residuals: np.ndarray, intercept: bool
) -> tuple[float, float]:
    """Factorizations of a solve from scratch, and the largest difference of its residual."""
    counts, differences = [], []
    for i in range(0, len(y), len(y) // CHECKED):
        others = np.arange(len(y)) != i
        x_mean = X[others].mean(axis=0) * intercept
        y_mean = y[others].mean() * intercept
        solution = fb.limit(model, X[others] - x_mean, y[others] - y_mean)
        counts.append(solution.stats.factorizations)
        differences.append(y[i] - y_mean - (X[i] - x_mean) @ solution.w - residuals[i])
    return float(np.mean(counts)), float(np.abs(differences).max())


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
