"""The scale of the start: as an option, as cross-validation chooses it, and along a whole path.

In the picture of a path, coefficients against the scale, large scales are right and everything has
been computed. The axis shows logarithms, since a scale such as 1e-400 is no double. Dots beyond the
curves are the two ends: least l1 norm on the left, least l2 on the right.
"""

from __future__ import annotations

import decimal
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.apps.cli.files import picture_bytes
from flowbias.apps.data_files import csv_bytes, npz_bytes
from flowbias.apps.data_files.limit_files import Network, largest
from flowbias.apps.data_files.regression_data import RegressionData
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import (
    COLOURS,
    INK,
    MOST_CURVES,
    STYLE,
    THIN,
    apart,
    new_figure,
    shortened,
)
from flowbias.ground.typing import Axes, Figure, FloatArray
from flowbias.limits import LimitPath, limit_path, min_norm, rich_limit
from flowbias.models import DiagonalNet
from flowbias.models.untied import with_shape
from flowbias.results.solution import Solution


def log_of(option: str, text: str) -> float:
    """The natural logarithm of a positive decimal number, however large or small: 1e-400 too."""
    with decimal.localcontext() as context:
        # More than a double has, also when the exponent has eighteen digits of its own.
        context.prec = 40
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        try:
            number = Decimal(text)
            positive = number.is_finite() and number > 0
        except decimal.InvalidOperation:
            positive = False
        if not positive:
            raise InputError(
                f"{option}: must be a positive number, got {text!r}. "
                "Pass for instance 0.1 or 1e-400; the start itself must not be zero."
            )
        return float(number.ln())


def start_of(
    depth: float,
    shape: float | None,
    *,
    scale: str | None,
    log_scale: float | None,
    cv: bool = False,
) -> Network:
    """The network that gradient flow starts from; with `cv` its scale is yet to be chosen."""
    given = (scale is not None) + (log_scale is not None) + cv
    if given != 1:
        got = {0: "neither", 2: "both"}.get(given, "all")
        raise InputError(
            f"--scale, --log-scale, --cv: exactly one of them must be given, got {got}. "
            "Pass for instance --scale 1e-3, or --cv to have it chosen."
        )
    if cv:
        log_scale = 0.0
    size: dict[str, float | None] = {"log_scale": log_scale}
    if scale is not None:
        size = {"log_scale": log_of("--scale", scale)}
        # An ordinary number is passed on as it is: the way through its logarithm costs digits.
        if sys.float_info.min <= float(scale) <= sys.float_info.max:
            size = {"scale": float(scale)}
    refusal = (
        "--shape: must come with --depth 2, got depth {depth:g}. "
        "Only networks of two layers have a shape (|v|-|u|)/(|v|+|u|)."
    )
    tied = DiagonalNet(depth, **size)
    return tied if shape is None else with_shape(tied, shape, refusal, **size)


def cross_validated(
    start: Network, shape: float | None, data: RegressionData, folds: int = 5
) -> tuple[Network, str]:
    """The network at the scale whose limits predict best what they have not seen; and words."""
    from sklearn.model_selection import KFold

    from flowbias.estimators import ImplicitBiasRegressorCV

    units = data.units
    if len(units.given.y) < 2 * folds:
        raise InputError(
            f"--cv: must have at least {2 * folds} samples, got {data.shape[0]}. "
            "Pass a scale, for instance --scale 1e-3."
        )
    # Shuffled: files are often sorted, and a fold of the largest says nothing of the others.
    splits = KFold(folds, shuffle=True, random_state=0)
    chosen = ImplicitBiasRegressorCV(
        depth=start.depth, shape=shape or 0.0, fit_intercept=units.intercept, cv=splits
    ).fit(units.scaled, units.given.y)
    error = math.sqrt(chosen.mse_path_.mean(axis=1).min())
    said = (
        f"the scale is the best of {len(chosen.log_scales_)} in {folds}-fold cross-validation: "
        f"root mean square error {error:.3g} (y itself varies by {units.given.y.std():.3g})"
    )
    return start.at_log_scale(chosen.log_scale_), said


def scale_text(log_scale: float) -> str:
    """A scale for the eye, from its natural logarithm: 0.001, 2.5e-07, 1e-400."""
    with decimal.localcontext() as context:
        context.prec = 3
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        scale = Decimal(log_scale).exp().normalize()
    plain = -4 < scale.adjusted() < 5
    return f"{scale:f}" if plain else f"{scale:e}"


