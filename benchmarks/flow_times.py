"""How long does the whole trajectory take, to a residual of 1e-8, and does it end at the limit?

n = 100, d = 1000, noise 0.01. The limit is solved for without integration, so the distance between
the two is a test of both.
"""

from __future__ import annotations

from typing import Any

from _common import Report, interleaved, parser, problem, progress

import flowbias as fb

SCALES = {
    2: (10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8),
    3: (1.0, 0.1, 0.01),
    5: (1.0, 0.3, 0.1),
}


def row(depth: int, scale: float, data: Any, repeats: int) -> dict[str, Any]:
    X, y, _ = data
    model = fb.DiagonalNet(depth, scale)
    runs = {
        "limit": lambda: fb.limit(model, X, y, throw=False),
        "flow": lambda: fb.flow(model, X, y, throw=False),
    }
    seconds, results = interleaved(runs, repeats, once_above=5.0)
    trajectory = results["flow"]
    return {
        "depth": depth,
        "scale": f"{scale:g}",
        "status": trajectory.status.name,
        "route": trajectory.route,
        "seconds": seconds["flow"],
        "steps": trajectory.stats.steps,
        "evaluations": trajectory.stats.evaluations,
        "Jacobians": trajectory.stats.jacobians,
        "time t": float(trajectory.t[-1]),
        "residual": float(trajectory.residual[-1]),
        "distance to limit": trajectory.distance_to_limit,
        "limit, seconds": seconds["limit"],
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    report = Report(options.json)
    data, rows = problem(), []
    for depth, scales in SCALES.items():
        for scale in scales:
            progress(f"depth {depth}, scale {scale:g}")
            rows.append(row(depth, scale, data, options.repeats))
    report.table("gradient flow to residual 1e-8", rows)
    report.finish()


if __name__ == "__main__":
    main()
