"""One equation in two or three unknowns: which of its solutions does the flow pick?"""

from __future__ import annotations

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
    Chart,
    Data,
    Mark,
    levels,
    line,
    points,
    window,
)
from flowbias.apps.explorer.view import Settings, View
from flowbias.apps.explorer.views.one_equation import (
    DEPTH,
    DiagonalStart,
    Ends,
    follow,
    scale_slider,
)
from flowbias.apps.explorer.views.proof_words import distance_words
from flowbias.ground.typing import FloatArray

# Levels of the regularizer drawn, as shares of its value at the limit above its least value.
SHARES_OF_LEVEL = (0.15, 0.4, 0.7, 1.0, 1.5, 2.2)
# Levels in the plane, as shares of the rise from the limit to the farther of the two extremes.
SHARES_OF_RISE = (0.05, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class GeometryScene:
    """All numbers of a picture, in the plane or in space; points are rows."""

    start: DiagonalStart
    ends: Ends
    # Half the side of the square that is shown.
    reach: float
    # Polylines (m, d): the level of the limit itself, and others.
    own_levels: tuple[FloatArray, ...]
    levels: tuple[FloatArray, ...]
    # Two points of the line of solutions, or four of the plane.
    fits: FloatArray
    # (d, 2): what it is multiplied by becomes a point on the page.
    projection: FloatArray

    def flat(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points as they are seen: to the right, and upwards."""
        seen = points @ self.projection
        return seen[:, 0], seen[:, 1]

    def polylines(self, curves: tuple[FloatArray, ...]) -> tuple[list[FloatArray], ...]:
        """The same of several lines at once."""
        seen = [self.flat(curve) for curve in curves]
        return [x for x, _ in seen], [y for _, y in seen]

    @property
    def towards_l1(self) -> float:
        """How far the limit is from least l2 (0) to least l1 (1), measured along the line."""
        whole = self.ends.min_l1.w - self.ends.min_l2.w
        moved = self.ends.solution.w - self.ends.min_l2.w
        size = float(whole @ whole)
        return float(moved @ whole) / size if size > 0.0 else 0.0


def shown_reach(*points: FloatArray) -> float:
    """Half a side that holds all points, in few sizes so that it seldom changes."""
    largest = max(float(np.abs(point).max()) for point in points)
    return float(1.7 * 2.0 ** max(np.ceil(np.log2(1.1 * largest / 1.7)), 0.0))


def level_curves(
    ends: Ends, reach: float, points: int = 161, beyond: float = 2.0
) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
    """Level sets of what the limit minimizes: the limit's own, touching the line, and others.

    An odd number of points has the axes, where level sets have their corners, among the lines of
    the grid; a wide page shows what lies beyond the square.
    """
    from contourpy import contour_generator

    grid = beyond * np.linspace(-reach, reach, points)
    terms = ends.terms(np.stack([grid, grid], axis=1))
    surface = np.add.outer(terms[:, 1], terms[:, 0])
    least = float(np.min(surface))
    height = float(np.sum(ends.terms(ends.solution.w))) - least
    # In shares of that height: at depth 4 and scale 1e-100 values are near 1e200, and squares of
    # them, which interpolation takes, are no doubles.
    lines = contour_generator(grid, grid, (surface - least) / height)
    curves = {share: tuple(map(np.asarray, lines.lines(share))) for share in SHARES_OF_LEVEL}
    return curves.pop(1.0), sum(curves.values(), ())


def projection(azimuth: float) -> FloatArray:
    """Seen from far away, from `azimuth` degrees around the third axis and 25 above the others."""
    turn, lift = np.deg2rad(azimuth), np.deg2rad(25.0)
    right = np.array([-np.sin(turn), np.cos(turn), 0.0])
    up = np.array([-np.sin(lift) * np.cos(turn), -np.sin(lift) * np.sin(turn), np.cos(lift)])
    return np.stack([right, up], axis=1)


def plane_of(x: FloatArray) -> FloatArray:
    """Two orthonormal directions, as rows, along which <x, w> does not change."""
    _, _, rows = np.linalg.svd(x[np.newaxis])
    return np.asarray(rows[1:])


def levels_in_plane(ends: Ends, reach: float, count: int = 81) -> tuple[FloatArray, ...]:
    """Level curves, on the plane of solutions, of what the limit minimizes there."""
    from contourpy import contour_generator

    directions, centre = plane_of(ends.x), ends.solution.w
    grid = np.linspace(-reach, reach, count)
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


_MARKS = (
    line("path", FLOW, "path of the flow", 3.5),
    points("start", "x", FLOW, 11, "start", line_width=3),
    points("l1", "diamond", RICH, 22, "least l1 norm", 0.35, line_width=2.5),
    points("l2", "square", KERNEL, 16, "least l2 norm", 0.35, line_width=2.5),
    points("limit", "circle", FLOW, 12, "limit", 1.0, line_width=1),
)


# The axes of space, with their names at the tips.
SPACE_AXES = (
    Mark(
        *("axes", "segment"),
        {"x0": "x", "y0": "y", "x1": "to_x", "y1": "to_y", "line_color": FRAME, "line_width": 1.5},
        columns=("x", "y", "to_x", "to_y"),
    ),
    Mark(
        *("names", "text"),
        {"x": "x", "y": "y", "text": "name", "text_color": FRAME, "text_font_size": "16px"},
        columns=("x", "y", "name"),
    ),
)
AZIMUTH = Slider("azimuth", "Seen from", 0.0, 360.0, 3.0, 36.0, "{:g}°".format, True)
COEFFICIENTS = ["w₁", "w₂", "w₃"]


# Equal units on both axes.
SQUARE: dict[str, Any] = {
    "height": 560,
    "legend": "below",
    "windowed": True,
    "options": {"match_aspect": True},
}


class _Geometry(View[GeometryScene]):
    """What the pictures in the plane and in space have in common."""

    def data(self, scene: GeometryScene) -> Data:
        ends, reach = scene.ends, scene.reach
        tips = reach * np.eye(len(ends.x))
        return {
            "window": window(-reach, reach),
            "levels": scene.polylines(scene.levels),
            "own": scene.polylines(scene.own_levels),
            "fits": scene.flat(scene.fits),
            "path": scene.flat(ends.path),
            "start": scene.flat(ends.path[:1]),
            "limit": scene.flat(ends.solution.w[np.newaxis]),
            "l1": scene.flat(ends.min_l1.w[np.newaxis]),
            "l2": scene.flat(ends.min_l2.w[np.newaxis]),
            "axes": (*scene.flat(-tips), *scene.flat(tips)),
            "names": (*scene.flat(tips), COEFFICIENTS[: len(tips)]),
        }


class GeometryView(_Geometry):
    """Level sets, the line of solutions, and the flow between them."""

    name = "geometry"
    title = "Geometry"
    question = (
        "One equation in two unknowns has a line of solutions. Which of them gradient flow finds "
        "is decided by where, and how small, it starts."
    )
    controls = (
        scale_slider(-0.5),
        DEPTH,
        Slider("shape", "Shape of the start (depth 2)", -0.9, 0.9, 0.1, 0.0),
        Slider("start", "Where w₁ starts", -1.5, 1.5, 0.1, 0.0),
        Slider("angle", "Direction of x", 0.0, 180.0, 1.0, 60.0, "{:g}°".format),
        Slider("y", "Target y", 0.2, 2.0, 0.1, 1.0),
    )

    charts = (
        Chart(
            "The line of solutions and the point that the flow picks",
            "A dashed line holds all w that fit. Level sets of the potential surround the "
            "start; the thick one touches the line, at the limit (circle). A diamond marks "
            "least l1 norm, a square least l2 norm.",
            "w₁ (first coefficient)",
            "w₂ (second coefficient)",
            (
                levels("levels", "level sets of the potential"),
                levels("own", width=3.0),
                line("fits", TRUTH, "all w that fit", dash="dashed"),
                *_MARKS,
            ),
            **SQUARE,
        ),
    )

    def scene(self, settings: Settings) -> GeometryScene:
        start, x = start_of(settings), direction(settings["angle"])
        ends = follow(start, x, settings["y"])
        reach = shown_reach(ends.solution.w, ends.min_l1.w, ends.min_l2.w, ends.path)
        # Beyond what is shown.
        along = 2.0 * reach * np.array([-x[1], x[0]])
        fits = np.array([ends.min_l2.w - along, ends.min_l2.w + along])
        return GeometryScene(start, ends, reach, *level_curves(ends, reach), fits, np.eye(2))

    def text(self, scene: GeometryScene) -> str:
        solution = scene.ends.solution
        w = solution.w
        return " ".join(
            [
                f"From scale {scene.start.scale:.1e} the flow ends at "
                f"**w = ({w[0]:.4g}, {w[1]:.4g})**, certified, {distance_words(solution)}.",
                _place(scene),
                _shape(scene.start),
                _first(scene.start),
            ]
        )

    def code(self, settings: Settings) -> str:
        return _PLANE_CODE.format(
            start=start_of(settings).code(2), angle=settings["angle"], y=settings["y"]
        )


def direction(degrees: float) -> FloatArray:
    """The unit vector x of the equation, without the rounding of a cosine that should be 0."""
    angle = np.deg2rad(degrees)
    return np.asarray(np.round([np.cos(angle), np.sin(angle)], 15), dtype=np.float64)


def start_of(settings: Settings) -> DiagonalStart:
    """The network that the sliders describe; from w = 0 where they leave that out."""
    scale, depth = 10.0 ** settings["log_scale"], int(settings["depth"])
    return DiagonalStart(scale, depth, settings.get("shape", 0.0), settings.get("start", 0.0))


def _place(scene: GeometryScene, near: float = 0.02) -> str:
    # Nearer to an extreme than that share of the way, a limit is called by its name.
    ends = scene.ends
    if np.allclose(ends.min_l1.w, ends.min_l2.w, atol=1e-9):
        return "Least l1 and least l2 norm are the same point here."
    if abs(abs(ends.x[0]) - abs(ends.x[1])) < 1e-9:
        return "Both features count alike, so a whole segment of the line has least l1 norm."
    share = scene.towards_l1
    if scene.start.first != 0.0 and abs(1.0 - share) >= near:
        return _norms(ends)
    if abs(share) < near:
        return "This is the kernel regime: the limit is the solution of least l2 norm to the eye."
    if abs(1.0 - share) < near:
        return (
            "This is the rich regime: the limit is the solution of least l1 norm, a sparse one, "
            "to the eye."
        )
    return f"It lies {share:.0%} of the way from least l2 norm (square) to least l1 norm (diamond)."


def _norms(ends: Ends) -> str:
    l1, l2 = (
        (np.linalg.norm(ends.solution.w, p), np.linalg.norm(least.w, p))
        for p, least in ((1, ends.min_l1), (2, ends.min_l2))
    )
    return (
        f"Its l1 norm is {l1[0]:.3g}, the least possible {l1[1]:.3g}; its l2 norm is {l2[0]:.3g}, "
        f"the least possible {l2[1]:.3g}."
    )


def _shape(start: DiagonalStart) -> str:
    if start.depth > 2:
        return (
            f"At depth {start.depth} a start need not be as small as at depth 2 to end sparse; the "
            "shape slider is for depth 2 alone."
        )
    if start.shape == 0.0:
        return ""
    return (
        f"The layers start unequal (shape {start.shape:g}), which acts as a larger scale would, "
        "whichever layer is the larger one."
    )


def _first(start: DiagonalStart) -> str:
    if start.first == 0.0:
        return ""
    return (
        f"The flow starts at w = ({start.first:g}, 0): from large scales it goes to the nearest "
        "solution, not to the one of least norm."
    )


class GeometrySpaceView(_Geometry):
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
        AZIMUTH,
    )

    charts = (
        Chart(
            "The plane of solutions and the point that the flow picks",
            "A shaded part of a plane holds all w that fit. Level curves of the potential, on "
            "that plane, surround the limit (circle). A diamond marks least l1 norm, a square "
            "least l2 norm. Three lines are the axes of the coefficients.",
            "to the right",
            "upwards",
            (
                Mark(
                    *("fits", "patch"),
                    {"x": "x", "y": "y", "color": TRUTH, "fill_alpha": 0.12, "line_alpha": 0.6},
                    "all w that fit",
                ),
                *SPACE_AXES,
                levels("levels", "level curves there"),
                *_MARKS,
            ),
            framed=False,
            **SQUARE,
        ),
    )

    def scene(self, settings: Settings) -> GeometryScene:
        x, start = equation(settings), start_of(settings)
        ends = follow(start, x, 1.0)
        reach = shown_reach(ends.solution.w, ends.min_l1.w, ends.min_l2.w)
        half = 0.8 * reach
        square = half * np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
        fits = ends.solution.w + square @ plane_of(x)
        seen = projection(settings["azimuth"])
        return GeometryScene(start, ends, reach, (), levels_in_plane(ends, half), fits, seen)

    def text(self, scene: GeometryScene) -> str:
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
        return _SPACE_CODE.format(
            start=start_of(settings).code(3), x=x, azimuth=settings["azimuth"]
        )


def equation(settings: Settings) -> FloatArray:
    """The weights of the three features; a tiny one in place of none at all."""
    x = np.array([settings["first"], settings["second"], settings["third"]])
    return x if np.any(x) else np.array([0.0, 0.0, 0.1])


_PLANE_CODE = """\
import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

angle = np.deg2rad({angle!r})
X, y = np.round([[np.cos(angle), np.sin(angle)]], 15), np.array([{y!r}])
{start}
sol = fb.limit(net, X, y)
print(sol)

# One equation: the dual only grows, so the path needs no integration.
share = np.append(1 - np.geomspace(1, 1e-5, 200), 1)[:, None]
path = net.potential.grad_dual(net.shift + share * (X[0] * sol.dual))
l1, l2 = fb.basis_pursuit(X, y, throw=False).w, fb.min_norm(X, y).w

reach = 1.2 * np.abs([sol.w, l1, l2, path[0]]).max()
grid = np.linspace(-reach, reach, 241)
w = np.stack([grid, grid], axis=1)
terms = net.potential.value_terms(w) - net.shift * w
Q = np.add.outer(terms[:, 1], terms[:, 0])
level = np.sum(net.potential.value_terms(sol.w) - net.shift * sol.w)
low = Q.min()

fig, ax = plt.subplots(figsize=(6, 6))
ax.contour(grid, grid, Q, low + (level - low) * np.array([0.15, 0.4, 0.7, 1.5, 2.2]), colors="0.7")
ax.contour(grid, grid, Q, [level], colors="0.4", linewidths=2)
ax.axline(l2, l2 + [-X[0, 1], X[0, 0]], ls="--", color="tab:purple", label="all w that fit")
ax.plot(*path.T, color="tab:orange", lw=3, label="path of the flow")
ax.plot(*l1, "D", color="tab:green", ms=10, label="least l1 norm")
ax.plot(*l2, "s", color="tab:blue", ms=10, label="least l2 norm")
ax.plot(*sol.w, "o", color="tab:orange", label="limit")
ax.set(xlabel="$w_1$", ylabel="$w_2$", aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
ax.legend()
plt.show()
"""
_SPACE_CODE = """\
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
