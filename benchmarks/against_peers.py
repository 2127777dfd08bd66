"""How long does the library take beside the shortest program that does the same?

One run, one thread, processor time, the least of several runs in turn, ratios. The peers prove
nothing; every limit of ours is certified.

* one limit of a tied depth-2 network, beside ten lines of Newton's method on the dual;
* 100 scales from 1e3 to 1e-300, in products (X * c) @ X.T (`cost_in_products.py`);
* the limit of a vanishing start, beside scikit-learn's LARS;
* cross-validation of 50 scales in 5 folds, beside that of 50 penalties of the lasso, and beside a
  loop over folds and scales with warm starts, which does not refit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from _common import Report, least_seconds, parser, problem, weighted_product
from sklearn.linear_model import LassoCV, lars_path
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressorCV

SCALES = (10.0, 1.0, 0.1, 0.01, 1e-3)
PATH = np.linspace(np.log(1e3), np.log(1e-300), 100)
# Runs of a few milliseconds that make one that can be timed.
SHORT = 20


@np.errstate(over="ignore", invalid="ignore")
def searching_newton(X: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """Newton's method on the dual as textbooks have it: steps are halved until phi falls."""
    phi = lambda nu: 4.0 * alpha**2 * np.sum(np.sinh(0.5 * (X.T @ nu)) ** 2) - nu @ y  # noqa: E731
    nu, size = np.zeros(len(y)), np.linalg.norm(y)
    while True:
        z = X.T @ nu
        gap = y - X @ (w := 2.0 * alpha**2 * np.sinh(z))
        if np.linalg.norm(gap) <= 1e-10 * size:
            return w
        step = np.linalg.solve((X * (2.0 * alpha**2 * np.cosh(z))) @ X.T, gap)
        reach, start, slope = 1.0, phi(nu), gap @ step
        while not phi(nu + reach * step) <= start - 1e-4 * reach * slope + 1e-14 * abs(start):
            reach *= 0.5
        nu += reach * step