@dataclass(frozen=True)
class ScaleSweep:
    """Limits from large scales to small ones, and what they tend to in both directions."""

    data: RegressionData
    network: Network
    #: of an untied network
    shape: float | None
    path: LimitPath
    kernel: Solution
    rich: Solution

    @cached_property
    def w(self) -> FloatArray:
        """One limit per row."""
        return self.path.w

    @property
    def certified(self) -> bool:
        """Whether every limit is, and both ends."""
        return all(point.status.ok for point in (*self.path, self.kernel, self.rich))


def log_scales_between(largest: str, smallest: str, count: int, most: int = 100_000) -> FloatArray:
    """Natural logarithms from the larger of two scales to the smaller, evenly spaced.

    `most` is more than a picture or screen can show, and all of them are kept in memory.
    """
    ends = sorted((log_of("--from", largest), log_of("--to", smallest)), reverse=True)
    if ends[0] == ends[1]:
        raise InputError(
            f"--from, --to: must be different scales, got {largest} and {smallest}. "
            "For a single scale use: flowbias limit DATA --scale ..."
        )
    if not 2 <= count <= most:
        raise InputError(
            f"--count: must be between 2 and {most}, got {count}. "
            "For a single scale use: flowbias limit DATA --scale ..."
        )
    return np.linspace(ends[0], ends[1], count)


def sweep(
    network: Network, shape: float | None, data: RegressionData, log_scales: FloatArray, tol: float
) -> ScaleSweep:
    """Solve at every scale. A limit that cannot be certified is kept; its status says so."""
    problem = data.problem
    return ScaleSweep(
        data,
        network,
        shape,
        limit_path(network, problem, log_scales=log_scales, tol=tol, throw=False),
        min_norm(problem, tol=tol, throw=False),
        rich_limit(network, problem, tol=tol, throw=False),
    )


# In shares of the span of the scales: from the curves to the dots, from the dots to the names, and
# from the dots to the edges of the axes. In shares of the height: between two names.
_ROOM = {"dots": 0.10, "names": 0.04, "left": 0.26, "right": 0.06, "between names": 0.055}


