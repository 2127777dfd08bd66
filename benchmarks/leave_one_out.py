"""How good are leave-one-out residuals from one fit, and what do exact refits cost?

The problem of [woodworth2020, Section 4] with noise. For each start: the error of the one-fit
residuals nu_i / (H^-1)_ii (root mean square over the samples, relative to that of the exact ones);
the new factorizations per warm-started refit, the conjugate-gradient iterations (each a product
with X and one with its transpose), and how many had to start from scratch; beside it what a solve
from scratch takes, and the largest difference between the two. Milliseconds are processor time per
refit, the full fit and its response included, and per solve from scratch. Three tables: without an
intercept, on centred data, and with a bias that is trained with the weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from _common import Report, parser, problem, progress

import flowbias as fb
from flowbias.estimators.inference.leave_one_out import refits_of, residuals_of
from flowbias.estimators.inference.linear_response import LinearResponse, linear_response
from flowbias.estimators.inference.weighted_rows import WeightedRows, weighted_rows
from flowbias.estimators.intercepts.trained_bias import TrainedBias

SCALES = {
    2: (100.0, 10.0, 1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10),
    3: (10.0, 1.0, 0.3, 0.1, 0.03, 0.01),
}
# Samples whose refit is repeated from scratch.
CHECKED = 10
TOL = 1e-10


class Intercept(NamedTuple):
    """The full fit with its response, and a solve from scratch with its prediction for a sample."""

    title: str
    respond: Callable[[Any, np.ndarray, np.ndarray], LinearResponse]
    solve: Callable[[Any, np.ndarray, np.ndarray, np.ndarray], tuple[fb.Solution, float]]


def plain(model: Any, X: np.ndarray, y: np.ndarray) -> LinearResponse:
    return linear_response(model, weighted_rows(X, y, fit_intercept=False), TOL)


def solved_plain(
    model: Any, X: np.ndarray, y: np.ndarray, x: np.ndarray
) -> tuple[fb.Solution, float]:
    solution = fb.limit(model, X, y)
    return solution, float(x @ solution.w)


def centred(model: Any, X: np.ndarray, y: np.ndarray) -> LinearResponse:
    return linear_response(model, weighted_rows(X, y, fit_intercept=True), TOL)


def solved_centred(
    model: Any, X: np.ndarray, y: np.ndarray, x: np.ndarray
) -> tuple[fb.Solution, float]:
    x_mean, y_mean = X.mean(axis=0), y.mean()
    solution = fb.limit(model, X - x_mean, y - y_mean)
    return solution, float(y_mean + (x - x_mean) @ solution.w)


def trained(model: Any, X: np.ndarray, y: np.ndarray) -> LinearResponse:
    n, d = X.shape
    rows = WeightedRows(np.column_stack([X, np.ones(n)]), y, None, np.zeros(d), np.ones(n), True)
    return linear_response(TrainedBias.of(model, d), rows, TOL)


def solved_trained(
    model: Any, X: np.ndarray, y: np.ndarray, x: np.ndarray
) -> tuple[fb.Solution, float]:
    n, d = X.shape
    solution = fb.limit(TrainedBias.of(model, d), np.column_stack([X, np.ones(n)]), y)
    return solution, float(x @ solution.w[:-1] + solution.w[-1])


INTERCEPTS = (
    Intercept("no intercept", plain, solved_plain),
    Intercept("centred", centred, solved_centred),
    Intercept("trained bias", trained, solved_trained),
)


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def measured(
    model: Any, X: np.ndarray, y: np.ndarray, name: str, intercept: Intercept
) -> dict[str, Any]:
    progress(name)
    started = time.process_time()
    response = intercept.respond(model, X, y)
    refits = refits_of(response, TOL)
    seconds = time.process_time() - started
    counts, off, cold_seconds = from_scratch(model, X, y, refits.residuals, intercept)
    exact = root_mean_square(refits.residuals)
    return {
        "start": name,
        "rms residual": exact,
        "one-fit error": root_mean_square(residuals_of(response) - refits.residuals) / exact,
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
    model: Any, X: np.ndarray, y: np.ndarray, residuals: np.ndarray, intercept: Intercept
) -> tuple[list[int], float, float]:
    """Factorizations of solves from scratch, the largest difference of a residual, the seconds."""
    counts, differences, seconds = [], [], 0.0
    for i in range(0, len(y), max(1, len(y) // CHECKED)):
        others = np.arange(len(y)) != i
        started = time.process_time()
        solution, prediction = intercept.solve(model, X[others], y[others], X[i])
        seconds += time.process_time() - started
        counts.append(solution.stats.factorizations)
        differences.append(y[i] - prediction - residuals[i])
    return counts, float(np.abs(differences).max()), seconds


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--n", type=int, default=60)
    arguments.add_argument("--d", type=int, default=600)
    options = arguments.parse_args()
    report = Report(options.json)
    X, y, _ = problem(options.n, options.d)
    for intercept in INTERCEPTS:
        # A trained bias belongs to a network: the min-norm end has no start to train it from.
        starts = {} if intercept.respond is trained else {"min-norm": fb.L2()}
        for depth, scales in SCALES.items():
            for scale in scales:
                starts[f"depth {depth}, {scale:g}"] = fb.DiagonalNet(depth=depth, scale=scale)
        rows = [measured(model, X, y, name, intercept) for name, model in starts.items()]
        report.table(f"n={options.n}, d={options.d}, {intercept.title}", rows)
    report.finish()


if __name__ == "__main__":
    main()
