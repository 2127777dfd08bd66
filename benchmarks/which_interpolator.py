"""Interpolators against penalized regression on scikit-learn's own data sets, expanded to d > n.

Each set is expanded by polynomials or random ReLU features, standardized on the training part (y
too, so that scales compare) and split at random a few times. The first table has the R^2 on the
test part (mean and standard deviation over the splits), the second the same with a sparse target on
real features and more and more noise, the third how far limits at small scales are from the l1 end.
All methods choose their parameter by 5-fold cross-validation on the training part.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import ROOT, Report, parser, progress, relative_error
from celer import celer_path
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV, LassoLarsCV, RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, train_test_split
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import flowbias as fb
from flowbias.estimators import (
    EarlyStoppedRegressorCV,
    ImplicitBiasRegressor,
    ImplicitBiasRegressorCV,
    MinNormRegressor,
    RichRegressor,
)

# Penalties tried by the coordinate descents: from the one that leaves nothing to EPS of it.
N_ALPHAS, EPS = 30, 1e-2


class CelerCV:
    """5-fold cross-validation over celer's path; its own LassoCV asks for an older scikit-learn."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> CelerCV:
        alphas = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / len(y)
        alphas = alphas * np.geomspace(1.0, EPS, N_ALPHAS)
        errors = np.zeros(len(alphas))
        for train, test in KFold(5).split(X):
            coefs, intercepts = self._path(X[train], y[train], alphas)
            misfit = X[test] @ coefs + intercepts - y[test, None]
            errors += np.square(misfit).mean(axis=0)
        best = int(np.argmin(errors))
        coefs, intercepts = self._path(X, y, alphas[: best + 1])
        self.coef_, self.intercept_ = coefs[:, best], float(intercepts[best])
        return self

    def _path(
        self, X: np.ndarray, y: np.ndarray, alphas: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        mean = X.mean(axis=0)
        path = celer_path(np.asfortranarray(X - mean), y - y.mean(), pb="lasso", alphas=alphas)
        return path[1], y.mean() - mean @ path[1]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X @ self.coef_ + self.intercept_)


FIGURE = ROOT / "docs" / "images" / "which-interpolator.png"
METHODS: dict[str, Callable[[], Any]] = {
    "LassoCV": lambda: LassoCV(cv=5, alphas=N_ALPHAS, eps=EPS, max_iter=2_000),
    "LassoLarsCV": lambda: LassoLarsCV(cv=5),
    "celer": lambda: CelerCV(),
    "RidgeCV": lambda: RidgeCV(alphas=np.geomspace(1e-3, 1e5, 30)),
    "min-norm": lambda: MinNormRegressor(),
    "rich": lambda: RichRegressor(),
    "scale by CV": lambda: ImplicitBiasRegressorCV(n_scales=15, cv=5),
    "time by CV": lambda: EarlyStoppedRegressorCV(scale=0.1, n_times=15, eps=0.1, cv=5),
}
SCALES = np.geomspace(30.0, 1e-6, 12)
NOISE = (0.0, 0.1, 1.0)
# One Lasso is enough there.
UNDER_NOISE = ("LassoCV", "RidgeCV", "min-norm", "rich", "scale by CV", "time by CV")


class Data(NamedTuple):
    """A set to compare on."""

    X: np.ndarray
    y: np.ndarray
    n_train: int


def polynomial(X: np.ndarray, degree: int) -> np.ndarray:
    scaled = StandardScaler().fit_transform(X)
    return PolynomialFeatures(degree, include_bias=False).fit_transform(scaled)


def random_relu(X: np.ndarray, width: int) -> np.ndarray:
    """max(0, <a, x> + b) for random a and b; no target is looked at."""
    rng = np.random.default_rng(0)
    scaled = StandardScaler().fit_transform(X)
    directions = rng.standard_normal((X.shape[1], width)) / np.sqrt(X.shape[1])
    return np.maximum(0.0, scaled @ directions + rng.standard_normal(width))


def data_sets() -> dict[str, Data]:
    diabetes, cancer = load_diabetes(return_X_y=True), load_breast_cancer(return_X_y=True)
    digits = load_digits(return_X_y=True)
    return {
        "diabetes, cubic": Data(polynomial(diabetes[0], 3), diabetes[1], 100),
        "diabetes, ReLU": Data(random_relu(diabetes[0], 400), diabetes[1], 100),
        "breast cancer, quadratic": Data(polynomial(cancer[0], 2), cancer[1].astype(float), 100),
        "digits, ReLU": Data(random_relu(digits[0], 1500), digits[1].astype(float), 100),
    }


def sparse_target(noise: float) -> Data:
    """Three features of the quadratic breast-cancer set decide, up to noise."""
    rng = np.random.default_rng(0)
    X = StandardScaler().fit_transform(polynomial(load_breast_cancer(return_X_y=True)[0], 2))
    y = X[:, rng.choice(X.shape[1], 3, replace=False)].sum(axis=1)
    return Data(X, y + noise * y.std() * rng.standard_normal(len(y)), 100)


def splits(data: Data, count: int) -> list[tuple[np.ndarray, ...]]:
    found = []
    for seed in range(count):
        X, X_test, y, y_test = train_test_split(
            data.X, data.y, train_size=data.n_train, random_state=seed
        )
        scaler, mean, spread = StandardScaler().fit(X), y.mean(), y.std()
        parts = scaler.transform(X), scaler.transform(X_test)
        found.append((*parts, (y - mean) / spread, (y_test - mean) / spread))
    return found


