"""How the largest scale that generalizes depends on the number of samples.

[woodworth2020, Figures 1(c) and 3(c)] are this computation at depth 2 and at several depths: what
they compute, how it is drawn, and the checks that they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from flowbias.datasets import SparseRegression
from flowbias.experiments._base import Check, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, more_than, true
from flowbias.experiments.curves import groups, listed, sparse_data, stacked
from flowbias.experiments.drawing import draw_band
from flowbias.experiments.largest_scale import TOLERANCE, largest_scale, optimality
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.ground.drawing import INK
from flowbias.ground.typing import Axes, FloatArray
from flowbias.limits import basis_pursuit, min_norm
from flowbias.models import DiagonalNet
from flowbias.problems.regression import Regression

# Data sets of one task of basis pursuits, and the sizes that they have at d = 1000.
BATCH, L1_SIZES = 10, "44 48 52 56 60"


def planted_data(task: Task, n: int) -> SparseRegression:
    """The task's own data set, the same at every depth. Its first rows are one too.

    So along n only n changes.
    """
    return sparse_data(task, task.rng(apart_from=("depth", "depths")), n)


def largest_columns(task: Task, depths: Sequence[int]) -> Columns:
    """`recovery_columns` of the data, the sizes and the threshold that a task has."""
    sizes = [int(n) for n in task.numbers("sample_sizes")]
    return recovery_columns(planted_data(task, max(sizes)), sizes, depths, task.number("threshold"))


def recovery_columns(
    data: SparseRegression, sizes: Iterable[int], depths: Sequence[int], threshold: float
) -> Columns:
    """One row per sample size and depth, on the first n samples of one data set.

    The largest scale with its evidence, the errors of both extremes, and how well all is certified.
    """
    first = {n: data._replace(X=data.X[:n], y=data.y[:n]) for n in sizes}
    return stacked({n: _at_one_size(one, depths, threshold) for n, one in first.items()}, "n")


def _at_one_size(data: SparseRegression, depths: Sequence[int], threshold: float) -> Columns:
    problem = Regression(data.X, data.y)
    rich, kernel = basis_pursuit(problem), min_norm(problem)
    extremes = rich.certificate, kernel.certificate
    found = [
        largest_scale(
            DiagonalNet(depth, 1.0),
            problem,
            lambda w: float(data.population_error(w)),
            threshold=threshold,
            rich_error=float(data.population_error(rich.w)),
            log_scales=scan_of(depth),
        )
        for depth in depths
    ]
    gap = max(map(optimality, extremes))
    bound = max(certificate.error_bound for certificate in extremes)
    return {
        "depth": depths,
        "log10_scale": [one.log_scale / np.log(10.0) for one in found],
        "log10_scale_above": [one.log_scale_above / np.log(10.0) for one in found],
        "error": [one.error for one in found],
        "error_above": [one.error_above for one in found],
        "l1_error": data.population_error(rich.w),
        "l2_error": data.population_error(kernel.w),
        "optimality": [max(one.optimality, gap) for one in found],
        "error_bound": [max(one.error_bound, bound) for one in found],
    }


def scan_of(depth: int) -> FloatArray:
    """Log-scales to scan. From depth 3 on the limit at 1e-12 is the rich one to six digits."""
    # log10 of scale^depth, the size of each branch of w at the start. Decades where the error
    # changes most; then coarser, since at depth 2 the limit moves with 1 / log(scale).
    near, far = (0, -2, -3, -4, -5, -6, -7, -8, -10, -12), (-20, -40, -100, -300)
    powers = near + far if depth == 2 else near
    return np.asarray(np.array(powers) * np.log(10.0) / depth)


class SampleSizeLine(NamedTuple):
    """The sample size from which on the least-l1 solution generalizes on half of all data sets."""

    n: float
    error: float  # its standard error
    data_sets: int

    def first(self, sizes: FloatArray) -> float:
        """The smallest of these sizes that is not below the line; inf without one."""
        return float(np.min(sizes[sizes >= self.n], initial=np.inf))


def l1_tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Basis pursuits alone, on data sets of their own: many at each of a few sizes."""
    problem = picked(settings, "d", "sparsity", "noise_var", "threshold")
    for n in str(settings["l1_sizes"]).split():
        for batch in range(int(settings["l1_batches"])):
            yield "l1", {**problem, "n": int(n), "batch": batch}


