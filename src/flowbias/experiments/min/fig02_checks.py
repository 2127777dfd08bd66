"""What [min2021, Figures 2, 4 and 5] show: width, imbalance, and how good the bounds are.

Section 5.1 and appendix A.1 of the paper, and the captions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check
from flowbias.experiments.min.bound_checks import check_bounds, check_descent, check_drift, runs
from flowbias.experiments.table import Table

WIDTHS = (30, 100, 300, 1000)
NARROW, WIDE = WIDTHS[0], WIDTHS[-1]
STEP = 0.05
# A bound is good where it accounts for half of what it bounds.
GOOD = 0.5


def check(table: Table) -> list[Check]:
    """What the captions, section 5.1 and appendix A.1 say."""
    spectra, flows = table.part("spectrum"), table.part("flow")
    return [
        _signs(spectra),
        _start_size(spectra),
        *_imbalance(spectra),
        *check_bounds(flows),
        _margin(flows),
        *_global_bound(flows),
        *_rates(flows),
        check_drift(flows),
        check_descent(table.part("descent"), STEP * float(np.max(flows["rate"]))),
    ]


def _signs(rows: Table) -> Check:
    """Zero is rounding of the largest."""
    n, m = rows["n"][0], rows["m"][0]
    counts = []
    for width in WIDTHS:
        for replicate in rows.levels("replicate"):
            values = rows.where(width=width, replicate=replicate)["eigenvalue"]
            zero = 1e-12 * np.max(np.abs(values))
            counts.append((np.sum(values > zero), np.sum(values < -zero)))
    right = sum(pair == (n, m) for pair in counts)
    return Check(
        "signs-of-the-spectrum",
        "from h = n + m on, the imbalance has n positive eigenvalues and m negative ones",
        f"{right} of {len(counts)} starts have {n:.0f} and {m:.0f}",
        bool(right == len(counts)),
    )


def _start_size(rows: Table) -> Check:
    """Mean n, variance 2n (1 + (m + 1)/h)/m + 2n^2/(mh): five deviations of the mean allowed."""
    n, m = float(rows["n"][0]), float(rows["m"][0])
    first, off = rows.rows(rows["index"] == 1.0), []
    for width in WIDTHS:
        sizes = first["start_size"][first["width"] == width]
        variance = 2.0 * n * (1.0 + (m + 1.0) / width) / m + 2.0 * n * n / (m * width)
        off.append(abs(np.mean(sizes) - n) / np.sqrt(variance / max(len(sizes), 1)))
    return Check(
        "product-keeps-its-scale",
        "the factor 1/√(mh) keeps the product as large at every width: squared norm n in the mean",
        f"means over the starts are within {np.max(off):.1f} standard deviations of that",
        bool(np.max(off) <= 5.0),
    )


def _imbalance(rows: Table) -> Iterator[Check]:
    narrow, wide = (rows.rows(rows["width"] == width) for width in (NARROW, WIDE))
    spreads = ("spread_plus", "spread_minus")
    ratios = [float(np.median(wide[name]) / np.median(narrow[name])) for name in spreads]
    grows = float(np.median(wide["level"]) / np.median(narrow["level"]))
    yield Check(
        "width-brings-imbalance",
        f"width {WIDE} has a higher level and smaller spreads than width {NARROW}",
        f"in the median, the level is {grows:.2g} times as high, the spreads {ratios[0]:.2g} and "
        f"{ratios[1]:.2g} times as wide",
        bool(grows > 1.0 and max(ratios) < 1.0 and np.isfinite(ratios).all()),
    )
    for width, part, name in ((NARROW, narrow, "narrow"), (WIDE, wide, "wide")):
        shares = np.array([np.median(part["level"] / part[spread]) for spread in spreads])
        below = width == NARROW
        yield Check(
            f"{name}-start",
            f"at width {width} the level is {'below' if below else 'above'} both spreads",
            f"in the median {shares[0]:.2g} times Δ₊ and {shares[1]:.2g} times Δ₋",
            bool((shares < 1.0).all() if below else (shares > 1.0).all()),
        )


def _margin(rows: Table) -> Check:
    margin = float(np.max(rows["margin"]))
    return Check(
        "no-margin",
        "a random start has no margin: Theorem 3 rests on the imbalance alone",
        f"largest margin {margin:.2g}",
        bool(margin < 0.0),
    )


def _global_bound(rows: Table) -> Iterator[Check]:
    """Falls of ln L until L is a thousandth, and those of its bound by the same time."""
    for width, name in ((WIDE, "wide"), (NARROW, "narrow")):
        part = rows.rows(rows["width"] == width)
        shares = np.array([_fall_share(run) for run in runs(part)])
        good = width == WIDE
        yield Check(
            f"theorem-3-{'is-good' if good else 'misses-most'}-when-{name}",
            f"at width {width} twice the level is {'a' if good else 'not a'} good bound on the "
            "rate of the whole flow",
            f"{np.min(shares):.1%} to {np.max(shares):.1%} of the fall to L(0)/1000",
            bool((shares >= GOOD).all() if good else (shares < GOOD).all()),
        )


def _fall_share(run: Table) -> float:
    fallen = np.log(run["loss"][0] / run["loss"])
    reached = fallen >= np.log(1e3)
    k = int(np.argmax(reached)) if reached.any() else len(run) - 1
    return float(np.log(run["loss_bound"][0] / run["loss_bound"][k]) / fallen[k])


def _rates(rows: Table) -> Iterator[Check]:
    wide = list(runs(rows.rows(rows["width"] == WIDE)))
    varies = float(np.max([np.max(run["rate"]) / np.min(run["rate"]) for run in wide]))
    least = float(np.min([np.min(run["rate_bound"] / run["rate"]) for run in wide]))
    yield Check(
        "wide-rate-is-constant",
        f"at width {WIDE} the rate hardly varies: by less than a factor of {1.0 / GOOD:g}",
        f"largest over smallest at most {varies:.2f}",
        bool(varies <= 1.0 / GOOD),
    )
    yield Check(
        "proposition-1-is-good-when-wide",
        f"at width {WIDE} Proposition 1 is reasonably good at all times",
        f"at least {least:.0%} of the rate",
        bool(least >= GOOD),
    )
    narrow = list(runs(rows.rows(rows["width"] == NARROW)))
    falls = np.array([run["rate"][0] / run["rate"][-1] for run in narrow])
    rises = float(np.max([np.max(np.diff(run["rate"]) / run["rate"][:-1]) for run in narrow]))
    yield Check(
        "narrow-rate-falls",
        f"at width {NARROW} the rate starts high and falls, by more than {1.0 / GOOD:g} times",
        f"to 1/{np.min(falls):.3g} or less of the first, largest rise on the way {rises:.1e}",
        bool((falls > 1.0 / GOOD).all() and rises <= 0.05),
    )
    yield _late_bound(narrow)


def _late_bound(narrow: list[Table]) -> Check:
    """Better, not good: the share in the end is what the start makes of it, well below 1."""
    ends = [0, -1]
    shares = np.array([(run["rate_bound"] / run["rate"])[ends] for run in narrow])
    gaps = np.array([(run["rate"] - run["rate_bound"])[ends] for run in narrow])
    better = float(np.min(shares[:, 1] / shares[:, 0]))
    closer = float(np.max(gaps[:, 1] / gaps[:, 0]))
    late = shares[:, 1]
    return Check(
        "proposition-1-improves-when-narrow",
        f"at width {NARROW} Proposition 1 gets better with time: a share of the rate that doubles, "
        "and half the gap",
        f"from {np.median(shares[:, 0]):.0%} of the rate to {np.median(late):.0%} in the median "
        f"({np.min(late):.0%} to {np.max(late):.0%}); share at least {better:.1f} times as large, "
        f"gap at most {closer:.2f} times",
        bool(better >= 2.0 and closer <= 0.5),
    )
