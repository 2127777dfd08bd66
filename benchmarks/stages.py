"""The path of a vanishing start and its end, beside least angle regression and the lasso.

Processor time of one thread, the least of several runs, each program in turn. LARS follows the
lasso to the same end; LassoCV stops at its default tolerance; HiGHS is the linear program of the
least l1 norm, of which the path's end is the minimizer.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse
from _common import Report, least_seconds, parser, problem, progress
from sklearn.linear_model import LassoCV, lars_path
from threadpoolctl import threadpool_limits

import flowbias as fb
from flowbias.estimators import StagesRegressorCV
from flowbias.limits.basis_pursuit import HIGHS, pursue

MODEL = fb.DiagonalNet(depth=2, scale=1.0)


def rows_of(seconds: Mapping[str, float], unit: str) -> list[dict[str, Any]]:
    return [
        {"program": name, "seconds": taken, f"{unit} = 1": taken / seconds[unit]}
        for name, taken in seconds.items()
    ]


def against_lars(report: Report, repeats: int) -> None:
    X, y, _ = problem()
    data = fb.Regression(X, y)
    runs: dict[str, Callable[[], Any]] = {
        "lars_path": lambda: lars_path(X, y, method="lasso"),
        "fb.stages": lambda: fb.stages(MODEL, X, y),
        "fb.rich_limit": lambda: fb.rich_limit(MODEL, X, y),
        "the same by HiGHS": lambda: pursue(data, fb.L1(), tol=1e-10, ways=(HIGHS,)),
    }
    seconds, results = least_seconds(runs, repeats)
    path = results["fb.stages"]
    note = (
        f"{len(path)} stages, {path.status.name}; rich_limit {results['fb.rich_limit'].status.name}"
    )
    report.table("to the end, n = 100, d = 1000", rows_of(seconds, "lars_path"), note)


def against_lasso_cv(report: Report, repeats: int, seeds: int) -> None:
    for noise_var in (0.01, 0.25):
        errors: dict[str, list[float]] = {"LassoCV": [], "StagesRegressorCV": []}
        kept: dict[str, list[int]] = {name: [] for name in errors}
        seconds = dict.fromkeys(errors, np.inf)
        for seed in range(seeds):
            X, y, w = fb.datasets.sparse_regression(
                n=200, d=2000, sparsity=5, noise_var=noise_var, rng=seed
            )
            fits = {
                "LassoCV": LassoCV(alphas=100, cv=5, fit_intercept=False).fit,
                "StagesRegressorCV": StagesRegressorCV(cv=5, fit_intercept=False).fit,
            }
            runs = {name: lambda fit=fit, X=X, y=y: fit(X, y) for name, fit in fits.items()}
            taken, fitted = least_seconds(runs, repeats if seed == 0 else 1)
            for name, found in fitted.items():
                # Of one problem, timed several times.
                seconds[name] = taken[name] if seed == 0 else seconds[name]
                errors[name].append(float(np.sum((found.coef_ - w) ** 2)))
                kept[name].append(int(np.count_nonzero(found.coef_)))
        rows = [
            {
                **row,
                "squared error of w": float(np.mean(errors[row["program"]])),
                "at most, LassoCV = 1": float(
                    np.max(np.divide(errors[row["program"]], errors["LassoCV"]))
                ),
                "features kept": float(np.mean(kept[row["program"]])),
            }
            for row in rows_of(seconds, "LassoCV")
        ]
        title = f"cross-validation, n = 200, d = 2000, noise {noise_var}"
        report.table(title, rows, f"5 folds, 100 penalties; errors: mean over {seeds} data sets")


def big_and_sparse(report: Report, features: int) -> None:
    n, rng = 1000, np.random.default_rng(0)
    X = scipy.sparse.random_array((n, features), density=0.01, rng=rng, format="csc")
    w = np.zeros(features)
    w[rng.choice(features, 20, replace=False)] = 1.0
    y = X @ w + 0.01 * rng.standard_normal(n)
    seconds, results = least_seconds(
        {"fb.stages": lambda: fb.stages(MODEL, X, y, max_stages=50)}, repeats=1
    )
    tracemalloc.start()
    fb.stages(MODEL, X, y, max_stages=50)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    path = results["fb.stages"]
    row = {
        "stages": len(path),
        "seconds": seconds["fb.stages"],
        "MB beyond X": most / 1e6,
        "status": path.status.name,
    }
    report.table(f"sparse X, n = {n}, d = {features}, 1 % nonzero", [row])


def against_highs(report: Report, problems: int) -> None:
    """Ends of paths, clean and noisy, depth 2 to 6, uneven starts."""
    apart = []
    for seed in range(problems):
        progress(f"problem {seed}")
        rng = np.random.default_rng(seed)
        X, depth = rng.standard_normal((8, 20)), 2 + seed % 5
        planted = rng.standard_normal(20) * (rng.random(20) < 0.2)
        y = X @ planted if seed % 2 else rng.standard_normal(8)
        w0 = np.exp(rng.uniform(-1.0, 1.0, 20))
        path = fb.stages(fb.DiagonalNet(depth, 1.0, w0=w0), X, y)
        solved = pursue(fb.Regression(X, y), fb.L1(w0 ** (2.0 - depth)), tol=1e-10, ways=(HIGHS,))
        if solved.status is fb.Status.CERTIFIED:
            apart.append(np.abs(path.w[-1] - solved.w).max() / (np.abs(solved.w).max() or 1.0))
    row = {"problems": problems, "one minimizer": len(apart), "largest difference": max(apart)}
    report.table("ends of paths against HiGHS, relative", [row])


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--repeats", type=int, default=7)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--features", type=int, default=10**6)
    arguments.add_argument("--problems", type=int, default=300)
    options = arguments.parse_args()
    with threadpool_limits(1):
        report = Report(options.json)
        against_lars(report, options.repeats)
        against_highs(report, options.problems)
        big_and_sparse(report, options.features)
        against_lasso_cv(report, min(options.repeats, 3), options.seeds)
    report.finish()


if __name__ == "__main__":
    main()
