"""Two coefficients, one equation: which point of a line does the flow pick?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias._typing import FloatArray
from flowbias.explorer.controls import Slider
from flowbias.explorer.drawing import FRAME, TRUTH
from flowbias.explorer.view import Drawn, Pictures, Settings, View
from flowbias.explorer.views.geometry_marks import Marks, columns
from flowbias.explorer.views.geometry_scene import DEPTH, Ends, Start, follow, scale_slider
from flowbias.explorer.views.proof_words import distance_words

# Odd, so that the axes, where level sets have their corners, are lines of the grid.
GRID = 161
# A wide page shows more than the square: level sets are drawn for as many squares.
BEYOND = 2.0
# Levels of the regularizer drawn, as shares of its value at the limit above its least value.
SHARES_OF_LEVEL = (0.15, 0.4, 0.7, 1.0, 1.5, 2.2)
# Nearer to an extreme than this share of the distance between both, a limit is called by its name.
NEAR = 0.02


@dataclass(frozen=True)
class GeometryScene:
    """All numbers of the picture."""

    start: Start
    ends: Ends
    # Half the side of the square that is shown.
    reach: float
    # (2, m) polylines, and for each whether it is the level of the limit.
    levels: tuple[FloatArray, ...]
    through_limit: tuple[bool, ...]

    @property
    def line(self) -> FloatArray:
        """Two points of the line of solutions, beyond what is shown; one per row."""
        x = self.ends.x
        along = 2.0 * self.reach * np.array([-x[1], x[0]])
        return np.array([self.ends.min_l2.w - along, self.ends.min_l2.w + along])

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


def level_curves(ends: Ends, reach: float) -> tuple[tuple[FloatArray, ...], tuple[bool, ...]]:
    """Level sets of what the limit minimizes: the limit's own touches the line of solutions."""
    from contourpy import contour_generator

    grid = BEYOND * np.linspace(-reach, reach, GRID)
    terms = ends.terms(np.stack([grid, grid], axis=1))
    surface = np.add.outer(terms[:, 1], terms[:, 0])
    least = float(np.min(surface))
    height = float(np.sum(ends.terms(ends.solution.w))) - least
    # In shares of that height: at depth 4 and scale 1e-100 values are near 1e200, and squares of
    # them, which interpolation takes, are no doubles.
    lines = contour_generator(grid, grid, (surface - least) / height)
    curves: list[FloatArray] = []
    own: list[bool] = []
    for share in SHARES_OF_LEVEL:
        for curve in lines.lines(share):
            curves.append(np.asarray(curve).T)
            own.append(share == 1.0)
    return tuple(curves), tuple(own)


class GeometryPictures(Pictures[GeometryScene]):
    """The plane of the two coefficients."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource

        self._marks = Marks("w₁ (first coefficient)", "w₂ (second coefficient)")
        self._levels = ColumnDataSource({"x": [], "y": [], "width": []})
        self._line = ColumnDataSource({"x": [], "y": []})
        plane = self._marks.figure
        levels = plane.multi_line(
            "x", "y", source=self._levels, line_color=FRAME, line_width="width"
        )
        line = plane.line("x", "y", source=self._line, color=TRUTH, width=2.5, line_dash="dashed")
        self._marks.draw({"all w that fit": line, "level sets of the potential": levels})
        self.figures = (
            Drawn(
                "The line of solutions and the point that the flow picks",
                "A dashed line holds all w that fit. Level sets of the potential surround the "
                "start; the thick one touches the line, at the limit (circle). A diamond marks "
                "least l1 norm, a square least l2 norm.",
                plane,
            ),
        )

    def show(self, scene: GeometryScene) -> None:
        self._levels.data = {
            "x": [curve[0] for curve in scene.levels],
            "y": [curve[1] for curve in scene.levels],
            "width": [3.0 if own else 1.0 for own in scene.through_limit],
        }
        self._line.data = columns(scene.line)
        self._marks.show(scene.ends, scene.reach, np.eye(2))


class GeometryView(View[GeometryScene]):
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

    def scene(self, settings: Settings) -> GeometryScene:
        start = start_of(settings)
        ends = follow(start, direction(settings["angle"]), settings["y"])
        reach = shown_reach(ends.solution.w, ends.min_l1.w, ends.min_l2.w, ends.path)
        levels, own = level_curves(ends, reach)
        return GeometryScene(start, ends, reach, levels, own)

    def pictures(self) -> GeometryPictures:
        return GeometryPictures()

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
        return CODE.format(
            start=start_of(settings).code(2), angle=settings["angle"], y=settings["y"]
        )


def direction(degrees: float) -> FloatArray:
    """The unit vector x of the equation, without the rounding of a cosine that should be 0."""
    angle = np.deg2rad(degrees)
    return np.asarray(np.round([np.cos(angle), np.sin(angle)], 15), dtype=np.float64)


def start_of(settings: Settings) -> Start:
    """The network that the sliders describe."""
    scale, depth = 10.0 ** settings["log_scale"], int(settings["depth"])
    return Start(scale, depth, settings["shape"], settings["start"])


def _place(scene: GeometryScene) -> str:
    ends = scene.ends
    if np.allclose(ends.min_l1.w, ends.min_l2.w, atol=1e-9):
        return "Least l1 and least l2 norm are the same point here."
    if abs(abs(ends.x[0]) - abs(ends.x[1])) < 1e-9:
        return "Both features count alike, so a whole segment of the line has least l1 norm."
    share = scene.towards_l1
    if scene.start.first != 0.0 and abs(1.0 - share) >= NEAR:
        return _norms(ends)
    if abs(share) < NEAR:
        return "This is the kernel regime: the limit is the solution of least l2 norm to the eye."
    if abs(1.0 - share) < NEAR:
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


def _shape(start: Start) -> str:
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


def _first(start: Start) -> str:
    if start.first == 0.0:
        return ""
    return (
        f"The flow starts at w = ({start.first:g}, 0): from large scales it goes to the nearest "
        "solution, not to the one of least norm."
    )


CODE = """\
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
