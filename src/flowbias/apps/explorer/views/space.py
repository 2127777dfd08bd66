"""Predictors as points of the plane or of space: how they are seen, and what is drawn among them.

Views of two and three coefficients differ in their `Sight` alone: a matrix (d, 2) takes points to
the page. Of one equation <x, w> = y all is known that they show: its solutions, the flow's way to
one of them, and the two extremes.

With a single equation the dual nu is one number, and the flow moves it from 0 to its limit without
ever turning back. The path is therefore known without integration, at any scale:

    w = grad Q*(shift + x nu s),   0 <= s <= 1     [woodworth2020, proof of Theorem 1]

Seen otherwise, the point where <x, w> = c y is the limit of the same flow for the target c y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.apps.explorer.drawing import Data, Hue, Mark, labels, levels, line, points, window
from flowbias.apps.explorer.view import Slider, scale_slider
from flowbias.apps.explorer.views.proof_words import Extremes
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import limit
from flowbias.models.diagonal import DiagonalNet
from flowbias.models.untied import UntiedDiagonalNet
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

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
    line("path", Hue.FLOW, "path of the flow", 3.5),
    points("start", "x", Hue.FLOW, 11, "start", line_width=3),
    points("l1", "diamond", Hue.RICH, 22, "least l1 norm", 0.35, line_width=2.5),
    points("l2", "square", Hue.KERNEL, 16, "least l2 norm", 0.35, line_width=2.5),
    points("limit", "circle", Hue.FLOW, 12, "limit", 1.0, line_width=1),
)
#: All that is drawn in the plane.
PLANE = (
    levels("levels", "level sets"),
    levels("own", width=3.0),
    line("fits", Hue.TRUTH, "all w that fit", dash="dashed"),
    *FLOW_AND_EXTREMES,
)
#: The axes of space, with their names at the tips.
SPACE_AXES = (
    Mark(
        *("axes", "segment"),
        {"x0": "x", "y0": "y", "x1": "to_x", "y1": "to_y", "color": Hue.FRAME, "line_width": 1.5},
        columns=("x", "y", "to_x", "to_y"),
    ),
    labels("names", text_align="center", text_baseline="middle"),
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
        ways = self.reach * np.eye(len(self.projection))
        # Names stand beyond the tips, and both within the window.
        tips, names = 0.88 * ways, 0.95 * ways
        return {
            "window": window(-self.reach, self.reach),
            "axes": (*self.flat(-tips), *self.flat(tips)),
            "names": (*self.flat(names), COEFFICIENTS[: len(names)]),
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
    return np.asarray(scipy.linalg.null_space(X).T)


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
    shares = (0.15, 0.4, 0.7, 1.0, 1.5, 2.2)
    curves = contours(grid, (surface - least) / height, shares)
    return curves.pop(1.0), sum(curves.values(), ())


def scale_stops() -> tuple[float, ...]:
    """Base-10 logarithms from -100 to 2, by tenths down to 1e-6 and then in growing steps."""
    stops, step = [-6.0], 0.1
    while stops[-1] > -100.0:
        step *= 1.1
        stops.append(max(round(stops[-1] - step, 1), -100.0))
    return (*reversed(stops), *(round(0.1 * k, 1) for k in range(-59, 21)))


WIDE_SCALE = scale_slider(-100.0, 2.0, 0.1, -0.5, scale_stops(), plays=True)
DEPTH = Slider("depth", "Depth D", 2, 6, 1, 2)


@dataclass(frozen=True)
class DiagonalStart:
    """A diagonal network at its start: d features, the first of them at `first`, the rest at 0."""

    scale: float
    depth: int
    shape: float
    first: float

    def model(self, d: int) -> Any:
        """Untied at depth 2, where the two layers may differ in size; tied above it."""
        start = np.zeros(d)
        start[0] = self.first
        # Not the sum for all: the power of a tiny scale is no double, and a weight 0 stays 0.
        moved = (self.scale**self.depth + np.abs(start)) ** (1 / self.depth)
        plus = np.where(start > 0.0, moved, self.scale)
        minus = np.where(start < 0.0, moved, self.scale)
        if self.depth > 2:
            return DiagonalNet.from_weights(plus, minus, depth=self.depth)
        ratio = np.sqrt((1 + self.shape) / (1 - self.shape))
        return UntiedDiagonalNet.from_weights(
            plus / ratio, minus / ratio, plus * ratio, minus * ratio
        )

    def code(self, d: int) -> str:
        """Lines that make the same model and call it `net`."""
        zeros = f"{self.first!r}, " + ", ".join(["0.0"] * (d - 1))
        lines = [
            f"scale, start = {self.scale!r}, np.array([{zeros}])",
            f"moved = (scale**{self.depth} + np.abs(start)) ** (1 / {self.depth})",
            "plus = np.where(start > 0, moved, scale)",
            "minus = np.where(start < 0, moved, scale)",
        ]
        if self.depth > 2:
            lines.append(f"net = fb.DiagonalNet.from_weights(plus, minus, depth={self.depth})")
        else:
            lines += [
                f"ratio = np.sqrt((1 + {self.shape!r}) / (1 - {self.shape!r}))  # v over u",
                "net = fb.UntiedDiagonalNet.from_weights(",
                "    plus / ratio, minus / ratio, plus * ratio, minus * ratio",
                ")",
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Ends:
    """Where the flow ends on one equation, how it gets there, and the two extreme solutions."""

    x: FloatArray
    y: float
    solution: Solution
    path: FloatArray
    extremes: Extremes
    # Q(w) - <shift, w>: what the limit minimizes on the line; terms per coordinate.
    potential: Any
    shift: FloatArray

    @property
    def points(self) -> tuple[FloatArray, ...]:
        """All that has to be seen of it."""
        return self.solution.w, self.path, self.extremes.rich, self.extremes.kernel

    def terms(self, w: FloatArray) -> FloatArray:
        """The regularizer per coordinate, for points (..., d)."""
        return np.asarray(self.potential.value_terms(w) - self.shift * w)


def follow(start: DiagonalStart, x: FloatArray, y: float) -> Ends:
    """Limit, path and extremes; SolveError where the limit cannot be certified."""
    X, target = x[np.newaxis], np.array([y])
    model = start.model(len(x))
    solution = limit(model, X, target)
    shift = np.broadcast_to(np.asarray(model.shift, dtype=np.float64), x.shape)
    return Ends(
        x=x,
        y=y,
        solution=solution,
        path=_path(model, X, target, solution, shift),
        extremes=_extremes(tuple(x.tolist()), y),
        potential=model.potential,
        shift=shift,
    )


# A scale that moves leaves the equation as it is.
@lru_cache(maxsize=32)
def _extremes(x: tuple[float, ...], y: float) -> Extremes:
    return Extremes.of(Regression(np.array([x]), np.array([y])))


def _path(
    model: Any, X: FloatArray, y: FloatArray, solution: Solution, shift: FloatArray
) -> FloatArray:
    # Shares of the dual's way: dense near the end, where a tiny start does all its moving.
    shares = np.append(1.0 - np.geomspace(1.0, 1e-5, 200), 1.0)
    moved = np.multiply.outer(shares, X[0] * float(solution.dual[0]))
    path = np.asarray(model.potential.grad_dual(shift + moved))
    gap = np.abs(path[-1] - solution.w).max()
    # A path that ends further away from the limit, in shares of its size, is not its path.
    if gap <= 1e-3 * np.abs(solution.w).max():
        return path
    first = np.broadcast_to(np.asarray(model.initial, dtype=np.float64), solution.w.shape)
    reached = float(X[0] @ first)
    # The dual cannot be told from its limit in doubles: a few shares of the target in its place.
    targets = (reached + share * (y - reached) for share in (0.25, 0.5, 0.75))
    between = [limit(model, X, target).w for target in targets]
    return np.array([first, *between, solution.w])
