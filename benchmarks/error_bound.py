"""Does the error bound of the certificate hold, and how far above the true error is it?

Random problems of every kind of start, each solved by fb.limit and again to 50 digits; once more
with w and the dual disturbed, because a bound that only holds at good solutions proves nothing.
Errors and bounds are relative to the norm of the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from _common import Report, parser, progress
from tests.exact import distance, exact_limit

import flowbias as fb

SCALES = (10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
# Relative size of the disturbance of w and of the dual.
DISTURBANCES = (0.0, 1e-12, 1e-8, 1e-4)

Start = Callable[[np.random.Generator, int, float], Any]


def tied(depth: int) -> Start:
    return lambda rng, d, scale: fb.DiagonalNet(depth, scale)


def uneven(depth: int) -> Start:
    return lambda rng, d, scale: fb.DiagonalNet(depth, scale, w0=np.exp(rng.uniform(-1, 1, d)))


def biased(depth: int) -> Start:
    def start(rng: np.random.Generator, d: int, scale: float) -> fb.DiagonalNet:
        plus, minus = scale * np.exp(rng.uniform(-1, 1, (2, d)))
        return fb.DiagonalNet.from_weights(plus, minus, depth)

    return start


def untied(rng: np.random.Generator, d: int, scale: float) -> fb.UntiedDiagonalNet:
    return fb.UntiedDiagonalNet(scale, shape=rng.uniform(-0.9, 0.9, d))


def untied_biased(rng: np.random.Generator, d: int, scale: float) -> fb.UntiedDiagonalNet:
    return fb.UntiedDiagonalNet.from_weights(*(scale * rng.standard_normal((4, d))))


STARTS: dict[str, Start] = {
    **{f"depth {depth}": tied(depth) for depth in (2, 3, 5)},
    **{f"depth {depth}, uneven w0": uneven(depth) for depth in (2, 3, 5)},
    **{f"depth {depth}, biased": biased(depth) for depth in (2, 3, 5)},
    "untied": untied,
    "untied, biased": untied_biased,
}


@dataclass(frozen=True)
class Trial:
    """One bound and the error that it has to cover, both relative to the size of the limit."""

    start: str
    scale: float
    disturbance: float
    certified: bool
    error: float
    bound: float


def trials(name: str, index: int) -> list[Trial]:
    """One random problem of a kind, at every disturbance."""
    rng = np.random.default_rng([index, *name.encode()])
    n = int(rng.integers(2, 9))
    d = int(rng.integers(n + 1, 5 * n))
    scale = SCALES[index % len(SCALES)]
    X = rng.standard_normal((n, d)) * np.exp(rng.uniform(-1, 1, (n, 1)))
    # Every third y has a sparse cause: then fewer than n weights survive the rich limit.
    y = X[:, 0] - X[:, d - 1] if index % 3 == 0 else rng.standard_normal(n)
    model = STARTS[name](rng, d, scale)
    solution = fb.limit(model, X, y, throw=False)
    exact = exact_limit(model, X, y, solution.dual)
    length = distance(np.zeros(d), exact)
    out = []
    for size in DISTURBANCES:
        w = solution.w * (1.0 + size * rng.standard_normal(d))
        dual = solution.dual * (1.0 + size * rng.standard_normal(n))
        certificate = fb.certify(X, y, w, dual, solution.potential, solution.shift)
        error, bound = distance(w, exact) / length, certificate.error_bound / length
        out.append(Trial(name, scale, size, certificate.ok, error, bound))
    return out


def summary(kind: str, group: list[Trial]) -> dict[str, Any]:
    finite = [t for t in group if np.isfinite(t.bound)]
    ratios = [t.bound / t.error for t in finite if t.error > 0]
    return {
        "": kind,
        "problems": len(group),
        "certified": sum(t.certified for t in group),
        "bound < error": sum(not t.bound >= t.error for t in group),
        "bound infinite": len(group) - len(finite),
        "median ratio": float(np.median(ratios)) if ratios else None,
        "max ratio": max(ratios, default=None),
        "median error": float(np.median([t.error for t in group])),
        "max error": max(t.error for t in group),
        "max bound": max((t.bound for t in finite), default=None),
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--problems", type=int, default=200, help="number of random problems")
    options = arguments.parse_args()
    report = Report(options.json)
    names = list(STARTS)
    done: list[Trial] = []
    for i in range(options.problems):
        progress(f"problem {i + 1} of {options.problems}")
        done += trials(names[i % len(names)], i // len(names))
    solved = [t for t in done if t.disturbance == 0.0]
    by_start = [summary(name, [t for t in solved if t.start == name]) for name in names]
    report.table(
        "error bound against 50-digit limits, as returned by fb.limit",
        [row for row in by_start if row["problems"]] + [summary("all", solved)],
    )
    scales = [(s, [t for t in solved if t.scale == s]) for s in SCALES]
    report.table("the same, by scale", [summary(f"{s:g}", group) for s, group in scales if group])
    sizes = [(s, [t for t in done if t.disturbance == s]) for s in DISTURBANCES]
    report.table(
        "the same, with w and the dual disturbed by that relative amount",
        [summary(f"{size:g}", group) for size, group in sizes],
    )
    report.finish()


if __name__ == "__main__":
    main()
