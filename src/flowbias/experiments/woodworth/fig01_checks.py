"""What the caption of Figure 1 of [woodworth2020] and its section 4 say, as checks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias._typing import FloatArray, Mask
from flowbias.experiments._base import Check
from flowbias.experiments.table import Table
from flowbias.experiments.woodworth.sample_sizes import (
    check_certified,
    check_enclosed,
    check_grows,
    check_kernel,
    check_none_below,
    power,
    samples_needed,
    value_at,
)

# Norms of certified minimizers: the relative duality gap is below 1e-10.
ROUNDING = 1e-9
# Share of the way between the two extremes that counts as nothing.
LITTLE = 0.01


def check(table: Table) -> list[Check]:
    """What the caption and section 4 say about the figure."""
    path = table.rows(table["part"] == "path")
    largest = table.rows(table["part"] == "largest")
    return [
        *_check_error(path),
        *_check_norms(path),
        *_check_largest(largest),
        check_certified(table),
    ]


def _check_error(path: Table) -> Iterator[Check]:
    x, error, *_ = path.summary("error", by="log10_scale")
    for norm, end in (("l2", -1), ("l1", 0)):
        rows = path.rows(path["log10_scale"] == x[end])
        way = rows["l2_error"] - rows["l1_error"]
        apart = np.abs(rows["error"] - rows[f"{norm}_error"]) / way
        yield Check(
            f"error-meets-the-{norm}-level",
            f"at scale {10.0 ** x[end]:g} the limit is as good as the least-{norm} solution",
            f"their errors differ by at most {apart.max():.1e} of the way from l2 to l1",
            bool((apart <= LITTLE).all()),
        )
    # Ripples near the rich end are real: the best scale of a data set may be positive.
    rise = float(np.max(error - np.minimum.accumulate(error[::-1])[::-1])) / float(np.median(way))
    yield Check(
        "error-falls-with-the-scale",
        "the population error falls as the scale falls",
        f"median from {error[-1]:.3g} to {error[0]:.3g}, largest rise {rise:.1e} of the way",
        bool(rise <= LITTLE),
    )


def _check_norms(path: Table) -> Iterator[Check]:
    # One row per replicate, scales increasing.
    l1, l2 = (_by_replicate(path, column) for column in ("excess_l1", "excess_l2"))
    least = float(min(l1.min(), l2.min()))
    yield Check(
        "norms-exceed-the-least",
        "no limit has a smaller l1 or l2 norm than the least one",
        f"smallest excess {least:.2g}",
        bool(least >= -ROUNDING),
    )
    step = float(np.diff(l1, axis=1).min())
    left = float(np.max(l1[:, 0] / l1[:, -1]))
    yield Check(
        "l1-excess-vanishes",
        "as the scale falls, the l1 norm of the limit falls to the least one",
        f"{left:.1e} of the excess is left, largest rise on the way {max(0.0, -step):.1e}",
        bool(step >= -ROUNDING and left <= LITTLE),
    )
    step = float(np.diff(l2, axis=1).max())
    left = float(np.max(l2[:, -1] / l2[:, 0]))
    yield Check(
        "l2-excess-vanishes",
        "as the scale grows, the l2 norm of the limit falls to the least one",
        f"{left:.1e} of the excess is left, largest rise on the way {max(0.0, step):.1e}",
        bool(step <= ROUNDING and left <= LITTLE),
    )
    yield _asymmetry(path)


def _asymmetry(path: Table) -> Check:
    """Theorem 2: the kernel regime is near, the rich limit exponentially far."""
    x, l1, *_ = path.summary("excess_l1", by="log10_scale")
    l2 = path.summary("excess_l2", by="log10_scale").median
    middle = _first(x, l1 >= 0.5 * l1[-1])
    up = _first(x, l2 <= LITTLE * l2[0]) - middle
    down = middle - _first(x[::-1], l1[::-1] <= LITTLE * l1[-1])
    return Check(
        "rich-limit-is-farther",
        "l2 is approximated from a moderately large scale on, l1 only from a far smaller one",
        f"from the middle, the last {LITTLE:.0%} of excess l2 norm is {up:.2f} decades up, "
        f"that of l1 {down:.2f} decades down",
        bool(down >= 2.0 * up > 0.0),
    )


def _by_replicate(rows: Table, column: str) -> FloatArray:
    ordered = rows.rows(np.lexsort((rows["log10_scale"], rows["replicate"])))
    return np.asarray(ordered[column].reshape(rows.levels("replicate").size, -1))


def _first(x: FloatArray, passes: Mask) -> float:
    """The first x that passes; NaN, which fails every comparison, without one."""
    return float(x[np.argmax(passes)]) if passes.any() else np.nan


def _check_largest(rows: Table) -> Iterator[Check]:
    line, d = samples_needed(rows), float(rows["d"][0])
    order = float(rows["sparsity"][0] * np.log(d))
    yield Check(
        "l1-needs-few-samples",
        "the least-l1 solution needs of the order of r log d samples, far fewer than d",
        f"{line:.0f} samples = {line / order:.2f} r ln d, d = {d:.0f}",
        bool(0.5 * order <= line <= 3.0 * order and line <= 0.25 * d),
    )
    yield check_kernel(rows)
    yield check_none_below(rows)
    yield from _check_tradeoff(rows, line)
    yield check_grows(rows)
    yield check_enclosed(rows)


def _check_tradeoff(rows: Table, line: float) -> Iterator[Check]:
    n, median, *_ = rows.summary("log10_scale", by="n")
    beyond = _first(n, n >= 1.5 * line)
    following = _first(n, n > line)
    sizes = (line, following, beyond, n[-1])
    at_line, at_next, at_beyond, at_end = (value_at(n, median, size) for size in sizes)
    passing = rows["log10_scale"][rows["n"] == line] > -np.inf
    share = float(passing.mean()) if passing.size else np.nan
    yield Check(
        "tiny-at-the-line",
        "where the least-l1 solution just generalizes, the scale must be extremely small",
        # Where the line is decided by one data set, the median there is the smallest scale of any
        # that pass; the share that pass and the next size say how typical it is.
        f"{power(at_line)} at n = {line:.0f}, where {share:.0%} of the data sets allow any scale; "
        f"{power(at_next)} at n = {following:.0f} (counts as extreme: below 1e-4)",
        bool(at_line <= -4.0),
    )
    yield Check(
        "much-larger-slightly-beyond",
        "with half as many samples again a much larger scale suffices; later gains are smaller",
        f"{power(at_line)} at n = {line:.0f}, {power(at_beyond)} at n = {beyond:.0f}, "
        f"{power(at_end)} at n = {n[-1]:.0f}",
        bool(at_beyond - at_line >= max(1.5, at_end - at_beyond)),
    )
