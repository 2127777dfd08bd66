"""Where outside the package a call came from, so that a warning points at that line."""

from __future__ import annotations

import sys


def depth_inside() -> int:
    """How many calls up the first line outside the package is: the `stacklevel` of a warning."""
    package = __name__.partition(".")[0]
    frame, depth = sys._getframe(1), 1
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == package
    ):
        frame, depth = frame.f_back, depth + 1
    return depth
