"""Charts as data: what is marked on them, and in which look. Bokeh draws them and moves the marks.

Colours mean the same in every view, on light and dark paper and to the colour-blind; marks differ
in shape as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bokeh.models import LinearColorMapper
    from bokeh.plotting import figure


class Hue:
    """What a colour means."""

    # The limit and the path to it, then the two extremes, then what is known of the truth.
    FLOW, RICH, KERNEL, TRUTH = "#d1622b", "#2a9470", "#3b6fb6", "#8a5a9e"
    # Frames, ticks and text: grey that reads on white and on near-black.
    FRAME = "#7b828a"


#: The columns of each mark, by its name.
Data = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Mark:
    """What one method of Bokeh's figure draws, moved by the data of its name.

    Marks of one name, in one chart or several, are moved together.
    """

    name: str
    glyph: str
    look: Mapping[str, Any]
    # In the legend, where something is drawn.
    label: str = ""
    columns: tuple[str, ...] = ("x", "y")


def line(
    name: str, colour: str, label: str = "", width: float = 2.5, dash: str = "solid", **look: Any
) -> Mark:
    """A curve, with gaps where it is NaN."""
    drawn = {"color": colour, "line_width": width, "line_dash": dash}
    return Mark(name, "line", {"x": "x", "y": "y", **drawn, **look}, label)


def levels(name: str, label: str = "", width: float = 1.0) -> Mark:
    """Many curves at once, given as lists of their x and y."""
    look = {"xs": "x", "ys": "y", "line_color": Hue.FRAME, "line_width": width}
    return Mark(name, "multi_line", look, label)


def points(
    name: str,
    marker: str,
    colour: str,
    size: float,
    label: str = "",
    fill: float = 0.0,
    **look: Any,
) -> Mark:
    """Open marks, or filled ones where `fill` is 1."""
    drawn = {"marker": marker, "size": size, "line_width": 2, "line_color": colour}
    filled = {"fill_color": colour, "fill_alpha": fill}
    return Mark(name, "scatter", {"x": "x", "y": "y", **drawn, **filled, **look}, label)


def stems(name: str) -> Mark:
    """A line from zero to every point."""
    ends = {"x0": "x", "y0": 0, "x1": "x", "y1": "y"}
    return Mark(name, "segment", {**ends, "color": Hue.FLOW, "line_width": 1.5})


def cursor(name: str = "cursor") -> Mark:
    """A line from the bottom to the top of the chart."""
    look = {"x": "x", "line_color": Hue.FLOW, "line_width": 1.5}
    return Mark(name, "vspan", look, columns=("x",))


def level(y: float) -> Mark:
    """A line from its left to its right, that never moves."""
    look = {"y": y, "line_color": Hue.FRAME, "line_dash": "dotted"}
    return Mark(f"level {y:g}", "hspan", look, columns=())


def labels(name: str, **look: Any) -> Mark:
    """Words at points."""
    drawn = {"x": "x", "y": "y", "text": "name", "text_color": Hue.FRAME, "text_font_size": "14px"}
    return Mark(name, "text", {**drawn, **look}, columns=("x", "y", "name"))


@lru_cache(maxsize=64)
def window(low: float, high: float) -> tuple[tuple[float, float], ...]:
    """Two corners; the very same for the same ends: new ones would lay the figure out anew."""
    return (low, high), (low, high)


@dataclass(frozen=True)
class Chart:
    """A figure with its heading, and in words what is in it for those who cannot see it."""

    heading: str
    description: str
    x_label: str
    y_label: str
    marks: tuple[Mark, ...]
    # Whether it needs the whole width: the page gives it a row, and a lower one, of its own.
    wide: bool = False
    # Where the legend stands: the picture itself is for what is drawn.
    legend: str = "above"
    # Words at places of the horizontal axis.
    ticks: Mapping[float, str] = field(default_factory=dict)
    # Whether both axes follow the data `window`.
    windowed: bool = False
    # Whether axes and grid are drawn.
    framed: bool = True
    # Title of a scale of colours, for marks with a column `value`; `colours` holds its largest.
    colours: str = ""
    # For bokeh.plotting.figure.
    options: Mapping[str, Any] = field(default_factory=dict)


class Picture:
    """The figure of a chart in one tab."""

    def __init__(self, chart: Chart) -> None:
        self.heading, self.description, self.wide = chart.heading, chart.description, chart.wide
        self.figure = _new_figure(chart)
        # The page places it by this.
        self.figure.name = chart.heading
        self._mapper = _colour_bar(self.figure, chart.colours) if chart.colours else None
        self._shown: dict[str, tuple[Any, ...]] = {}
        self._drawn = [(mark, self._draw(mark)) for mark in _with_window(chart)]
        if chart.windowed:
            ranges = (self.figure.x_range, self.figure.y_range)
            for axis in ranges:
                axis.renderers = [self._drawn[0][1]]
        self._items = {}
        if self.figure.legend:
            _place_legend(self.figure, chart.legend)
            self._items = {item.label.value: item for item in self.figure.legend[0].items}

    def _draw(self, mark: Mark) -> Any:
        from bokeh.models import ColumnDataSource
        from bokeh.transform import transform

        look = {**mark.look, "name": mark.name}
        if mark.columns:
            look["source"] = ColumnDataSource({column: [] for column in mark.columns})
        if "value" in mark.columns:
            look["fill_color"] = transform("value", self._mapper)
        if mark.label:
            look["legend_label"] = mark.label
        return getattr(self.figure, mark.glyph)(**look)

    def show(self, data: Data) -> None:
        """Move the marks; those that `data` says nothing of stay as they are, faint.

        One assignment per mark, so that nothing flickers, and none where the columns are the very
        ones that are shown: Bokeh alone would send those with gaps once more.
        """
        if self._mapper is not None:
            (reach,) = data["colours"]
            self._mapper.update(low=-reach, high=reach)
        for mark, drawn in self._drawn:
            if not mark.columns:
                continue
            columns = data.get(mark.name)
            drawn.muted = columns is None
            if columns is None or self._shown.get(mark.name) is columns:
                continue
            drawn.data_source.data = dict(zip(mark.columns, columns, strict=True))
            if mark.label:
                self._items[mark.label].visible = len(columns[0]) > 0
        self._shown.update(data)


def _with_window(chart: Chart) -> tuple[Mark, ...]:
    # Ranges follow these corners alone: only such ranges can keep the units of both axes equal.
    corners = Mark("window", "scatter", {"x": "x", "y": "y", "alpha": 0.0})
    return (corners, *chart.marks) if chart.windowed else chart.marks


def _new_figure(chart: Chart) -> figure:
    from bokeh.models import DataRange1d
    from bokeh.plotting import figure

    options = dict(chart.options)
    if chart.windowed:
        for axis in ("x_range", "y_range"):
            options[axis] = DataRange1d(range_padding=0.0, only_visible=False)
    made = figure(
        x_axis_label=chart.x_label,
        y_axis_label=chart.y_label,
        # How high a figure is, is the page's to say: all of it has to be seen beside its sliders.
        sizing_mode="stretch_both",
        toolbar_location=None,
        background_fill_alpha=0.0,
        border_fill_alpha=0.0,
        outline_line_color=None,
        output_backend="canvas",
        **options,
    )
    made.axis.minor_tick_line_color = None
    made.axis.axis_line_color = made.axis.major_tick_line_color = Hue.FRAME
    made.axis.axis_label_text_color = made.axis.major_label_text_color = Hue.FRAME
    made.grid.grid_line_color, made.grid.grid_line_alpha = Hue.FRAME, 0.25
    made.axis.visible = made.grid.visible = chart.framed
    if chart.ticks:
        made.xaxis.ticker = list(chart.ticks)
        made.xaxis.major_label_overrides = dict(chart.ticks)
    return made


def _place_legend(made: figure, side: str) -> None:
    """Out of the picture, two entries to a row: as many as a narrow page allows."""
    legend = made.legend[0]
    made.add_layout(legend, side)
    legend.ncols = 2
    legend.label_text_color, legend.label_text_font_size = Hue.FRAME, "13px"
    legend.background_fill_alpha, legend.border_line_color = 0.0, None
    legend.padding, legend.margin, legend.spacing = 0, 4, 4
    legend.location = "bottom_left" if side == "below" else "top_right"


def _colour_bar(made: figure, title: str) -> LinearColorMapper:
    """From blue over pale, at zero, to red."""
    from bokeh.models import ColorBar, LinearColorMapper
    from bokeh.palettes import RdBu11, interp_palette

    mapper = LinearColorMapper(palette=interp_palette(RdBu11, 255), low=-1.0, high=1.0)
    bar = ColorBar(
        color_mapper=mapper,
        height=12,
        width=220,
        background_fill_alpha=0.0,
        major_label_text_color=Hue.FRAME,
        title=title,
        title_text_color=Hue.FRAME,
    )
    made.add_layout(bar, "below")
    return mapper
