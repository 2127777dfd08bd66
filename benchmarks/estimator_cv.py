"""What does cross-validation over scales cost, beside that over the penalties of the lasso?

50 scales (or penalties) x 5 folds, n = 200 samples of d = 2000 features by default, each in turn
in one process. Every limit of a path passes a test of feasibility and duality gap to 1e-8, and the
final one is certified; LassoCV stops at its default tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _common import Report, interleaved, parser, problem, progress
from sklearn.linear_model import LassoCV

from flowbias.estimators import ImplicitBiasRegressorCV

FOLDS = 5


def row(name: str, seconds: float, fitted: Any, unit: float) -> dict[str, Any]:
    path = fitted.mse_path_.reshape(-1, fitted.mse_path_.shape[-1])
    return {
        "estimator": name,
        "seconds": seconds,
        "LassoCV = 1": seconds / unit,
        "values x folds": f"{path.shape[0]} x {path.shape[1]}",
        "least error": float(path.mean(axis=1).min()),
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--samples", type=int, default=200)
    arguments.add_argument("--features", type=int, default=2000)
    arguments.add_argument("--scales", type=int, default=50)
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    report = Report(options.json)
    X, y, _ = problem(options.samples, options.features)
    of_scales = {"n_scales": options.scales, "cv": FOLDS}
    runs: dict[str, Callable[[], Any]] = {
        "LassoCV": lambda: LassoCV(alphas=options.scales, cv=FOLDS).fit(X, y),
        "depth 2": lambda: ImplicitBiasRegressorCV(**of_scales).fit(X, y),
        "depth 3": lambda: ImplicitBiasRegressorCV(**of_scales, depth=3).fit(X, y),
    }
    seconds, fitted = interleaved(runs, options.repeats, watch=progress)
    rows = [row(name, seconds[name], fitted[name], seconds["LassoCV"]) for name in runs]
    size = f"n = {options.samples}, d = {options.features}"
    report.table(f"cross-validation, {size}", rows, "least error: mean squared, left-out samples")
    report.finish()


if __name__ == "__main__":
    main()
