"""Sparse regression: the scale of the start decides which interpolator is found.

[woodworth2020, Figure 1], with the coefficients themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flowbias.explorer.controls import Control, Slider, power_of_ten
from flowbias.explorer.drawing import FLOW, KERNEL, RICH, legend_above, new_figure
from flowbias.explorer.view import Drawn, Pictures, Settings, View
from flowbias.explorer.views.planted_data import (
    NOISE,
    SEED,
    SPARSITY,
    AgainstTruth,
    Coefficients,
    Planted,
    empty_source,
    population_error,
)
from flowbias.explorer.views.sparse_regression_scene import (
    EXPONENTS,
    PATH_EXPONENTS,
    ScalePath,
    SparseScene,
    first_scene_of,
    place,
    scene_of,
)
from flowbias.explorer.views.sparse_regression_words import LEAST_ERROR, LEAST_EXCESS, in_words

if TYPE_CHECKING:
    from bokeh.plotting import figure

# Where an excess of zero, or its rounding, is drawn: far below the picture.
_OUT_OF_SIGHT = 1e-12
_ERRORS = (LEAST_ERROR, 30.0)
_TICKS = (2, 0, -2, -4, -10, -30, -100, -300)


class SparseRegressionView(View[SparseScene]):
    """Limits from every scale on planted data."""

    name = "sparse-regression"
    title = "Sparse regression"
    question = "Which scales of the start find the few coefficients that matter?"
    controls: ClassVar[tuple[Control, ...]] = (
        Slider(
            "log_scale",
            "Scale α of the start",
            EXPONENTS[0],
            EXPONENTS[-1],
            1.0,
            -2.0,
            shown=power_of_ten,
            stops=EXPONENTS,
        ),
        Slider("n", "Samples n", 10, 150, 2, 40),
        Slider("d", "Features d", 20, 200, 10, 200),
        SPARSITY,
        NOISE,
        Slider("depth", "Depth D", 2, 5, 1, 2),
        SEED,
    )

    def scene(self, settings: Settings) -> SparseScene:
        return scene_of(settings)

    def first_scene(self, settings: Settings) -> SparseScene | None:
        return first_scene_of(settings)

    def pictures(self) -> SparsePictures:
        return SparsePictures()

    def text(self, scene: SparseScene) -> str:
        return in_words(scene)

    def code(self, settings: Settings) -> str:
        return _SCRIPT.format(
            data=Planted.of(settings).code(),
            exponents=", ".join(f"{exponent:g}" for exponent in PATH_EXPONENTS),
            depth=int(settings["depth"]),
            exponent=f"{settings['log_scale']:g}",
        )


class SparsePictures(Pictures[SparseScene]):
    """The path of the coefficients, the error, the two norms, and w at the cursor."""

    def __init__(self) -> None:
        self._along = empty_source("x", "error", "l1", "l2", "l1_error", "l2_error")
        self._cursors = [empty_source("x") for _ in range(3)]
        self._points = empty_source("x", "error", "l1", "l2")
        self._stems = AgainstTruth("The predictor at the cursor")
        plot = _against_scale("coefficient wᵢ")
        self._curves = Coefficients(plot)
        self._lines = list(self._curves.lines)
        self._finish(plot, 0)
        self._shown: ScalePath | None = None
        self.figures = (
            Drawn(
                "Coefficients against the scale",
                "Each curve is one coefficient of the limit; those of the truth are thick.",
                plot,
            ),
            Drawn(
                "Population error",
                "Error of the limit on new samples against the scale, between two level lines: "
                "the errors of the solutions of least l1 and least l2 norm.",
                self._errors(),
            ),
            Drawn(
                "Excess norms",
                "How far the l1 and the l2 norm of the limit exceed the least possible ones: "
                "the first falls to the left, the second to the right.",
                self._norms(),
            ),
            self._stems.drawn,
        )

    def show(self, scene: SparseScene) -> None:
        x, path, w = float(place(scene.exponent)), scene.path, scene.at_cursor.w
        # Without a path the curves are those of other data: faint, until their own are known.
        for line in self._lines:
            line.muted = path is None
        # A cursor that moves leaves the curves as they are, and nothing to send.
        if path is not None and path is not self._shown:
            self._show_path(path)
            self._shown = path
        for cursor in self._cursors:
            cursor.data = {"x": [x]}
        l1, l2 = (np.nan, np.nan) if path is None else (path.excess_l1(w), path.excess_l2(w))
        self._points.data = {
            "x": [x],
            "error": [float(population_error(w, scene.w_true))],
            "l1": [float(np.maximum(l1, _OUT_OF_SIGHT))],
            "l2": [float(np.maximum(l2, _OUT_OF_SIGHT))],
        }
        self._stems.show(w, scene.w_true)

    def _show_path(self, path: ScalePath) -> None:
        x = place(np.array(PATH_EXPONENTS))
        self._curves.show(x, path.w, path.w_true)
        self._along.data = {
            "x": x,
            "error": path.error(path.w),
            "l1": np.maximum(path.excess_l1(path.w), _OUT_OF_SIGHT),
            "l2": np.maximum(path.excess_l2(path.w), _OUT_OF_SIGHT),
            "l1_error": np.full(len(x), path.error(path.least_l1)),
            "l2_error": np.full(len(x), path.error(path.least_l2)),
        }

    def _errors(self) -> figure:
        plot = _against_scale("population error ‖w − w*‖²", y_axis_type="log", y_range=_ERRORS)
        levels = (("l1", RICH, "dashed"), ("l2", KERNEL, "dotted"))
        self._line(plot, "error", color=FLOW, line_width=2.5, legend_label="flow")
        for norm, colour, dash in levels:
            name = f"least {norm} norm"
            self._line(
                plot,
                f"{norm}_error",
                color=colour,
                line_width=2,
                line_dash=dash,
                legend_label=name,
            )
        plot.scatter("x", "error", source=self._points, color=FLOW, size=10)
        self._finish(plot, 1)
        return plot

    def _norms(self) -> figure:
        plot = _against_scale(
            "norm / least norm − 1", y_axis_type="log", y_range=(LEAST_EXCESS, 20.0)
        )
        kinds = (("l1", RICH, "dashed", "circle"), ("l2", KERNEL, "dotted", "square"))
        for norm, colour, dash, marker in kinds:
            name = f"{norm} norm"
            self._line(plot, norm, color=colour, line_width=2.5, line_dash=dash, legend_label=name)
            plot.scatter("x", norm, source=self._points, color=colour, size=10, marker=marker)
        self._finish(plot, 2)
        return plot

    def _line(self, plot: figure, column: str, **look: object) -> None:
        self._lines.append(plot.line("x", column, source=self._along, **look))

    def _finish(self, plot: figure, index: int) -> None:
        plot.vspan("x", source=self._cursors[index], line_color=FLOW, line_width=1.5)
        legend_above(plot)


def _against_scale(y_label: str, **options: object) -> figure:
    """A figure whose horizontal axis is the scale, from 1e-300 to 1e2."""
    ends = (float(place(EXPONENTS[0])) - 0.1, float(place(EXPONENTS[-1])) + 0.1)
    plot = new_figure("scale of the start α", y_label, x_range=ends, height=300, **options)
    ticks = {round(float(place(exponent)), 4): power_of_ten(exponent) for exponent in _TICKS}
    plot.xaxis.ticker = list(ticks)
    plot.xaxis.major_label_overrides = ticks
    return plot


_SCRIPT = '''\
"""Limits of gradient flow against the scale of its start, on planted sparse data."""
import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

{data}
exponents = np.array([{exponents}])
cursor = {exponent}
network = fb.DiagonalNet(depth={depth}, scale=1.0)
path = fb.limit_path(network, X, y, log_scales=exponents * np.log(10), throw=False)
at_cursor = fb.limit(network.at_log_scale(cursor * np.log(10)), X, y, throw=False)
least_l1, least_l2 = fb.basis_pursuit(X, y).w, fb.min_norm(X, y).w
print(path, at_cursor, sep="\\n")

error = np.sum((path.w - w_true) ** 2, axis=1)
excess_l1 = np.abs(path.w).sum(axis=1) / np.abs(least_l1).sum() - 1
excess_l2 = np.linalg.norm(path.w, axis=1) / np.linalg.norm(least_l2) - 1

fig, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
for axis in axes.flat[:3]:
    axis.axvline(cursor, color="tab:orange")
    axis.set_xscale("function", functions=(lambda e: np.arcsinh(e / 2), lambda p: 2 * np.sinh(p)))
    axis.set_xticks([-300, -100, -30, -10, -4, -2, -1, 0, 2])
    axis.set_xlabel("log10 of the scale of the start")
axes[0, 0].plot(exponents, path.w[:, w_true == 0], color="grey", linewidth=0.7)
axes[0, 0].plot(exponents, path.w[:, w_true != 0], color="tab:purple", linewidth=2)
axes[0, 0].set_ylabel("coefficients of the limit")
axes[0, 1].plot(exponents, error, label="flow")
for norm, w in (("l1", least_l1), ("l2", least_l2)):
    level = np.sum((w - w_true) ** 2)
    axes[0, 1].axhline(level, linestyle=":", color="k", label=f"least {{norm}} norm: {{level:.3g}}")
axes[0, 1].set(yscale="log", ylim=(3e-4, 30), ylabel="population error")
axes[0, 1].legend()
axes[1, 0].plot(exponents, excess_l1, "--", label="l1 norm")
axes[1, 0].plot(exponents, excess_l2, ":", label="l2 norm")
axes[1, 0].set(yscale="log", ylim=(1e-6, 20), ylabel="norm / least norm - 1")
axes[1, 0].legend()
axes[1, 1].stem(at_cursor.w, markerfmt=".", basefmt=" ", label="flow")
axes[1, 1].plot(np.flatnonzero(w_true), w_true[w_true != 0], "s", mfc="none", label="truth")
axes[1, 1].set(xlabel="coordinate", ylabel="coefficient at the cursor")
axes[1, 1].legend()
plt.show()
'''
