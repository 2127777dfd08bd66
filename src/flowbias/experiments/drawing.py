"""From panels to pictures: figures as files, and each panel alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flowbias.experiments.table import Summary, Table
from flowbias.ground.drawing import INK, PANEL_SIZE, STYLE, new_figure
from flowbias.ground.typing import ArrayLike, Axes, Figure

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.backend_bases import FigureCanvasBase

    from flowbias.experiments._base import Panel


class PanelDrawing(NamedTuple):
    """One panel on a transparent ground, for a page that lays panels out by itself."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Drawing:
    """A figure as files: all panels in one picture, and each alone."""

    png: bytes
    svg: str
    panels: tuple[PanelDrawing, ...]


def draw(panels: Sequence[Panel], table: Table) -> Drawing:
    """Draw a figure once for all uses. The same table gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with mpl.rc_context(STYLE):
        # The layout found for one format serves the other; finding it is half of the work.
        whole = _laid_out(figure_of(panels, table), FigureCanvasAgg, dpi=110)
        png = _saved(whole, format="png", dpi=whole.dpi, metadata={"Software": None})
        return Drawing(
            png=png,
            svg=_as_svg(whole),
            panels=tuple(
                PanelDrawing(
                    panel.name, panel.title, _as_svg(_bare(panel, table), transparent=True)
                )
                for panel in panels
            ),
        )


def _bare(panel: Panel, table: Table) -> Figure:
    """A panel without its title, which the page sets in its own type."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure = figure_of([panel], table)
    figure.axes[0].set_title("")
    # An SVG has 72 points per inch, whatever it is told.
    return _laid_out(figure, FigureCanvasSVG, dpi=72)


def _laid_out(figure: Figure, canvas: type[FigureCanvasBase], dpi: float) -> Figure:
    """The axes put in place, once, for the canvas: `savefig` would draw a draft for it."""
    canvas(figure)
    figure.dpi = dpi
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)
    return figure


def _as_svg(figure: Figure, **options: Any) -> str:
    text = _saved(figure, format="svg", metadata={"Date": None}, **options).decode()
    return text[text.index("<svg") :]


def _saved(figure: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, **options)
    return buffer.getvalue()


def figure_of(panels: Sequence[Panel], table: Table) -> Figure:
    """The panels side by side, many of them in rows."""
    import matplotlib as mpl

    rows, columns = _arrangement(len(panels))
    width, height = PANEL_SIZE
    with mpl.rc_context(STYLE):
        figure = new_figure(width * columns, height * rows)
        places = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(places, panels, strict=False):
            panel.draw(axes, table)
            axes.set_title(panel.title if len(panels) == 1 else f"({panel.name}) {panel.title}")
    return figure


def _arrangement(panels: int) -> tuple[int, int]:
    """Rows and columns: one row up to five panels, then rows of three or four."""
    if panels <= 5:
        return 1, panels
    columns = 3 if panels % 3 == 0 and panels <= 9 else 4
    return -(-panels // columns), columns


def draw_band(axes: Axes, x: ArrayLike, summary: Summary, **style: Any) -> None:
    """The median as a line, the middle half of the replicates as a band behind it."""
    (line,) = axes.plot(x, summary.median, **style)
    axes.fill_between(
        np.asarray(x, dtype=float),
        summary.low,
        summary.high,
        color=line.get_color(),
        alpha=0.22,
        linewidth=0,
    )


def say(
    axes: Axes, text: str, x: float, y: float, *, colour: str | None = None, **style: Any
) -> None:
    """Words at a place of the axes, which go from 0 to 1; the name of a line in its colour."""
    if colour is not None:
        style |= {"color": colour, "fontweight": "bold", "fontsize": 11}
    axes.annotate(text, (x, y), xycoords="axes fraction", **style)


def reference_line(
    axes: Axes,
    *,
    text: str,
    x: float | None = None,
    y: float | None = None,
    side: str = "left",
    below: bool = False,
) -> None:
    """A thin dotted line across the axes with its name beside it."""
    thin: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (1, 2))}
    if y is not None:
        axes.axhline(y, **thin)
        axes.annotate(
            text,
            (0.02 if side == "left" else 0.98, y),
            (0, -3 if below else 3),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            ha=side,
            va="top" if below else "bottom",
            fontsize=10,
        )
    if x is not None:
        axes.axvline(x, **thin)
        axes.annotate(
            text,
            (x, 0.98),
            (4, 0),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            va="top",
            fontsize=10,
        )


def plain_ticks(axis: Axis, *digits: float) -> None:
    """A logarithmic axis of a few decades: plain numbers at these digits times powers of ten."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def name_line(
    axes: Axes, text: str, x: float, y: float, *, side: str = "right", colour: str = INK
) -> None:
    """A direct label beside a point of a line, instead of a legend."""
    offset = {"right": (7, 0), "left": (-7, 0), "above": (0, 7), "below": (0, -7)}[side]
    horizontal = {"right": "left", "left": "right"}.get(side, "center")
    vertical = {"above": "bottom", "below": "top"}.get(side, "center")
    axes.annotate(
        text,
        (x, y),
        offset,
        textcoords="offset points",
        ha=horizontal,
        va=vertical,
        color=colour,
        fontweight="bold",
        fontsize=11,
    )
