"""Interpolators against penalized regression on scikit-learn's own data sets, expanded to d > n.

Each set is expanded by polynomials or random ReLU features, standardized on the training part (y
too, so that scales compare) and split at random ten times. Parts: "sets", the R^2 on the test part
(mean and standard deviation over the splits); "recovery", the error of w where it is known and
sparse; "noise", R^2 with a sparse target on real features and more and more noise; "distance", how
far limits at small scales are from the l1 end. All methods choose their parameter by 5-fold
cross-validation on the training part, RidgeCV by its leave-one-out, FlowRegressorCV by its two
times five folds. celer and skglm (MCP) are left out where they are not installed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import ROOT, Report, parser, progress, relative_error
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import (
    ElasticNetCV,
    LassoCV,
    LassoLarsCV,
    OrthogonalMatchingPursuitCV,
    RidgeCV,
    lasso_path,
)
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, train_test_split
from sklearn.preprocessing import PolynomialFeatures

import flowbias as fb
from flowbias.estimators import (
    EarlyStoppedRegressorCV,
    FlowRegressorCV,
    ImplicitBiasRegressor,
    ImplicitBiasRegressorCV,
    MinNormRegressor,
    RichRegressor,
    StagesRegressorCV,
)
from flowbias.ground.drawing import COLOURS, INK

# Peers that an installation need not have: their columns are left out then.
try:
    from celer import celer_path
except ImportError:
    celer_path = None
try:
    import skglm
except ImportError:
    skglm = None

# Penalties tried by the coordinate descents: from the one that leaves nothing to EPS of it.
N_ALPHAS, EPS = 100, 1e-3


Route = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class PathCV:
    """5-fold cross-validation over the penalties of a path of centred data, as LassoCV has it.

    For those that come without one (celer's own asks for an older scikit-learn).
    """

    def __init__(self, path: Route) -> None:
        self.path = path

    def fit(self, X: np.ndarray, y: np.ndarray) -> PathCV:
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
        coefs = self.path(np.asfortranarray(X - mean), y - y.mean(), alphas)
        return coefs, y.mean() - mean @ coefs

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X @ self.coef_ + self.intercept_)


def celer(X: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    return np.asarray(celer_path(X, y, pb="lasso", alphas=alphas)[1])


def relaxed_lasso(X: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """Least squares on the features that the Lasso keeps at each penalty."""
    lasso = lasso_path(X, y, alphas=alphas, max_iter=2_000)[1]
    coefs = np.zeros_like(lasso)
    for coef, kept in zip(coefs.T, lasso.T != 0.0, strict=True):
        coef[kept] = np.linalg.lstsq(X[:, kept], y)[0]
    return coefs


def minimax_concave(X: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """MCP with gamma = 3, warm along the penalties."""
    model = skglm.MCPRegression(gamma=3.0, fit_intercept=False, warm_start=True)
    return np.stack([model.set_params(alpha=a).fit(X, y).coef_ for a in alphas], axis=1)


FIGURE = ROOT / "docs" / "images" / "which-interpolator.png"
METHODS: dict[str, Callable[[], Any]] = {
    "LassoCV": lambda: LassoCV(cv=5, alphas=N_ALPHAS, eps=EPS, max_iter=2_000),
    "LassoLarsCV": lambda: LassoLarsCV(cv=5),
    "celer": lambda: PathCV(celer),
    "ElasticNetCV": lambda: ElasticNetCV(
        l1_ratio=[0.1, 0.5, 0.9], cv=5, alphas=N_ALPHAS, eps=EPS, max_iter=2_000
    ),
    "OMP CV": lambda: OrthogonalMatchingPursuitCV(cv=5),
    "relaxed Lasso": lambda: PathCV(relaxed_lasso),
    "MCP": lambda: PathCV(minimax_concave),
    "RidgeCV": lambda: RidgeCV(alphas=np.geomspace(1e-3, 1e5, 30)),
    "min-norm": lambda: MinNormRegressor(),
    "rich": lambda: RichRegressor(),
    "scale by CV": lambda: ImplicitBiasRegressorCV(n_scales=15, cv=5),
    "time by CV": lambda: EarlyStoppedRegressorCV(scale=0.1, n_times=15, eps=0.1, cv=5),
    "stages": lambda: StagesRegressorCV(),
    "stages, 1se": lambda: StagesRegressorCV(rule="1se"),
    "flow": lambda: FlowRegressorCV(),
}
for name, peer in (("celer", celer_path), ("MCP", skglm)):
    if peer is None:
        del METHODS[name]
SCALES = np.geomspace(30.0, 1e-6, 12)
NOISE = (0.0, 0.1, 1.0)
# Variances of the noise where w itself is asked for, and who does not look for few features.
NOISE_VARIANCES = (0.01, 0.25, 1.0)
NOT_SELECTING = ("min-norm", "rich", "scale by CV", "time by CV")
# One Lasso is enough there.
UNDER_NOISE = ("LassoCV", "RidgeCV", "min-norm", "rich", "scale by CV", "stages", "flow")


class Data(NamedTuple):
    """A set to compare on.

    Pixels, and random features of them, have a unit in common. Each divided by its own spread in a
    training part, those that are almost always 0 become enormous in a few test samples, and in some
    splits of the digits no method here has an R^2 above -10.
    """

    X: np.ndarray
    y: np.ndarray
    n_train: int
    common_unit: bool = False


def standardized(X: np.ndarray, train: np.ndarray, common_unit: bool = False) -> np.ndarray:
    """Less the means of a training part, in units of its spread: of each feature or of them all."""
    spread = train.std(axis=0)
    spread[spread == 0.0] = 1.0
    return (X - train.mean(axis=0)) / (np.sqrt(np.mean(spread**2)) if common_unit else spread)


def polynomial(X: np.ndarray, degree: int) -> np.ndarray:
    return PolynomialFeatures(degree, include_bias=False).fit_transform(standardized(X, X))


def random_relu(X: np.ndarray, width: int, *, common_unit: bool = False) -> np.ndarray:
    """max(0, <a, x> + b) for random a and b; no target is looked at."""
    rng = np.random.default_rng(0)
    scaled = standardized(X, X, common_unit)
    directions = rng.standard_normal((X.shape[1], width)) / np.sqrt(X.shape[1])
    return np.maximum(0.0, scaled @ directions + rng.standard_normal(width))


def data_sets() -> dict[str, Data]:
    diabetes, cancer = load_diabetes(return_X_y=True), load_breast_cancer(return_X_y=True)
    digits, wine = load_digits(return_X_y=True), load_wine(return_X_y=True)
    return {
        "diabetes, cubic": Data(polynomial(diabetes[0], 3), diabetes[1], 100),
        "diabetes, ReLU": Data(random_relu(diabetes[0], 400), diabetes[1], 100),
        "breast cancer, quadratic": Data(polynomial(cancer[0], 2), cancer[1].astype(float), 100),
        "wine, cubic": Data(polynomial(wine[0], 3), wine[1].astype(float), 100),
        "digits, ReLU": Data(
            random_relu(digits[0], 1500, common_unit=True), digits[1].astype(float), 100, True
        ),
    }


def sparse_target(noise: float) -> Data:
    """Three features of the quadratic breast-cancer set decide, up to noise."""
    rng = np.random.default_rng(0)
    X = polynomial(load_breast_cancer(return_X_y=True)[0], 2)
    X = standardized(X, X)
    y = X[:, rng.choice(X.shape[1], 3, replace=False)].sum(axis=1)
    return Data(X, y + noise * y.std() * rng.standard_normal(len(y)), 100)


def splits(data: Data, count: int) -> list[tuple[np.ndarray, ...]]:
    found = []
    for seed in range(count):
        X, X_test, y, y_test = train_test_split(
            data.X, data.y, train_size=data.n_train, random_state=seed
        )
        mean, spread = y.mean(), y.std()
        parts = (standardized(part, X, data.common_unit) for part in (X, X_test))
        found.append((*parts, (y - mean) / spread, (y_test - mean) / spread))
    return found


def scores(data: Data, count: int, name: str, make: Callable[[], Any]) -> dict[str, Any]:
    """Mean and spread of R^2, coefficients in use and seconds of CPU per fit."""
    values, sizes, seconds, failures = [], [], [], 0
    for i, (X, X_test, y, y_test) in enumerate(splits(data, count)):
        progress(f"{name}, split {i + 1} of {count}")
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the coordinate descents, and of OMP
            try:
                fitted = make().fit(X, y)
            except fb.SolveError:  # an interpolator that could not be certified on this split
                failures += 1
                continue
        seconds.append(time.process_time() - started)
        values.append(r2_score(y_test, fitted.predict(X_test)))
        sizes.append(np.count_nonzero(np.abs(fitted.coef_) > 1e-3 * np.abs(fitted.coef_).max()))
    return {
        "R2": float(np.mean(values)),
        "sd": float(np.std(values)),
        "used": float(np.mean(sizes)),
        "s": float(np.mean(seconds)),
        "failures": failures,
    }


def along_scales(data: Data, count: int) -> np.ndarray:
    """Mean R^2 on the test part of the limit at each of SCALES."""
    values = []
    for X, X_test, y, y_test in splits(data, count):
        fits = (ImplicitBiasRegressor(scale=scale) for scale in SCALES)
        values.append([r2_score(y_test, fit.fit(X, y).predict(X_test)) for fit in fits])
    return np.mean(values, axis=0)


def compare(report: Report, names: list[str], count: int) -> None:
    """One column a set, one row a method."""
    sets = data_sets()
    sizes = {name: f"{name} ({sets[name].n_train} x {sets[name].X.shape[1]})" for name in names}
    rows: list[dict[str, Any]] = [{"method": method} for method in METHODS]
    costs: list[dict[str, Any]] = [{"method": method} for method in METHODS]
    for name, size in sizes.items():
        for row, cost, make in zip(rows, costs, METHODS.values(), strict=True):
            found = scores(sets[name], count, name, make)
            row[size] = f"{found['R2']:.3f} +- {found['sd']:.2f}{'*' * found['failures']}"
            cost[size] = f"{found['used']:.0f} / {found['s']:.2g}"
    report.table(
        f"R^2 on the test part, mean and standard deviation over {count} splits",
        rows,
        "* for each split on which an interpolator was not certified",
    )
    report.table("Coefficients above 1e-3 of the largest, and seconds of CPU per fit", costs)


def recovery(report: Report, count: int) -> None:
    """||w - w_true||^2 and the features kept: 5 of 300 count, 100 samples, ||w_true|| = 1."""
    selecting = [name for name in METHODS if name not in NOT_SELECTING]
    rows: list[dict[str, Any]] = [{"method": method} for method in selecting]
    for noise in NOISE_VARIANCES:
        for row in rows:
            errors, kept = [], []
            for seed in range(count):
                progress(f"recovery, {row['method']}, seed {seed + 1} of {count}")
                X, y, w = fb.datasets.sparse_regression(
                    100, 300, sparsity=5, noise_var=noise, rng=seed
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of the coordinate descents, and of OMP
                    coef = METHODS[row["method"]]().fit(X, y).coef_
                errors.append(np.sum((coef - w) ** 2))
                kept.append(np.count_nonzero(np.abs(coef) > 1e-3 * np.abs(coef).max()))
            row[f"noise {noise:g}"] = f"{np.mean(errors):.2g} ({np.mean(kept):.0f})"
    report.table(f"||w - w_true||^2 (features kept), mean over {count} seeds", rows)


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
    """Test error along the scale; both ends, two penalties and a flow stopped early as lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    figure, axes = plt.subplots(2, 3, figsize=(10, 6.2), layout="constrained")
    styles = {"LassoCV": ":", "RidgeCV": "--", "min-norm": "-", "rich": "-.", "flow": (0, (6, 1))}
    for axis, (name, data) in zip(axes.flat, data_sets().items(), strict=False):
        along = 1.0 - along_scales(data, count)
        axis.loglog(SCALES, along, "o-", color=INK, markersize=3, label="limit at this scale")
        for (method, style), colour in zip(styles.items(), COLOURS, strict=False):
            error = 1.0 - scores(data, count, name, METHODS[method])["R2"]
            label = "FlowRegressorCV" if method == "flow" else method
            axis.axhline(error, linestyle=style, color=colour, label=label)
        axis.set_title(f"{name} ({data.n_train} x {data.X.shape[1]})", fontsize=10)
        # Whole decades are too few for some ranges.
        shown = [f"{error:.2g}" for error in np.geomspace(*axis.get_ylim(), 6)[1:-1]]
        axis.yaxis.set_minor_locator(NullLocator())
        axis.set_yticks([float(error) for error in shown], shown)
    figure.supxlabel(r"scale of the start  $\alpha$")
    figure.supylabel(r"test error  $1 - R^2$  (the mean of y has 1)")
    axes[-1, -1].set_axis_off()
    axes[-1, -1].legend(*axes[0, 0].get_legend_handles_labels(), loc="center", fontsize=10)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)


PARTS = ("sets", "recovery", "noise", "distance", "figure")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--splits", type=int, default=10)
    arguments.add_argument("--part", choices=PARTS, help="only this one")
    arguments.add_argument("--set", choices=[*data_sets()], help="only this set in the first part")
    arguments.add_argument("--method", choices=[*METHODS], action="append", help="only these")
    options = arguments.parse_args()
    for method in set(METHODS) - set(options.method or METHODS):
        del METHODS[method]
    report, wanted = Report(options.json), [options.part] if options.part else PARTS
    if "sets" in wanted:
        compare(report, [options.set] if options.set else [*data_sets()], options.splits)
    if "recovery" in wanted:
        recovery(report, options.splits)
    if "noise" in wanted:
        with_noise(report, options.splits)
    if "distance" in wanted:
        distance_to_the_rich_end(report)
    if "figure" in wanted:
        draw(options.splits, FIGURE)
    report.finish()


if __name__ == "__main__":
    main()
