"""Predictors as points of the plane or of space: how they are seen, and what is drawn among them.

Views of two and three coefficients differ in their `Sight` alone: a matrix (d, 2) takes points to
the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.apps.explorer.controls import Slider
from flowbias.apps.explorer.drawing import (
    FLOW,
    FRAME,
    KERNEL,
    RICH,
    TRUTH,
    Data,
    Mark,
    labels,
    levels,
    line,
    points,
    window,
)
from flowbias.ground.typing import FloatArray

# Levels of the regularizer drawn, as shares of its value at the limit above its least value.
SHARES_OF_LEVEL = (0.15, 0.4, 0.7, 1.0, 1.5, 2.2)
AZIMUTH = Slider("azimuth", "Seen from", 0.0, 360.0, 3.0, 36.0, "{:g}°".format, 1)
COEFFICIENTS = ["w₁", "w₂", "w₃"]

#: A square with equal units on both axes, for bokeh and for `Chart`.
SQUARE: dict[str, Any] = {
    "legend": "below",
    "windowed": True,
    "options": {"match_aspect": True},
}
#: The flow from its start to its limit, and the two solutions that do not depend on the start.
FLOW_AND_EXTREMES = (
    line("path", FLOW, "path of the flow", 3.5),
    points("start", "x", FLOW, 11, "start", line_width=3),
    points("l1", "diamond", RICH, 22, "least l1 norm", 0.35, line_width=2.5),
    points("l2", "square", KERNEL, 16, "least l2 norm", 0.35, line_width=2.5),
    points("limit", "circle", FLOW, 12, "limit", 1.0, line_width=1),
)
#: All that is drawn in the plane.
PLANE = (
    levels("levels", "level sets"),
    levels("own", width=3.0),
    line("fits", TRUTH, "all w that fit", dash="dashed"),
    *FLOW_AND_EXTREMES,
)
#: The axes of space, with their names at the tips.
SPACE_AXES = (
    Mark(
        *("axes", "segment"),
        {"x0": "x", "y0": "y", "x1": "to_x", "y1": "to_y", "line_color": FRAME, "line_width": 1.5},
        columns=("x", "y", "to_x", "to_y"),
    ),
    labels("names"),
)


@dataclass(frozen=True)
class Sight:
    """Where points (m, d) are seen, in a square of sides from -reach to reach."""

    reach: float
    # (d, 2): to the right, and upwards.
    projection: FloatArray

    def flat(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points, or a single one, as they are seen."""
        seen = np.atleast_2d(points) @ self.projection
        return seen[:, 0], seen[:, 1]

    def polylines(self, curves: Sequence[FloatArray]) -> tuple[list[FloatArray], ...]:
        """The same of several lines at once."""
        seen = [self.flat(curve) for curve in curves]
        return [x for x, _ in seen], [y for _, y in seen]

    def frame(self) -> Data:
        """The window, and the axes with their names."""
        tips = self.reach * np.eye(len(self.projection))
        return {
            "window": window(-self.reach, self.reach),
            "axes": (*self.flat(-tips), *self.flat(tips)),
            "names": (*self.flat(tips), COEFFICIENTS[: len(tips)]),
        }


def shown_reach(*points: FloatArray) -> float:
    """Half a side that holds all points, in few sizes so that it seldom changes."""
    largest = max(float(np.abs(point).max()) for point in points)
    return float(1.7 * 2.0 ** max(np.ceil(np.log2(1.1 * largest / 1.7)), 0.0))


def projection(azimuth: float) -> FloatArray:
    """Seen from far away, from `azimuth` degrees around the third axis and 25 above the others."""
    turn, lift = np.deg2rad(azimuth), np.deg2rad(25.0)
    right = np.array([-np.sin(turn), np.cos(turn), 0.0])
    up = np.array([-np.sin(lift) * np.cos(turn), -np.sin(lift) * np.sin(turn), np.cos(lift)])
    return np.stack([right, up], axis=1)


def direction(degrees: float) -> FloatArray:
    """A unit vector of the plane, without the rounding of a cosine that should be 0."""
    angle = np.deg2rad(degrees)
    return np.asarray(np.round([np.cos(angle), np.sin(angle)], 15), dtype=np.float64)


def kernel_of(X: FloatArray) -> FloatArray:
    """Orthonormal directions, as rows, along which X w does not change."""
    _, sizes, rows = np.linalg.svd(X)
    rank = int(np.sum(sizes > len(rows) * np.finfo(float).eps * sizes[0]))
    return np.asarray(rows[rank:])


def contours(
    grid: FloatArray, heights: FloatArray, shares: Sequence[float]
) -> dict[float, tuple[FloatArray, ...]]:
    """Level lines (m, 2) on a square grid, by their heights."""
    from contourpy import contour_generator

    lines = contour_generator(grid, grid, heights)
    return {share: tuple(map(np.asarray, lines.lines(share))) for share in shares}


def level_sets(
    grid: FloatArray, terms: FloatArray, at_limit: float
) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
    """Level sets of a sum over two coordinates: the limit's own, touching the line, and others.

    `terms` (m, 2) are those of the grid. An odd number of points has the axes, where level sets
    have their corners, among the lines of the grid.
    """
    surface = np.add.outer(terms[:, 1], terms[:, 0])
    least = float(np.min(surface))
    height = at_limit - least
    # NaN where the limit lies beyond what is known of the sum.
    if not height > 0.0:
        return (), ()
    # In shares of that height: at depth 4 and scale 1e-100 values are near 1e200, and squares of
    # them, which interpolation takes, are no doubles.
    curves = contours(grid, (surface - least) / height, SHARES_OF_LEVEL)
    return curves.pop(1.0), sum(curves.values(), ())
