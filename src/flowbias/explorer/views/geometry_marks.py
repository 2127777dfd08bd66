"""What the pictures in the plane and in space have in common: the path, its ends, the extremes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.explorer.drawing import FLOW, KERNEL, RICH, new_figure
from flowbias.explorer.views.geometry_scene import Ends


class Marks:
    """A figure of equal units on both axes, as wide as a given reach, with the marks on it."""

    def __init__(self, x_label: str, y_label: str) -> None:
        from bokeh.models import ColumnDataSource, DataRange1d

        ranges = [DataRange1d(range_padding=0.0, only_visible=False) for _ in range(2)]
        self.figure = new_figure(
            x_label, y_label, height=560, x_range=ranges[0], y_range=ranges[1], match_aspect=True
        )
        names = ("path", "start", "limit", "l1", "l2")
        self._points = {name: ColumnDataSource({"x": [], "y": []}) for name in names}
        # Ranges follow these corners alone: only such ranges keep the units of both axes equal.
        self._corners = ColumnDataSource({"x": [-1.0, 1.0], "y": [-1.0, 1.0]})
        corners = self.figure.scatter("x", "y", source=self._corners, alpha=0.0)
        for axis in ranges:
            axis.renderers = [corners]

    def draw(self, below: Mapping[str, Any]) -> None:
        """The marks, above what is drawn already and named in `below`, and a legend of it all."""
        from bokeh.models import Legend, LegendItem

        of, made = self._points, self.figure
        hollow = {"fill_alpha": 0.35, "line_width": 2.5}
        entries = {
            **below,
            "path of the flow": made.line("x", "y", source=of["path"], color=FLOW, width=3.5),
            "start": made.scatter(
                "x", "y", source=of["start"], marker="x", size=11, color=FLOW, line_width=3
            ),
            "least l1 norm": made.scatter(
                "x", "y", source=of["l1"], marker="diamond", size=22, color=RICH, **hollow
            ),
            "least l2 norm": made.scatter(
                "x", "y", source=of["l2"], marker="square", size=16, color=KERNEL, **hollow
            ),
            "limit": made.scatter(
                "x", "y", source=of["limit"], marker="circle", size=12, color=FLOW
            ),
        }
        items = [LegendItem(label=label, renderers=[one]) for label, one in entries.items()]
        legend = Legend(items=items, ncols=2, label_text_font_size="13px", location="bottom_left")
        made.add_layout(legend, "below")

    def show(self, ends: Ends, reach: float, projection: FloatArray) -> None:
        """Move the marks; `projection` (d, 2) takes points to the page."""
        # Most moves leave what is shown as it is, and a new range lays the figure out anew.
        if self._corners.data["x"][-1] != reach:
            self._corners.data = {"x": [-reach, reach], "y": [-reach, reach]}
        rows = {
            "path": ends.path,
            "start": ends.path[:1],
            "limit": ends.solution.w[np.newaxis],
            "l1": ends.min_l1.w[np.newaxis],
            "l2": ends.min_l2.w[np.newaxis],
        }
        for name, points in rows.items():
            self._points[name].data = columns(points @ projection)


def columns(points: FloatArray) -> dict[str, FloatArray]:
    """Points (m, 2) as the columns of a source."""
    return {"x": points[:, 0], "y": points[:, 1]}