def l1_columns(task: Task) -> Columns:
    """Errors of the least-l1 solutions of a batch, the same in every figure that has it."""
    rng = Task("least-l1", task.part, task.settings).rng()
    draws = [sparse_data(task, rng) for _ in range(BATCH)]
    found = [basis_pursuit(data.X, data.y) for data in draws]
    pairs = zip(found, draws, strict=True)
    errors = [float(data.population_error(one.w)) for one, data in pairs]
    return {
        "l1_error": errors,
        "optimality": [optimality(one.certificate) for one in found],
        "error_bound": [one.certificate.error_bound for one in found],
    }


def samples_needed(table: Table) -> SampleSizeLine:
    """Where the share of data sets with error <= threshold is one half: the dashed line.

    By least squares a straight line is fitted to the share, which it is close to from a fifth to
    four fifths; its value at n has the variance s^2 (1/N + (n - mean)^2/S) of such a fit.
    """
    rows = table.rows(table["part"] == "l1")
    n, passes = rows["n"], (rows["l1_error"] <= rows["threshold"]).astype(float)
    passes[np.isnan(rows["l1_error"])] = np.nan
    away = n - np.mean(n)
    spread = float(away @ away)
    if spread == 0.0:  # all of one size
        return SampleSizeLine(np.nan, np.inf, len(n))
    slope = float(away @ passes) / spread
    left = float(np.std(passes - np.mean(passes) - slope * away))
    if slope == 0.0:
        return SampleSizeLine(np.nan, np.inf, len(n))
    needed = (0.5 - float(np.mean(passes))) / slope
    error = left / abs(slope) * float(np.sqrt(1.0 / len(n) + needed**2 / spread))
    return SampleSizeLine(float(np.mean(n)) + needed, error, len(n))


def draw_largest(
    axes: Axes,
    rows: Table,
    value: str,
    *,
    limits: tuple[float, float],
    open_band: bool = True,
    **style: Any,
) -> None:
    """Median and band of a log10 against n; what is below the limits, -inf too, leaves there.

    Without `open_band` there is no band where its lower end is -inf: several would hide the lines.
    """
    x, median, low, high = rows.summary(value, by="n")
    if not open_band:
        low = np.where(low == -np.inf, np.nan, low)
    # Far below, so that the line falls out of the axes instead of ending.
    visible = [np.maximum(curve, 100.0 * limits[0]) for curve in (median, low, high)]
    draw_band(axes, x, Summary(x, *visible), **style)
    axes.set_ylim(limits)
    axes.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:g}}}$")
    axes.set_xlabel("samples n")


def draw_samples_needed(axes: Axes, table: Table) -> None:
    """The dashed line: the samples that the least-l1 solution needs, and two standard errors."""
    n, error, _ = samples_needed(table)
    axes.axvline(n, color=INK, linewidth=1.2, linestyle="--")
    axes.axvspan(n - 2.0 * error, n + 2.0 * error, color=INK, alpha=0.12, linewidth=0)
    axes.annotate(
        f"least l1 norm\nneeds {n:.1f} ± {error:.1f}",
        (n + 2.0 * error, 0.99),
        (6, 0),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        va="top",
        fontsize=10,
    )


# --- checks ------------------------------------------------------------------------------------


def check_sizes(line: SampleSizeLine, rows: Table) -> Iterator[Check]:
    """What is said of the samples, whatever the depth."""
    # Of the order of r log d, and known to within the distance of neighbouring sizes.
    d = float(rows["d"][0])
    order = float(rows["sparsity"][0] * np.log(d))
    yield Check(
        "l1-needs-few-samples",
        "the least-l1 solution needs of the order of r log d samples, far fewer than d",
        f"{line.n:.1f} ± {line.error:.1f} samples = {line.n / order:.2f} r ln d, d = {d:.0f}, from "
        f"{line.data_sets} basis pursuits",
        at_least(line.n, 0.5 * order),
        at_most(line.n, 3.0 * order),
        at_most(line.n, 0.25 * d),
        at_most(line.error, 0.5 * np.min(np.diff(rows.levels("n")), initial=np.inf)),
    )
    # The other extreme does not generalize with so few samples.
    threshold, least = float(rows["threshold"][0]), float(rows["l2_error"].min())
    yield Check(
        "kernel-solution-does-not-generalize",
        f"with up to {rows['n'].max():.0f} samples of {rows['d'][0]:.0f} features the least-l2 "
        "solution does not generalize at all",
        f"its error is at least {least:.3g}, the threshold {threshold:g}",
        at_least(least, 10.0 * threshold),
    )
    # Below the dashed line most data sets allow no scale, at any depth.
    below = rows.rows(rows["n"] < line.n)
    works = np.where(np.isnan(below["log10_scale"]), np.nan, below["log10_scale"] > -np.inf)
    parts = [part["works"] for part in groups(below.replaced(works=works), "n", "depth")]
    shares = np.array([np.mean(part) for part in parts])
    # Two standard errors of a share of one half.
    slack = 1.0 / np.sqrt(min(map(len, parts), default=1))
    yield Check(
        "few-work-below-the-line",
        "with fewer samples than the least-l1 solution needs, at most half of the data sets allow "
        f"any scale, up to the chance of so few of them ({slack:.0%})",
        f"{np.max(shares, initial=0.0):.0%} or less for n < {line.n:.1f}",
        at_most(shares, 0.5 + slack),
    )
    yield _check_grows(line, rows)
    yield _check_enclosed(rows)


