"""What does a limit cost, counted in products X diag(c) X^T?

One such product is the least that a Newton step on the dual can do, so it is the unit: the count of
factorizations does not depend on the machine, and wall time is given as a multiple of one product
timed in the same run. n = 100, d = 1000 unless asked otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from _common import (
    TINIEST_LOG_SCALE,
    Report,
    interleaved,
    parser,
    problem,
    progress,
    weighted_product,
)

import flowbias as fb

DEPTHS = (2, 3, 5, 10)
SCALES = (1e3, 1.0, 0.1, 0.01, 1e-3, 1e-6, 1e-12, 1e-30, 1e-100, 1e-300)
PATH = np.linspace(np.log(1e3), np.log(1e-300), 100)
# Many short products beside each solve: one alone is too short to time.
PRODUCTS = 10


def models(depth: float, **start: Any) -> list[tuple[str, Callable[[], fb.DiagonalNet]]]:
    """The same network at every scale, by the name of the scale."""
    named = [
        (f"{scale:g}", lambda scale=scale: fb.DiagonalNet(depth, scale, **start))
        for scale in SCALES
    ]
    tiniest = lambda: fb.DiagonalNet(depth, log_scale=TINIEST_LOG_SCALE, **start)  # noqa: E731
    return [*named, ("1e-10000", tiniest)]


def cost(run: Callable[[], Any], X: np.ndarray, repeats: int) -> tuple[float, float, Any]:
    """Seconds of the run, the same in products, and its result, or the error it ended with."""
    product = weighted_product(X)

    def attempt() -> Any:
        try:
            return run()
        except Exception as error:  # whatever it is, it belongs into the table
            return error

    runs = {"product": lambda: [product() for _ in range(PRODUCTS)], "run": attempt}
    seconds, results = interleaved(runs, repeats)
    return seconds["run"], seconds["run"] / (seconds["product"] / PRODUCTS), results["run"]


def solve_row(
    name: str, build: Callable[[], fb.DiagonalNet], data: Any, repeats: int
) -> dict[str, Any]:
    """One limit from bare data, certificate included."""
    X, y, _ = data
    seconds, products, solution = cost(lambda: fb.limit(build(), X, y, throw=False), X, repeats)
    if isinstance(solution, Exception):
        return {"scale": name, "status": type(solution).__name__}
    return {
        "scale": name,
        "status": solution.status.name,
        "factorizations": solution.stats.factorizations,
        "ms": 1e3 * seconds,
        "products": products,
        "of which solving": products * solution.stats.seconds / seconds,
        "gap": solution.certificate.gap,
        "error bound": solution.certificate.error_bound,
    }


def path_row(name: str, model: fb.DiagonalNet, data: Any, repeats: int) -> dict[str, Any]:
    X, y, _ = data

    def run() -> fb.limits.LimitPath:
        return fb.limit_path(model, X, y, log_scales=PATH, throw=False)

    seconds, products, path = cost(run, X, repeats)
    if isinstance(path, Exception):
        return {"path": name, "certified": type(path).__name__}
    return {
        "path": name,
        "scales": len(path),
        "certified": sum(solution.certificate.ok for solution in path),
        "factorizations": path.stats.factorizations,
        "ms": 1e3 * seconds,
        "products": products,
        "largest bound": max(solution.certificate.error_bound for solution in path),
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--samples", type=int, default=100)
    arguments.add_argument("--features", type=int, default=1000)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    options = arguments.parse_args()
    report = Report(options.json)
    rng = np.random.default_rng(0)
    uneven = 10.0 ** rng.uniform(-2.0, 2.0, options.features)
    paths = []
    for noise, noise_name in ((0.01, "noisy"), (0.0, "noiseless")):
        data = problem(options.samples, options.features, noise)
        # At depth 2 such w0 spread w'(0) = 2 (scale w0)^2 over 8 decades, at depth D over 8 (D-1).
        starts = {"w0 = 1": {}, "w0 from 0.01 to 100": {"w0": uneven}}
        for start_name, start in starts.items():
            for depth in options.depths:
                title = f"depth {depth}, {noise_name}, {start_name}"
                rows = []
                for name, build in models(depth, **start):
                    progress(f"{title}, scale {name}")
                    rows.append(solve_row(name, build, data, options.repeats))
                report.table(title, rows)
                progress(f"{title}, path")
                model = fb.DiagonalNet(depth, 1.0, **start)
                paths.append(path_row(title, model, data, min(3, options.repeats)))
    report.table("limit_path over 100 scales from 1e3 to 1e-300", paths)
    report.finish()


if __name__ == "__main__":
    main()
