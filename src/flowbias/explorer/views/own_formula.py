"""A parametrization that the reader types: what its gradient flow minimizes, if anything."""

from __future__ import annotations

from typing import Any

from flowbias.explorer.controls import Choice, Slider, Text
from flowbias.explorer.drawing import (
    CURVES,
    FLOW,
    FRAME,
    KERNEL,
    RICH,
    TRUTH,
    legend_above,
    new_figure,
)
from flowbias.explorer.formula import LONGEST, MOST, read_equations
from flowbias.explorer.view import Drawn, Pictures, Settings, View
from flowbias.explorer.views.own_formula_scene import (
    RESIDUAL,
    OwnFormulaScene,
    Start,
    load_torch,
    own_formula_scene,
)
from flowbias.explorer.views.own_formula_words import words_of

_DASHES = ("solid", "dashed", "dotted")


class OwnFormulaPictures(Pictures[OwnFormulaScene]):
    """The plane of the first two coefficients, and all of them over time."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource, Range1d

        names = ("levels", "own", "line", "path", "start", "end", "rich", "kernel")
        curves = [f"w{i}" for i in range(MOST)]
        self._of = {name: ColumnDataSource({"x": [], "y": []}) for name in (*names, *curves)}
        self._ranges = Range1d(-1.0, 1.0), Range1d(-1.0, 1.0)
        self.figures = (
            Drawn(
                "The way of the flow, seen in its first two coefficients",
                "A line with a cross at the start of the flow and a filled circle at its end. "
                "A dashed line holds all w that fit, where that is a line in this plane. An open "
                "diamond marks least l1 norm, an open square least l2 norm. Thin curves are level "
                "sets of the potential; the thick one is the limit's own and touches the line.",
                self._plane(),
            ),
            Drawn(
                "Coefficients over time",
                "Each coefficient of w as a curve over logarithmic time, told apart by its dashes.",
                self._times(),
            ),
        )

    def _plane(self) -> Any:
        of = self._of
        made = new_figure(
            "w₁ (first coefficient)",
            "w₂ (second coefficient)",
            height=460,
            x_range=self._ranges[0],
            y_range=self._ranges[1],
        )
        made.multi_line("x", "y", source=of["levels"], line_color=FRAME, line_width=1)
        made.multi_line(
            *("x", "y"),
            source=of["own"],
            line_color=FRAME,
            line_width=3,
            legend_label="level of the potential",
        )
        made.line(
            *("x", "y"),
            source=of["line"],
            color=TRUTH,
            line_width=2.5,
            line_dash="dashed",
            legend_label="all w that fit",
        )
        made.line("x", "y", source=of["path"], color=FLOW, line_width=3, legend_label="flow")
        for name, marker, colour, size, fill, word in (
            ("rich", "diamond", RICH, 18, 0.0, "least l1 norm"),
            ("kernel", "square", KERNEL, 13, 0.0, "least l2 norm"),
            ("start", "x", FLOW, 11, 0.0, "start"),
            ("end", "circle", FLOW, 11, 1.0, "limit"),
        ):
            made.scatter(
                *("x", "y"),
                source=of[name],
                marker=marker,
                size=size,
                line_color=colour,
                line_width=2.5,
                fill_color=colour,
                fill_alpha=fill,
                legend_label=word,
            )
        legend_above(made)
        return made

    def _times(self) -> Any:
        made = new_figure("t (time)", "wᵢ (coefficient)", height=300, x_axis_type="log")
        for i in range(MOST):
            made.line(
                *("x", "y"),
                source=self._of[f"w{i}"],
                color=CURVES[i],
                line_dash=_DASHES[i],
                line_width=3,
                legend_label=f"w{'₁₂₃'[i]}",
            )
        legend_above(made)
        self._names = made.legend[0].items
        return made

    def show(self, scene: OwnFormulaScene) -> None:
        for axis in self._ranges:
            axis.update(start=scene.window[0], end=scene.window[1])
        own, others = scene.levels[:1], scene.levels[1:]
        for name, levels in (("own", own), ("levels", others)):
            self._of[name].data = {"x": [c[0] for c in levels], "y": [c[1] for c in levels]}
        w = scene.trajectory.w
        points = {
            "line": scene.line,
            "path": w,
            "start": w[:1],
            "end": scene.end[None],
            "rich": scene.extremes.rich.w[None],
            "kernel": scene.extremes.kernel.w[None],
        }
        for name, rows in points.items():
            self._of[name].data = {"x": rows[:, 0], "y": rows[:, 1]}
        # Time 0 has no place on a logarithmic axis.
        later = scene.trajectory.t > 0.0
        for i in range(MOST):
            self._names[i].visible = i < w.shape[1]
            shown = later & (i < w.shape[1])
            column = min(i, w.shape[1] - 1)
            self._of[f"w{i}"].data = {
                "x": scene.trajectory.t[shown],
                "y": w[shown, column],
            }


class OwnFormulaView(View[OwnFormulaScene]):
    """The implicit bias of a formula."""

    name = "your-formula"
    title = "Your formula"
    question = (
        "Write the predictor w as a formula of its parameters. Does gradient flow on them minimize "
        "a potential of w, and where does it go on your equations?"
    )
    controls = (
        Text(
            "formula",
            "w = ... with vectors u, v, p, q, scalars a, b, c, + - * / ^ ( ), exp log sqrt tanh "
            "sigmoid sin cos",
            "u^2 - v^2",
            LONGEST,
        ),
        Text("equations", "Equations, e.g. 1, 2 = 1; 0, 1 = 0.5", "1, 2 = 1", LONGEST),
        Slider("log_scale", "Scale of the start (log10)", -1.0, 0.5, 0.1, -0.5),
        Slider("ratio", "Other parameters over the first vector", 0.1, 2.0, 0.1, 1.0),
        Choice(
            "solve",
            "Limit",
            (("certify", "solve and certify"), ("follow", "follow the flow only (faster)")),
            "certify",
        ),
    )

    def warm_up(self) -> None:
        load_torch()

    def scene(self, settings: Settings) -> OwnFormulaScene:
        return own_formula_scene(
            start_of(settings), settings["equations"], settings["solve"] == "certify"
        )

    def pictures(self) -> OwnFormulaPictures:
        return OwnFormulaPictures()

    def text(self, scene: OwnFormulaScene) -> str:
        return words_of(scene)

    def code(self, settings: Settings) -> str:
        problem = read_equations(settings["equations"])
        start = start_of(settings)
        function = start.function(problem.X.shape[1])
        solved = settings["solve"] == "certify"
        return CODE.format(
            torch="import torch\n" if "torch." in function.source() else "",
            function=function.source(),
            residual=RESIDUAL,
            X=problem.X.tolist(),
            y=problem.y.tolist(),
            theta=start.theta(problem.X.shape[1]).tolist(),
            solve=SOLVED if solved else FOLLOWED,
        )


def start_of(settings: Settings) -> Start:
    """What the controls describe."""
    return Start(settings["formula"], settings["log_scale"], settings["ratio"])


SOLVED = """\
if report.potential is not None:
    sol = report.limit(X, y, throw=False)
    print(sol)
"""
FOLLOWED = ""
CODE = """\
import matplotlib.pyplot as plt
import numpy as np
{torch}
import flowbias as fb


{function}


X, y = np.array({X}), np.array({y})
theta0 = np.array({theta})
report = fb.derive.implicit_bias(F, theta0)
print(report)
trajectory = fb.flow(report.model, X, y, residual={residual!r}, throw=False)
{solve}
fig, (plane, times) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plane.plot(trajectory.w[:, 0], trajectory.w[:, 1], label="flow")
plane.plot(*trajectory.w[-1][:2], "o", label="end")
plane.set(xlabel="$w_1$", ylabel="$w_2$")
plane.legend()
times.semilogx(trajectory.t[1:], trajectory.w[1:])
times.set(xlabel="time", ylabel="coefficients")
plt.show()
"""