def _check_grows(line: SampleSizeLine, rows: Table, scatter: float = 0.5) -> Check:
    """From the dashed line on, more samples allow larger scales, at any depth.

    A further sample may hurt a data set: medians over them may fall by `scatter` decades.
    """
    beyond = rows.rows(rows["n"] >= line.n)
    depths = groups(beyond, "depth")
    curves = [median_where_l1_works(part, "log10_scale")[1] for part in depths]
    falls = [float(np.max(np.maximum.accumulate(curve) - curve)) for curve in curves if curve.size]
    gains = [float(curve[-1] - curve[0]) for curve in curves if curve.size]
    return Check(
        "more-samples-larger-scale",
        "the largest scale grows with the sample size (medians where the least-l1 solution "
        f"generalizes; falls of {scatter} decades are allowed)",
        f"gains {listed(gains)} decades, largest fall on the way {max(falls, default=np.nan):.2g}",
        at_most(falls, scatter),
        more_than(gains, 0),
    )


def median_where_l1_works(rows: Table, value: str) -> tuple[FloatArray, FloatArray]:
    """Sample sizes, and medians there over the data sets on which the least-l1 solution passes.

    Close to the line half of the data sets allow no scale, and in a few of them more or fewer may.
    """
    works = rows.rows(rows["l1_error"] <= rows["threshold"])
    n = works.levels("n")
    groups = [works[value][works["n"] == size] for size in n]
    return n, np.array([np.quantile(group, 0.5, method="inverted_cdf") for group in groups])


def _check_enclosed(rows: Table) -> Check:
    """Each largest scale is enclosed; where there is none, the rich limit itself fails."""
    threshold = rows["threshold"]
    scale, above = rows["log10_scale"], rows["log10_scale_above"]
    found = np.isfinite(scale)
    # Five halvings of the widest step of the scan, from log(scale) to three times that.
    close = above - scale <= 0.07 * (1.0 + np.abs(above))
    enclosed = close & (rows["error"] <= threshold) & (rows["error_above"] > threshold)
    enclosed &= np.isfinite(rows["l1_error"])
    nowhere = (scale == -np.inf) & (rows["l1_error"] > threshold)
    return Check(
        "largest-scales-are-enclosed",
        "the error is <= the threshold at each largest scale, > just above it; where no scale "
        "generalizes, neither does the least-l1 solution",
        f"{np.sum(found & enclosed)} enclosed, {np.sum(nowhere)} without any, of {len(rows)}",
        true(np.where(found, enclosed, nowhere)),
    )


def check_certified(table: Table) -> Check:
    close = 1e-5  # such a limit has its error of 0.025 to 3e-6
    worst, proved = float(table["optimality"].max()), float(np.mean(table["error_bound"] <= close))
    return Check(
        "limits-are-certified",
        "every limit in the figure is certified, and nearly all are proved to five digits",
        f"optimality to {worst:.1e}; ||w - exact limit|| <= {close:g} for {proved:.0%}",
        at_most(worst, TOLERANCE),
        at_least(proved, 0.95),
    )


def value_at(n: FloatArray, values: FloatArray, size: float) -> float:
    """The value at a sample size; NaN where there is none of that size."""
    return float(values[n == size][0]) if (n == size).any() else np.nan


def powers(exponents: Iterable[float]) -> str:
    """Several of them."""
    return ", ".join(map(power, exponents))


def power(exponent: float) -> str:
    """A power of ten in words that also fit scales below the range of floats."""
    return "none" if exponent == -np.inf else f"10^{exponent:.1f}"
