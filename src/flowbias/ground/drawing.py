"""How results draw themselves: one panel or several, on new axes or on somebody's own.

A result's `plot(path=None, *, ax=None)` hands its panels to `picture`. Drawing solves nothing.

All pictures look alike: colours keep apart in grey and for the colour-blind, and stand out on white
and on near-black paper.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from flowbias.ground.typing import Axes, Figure, FloatArray

# Text, frames and reference lines. Pages replace it by the colour of their own text.
INK = "#1b1f24"
# One colour per depth, everywhere.
DEPTH_COLOURS = {
    2: "#3b6fb6",
    3: "#d1622b",
    4: "#8a5a9e",
    5: "#2a9470",
    6: "#b5476d",
    10: "#94700a",
}
# Lines that are told apart by name, in this order.
COLOURS = tuple(DEPTH_COLOURS.values())
BLUE, RED, GREY = "#3b6fb6", "#c8442f", "#8b949e"
PANEL_SIZE = (5.2, 4.1)
STYLE: Any = {
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 2.2,
    "lines.solid_capstyle": "round",
    # The same picture gives the same bytes.
    "svg.hashsalt": "flowbias",
}

#: Puts one panel on axes.
Panel: TypeAlias = "Callable[[Axes], None]"

# Coefficients that are drawn at all, the largest ones: more say nothing, and take minutes.
MOST_STEMS, MOST_CURVES = 1000, 300
# Curves that need no name.
THIN: dict[str, Any] = {"color": INK, "linewidth": 0.7, "alpha": 0.35}


def new_figure(width: float, height: float) -> Figure:
    """Without pyplot: no window, no global state. Notebooks show it all the same."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    # IPython knows how to show figures from the first import of pyplot on, which is not ours.
    figure.__dict__["_repr_png_"] = partial(_png, figure)
    return figure


def _pyplot_shows() -> bool:
    """Whether somebody has pyplot, or sits at a prompt, with a backend that shows figures."""
    import matplotlib as mpl

    wanted = "matplotlib.pyplot" in sys.modules or hasattr(sys, "ps1") or _in_ipython()
    return wanted and mpl.get_backend().lower() not in {"agg", "cairo", "pdf", "pgf", "ps", "svg"}


def _in_ipython() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _pyplot_figure(width: float, height: float) -> Figure:
    """One of pyplot's: `show()` works, and a notebook shows it at the end of its cell."""
    from matplotlib import pyplot

    figure: Figure = pyplot.figure(figsize=(width, height), layout="constrained")
    # A cell that ends with the figure shows it by itself: without this, a second time.
    figure.__dict__["_ipython_display_"] = partial(_display_once, figure)
    return figure


def _display_once(figure: Figure) -> None:
    from matplotlib import pyplot

    del figure.__dict__["_ipython_display_"]
    sys.modules["IPython"].display.display(figure)
    pyplot.close(figure)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def picture(*panels: Panel, path: str | Path | None = None, ax: Axes | None = None) -> Figure:
    """All panels side by side in a new figure, or the first alone on `ax`; also as a file."""
    import matplotlib as mpl

    if ax is not None:
        panels[0](ax)
        # The whole figure, of which axes may see a part only: the whole is what can be saved.
        figure: Figure = ax.figure.figure
    else:
        with mpl.rc_context(STYLE):
            width, height = PANEL_SIZE
            make = new_figure if path is not None or not _pyplot_shows() else _pyplot_figure
            figure = make(width * len(panels), height)
            axes = figure.subplots(1, len(panels), squeeze=False)[0]
            for panel, place in zip(panels, axes, strict=True):
                panel(place)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


# --- panels that several results share -----------------------------------------------------------


def stems(axes: Axes, values: FloatArray, *, label: str = "coefficient  w") -> None:
    """One stem per coefficient, of many only the largest."""
    shown = np.sort(_largest(np.abs(values), MOST_STEMS))
    few = len(shown) <= 60
    axes.axhline(0.0, color=INK, linewidth=0.9)
    axes.vlines(shown, 0.0, values[shown], color=COLOURS[0], linewidth=1.6 if few else 0.8)
    axes.plot(shown, values[shown], "o", color=COLOURS[0], markersize=5 if few else 2.5)
    axes.set_xlabel("feature")
    axes.set_ylabel(label)
    if len(shown) < len(values):
        axes.set_title(f"the largest {len(shown)} of {len(values)} coefficients")