def draw_path(swept: ScaleSweep) -> Figure:
    """The figure."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = new_figure(8.0, 5.0)
        axes = figure.subplots()
        x = swept.path.log_scales / math.log(10.0)
        ranked = largest(np.abs(swept.w).max(axis=0), len(COLOURS) + MOST_CURVES)
        named, thin = ranked[: len(COLOURS)], ranked[len(COLOURS) :]
        axes.plot(_ends(x), (0.0, 0.0), color=INK, linewidth=0.9)
        axes.plot(x, swept.w[:, thin], **THIN, zorder=1)
        _draw_named(axes, x, swept, named)
        _label(axes, x, swept, shown=len(ranked))
        _make_room(figure, axes, _beside(x))
    return figure


def _draw_named(axes: Axes, x: FloatArray, swept: ScaleSweep, named: list[int]) -> None:
    """Curves with their colour, name and ends."""
    left, right = _ends(x)
    beside = _beside(x)
    drawn = np.vstack([swept.w, swept.rich.w, swept.kernel.w])
    heights = apart(swept.rich.w[named], _ROOM["between names"] * float(np.ptp(drawn)))
    for feature, height, colour in zip(named, heights, COLOURS, strict=False):
        curve, rich, kernel = swept.w[:, feature], swept.rich.w[feature], swept.kernel.w[feature]
        fine: dict[str, Any] = {"color": colour, "linewidth": 1.0, "linestyle": ":"}
        axes.plot(x, curve, color=colour, zorder=3)
        axes.plot([beside, left, x[-1]], [height, rich, curve[-1]], **fine)
        axes.plot([x[0], right], [curve[0], kernel], **fine)
        axes.plot([left, right], [rich, kernel], "o", color=colour, markersize=6, zorder=4)
        axes.annotate(
            shortened(swept.data.name(feature)),
            (beside, height),
            (-3, 0),
            textcoords="offset points",
            color=colour,
            fontweight="bold",
            fontsize=11,
            ha="right",
            va="center",
            parse_math=False,  # a name is a name, also with dollar signs in it
        )


def _make_room(figure: Figure, axes: Axes, beside: float) -> None:
    """Move the left edge until every name is within it; how wide one is, only a renderer knows."""
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    for name in axes.texts:
        # In shares of the width of the axes, which stays.
        share = name.get_window_extent().width / axes.bbox.width + 0.02
        low = min(low, (beside - share * high) / (1.0 - share))
    axes.set_xlim(low, high)


def _ends(x: FloatArray) -> tuple[float, float]:
    """Where the dots of the two ends go: beyond the curves, as scales 0 and infinity are."""
    beyond = _ROOM["dots"] * (x[0] - x[-1])
    return float(x[-1] - beyond), float(x[0] + beyond)


def _beside(x: FloatArray) -> float:
    """Where names end."""
    return _ends(x)[0] - _ROOM["names"] * float(x[0] - x[-1])


def _label(axes: Axes, x: FloatArray, swept: ScaleSweep, shown: int) -> None:
    (left, right), span = _ends(x), x[0] - x[-1]
    ticks = _ticks(x[-1], x[0])
    shown_as = _power if _are_many(x[-1], x[0]) else lambda t: scale_text(t * math.log(10.0))
    names = [shown_as(t) for t in ticks]
    ends = "$0$\nleast $\\ell_1$ norm", "$\\infty$\nleast $\\ell_2$ norm"
    axes.set_xticks([left, *ticks, right], [ends[0], *names, ends[1]])
    axes.set_xlim(left - _ROOM["left"] * span, right + _ROOM["right"] * span)
    axes.set_xlabel(r"scale of the start  $\alpha$")
    per = " per standard deviation" if swept.data.is_standardized else ""
    axes.set_ylabel(rf"coefficient of the limit{per}  $\beta$")
    features = swept.w.shape[1]
    drawn = "" if shown == features else f", the largest {shown} drawn" if shown else ", all 0"
    shape = "" if swept.shape is None else f", shape {swept.shape:g}"
    axes.set_title(f"depth {swept.network.depth:g}{shape}: {features} coefficients{drawn}")


def _are_many(low: float, high: float) -> bool:
    """Below this many decades, 2 and 5 are ticks as well."""
    return high - low >= 2.0


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with 2 and 5 between them where there are few; the ends where there are none.

    All as logarithms to base ten.
    """
    from matplotlib.ticker import MaxNLocator

    if _are_many(low, high):
        locator = MaxNLocator(nbins=6, integer=True, steps=[1, 2, 3, 5, 10])
        wanted = np.asarray(locator.tick_values(low, high))
    else:
        decades = np.arange(np.floor(low), np.ceil(high) + 1.0)
        wanted = np.add.outer(decades, np.log10([1.0, 2.0, 5.0])).ravel()
    rounding = 1e-9 * (1.0 + abs(low) + abs(high))
    inside = [float(t) for t in wanted if low - rounding <= t <= high + rounding]
    return inside if len(inside) > 1 else [low, high]


def _power(exponent: float) -> str:
    return f"$10^{{{exponent:.0f}}}$"


def _csv(swept: ScaleSweep) -> bytes:
    names = [swept.data.name(i) for i in range(swept.w.shape[1])]
    header = ["log_scale", "status", "error_bound", *names]
    rows: list[list[str | float]] = [
        [float(log), point.status.name, point.certificate.error_bound, *map(float, point.w)]
        for log, point in zip(swept.path.log_scales, swept.path, strict=True)
    ]
    return csv_bytes(header, rows)


def _npz(swept: ScaleSweep) -> bytes:
    return npz_bytes(
        {
            "log_scale": swept.path.log_scales,
            "w": swept.w,
            "dual": swept.path.dual,
            "status": [point.status.name for point in swept.path],
            "error_bound": [point.certificate.error_bound for point in swept.path],
            "least_l2": swept.kernel.w,
            "least_l1": swept.rich.w,
            "depth": swept.network.depth,
        }
    )


WRITERS: dict[str, Callable[[ScaleSweep], bytes]] = {
    ".png": lambda swept: picture_bytes(draw_path(swept), "png"),
    ".svg": lambda swept: picture_bytes(draw_path(swept), "svg"),
    ".csv": _csv,
    ".npz": _npz,
}
