"""One equation in two or three unknowns: which of its solutions does the flow pick?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, Mark, levels
from flowbias.apps.explorer.view import Settings, Slider, View
from flowbias.apps.explorer.views import space
from flowbias.apps.explorer.views.proof_words import distance_words, status_word
from flowbias.ground.html import power_of_ten
from flowbias.ground.typing import FloatArray


@dataclass(frozen=True)
class GeometryScene:
    """All numbers of a picture, in the plane or in space; points are rows."""

    start: space.DiagonalStart
    ends: space.Ends
    sight: space.Sight
    # Polylines (m, d): the level of the limit itself, and others.
    own_levels: tuple[FloatArray, ...]
    levels: tuple[FloatArray, ...]
    # Two points of the line of solutions, or four of the plane.
    fits: FloatArray


def level_curves(
    ends: space.Ends, reach: float, points: int = 161, beyond: float = 2.0
) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
    """Level sets of what the limit minimizes; a wide page shows what lies beyond the square."""
    grid = beyond * np.linspace(-reach, reach, points)
    terms = ends.terms(np.stack([grid, grid], axis=1))
    return space.level_sets(grid, terms, float(np.sum(ends.terms(ends.solution.w))))


def levels_in_plane(ends: space.Ends, reach: float, count: int = 81) -> tuple[FloatArray, ...]:
    """Level curves, on the plane of solutions, of what the limit minimizes there."""
    directions, centre = space.kernel_of(ends.x[np.newaxis]), ends.solution.w
    grid = np.linspace(-reach, reach, count)
    a, b = np.meshgrid(grid, grid)
    points = centre + np.stack([a, b], axis=-1) @ directions
    heights = ends.terms(points).sum(axis=-1) - float(ends.terms(centre).sum())
    extremes = np.stack([ends.extremes.rich, ends.extremes.kernel])
    rises = ends.terms(extremes).sum(axis=-1) - ends.terms(centre).sum()
    # Where an extreme is the limit, or both are, a small share of the whole surface in its place.
    rise = max(float(rises.max()), 1e-3 * float(heights.max()))
    # Levels as shares of the rise from the limit to the farther of the two extremes.
    curves = space.contours(grid, heights / rise, (0.05, 0.2, 0.5, 1.0, 2.0))
    return tuple(centre + curve @ directions for curve in sum(curves.values(), ()))


class _Geometry(View[GeometryScene]):
    """What the pictures in the plane and in space have in common."""

    def data(self, scene: GeometryScene) -> Data:
        ends, sight = scene.ends, scene.sight
        return {
            **sight.frame(),
            "levels": sight.polylines(scene.levels),
            "own": sight.polylines(scene.own_levels),
            "fits": sight.flat(scene.fits),
            "path": sight.flat(ends.path),
            "start": sight.flat(ends.path[0]),
            "limit": sight.flat(ends.solution.w),
            "l1": sight.flat(ends.extremes.rich),
            "l2": sight.flat(ends.extremes.kernel),
        }

    def text(self, scene: GeometryScene) -> str:
        solution = scene.ends.solution
        size = np.abs(solution.w)
        place = ", ".join(f"{entry:.4g}" for entry in solution.w)
        return (
            f"From scale {power_of_ten(np.log10(scene.start.scale))} the flow ends at "
            f"**w = ({place})**, {status_word(solution)}, {distance_words(solution)}. "
            f"{scene.ends.extremes.words(solution.w)} Coefficients above 1% of the largest: "
            f"{np.sum(size > 0.01 * size.max())} of {len(size)}."
        )


class GeometryView(_Geometry):
    """Level sets, the line of solutions, and the flow between them."""

    name = "geometry"
    title = "Geometry"
    question = (
        "One equation in two unknowns has a line of solutions. Which of them gradient flow finds "
        "is decided by where, and how small, it starts."
    )
    controls = (
        space.WIDE_SCALE,
        space.DEPTH,
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
            space.PLANE,
            **space.SQUARE,
        ),
    )

    def scene(self, settings: Settings) -> GeometryScene:
        start, x = start_of(settings), space.direction(settings["angle"])
        ends = space.follow(start, x, settings["y"])
        reach = space.shown_reach(*ends.points)
        # Beyond what is shown.
        ways = 2.0 * reach * np.array([[-1.0], [1.0]])
        fits = ends.extremes.kernel + ways @ space.kernel_of(x[np.newaxis])
        own, others = level_curves(ends, reach)
        return GeometryScene(start, ends, space.Sight(reach, np.eye(2)), own, others, fits)

    def text(self, scene: GeometryScene) -> str:
        return f"{super().text(scene)} {_shape(scene.start)} {_first(scene.start)}".rstrip()

    def code(self, settings: Settings) -> str:
        equation = _PLANE_EQUATION.format(angle=settings["angle"], y=settings["y"])
        body = _CODE.format(equation=equation, start=start_of(settings).code(2), axes=_PLANE_AXES)
        return self.script(body)


def start_of(settings: Settings) -> space.DiagonalStart:
    """The network that the sliders describe; from w = 0 where they leave that out."""
    scale, depth = 10.0 ** settings["log_scale"], settings["depth"]
    return space.DiagonalStart(scale, depth, settings.get("shape", 0.0), settings.get("start", 0.0))


def _shape(start: space.DiagonalStart) -> str:
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


def _first(start: space.DiagonalStart) -> str:
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
        space.WIDE_SCALE,
        space.DEPTH,
        Slider("first", "Weight of feature 1", -1.5, 1.5, 0.1, 0.6),
        Slider("second", "Weight of feature 2", -1.5, 1.5, 0.1, 1.0),
        Slider("third", "Weight of feature 3", -1.5, 1.5, 0.1, 0.8),
        space.AZIMUTH,
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
                    {"x": "x", "y": "y", "color": Hue.TRUTH, "fill_alpha": 0.12, "line_alpha": 0.6},
                    "all w that fit",
                ),
                *space.SPACE_AXES,
                levels("levels", "level curves"),
                *space.FLOW_AND_EXTREMES,
            ),
            framed=False,
            **space.SQUARE,
        ),
    )

    def scene(self, settings: Settings) -> GeometryScene:
        x, start = equation_of(settings), start_of(settings)
        ends = space.follow(start, x, 1.0)
        sight = space.Sight(space.shown_reach(*ends.points), space.projection(settings["azimuth"]))
        half = 0.8 * sight.reach
        square = half * np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
        fits = ends.solution.w + square @ space.kernel_of(x[np.newaxis])
        return GeometryScene(start, ends, sight, (), levels_in_plane(ends, half), fits)

    def code(self, settings: Settings) -> str:
        equation = _SPACE_EQUATION.format(x=equation_of(settings).tolist())
        axes = _SPACE_AXES.format(azimuth=settings["azimuth"])
        body = _CODE.format(equation=equation, start=start_of(settings).code(3), axes=axes)
        return self.script(body)


def equation_of(settings: Settings) -> FloatArray:
    """The weights of the three features; a tiny one in place of none at all."""
    x = np.array([settings["first"], settings["second"], settings["third"]])
    return x if np.any(x) else np.array([0.0, 0.0, 0.1])


_PLANE_EQUATION = """\
angle = np.deg2rad({angle!r})
X, y = np.round([[np.cos(angle), np.sin(angle)]], 15), np.array([{y!r}])"""
_SPACE_EQUATION = "X, y = np.array([{x}]), np.array([1.0])"
_CODE = """\
{equation}
{start}
sol = fb.limit(net, X, y)
print(sol)

