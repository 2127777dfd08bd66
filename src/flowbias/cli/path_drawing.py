"""The picture of `flowbias path`: coefficients against the scale of the start, large scales right.

Everything in it has been computed. The axis shows logarithms, since a scale such as 1e-400 is no
double. Dots beyond the curves are the two ends: least l1 norm on the left, least l2 on the right.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias._drawing import MOST_CURVES, THIN, apart, new_figure
from flowbias._look import COLOURS, INK, STYLE
from flowbias._typing import FloatArray
from flowbias.cli.scale_sweep import Sweep
from flowbias.cli.start import scale_text
from flowbias.data_files.measures import largest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (8.0, 5.0)
_LONGEST_NAME = 14
# In shares of the span of the scales: from the curves to the dots, from the dots to the names, and
# from the dots to the edges of the axes.
_TO_DOTS, _TO_NAMES, _LEFT_EDGE, _RIGHT_EDGE = 0.10, 0.04, 0.26, 0.06
# In shares of the height: between two names.
_NAME_DISTANCE = 0.055
# Below this many decades, 2 and 5 are ticks as well.
_FEW_DECADES = 2.0
_LOG_TEN = float(np.log(10.0))


def draw_path(swept: Sweep) -> Figure:
    """The figure."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = new_figure(*_SIZE)
        axes = figure.subplots()
        x = swept.path.log_scales / _LOG_TEN
        ranked = largest(np.abs(swept.w).max(axis=0), len(COLOURS) + MOST_CURVES)
        named, thin = ranked[: len(COLOURS)], ranked[len(COLOURS) :]
        axes.plot(_ends(x), (0.0, 0.0), color=INK, linewidth=0.9)
        axes.plot(x, swept.w[:, thin], **THIN, zorder=1)
        _draw_named(axes, x, swept, named)
        _label(axes, x, swept, shown=len(ranked))
    return figure


def picture_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a file. The same figure gives the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    dateless = {"Date": None} if kind == "svg" else None
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=kind, dpi=150, metadata=dateless)
    return buffer.getvalue()


def _draw_named(axes: Axes, x: FloatArray, swept: Sweep, named: list[int]) -> None:
    """Curves with their colour, name and ends."""
    left, right = _ends(x)
    beside = left - _TO_NAMES * (x[0] - x[-1])
    drawn = np.vstack([swept.w, swept.rich.w, swept.kernel.w])
    heights = apart(swept.rich.w[named], _NAME_DISTANCE * float(np.ptp(drawn)))
    for feature, height, colour in zip(named, heights, COLOURS, strict=False):
        curve, rich, kernel = swept.w[:, feature], swept.rich.w[feature], swept.kernel.w[feature]
        fine: dict[str, Any] = {"color": colour, "linewidth": 1.0, "linestyle": ":"}
        axes.plot(x, curve, color=colour, zorder=3)
        axes.plot([beside, left, x[-1]], [height, rich, curve[-1]], **fine)
        axes.plot([x[0], right], [curve[0], kernel], **fine)
        axes.plot([left, right], [rich, kernel], "o", color=colour, markersize=6, zorder=4)
        axes.annotate(
            _short(swept.data.name(feature)),
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


def _ends(x: FloatArray) -> tuple[float, float]:
    """Where the dots of the two ends go: beyond the curves, as scales 0 and infinity are."""
    span = x[0] - x[-1]
    return float(x[-1] - _TO_DOTS * span), float(x[0] + _TO_DOTS * span)


def _label(axes: Axes, x: FloatArray, swept: Sweep, shown: int) -> None:
    (left, right), span = _ends(x), x[0] - x[-1]
    ticks = _ticks(x[-1], x[0])
    names = [_power(t) if span >= _FEW_DECADES else scale_text(t * _LOG_TEN) for t in ticks]
    ends = "$0$\nleast $\\ell_1$ norm", "$\\infty$\nleast $\\ell_2$ norm"
    axes.set_xticks([left, *ticks, right], [ends[0], *names, ends[1]])
    axes.set_xlim(left - _LEFT_EDGE * span, right + _RIGHT_EDGE * span)
    axes.set_xlabel(r"scale of the start  $\alpha$")
    axes.set_ylabel(r"coefficient of the limit  $\beta$")
    features = swept.w.shape[1]
    drawn = "" if shown == features else f", the largest {shown} drawn"
    shape = "" if swept.shape is None else f", shape {swept.shape:g}"
    axes.set_title(f"depth {swept.network.depth:g}{shape}: {features} coefficients{drawn}")


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with 2 and 5 between them where there are few; the ends where there are none.

    All as logarithms to base ten.
    """
    from matplotlib.ticker import MaxNLocator

    if high - low >= _FEW_DECADES:
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


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