def scores(data: Data, count: int, name: str, make: Callable[[], Any]) -> dict[str, float]:
    """Mean and spread of R^2, coefficients in use and seconds per fit."""
    values, sizes, seconds = [], [], []
    for i, (X, X_test, y, y_test) in enumerate(splits(data, count)):
        progress(f"{name}, split {i + 1} of {count}")
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of the coordinate descents
            fitted = make().fit(X, y)
        seconds.append(time.perf_counter() - started)
        values.append(r2_score(y_test, fitted.predict(X_test)))
        sizes.append(np.count_nonzero(np.abs(fitted.coef_) > 1e-3 * np.abs(fitted.coef_).max()))
    return {
        "R2": float(np.mean(values)),
        "sd": float(np.std(values)),
        "used": float(np.mean(sizes)),
        "s": float(np.mean(seconds)),
    }


def along_scales(data: Data, count: int) -> np.ndarray:
    """Mean R^2 on the test part of the limit at each of SCALES."""
    values = []
    for X, X_test, y, y_test in splits(data, count):
        fits = (ImplicitBiasRegressor(scale=scale) for scale in SCALES)
        values.append([r2_score(y_test, fit.fit(X, y).predict(X_test)) for fit in fits])
    return np.mean(values, axis=0)


def compare(report: Report, names: list[str], count: int) -> None:
    rows, costs = [], []
    for name in names:
        data = data_sets()[name]
        found = {method: scores(data, count, name, make) for method, make in METHODS.items()}
        size = f"{name} ({data.n_train} x {data.X.shape[1]})"
        best = {method: f"{f['R2']:.2f}+-{f['sd']:.2f}" for method, f in found.items()}
        cost = {method: f"{f['used']:.0f} / {f['s']:.2g}" for method, f in found.items()}
        rows.append({"set (n x d)": size} | best)
        costs.append({"set (n x d)": size} | cost)
    report.table(f"R^2 on the test part, mean and standard deviation over {count} splits", rows)
    report.table("Coefficients above 1e-3 of the largest, and seconds per fit", costs)


def with_noise(report: Report, count: int) -> None:
    rows = []
    for noise in NOISE:
        data = sparse_target(noise)
        found = {method: scores(data, count, "noise", METHODS[method]) for method in UNDER_NOISE}
        rows.append({"noise": f"{noise:g}"} | {m: f["R2"] for m, f in found.items()})
    report.table("Test R^2, sparse target on real features, noise in its standard deviations", rows)


def distance_to_the_rich_end(report: Report) -> None:
    """||limit - rich|| / ||rich|| on one training part."""
    X, _, y, _ = splits(data_sets()["diabetes, cubic"], 1)[0]
    X = X - X.mean(axis=0)
    rich = fb.rich_limit(fb.DiagonalNet(depth=2, scale=1.0), X, y).w
    logs = {f"1e{int(k)}": k * np.log(10) for k in (-1, -3, -10, -30, -100, -300, -1e4, -1e5, -1e6)}
    rows = []
    for name, log_scale in logs.items():
        w = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scale), X, y).w
        rows.append({"scale": name, "distance to the l1 end": relative_error(w, rich)})
    report.table("No float scale reaches the l1 end (floats end at 1e-308)", rows)


def draw(count: int, path: Path) -> None:
    """Test error along the scale, with the two ends and two penalties as lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sets = data_sets()
    figure, axes = plt.subplots(1, len(sets), figsize=(3.3 * len(sets), 3.6), layout="constrained")
    styles = {"LassoCV": ":", "RidgeCV": "--", "min-norm": "-", "rich": "-."}
    for axis, (name, data) in zip(axes, sets.items(), strict=True):
        along = 1.0 - along_scales(data, count)
        axis.loglog(SCALES, along, "o-", color="black", markersize=3, label="limit at this scale")
        for (method, style), colour in zip(styles.items(), ("C0", "C1", "C2", "C3"), strict=True):
            error = 1.0 - scores(data, count, name, METHODS[method])["R2"]
            axis.axhline(error, linestyle=style, color=colour, label=method)
        axis.set_title(f"{name} ({data.n_train} x {data.X.shape[1]})", fontsize=10)
        axis.set_xlabel("scale of the start")
    axes[0].set_ylabel("test error, 1 - R^2 (the mean has 1)")
    axes[0].legend(fontsize=7)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)


PARTS = ("sets", "noise", "distance", "figure")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--splits", type=int, default=3)
    arguments.add_argument("--part", choices=PARTS, help="only this one")
    arguments.add_argument("--set", choices=[*data_sets()], help="only this set in the first part")
    options = arguments.parse_args()
    report, wanted = Report(options.json), [options.part] if options.part else PARTS
    if "sets" in wanted:
        compare(report, [options.set] if options.set else [*data_sets()], options.splits)
    if "noise" in wanted:
        with_noise(report, options.splits)
    if "distance" in wanted:
        distance_to_the_rich_end(report)
    if "figure" in wanted:
        draw(options.splits, FIGURE)
    report.finish()


if __name__ == "__main__":
    main()