def trusting_newton(X: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """For those who know the region of quadratic convergence: steps are cut to 2 in z."""
    nu, size = np.zeros(len(y)), np.linalg.norm(y)
    while True:
        z = X.T @ nu
        gap = y - X @ (w := 2.0 * alpha**2 * np.sinh(z))
        if np.linalg.norm(gap) <= 1e-10 * size:
            return w
        step = np.linalg.solve((X * (2.0 * alpha**2 * np.cosh(z))) @ X.T, gap)
        nu += min(1.0, 2.0 / np.abs(X.T @ step).max()) * step


def repeated(run: Callable[[], Any], times: int) -> Callable[[], Any]:
    return lambda: [run() for _ in range(times)][-1]


def limits(n: int, d: int, repeats: int, times: int) -> list[dict[str, Any]]:
    """A row for each scale."""
    X, y, _ = problem(n, d)
    rows = []
    for alpha in SCALES:
        runs = {
            "limit": lambda alpha=alpha: fb.limit(fb.DiagonalNet(2, alpha), X, y),
            "searching": lambda alpha=alpha: searching_newton(X, y, alpha),
            "trusting": lambda alpha=alpha: trusting_newton(X, y, alpha),
        }
        seconds, results = least_seconds(
            {name: repeated(run, times) for name, run in runs.items()}, repeats
        )
        ours = results["limit"]
        rows.append(
            {
                "scale": f"{alpha:g}",
                "status": ours.status.name,
                "factorizations": ours.stats.factorizations,
                "ms": 1e3 * seconds["limit"] / times,
                "Newton, ms": 1e3 * seconds["searching"] / times,
                "ratio": seconds["limit"] / seconds["searching"],
                "cut to 2, ms": 1e3 * seconds["trusting"] / times,
                "its ratio": seconds["limit"] / seconds["trusting"],
            }
        )
    return rows


def path(repeats: int) -> list[dict[str, Any]]:
    X, y, _ = problem()
    model = fb.DiagonalNet(2, 1.0)
    runs: dict[str, Callable[[], Any]] = {
        "product": repeated(weighted_product(X), SHORT),
        "path": lambda: fb.limit_path(model, X, y, log_scales=PATH, throw=False),
    }
    seconds, results = least_seconds(runs, repeats)
    found = results["path"]
    return [
        {
            "scales": len(found),
            "certified": sum(solution.certificate.ok for solution in found),
            "factorizations": found.stats.factorizations,
            "seconds": seconds["path"],
            "products": seconds["path"] * SHORT / seconds["product"],
        }
    ]


def beside(runs: dict[str, Callable[[], Any]], repeats: int) -> list[dict[str, Any]]:
    """In units of the first."""
    seconds, _ = least_seconds(runs, repeats)
    unit = next(iter(runs))
    return [
        {"program": name, "seconds": taken, f"{unit} = 1": taken / seconds[unit]}
        for name, taken in seconds.items()
    ]


def rich(repeats: int) -> list[dict[str, Any]]:
    X, y, _ = problem()
    model = fb.DiagonalNet(2, 1.0)
    return beside(
        {
            "lars_path": lambda: lars_path(X, y, method="lasso"),
            "fb.rich_limit": lambda: fb.rich_limit(model, X, y),
        },
        repeats,
    )


def warm_loop(X: np.ndarray, y: np.ndarray, log_scales: np.ndarray, folds: int) -> np.ndarray:
    """Cross-validation as one writes it: Newton's method in each fold, from the last scale's dual.

    Steps are cut to 2 in z; residuals of 1e-6, as what is only compared needs no more.
    """
    errors = []
    for train, test in KFold(folds).split(X):
        mean, level = X[train].mean(axis=0), y[train].mean()
        A, b = X[train] - mean, y[train] - level
        # Centred rows depend on each other: one less says the same.
        A, b = A[1:], b[1:]
        nu, last, size = np.zeros(len(b)), None, np.linalg.norm(b)
        for log_scale in log_scales:
            s = 2.0 * np.exp(2.0 * log_scale)
            # z ~ w / s in the kernel regime, and nearly the same from one scale to the next beyond.
            nu = nu if last is None else nu * np.arcsinh(size / s) / np.arcsinh(size / last)
            last = s
            while True:
                z = A.T @ nu
                gap = b - A @ (w := s * np.sinh(z))
                if np.linalg.norm(gap) <= 1e-6 * size:
                    break
                step = np.linalg.solve((A * (s * np.cosh(z))) @ A.T, gap)
                nu = nu + min(1.0, 2.0 / np.abs(A.T @ step).max()) * step
            errors.append(np.mean((y[test] - level - (X[test] - mean) @ w) ** 2))
    return np.array(errors).reshape(folds, -1).T


def cross_validation(repeats: int, values: int = 50, folds: int = 5) -> list[dict[str, Any]]:
    X, y, _ = problem(200, 2000)
    ours = {"n_scales": values, "cv": folds}
    fitted = ImplicitBiasRegressorCV(**ours).fit(X, y)
    by_hand = warm_loop(X, y, fitted.log_scales_, folds)
    # Six digits of each.
    np.testing.assert_allclose(by_hand, fitted.mse_path_, rtol=1e-4)
    return beside(
        {
            "LassoCV": lambda: LassoCV(alphas=values, cv=folds).fit(X, y),
            "a loop with warm starts": lambda: warm_loop(X, y, fitted.log_scales_, folds),
            "ImplicitBiasRegressorCV": lambda: ImplicitBiasRegressorCV(**ours).fit(X, y),
            "  depth 3": lambda: ImplicitBiasRegressorCV(**ours, depth=3).fit(X, y),
        },
        repeats,
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    with threadpool_limits(1):
        report, repeats = Report(options.json), options.repeats
        report.table("one limit, n = 100, d = 1000", limits(100, 1000, repeats, SHORT // 4))
        report.table("one limit, n = 20, d = 60", limits(20, 60, repeats, SHORT))
        report.table("100 scales from 1e3 to 1e-300, n = 100, d = 1000", path(repeats))
        report.table("a vanishing start, n = 100, d = 1000", rich(repeats))
        size = "50 values, 5 folds, n = 200, d = 2000"
        report.table(f"cross-validation, {size}", cross_validation(min(3, repeats)))
        report.finish()


if __name__ == "__main__":
    main()
