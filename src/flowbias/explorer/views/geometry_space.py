"""Three coefficients, one equation: which point of a plane does the flow pick?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias._typing import FloatArray
from flowbias.explorer.controls import Slider
from flowbias.explorer.drawing import FRAME, TRUTH
from flowbias.explorer.view import Drawn, Pictures, Settings, View
from flowbias.explorer.views.geometry import shown_reach
from flowbias.explorer.views.geometry_marks import Marks, columns
from flowbias.explorer.views.geometry_scene import DEPTH, Ends, Start, follow, scale_slider
from flowbias.explorer.views.proof_words import distance_words

GRID = 81
# Levels in the plane, as shares of the rise from the limit to the farther of the two extremes.
SHARES_OF_RISE = (0.05, 0.2, 0.5, 1.0, 2.0)
ELEVATION = 25.0


@dataclass(frozen=True)
class SpaceScene:
    """All numbers of the picture; points in space are rows."""

    start: Start
    ends: Ends
    reach: float
    # (3, 2): what it is multiplied by becomes a point on the page.
    projection: FloatArray
    # (m, 3) polylines in the plane of solutions, each closed or ending at its border.
    levels: tuple[FloatArray, ...]
    corners: FloatArray

    def flat(self, points: FloatArray) -> FloatArray:
        """Points of space as they are seen."""
        return np.asarray(points @ self.projection)


def projection(azimuth: float) -> FloatArray:
    """Seen from far away, from `azimuth` degrees around the third axis and 25 above the others."""
    turn, lift = np.deg2rad(azimuth), np.deg2rad(ELEVATION)
    right = np.array([-np.sin(turn), np.cos(turn), 0.0])
    up = np.array([-np.sin(lift) * np.cos(turn), -np.sin(lift) * np.sin(turn), np.cos(lift)])
    return np.stack([right, up], axis=1)


def plane_of(x: FloatArray) -> FloatArray:
    """Two orthonormal directions, as rows, along which <x, w> does not change."""
    _, _, rows = np.linalg.svd(x[np.newaxis])
    return np.asarray(rows[1:])


def levels_in_plane(ends: Ends, reach: float) -> tuple[FloatArray, ...]:
    """Level curves, on the plane of solutions, of what the limit minimizes there."""
    from contourpy import contour_generator

    directions, centre = plane_of(ends.x), ends.solution.w
    grid = np.linspace(-reach, reach, GRID)
    a, b = np.meshgrid(grid, grid)
    points = centre + np.stack([a, b], axis=-1) @ directions
    heights = ends.terms(points).sum(axis=-1) - float(ends.terms(centre).sum())
    extremes = np.stack([ends.min_l1.w, ends.min_l2.w])
    rises = ends.terms(extremes).sum(axis=-1) - ends.terms(centre).sum()
    # Where an extreme is the limit, or both are, a small share of the whole surface in its place.
    rise = max(float(rises.max()), 1e-3 * float(heights.max()))
    lines = contour_generator(grid, grid, heights / rise)
    return tuple(
        centre + np.asarray(curve) @ directions
        for share in SHARES_OF_RISE
        for curve in lines.lines(share)
    )


class SpacePictures(Pictures[SpaceScene]):
    """Space, seen from the side."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource

        self._marks = Marks("to the right", "upwards")
        self._plane = ColumnDataSource({"x": [], "y": []})
        self._levels = ColumnDataSource({"x": [], "y": []})
        self._axes = ColumnDataSource({"x": [], "y": [], "end_x": [], "end_y": [], "name": []})
        space, axes = self._marks.figure, self._axes
        space.axis.visible = False
        space.grid.visible = False
        plane = space.patch(
            "x", "y", source=self._plane, color=TRUTH, fill_alpha=0.12, line_alpha=0.6
        )
        space.segment("x", "y", "end_x", "end_y", source=axes, line_color=FRAME, line_width=1.5)
        space.text("end_x", "end_y", "name", source=axes, text_color=FRAME, text_font_size="16px")
        levels = space.multi_line("x", "y", source=self._levels, line_color=FRAME)
        self._marks.draw({"all w that fit": plane, "level curves there": levels})
        self.figures = (
            Drawn(
                "The plane of solutions and the point that the flow picks",
                "A shaded part of a plane holds all w that fit. Level curves of the potential, on "
                "that plane, surround the limit (circle). A diamond marks least l1 norm, a square "
                "least l2 norm. Three lines are the axes of the coefficients.",
                space,
            ),
        )

    def show(self, scene: SpaceScene) -> None:
        curves = [scene.flat(curve) for curve in scene.levels]
        self._levels.data = {"x": [c[:, 0] for c in curves], "y": [c[:, 1] for c in curves]}
        tips = scene.flat(scene.reach * np.eye(3))
        self._axes.data = {
            **columns(-tips),
            **{f"end_{name}": values for name, values in columns(tips).items()},
            "name": ["w₁", "w₂", "w₃"],
        }
        self._plane.data = columns(scene.flat(scene.corners))
        self._marks.show(scene.ends, scene.reach, scene.projection)


