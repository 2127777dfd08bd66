"""The look of every picture: colours, type and lines.

Colours keep apart in grey and for the colour-blind, and stand out on white and on near-black paper.
"""

from __future__ import annotations

from typing import Any

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
