"""Bokeh figures of one look, legible on light and dark paper and to the colour-blind.

Colours mean the same in every view; marks differ in shape as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bokeh.plotting import figure

# The limit and the path to it, then the two extremes, then what is known of the truth.
FLOW, RICH, KERNEL, TRUTH = "#d1622b", "#2a9470", "#3b6fb6", "#8a5a9e"
# Many curves that need no name.
CURVES = ("#3b6fb6", "#d1622b", "#8a5a9e", "#2a9470", "#b5476d", "#94700a")
# Frames, ticks and text: grey that reads on white and on near-black.
FRAME = "#7b828a"


def new_figure(x_label: str, y_label: str, **options: Any) -> figure:
    """An empty figure as wide as the page allows; `options` go to `bokeh.plotting.figure`."""
    from bokeh.plotting import figure

    made = figure(
        x_axis_label=x_label,
        y_axis_label=y_label,
        height=options.pop("height", 380),
        sizing_mode="stretch_width",
        toolbar_location=None,
        background_fill_alpha=0.0,
        border_fill_alpha=0.0,
        outline_line_color=None,
        output_backend="canvas",
        **options,
    )
    made.axis.minor_tick_line_color = None
    made.axis.axis_line_color = made.axis.major_tick_line_color = FRAME
    made.axis.axis_label_text_color = made.axis.major_label_text_color = FRAME
    made.grid.grid_line_color, made.grid.grid_line_alpha = FRAME, 0.25
    return made


def legend_above(made: figure) -> None:
    """Move the legend out of the picture, two entries to a row as a narrow page allows."""
    legend = made.legend[0]
    made.add_layout(legend, "above")
    legend.ncols = 2
    legend.label_text_color, legend.label_text_font_size = FRAME, "13px"
    legend.background_fill_alpha, legend.border_line_color = 0.0, None
    legend.padding, legend.margin, legend.spacing = 0, 4, 12