class GeometrySpaceView(View[SpaceScene]):
    """The same question with one more coefficient."""

    name = "geometry-3d"
    title = "Geometry in 3D"
    question = (
        "One equation in three unknowns has a plane of solutions. As the start shrinks, the limit "
        "moves from the point nearest to zero to a corner, where two coefficients are zero (if no "
        "two weights tie)."
    )
    controls = (
        scale_slider(-0.5),
        DEPTH,
        Slider("first", "Weight of feature 1", -1.5, 1.5, 0.1, 0.6),
        Slider("second", "Weight of feature 2", -1.5, 1.5, 0.1, 1.0),
        Slider("third", "Weight of feature 3", -1.5, 1.5, 0.1, 0.8),
        Slider("azimuth", "Seen from", 0.0, 360.0, 3.0, 36.0, "{:g}°".format, True),
    )

    def scene(self, settings: Settings) -> SpaceScene:
        x, start = equation(settings), start_of(settings)
        ends = follow(start, x, 1.0)
        reach = shown_reach(ends.solution.w, ends.min_l1.w, ends.min_l2.w)
        directions = plane_of(x)
        square = 0.8 * reach * np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
        return SpaceScene(
            start,
            ends,
            reach,
            projection(settings["azimuth"]),
            levels_in_plane(ends, 0.8 * reach),
            ends.solution.w + square @ directions,
        )

    def pictures(self) -> SpacePictures:
        return SpacePictures()

    def text(self, scene: SpaceScene) -> str:
        solution = scene.ends.solution
        w = solution.w
        large = int(np.sum(np.abs(w) > 0.01 * np.abs(w).max()))
        l1 = [
            float(np.abs(one.w).sum()) for one in (solution, scene.ends.min_l1, scene.ends.min_l2)
        ]
        return (
            f"From scale {scene.start.scale:.1e} the flow ends at **w = ({w[0]:.3g}, {w[1]:.3g}, "
            f"{w[2]:.3g})**, certified, {distance_words(solution)}. "
            f"Coefficients above 1% of the largest: {large} of 3. "
            f"Its l1 norm is {l1[0]:.4g}; the least possible is {l1[1]:.4g}, and the solution of "
            f"least l2 norm has {l1[2]:.4g}."
        )

    def code(self, settings: Settings) -> str:
        x = ", ".join(repr(float(entry)) for entry in equation(settings))
        return CODE.format(start=start_of(settings).code(3), x=x, azimuth=settings["azimuth"])


def equation(settings: Settings) -> FloatArray:
    """The weights of the three features; a tiny one in place of none at all."""
    x = np.array([settings["first"], settings["second"], settings["third"]])
    return x if np.any(x) else np.array([0.0, 0.0, 0.1])


def start_of(settings: Settings) -> Start:
    """The network that the sliders describe, from w = 0."""
    return Start(10.0 ** settings["log_scale"], int(settings["depth"]), 0.0, 0.0)


CODE = """\
import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

X, y = np.array([[{x}]]), np.array([1.0])
{start}
sol = fb.limit(net, X, y)
print(sol)

# One equation: the dual only grows, so the path needs no integration.
share = np.append(1 - np.geomspace(1, 1e-5, 200), 1)[:, None]
path = net.potential.grad_dual(net.shift + share * (X[0] * sol.dual))
l1, l2 = fb.basis_pursuit(X, y, throw=False).w, fb.min_norm(X, y).w
a, b = np.linalg.svd(X)[2][1:]
corners = np.array([sol.w + s * a + t * b for s, t in [(1, 1), (-1, 1), (-1, -1), (1, -1), (1, 1)]])

ax = plt.figure(figsize=(6, 6)).add_subplot(projection="3d", elev=25, azim={azimuth!r})
ax.plot(*corners.T, color="tab:purple", label="all w that fit")
ax.plot(*path.T, color="tab:orange", lw=3, label="path of the flow")
ax.scatter(*l1, marker="D", s=80, color="tab:green", label="least l1 norm")
ax.scatter(*l2, marker="s", s=80, color="tab:blue", label="least l2 norm")
ax.scatter(*sol.w, s=60, color="tab:orange", label="limit")
ax.set(xlabel="$w_1$", ylabel="$w_2$", zlabel="$w_3$")
ax.legend()
plt.show()
"""
