"""What the caption of Figure 3 of [woodworth2020] and its section 5 say, as checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from flowbias.experiments._base import Check
from flowbias.experiments.table import Table
from flowbias.experiments.woodworth.sample_sizes import (
    LOG_TEN,
    check_certified,
    check_enclosed,
    check_grows,
    check_kernel,
    check_none_below,
    power,
    samples_needed,
    value_at,
)

# Potentials carry 15 digits, and a ratio of sums of two of them nearly as many.
ROUNDING = 1e-13


def check(table: Table) -> list[Check]:
    """What the caption and section 5 say about the figure."""
    parts = ("potentials", "ratio", "approach", "largest")
    potentials, ratio, approach, largest = (table.rows(table["part"] == part) for part in parts)
    return [
        *_check_potentials(potentials),
        *_check_ratio(ratio),
        *_check_approach(approach),
        *_check_largest(largest),
        check_certified(largest),
    ]


def _check_potentials(rows: Table) -> Iterator[Check]:
    depths = rows.levels("depth")
    coefficients, slopes = np.array([_ends(curve) for curve in _depths(rows)]).T
    step = float(np.min(rows["z"][rows["z"] > 0.0]))
    expected = np.where(depths == 2.0, 0.25, (depths - 2.0) / (4.0 * depths))
    yield Check(
        "quadratic-near-zero",
        "every q_D is like l2 near zero: z^2/4 at depth 2, (D-2)/(4D) z^2 beyond",
        f"q_D/z^2 at z = {step:.2g}: {_listed(coefficients)}",
        # The next term of the series is below z^2/8 of the first.
        bool((np.abs(coefficients / expected - 1.0) <= step**2 / 8.0).all()),
    )
    yield Check(
        "slope-bounded-from-depth-3",
        "far from zero q_D has slope at most 1, like l1, from depth 3 on; q grows like z ln z",
        f"slopes at the largest z: {_listed(slopes)}",
        bool(slopes[0] > 1.0 and ((slopes[1:] > 0.0) & (slopes[1:] < 1.0)).all()),
    )


def _ends(curve: Table) -> tuple[float, float]:
    """q/z^2 at the smallest z > 0, and the slope of q at the largest z."""
    z, q = curve["z"], curve["q"]
    first = int(np.argmin(np.where(z > 0.0, z, np.inf)))
    return float(q[first] / z[first] ** 2), float((q[-1] - q[-2]) / (z[-1] - z[-2]))


def _check_ratio(rows: Table) -> Iterator[Check]:
    curves = list(_depths(rows))
    l1 = float(rows["d"][0]) ** -0.5
    step = min(float(np.diff(curve["ratio"]).min()) for curve in curves)
    ends = [(float(curve["ratio"][0]), float(curve["ratio"][-1])) for curve in curves]
    inside = all(low >= l1 - ROUNDING and high <= 1.0 + ROUNDING for low, high in ends)
    yield Check(
        "ratio-falls-from-1-to-the-l1-value",
        "as the scale falls, the ratio falls from 1 (l2) towards 1/sqrt d (l1)",
        f"from {_listed(high for _, high in ends)} to {_listed(low for low, _ in ends)}, "
        f"1/sqrt d = {l1:.4g}",
        bool(step >= -ROUNDING and inside and all(high >= 0.99 for _, high in ends)),
    )
    left = [low / l1 - 1.0 for low, _ in ends]
    yield Check(
        "l1-value-reached-from-depth-3",
        "at scale 1e-10 depths 3 and more are like l1, depth 2 not yet",
        f"relative excess over 1/sqrt d: {_listed(left)}",
        bool(left[0] >= 0.05 and all(rest <= 0.01 for rest in left[1:])),
    )
    widths = [_width(curve, l1) for curve in curves]
    yield Check(
        "deeper-is-sharper",
        "increasing the depth hastens the transition",
        f"decades of scale from 90% to 10% of the way: {_listed(widths)}",
        bool(all(a > b > 0.0 for a, b in pairwise(widths))),
    )


def _width(curve: Table, l1: float) -> float:
    """Decades of the scale between 10% and 90% of the way from 1/sqrt d to 1."""
    levels = l1 + np.array([0.1, 0.9]) * (1.0 - l1)
    low, high = np.interp(levels, curve["ratio"], curve["log10_scale"])
    return float(high - low)


def _check_approach(rows: Table) -> Iterator[Check]:
    d = float(rows["d"][0])
    curves = list(_depths(rows))
    eps, needed = curves[0]["eps"], -curves[0]["log10_scale"] * LOG_TEN
    # ln(1/alpha^2) = (1 + 1/eps) ln(d)/2 + 1, up to alpha^2 (theory: approach_to_l1).
    predicted = 0.25 * np.log(d) * (1.0 + 1.0 / eps) + 0.5
    yield Check(
        "exponential-at-depth-2",
        "at depth 2 the ratio is within a factor 1 + eps of l1 only for exponentially small scale: "
        "ln(1/alpha) = (1 + 1/eps) ln(d)/4 + 1/2",
        f"alpha = {', '.join(map(power, curves[0]['log10_scale']))} for eps = {_listed(eps)}",
        bool((np.abs(needed / predicted - 1.0) <= 1e-6).all()),
    )
    orders = [
        float((curve["log10_scale"][-2] - curve["log10_scale"][-1]) / np.log10(eps[-2] / eps[-1]))
        for curve in curves[1:]
    ]
    depths = rows.levels("depth")
    scaled = np.array(orders) * (depths[1:] - 2.0)
    yield Check(
        "polynomial-from-depth-3",
        "from depth 3 on a power of eps is small enough: alpha is about eps^(1/(D-2))",
        f"measured power times D - 2: {_listed(scaled)}",
        bool((np.abs(scaled - 1.0) <= 0.1).all()),
    )
    first = np.array([curve["log10_scale"][0] for curve in curves])
    starts = depths * first
    yield Check(
        "deeper-needs-less-small-scales",
        f"the scale that brings the ratio within {eps[0]:.0%} of l1 grows with depth, and so does "
        "the scale alpha^D of the predictor at the start",
        f"alpha = {', '.join(map(power, first))}; alpha^D = {', '.join(map(power, starts))}",
        bool((np.diff(first) > 0.0).all() and (np.diff(starts) > 0.0).all()),
    )


def _check_largest(rows: Table) -> Iterator[Check]:
    line = samples_needed(rows)
    medians = [curve.summary("log10_start", by="n") for curve in _depths(rows)]
    n = medians[0].x
    beyond = n >= line
    curves = np.array([summary.median[beyond] for summary in medians])
    gaps = np.diff(curves, axis=0)
    yield Check(
        "deeper-allows-larger-starts",
        "from the dashed line on, the largest alpha^D that generalizes grows with depth",
        f"medians at n = {n[-1]:.0f}: {', '.join(map(power, curves[:, -1:].ravel()))}",
        bool(gaps.size and (gaps > 0.0).all()),
    )
    at_line = np.array([value_at(n, summary.median, line) for summary in medians])
    scales = at_line / rows.levels("depth")
    yield Check(
        "reasonable-scales-from-depth-3",
        "where the samples just suffice for the least-l1 solution, scales of at least 0.001 are "
        "small enough from depth 3 on; depth 2 needs a far smaller one (by a factor 30 or more)",
        f"median alpha at n = {line:.0f}: {', '.join(map(power, scales))}",
        bool((scales[1:] >= -3.0).all() and scales[0] <= scales[1] - 1.5),
    )
    works = rows["log10_start"] > -np.inf
    agree = float(np.mean(works == (rows["l1_error"] <= rows["threshold"])))
    yield Check(
        "rich-limit-is-the-same",
        "the rich limit does not depend on depth: where the least-l1 solution generalizes, so does "
        "every depth at some scale, and rarely elsewhere",
        f"agreement on {agree:.1%} of data sets, sizes and depths",
        bool(agree >= 0.9 and np.isfinite(rows["l1_error"]).all()),
    )
    yield check_kernel(rows)
    yield check_none_below(rows)
    yield check_grows(rows)
    yield check_enclosed(rows)


def _depths(rows: Table) -> Iterator[Table]:
    for depth in rows.levels("depth"):
        yield rows.rows(rows["depth"] == depth)


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
