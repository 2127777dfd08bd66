"""Does the cost of a flow depend on the width? Ours must not; following the weights does.

Matrix completion, 10 x 10 with 60 entries of a rank-one matrix, alpha^2 k = 0.1, to a residual of
1e-8; and a linear network with d = 500, n = 100, one output, width 10^6. The weights are followed
by the same integrator at the same tolerance, up to the time at which ours ended. Where keeping them
is hopeless the row says so.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _common import Report, interleaved, parser, progress
from scipy.integrate import solve_ivp

import flowbias as fb

WIDTHS = (20, 1_000, 100_000)
RTOL = 1e-11


def completion(rng: np.random.Generator) -> fb.MatrixCompletion:
    truth = np.outer(rng.standard_normal(10), rng.standard_normal(10))
    rows, cols = np.unravel_index(rng.permutation(100)[:60], (10, 10))
    return fb.MatrixCompletion(rows, cols, truth[rows, cols], (10, 10))


def follow_weights(
    problem: fb.MatrixCompletion, width: int, scale: float, end: float
) -> tuple[float, int]:
    """Seconds and evaluations of the flow in U and V themselves."""
    shape = (20, width)
    start = scale * np.random.default_rng(0).standard_normal(shape)

    def derivative(_t: float, y: np.ndarray) -> np.ndarray:
        Z = y.reshape(shape)
        U, V = Z[:10], Z[10:]
        R = problem.adjoint(problem.measure(U @ V.T) - problem.target)
        return -np.vstack([R @ V, R.T @ U]).ravel()

    started = time.perf_counter()
    solved = solve_ivp(
        derivative, (0.0, end), start.ravel(), method="DOP853", rtol=RTOL, atol=1e-13
    )
    return time.perf_counter() - started, solved.nfev


def completion_rows(repeats: int) -> list[dict[str, Any]]:
    problem = completion(np.random.default_rng(1))
    scales = {width: float(np.sqrt(0.1 / width)) for width in WIDTHS}
    models = {
        width: fb.MatrixFactorization.gaussian((10, 10), width=width, scale=scale, rng=0)
        for width, scale in scales.items()
    }
    runs = {str(w): lambda model=model: fb.flow(model, problem) for w, model in models.items()}
    seconds, results = interleaved(runs, repeats, once_above=5.0)
    rows = []
    for width in WIDTHS:
        progress(f"weights at width {width}")
        trajectory = results[str(width)]
        theirs, evaluations = follow_weights(problem, width, scales[width], trajectory.t[-1])
        rows.append(
            {
                "width": width,
                "seconds": seconds[str(width)],
                "evaluations": trajectory.stats.evaluations,
                "weights, seconds": theirs,
                "weights, evaluations": evaluations,
                "ratio": theirs / seconds[str(width)],
                "imbalance drift": trajectory.imbalance_drift,
            }
        )
    return rows


def network_row() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 500))
    y = X @ rng.standard_normal(500) / np.sqrt(500)
    net = fb.LinearNet.gaussian(500, 1, width=10**6, scale=1e-3, rng=0)
    trajectory = fb.flow(net, X, y)
    started = time.perf_counter()
    solution = fb.limit(net, X, y)
    return {
        "width": net.width,
        "flow, seconds": trajectory.stats.seconds,
        "residual": float(trajectory.residual[-1]),
        "imbalance drift": trajectory.imbalance_drift,
        "limit, seconds": time.perf_counter() - started,
        "error estimate": solution.error,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    report = Report(options.json)
    report.table("matrix completion 10 x 10, alpha^2 k = 0.1", completion_rows(options.repeats))
    report.table("linear network, d = 500, n = 100, one output", [network_row()])
    report.finish()


if __name__ == "__main__":
    main()