# One equation: the dual only grows, so the path needs no integration.
share = np.append(1 - np.geomspace(1, 1e-5, 200), 1)[:, None]
path = net.potential.grad_dual(net.shift + share * (X[0] * sol.dual))
l1, l2 = fb.basis_pursuit(X, y, throw=False).w, fb.min_norm(X, y).w

{axes}
ax.plot(*path.T, color="tab:orange", lw=3, label="path of the flow")
ax.plot(*l1, "D", color="tab:green", ms=10, label="least l1 norm")
ax.plot(*l2, "s", color="tab:blue", ms=10, label="least l2 norm")
ax.plot(*sol.w, "o", color="tab:orange", label="limit")
ax.legend()
"""
_PLANE_AXES = """\
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
ax.set(xlabel="$w_1$", ylabel="$w_2$", aspect="equal")
ax.set(xlim=(-reach, reach), ylim=(-reach, reach))"""
_SPACE_AXES = """\
a, b = np.linalg.svd(X)[2][1:]
corners = np.array([sol.w + s * a + t * b for s, t in [(1, 1), (-1, 1), (-1, -1), (1, -1), (1, 1)]])
ax = plt.figure(figsize=(6, 6)).add_subplot(projection="3d", elev=25, azim={azimuth!r})
ax.plot(*corners.T, color="tab:purple", label="all w that fit")
ax.set(xlabel="$w_1$", ylabel="$w_2$", zlabel="$w_3$")"""
