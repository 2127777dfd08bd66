"""What do intervals cover? Jackknife+ for new outputs, and +-1.96 w_error for true coefficients.

Planted sparse data with noise (n = 40, d = 100, 4 true coefficients), drawn again and again. The
first share is that of new outputs in their interval; at least 2 * 0.9 - 1 = 0.8 is proved, 0.9 is
asked. The second is that of the true coefficients that are not zero, within 1.96 standard
deviations of the limit under noise of the level that was drawn: those are no standard errors of
the truth, since the limit at the noiseless y is not the truth.
"""

from __future__ import annotations

import numpy as np
from _common import Report, parser, progress

import flowbias as fb
from flowbias.estimators import jackknife, uncertainty

SCALES = (1.0, 0.1, 1e-2, 1e-3)
NOISE = 0.1


def covered(scale: float, seed: int) -> tuple[float, float, float]:
    """Shares of new outputs and of true coefficients that are covered, and the mean width."""
    X, y, w = fb.datasets.sparse_regression(n=140, d=100, sparsity=4, noise_var=NOISE**2, rng=seed)
    model, train, new = fb.DiagonalNet(depth=2, scale=scale), slice(40), slice(40, None)
    lower, upper = jackknife(model, X[train], y[train]).predict_interval(X[new], coverage=0.9)
    inside = (lower <= y[new]) & (y[new] <= upper)
    found = fb.limit(model, X[train], y[train]).w
    spread = uncertainty(model, X[train], y[train], sigma=NOISE).w_error
    near = np.abs(found - w) <= 1.96 * spread
    return float(inside.mean()), float(np.mean(upper - lower)), float(near[w != 0.0].mean())


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--draws", type=int, default=50)
    options = arguments.parse_args()
    report, rows = Report(options.json), []
    for scale in SCALES:
        progress(f"scale {scale:g}")
        told = np.mean([covered(scale, seed) for seed in range(options.draws)], axis=0)
        names = ("outputs covered", "mean width", "true coefficients covered")
        rows.append({"scale": scale, **dict(zip(names, map(float, told), strict=True))})
    report.table("n=40, d=100, noise 0.1", rows)
    report.finish()


if __name__ == "__main__":
    main()
