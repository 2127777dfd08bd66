"""What [woodworth2020, appendix B] says about Figure 6 (a, b), judged on the table."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check
from flowbias.experiments.table import Table
from flowbias.ground.typing import FloatArray

DEPTHS = (2, 3, 5)
# A cosine distance up to which features count as hardly turned: an angle of 26 degrees.
HARDLY = 0.1
# What rounding in medians of neighbouring scales, and a unit that switches late, may add.
RISE = 0.01
# Training RMSE, of labels of size 1, that counts as fitted.
FITTED = 0.01


def default_level(depth: int) -> float:
    """log10 of alpha^D for torch's own start, alpha = 1 / sqrt(6)."""
    return -0.5 * depth * math.log10(6.0)


def check(table: Table) -> list[Check]:
    """What the caption and appendix B say about the two panels."""
    return [
        _fitted(table),
        *_check_error(table),
        *_check_turning(table),
        _he_start(table),
        _default_start(table),
    ]


def _grid(rows: Table, column: str) -> tuple[FloatArray, FloatArray]:
    """The levels, and one row of values per data set."""
    ordered = rows.rows(np.lexsort((rows["log10_level"], rows["replicate"])))
    levels = rows.levels("log10_level")
    return levels, np.asarray(ordered[column].reshape(-1, levels.size))


def _medians(table: Table, column: str) -> dict[int, tuple[FloatArray, FloatArray]]:
    curves = {}
    for depth in DEPTHS:
        levels, values = _grid(table.where(depth=depth), column)
        # NaN in any data set makes the median NaN, which fails every comparison.
        curves[depth] = levels, np.median(values, axis=0)
    return curves


def _listed(values: dict[int, float], form: str) -> str:
    return ", ".join(f"{value:{form}} (D = {depth})" for depth, value in values.items())


def _fitted(table: Table) -> Check:
    share = float(np.mean(table["train_rmse"] <= FITTED))
    reached = float(np.mean(table["train_rmse"] <= 1.01e-5))
    return Check(
        "trained-to-zero",
        "the networks fit the ten points",
        f"{share:.0%} to a training RMSE of {FITTED:g}, {reached:.0%} to the paper's loss of 1e-9",
        share >= 0.9,
    )


def _check_error(table: Table) -> Iterator[Check]:
    ratio, flat, worst = {}, {}, {}
    for depth in DEPTHS:
        _, error = _grid(table.where(depth=depth), "rmse")
        ratio[depth] = float(np.median(error[:, 0] / error[:, -1]))
        flat[depth] = float(np.median(np.abs(error[:, -2] / error[:, -1] - 1.0)))
        worst[depth] = float(np.median(error, axis=0).max())
    yield Check(
        "small-starts-generalize",
        "leaving the kernel regime lowers the test error",
        f"smallest over largest scale, median of the data sets: {_listed(ratio, '.2f')}",
        all(value <= 0.75 for value in ratio.values()),
    )
    yield Check(
        "error-plateau-in-the-kernel-regime",
        "in the kernel regime the test error no longer depends on the scale",
        f"between the two largest scales it changes by {_listed(flat, '.1%')}",
        all(value <= 0.05 for value in flat.values()),
    )
    zero = float(np.median(table["zero_rmse"]))
    yield Check(
        "better-than-zero",
        "at every scale the networks are better than predicting zero (ours: they are doubled)",
        f"largest median RMSE {_listed(worst, '.2f')}; zero has {zero:.2f}",
        all(value < 0.9 * zero for value in worst.values()),
    )


def _check_turning(table: Table) -> Iterator[Check]:
    curves = _medians(table, "grad_distance")
    ends = {depth: (turned[0], turned[-1]) for depth, (_, turned) in curves.items()}
    yield Check(
        "kernel-regime-at-large-scales",
        "at large scales tangent features stay as they were",
        f"grad distance {_listed({d: e[1] for d, e in ends.items()}, '.1e')}",
        all(last <= 1e-3 for _, last in ends.values()),
    )
    rise = {depth: float(np.max(np.diff(turned))) for depth, (_, turned) in curves.items()}
    yield Check(
        "grad-distance-monotone",
        "the grad distance falls as the scale grows",
        f"largest rise between neighbouring scales {max(rise.values()):.1e}",
        all(value <= RISE for value in rise.values()),
    )
    half = {
        depth: _crossing(levels, turned, 0.5 * turned[0])
        for depth, (levels, turned) in curves.items()
    }
    powers = {depth: 10.0**value for depth, value in half.items()}
    yield Check(
        "transition",
        "there is a transition: at small scales features turn far, half as far near alpha^D = 0.1",
        f"from {_listed({d: e[0] for d, e in ends.items()}, '.2f')}; half of it at alpha^D = "
        + _listed(powers, ".2g"),
        all(first >= 0.4 for first, _ in ends.values())
        and all(-2.5 <= value <= 0.0 for value in half.values()),
    )


def _crossing(levels: FloatArray, turned: FloatArray, value: float) -> float:
    """Where the curve first falls below a value; NaN, which fails comparisons, if never."""
    below = turned <= value
    if not below.any() or below[0]:
        return np.nan
    i = int(np.argmax(below))
    part = (turned[i - 1] - value) / (turned[i - 1] - turned[i])
    return float(levels[i - 1] + part * (levels[i] - levels[i - 1]))


def _he_start(table: Table) -> Check:
    """Appendix B: alpha near 1 is about to enter the kernel regime."""
    curves = _medians(table, "grad_distance")
    entered = {depth: _crossing(*curve, HARDLY) for depth, curve in curves.items()}
    return Check(
        "he-start-at-the-edge",
        "He's rule (alpha = 1) lies at the edge of the kernel regime",
        f"the grad distance passes {HARDLY:g} at alpha^D = "
        + _listed({depth: 10.0**value for depth, value in entered.items()}, ".2g"),
        all(-2.0 <= value <= 0.5 for value in entered.values()),
    )


def _default_start(table: Table) -> Check:
    """The start that comes out of the box: alpha = 1/sqrt(6)."""
    more, lower = {}, {}
    for depth in DEPTHS:
        levels, turned = _medians(table, "grad_distance")[depth]
        _, error = _grid(table.where(depth=depth), "rmse")
        at, one = (int(np.argmin(np.abs(levels - x))) for x in (default_level(depth), 0.0))
        more[depth] = float(turned[at] / turned[one])
        lower[depth] = float(np.median(error[:, at] / error[:, -1]))
    return Check(
        "default-start-outside",
        "torch's own start (alpha = 0.41) is outside the kernel regime and generalizes better",
        f"features turn {_listed(more, '.0f')} times as far as at alpha = 1; error over that of "
        f"the kernel regime {_listed(lower, '.2f')}",
        all(value >= 4.0 for value in more.values())
        and all(value <= 1.0 for value in lower.values()),
    )