def curves(
    axes: Axes,
    x: FloatArray,
    values: FloatArray,
    *,
    symbol: str = "w",
    first: int = 0,
    names: Sequence[str] | None = None,
) -> None:
    """Columns of `values` against x: the largest in colour, named at the end; the others thin.

    Names are those given, or count from `first`.
    """
    # In shares of the height of the axes: between two names beside each other.
    name_distance = 0.06
    size = np.abs(values).max(axis=0, initial=0.0)
    ranked = _largest(size, MOST_CURVES + len(COLOURS))
    named, thin = ranked[: len(COLOURS)], ranked[len(COLOURS) :]
    named = named[size[named] > 0.0]  # what is 0 all along is the line at 0, and no feature's
    axes.axhline(0.0, color=INK, linewidth=0.9)
    if thin.size:
        axes.plot(x, values[:, thin], **THIN, zorder=1)
    for column, colour in zip(named, COLOURS, strict=False):
        axes.plot(x, values[:, column], color=colour, zorder=3)
    low, high = axes.get_ylim()
    heights = apart(values[-1, named], name_distance * (high - low))
    for column, height, colour in zip(named, heights, COLOURS, strict=False):
        axes.annotate(
            f"${symbol}_{{{column + first}}}$" if names is None else shortened(names[column]),
            (1.0, height),
            (4, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=11,
            parse_math=names is None,  # a name is a name, also with dollar signs in it
        )


def shortened(name: str, longest: int = 14) -> str:
    """A name that leaves room for the picture; names that begin alike often end differently."""
    half = longest // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[half + 1 - longest :]}"


def course(axes: Axes, x: FloatArray, values: FloatArray, *, label: str) -> None:
    """A quantity that falls over decades; exact zeros, which no logarithm has, are left out."""
    seen = np.isfinite(values) & (values > 0.0)
    axes.plot(x[seen], values[seen], color=COLOURS[0])
    if seen.any():
        axes.set_yscale("log")
    axes.set_ylabel(label)


def time_axis(axes: Axes, t: FloatArray) -> None:
    """Logarithmic, as flows have it; linear where no two times are positive."""
    if np.count_nonzero(t > 0.0) > 1:
        axes.set_xscale("log")
    axes.set_xlabel("time  t")


def positive_times(t: FloatArray) -> slice:
    """Which of increasing times a logarithmic axis can show; all where no two are positive."""
    first = int(np.searchsorted(t, 0.0, side="right"))
    return slice(first, None) if len(t) - first > 1 else slice(None)


def heat_map(axes: Axes, matrix: FloatArray, *, label: str = "entry of  M") -> None:
    """A matrix in colours that are centred on zero."""
    reach = float(np.abs(matrix).max(initial=0.0)) or 1.0
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    axes.figure.colorbar(image, ax=axes, label=label)
    axes.set_xlabel("column")
    axes.set_ylabel("row")


def spectrum(axes: Axes, values: FloatArray, *, label: str = "singular value of  M") -> None:
    """Values that fall with their number, over decades where they are positive."""
    seen = values > 0.0
    axes.plot(np.arange(1, len(values) + 1)[seen], values[seen], "o", color=COLOURS[0])
    if seen.any():
        axes.set_yscale("log")
    axes.set_xlim(0.4, len(values) + 0.6)
    axes.set_xlabel("number")
    axes.set_ylabel(label)


def _largest(sizes: FloatArray, most: int) -> Any:
    """Indices of the largest sizes, largest first; of equal ones the first."""
    return np.argsort(-sizes, kind="stable")[:most]


def apart(values: FloatArray, distance: float) -> FloatArray:
    """The values moved as little as an even treatment allows, until all are `distance` apart.

    Values that come too close form a group, spaced evenly around the mean of its members.
    """
    order = np.argsort(values, kind="stable")
    groups: list[list[float]] = []
    for value in values[order]:
        groups.append([float(value)])
        while len(groups) > 1 and _bottom(groups[-1], distance) < _top(groups[-2], distance):
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = np.empty(len(values))
    placed[order] = [
        _bottom(group, distance) + (i + 0.5) * distance
        for group in groups
        for i in range(len(group))
    ]
    return placed


def _bottom(group: list[float], distance: float) -> float:
    return float(np.mean(group)) - 0.5 * distance * len(group)


def _top(group: list[float], distance: float) -> float:
    return float(np.mean(group)) + 0.5 * distance * len(group)
