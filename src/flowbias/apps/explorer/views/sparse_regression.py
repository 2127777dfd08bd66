"""Sparse regression: the scale of the start decides which interpolator is found.

[woodworth2020, Figure 1], with the coefficients themselves. Exponents of ten of the scale run from
2 to -300 on an axis asinh(exponent / 2): even around 1, where most happens, and wide enough at its
far end to show how far away the l1 limit can be [woodworth2020, Theorem 2].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, Mark, cursor, line, points
from flowbias.apps.explorer.view import Settings, Slider, View, chosen, scale_slider
from flowbias.apps.explorer.views.planted_data import (
    AGAINST_TRUTH,
    CURVES,
    NOISE,
    SEED,
    SPARSITY,
    PlantedData,
    against_truth,
    curves,
    population_error,
)
from flowbias.apps.explorer.views.proof_words import Extremes, proof_of
from flowbias.certificates.certificate import certify
from flowbias.ground.html import power_of_ten
from flowbias.ground.typing import FloatArray
from flowbias.limits.basis_pursuit import basis_pursuit
from flowbias.limits.scale_path import limit_path
from flowbias.limits.solve import limit, min_norm
from flowbias.models.diagonal import DiagonalNet
from flowbias.potentials import L1
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

# Where the cursor can stand, smallest scale first: far, near, and above 1.
EXPONENTS = (
    *(-300.0, -150.0, -100.0, -70.0, -50.0, -35.0, -25.0, -20.0, -15.0, -12.0, -10.0),
    *(-9.0, -8.0, -7.0, -6.0, -5.5, -5.0, -4.5, *(-4.0 + 0.25 * k for k in range(19))),
    *(0.75, 1.0, 1.5, 2.0),
)
# Limits on the curves, largest first as warm starts like it: few where little changes.
PATH_EXPONENTS = (
    *(2.0, 1.0, *(0.5 - 0.25 * k for k in range(9)), -2.0, -2.5, -3.0, -3.5, -4.0, -5.0, -6.0),
    *(-8.0, -10.0, -25.0, -100.0, -300.0),
)
# Errors and relative excesses below these lie below the picture.
LEAST_ERROR, LEAST_EXCESS = 3e-4, 1e-6


def place(exponent: float | FloatArray) -> FloatArray:
    """Where a scale 10^exponent lies on the axis."""
    return np.asarray(np.arcsinh(np.asarray(exponent) / 2.0))


@dataclass(frozen=True)
class ScalePath:
    """The limits along PATH_EXPONENTS, one per row of w, between the two extremes."""

    w_true: FloatArray
    w: FloatArray
    uncertified: int
    extremes: Extremes

    def error(self, w: FloatArray) -> FloatArray:
        return population_error(w, self.w_true)

    @cached_property
    def data(self) -> Data:
        """What is drawn of it, wherever the cursor stands."""
        x = place(np.array(PATH_EXPONENTS))
        least = {"l1": self.extremes.rich, "l2": self.extremes.kernel}
        l1, l2 = self.extremes.ratios(self.w)
        return {
            **curves(x, self.w, self.w_true),
            "error": (x, self.error(self.w)),
            **{f"{norm} error": (x, np.full(len(x), self.error(w))) for norm, w in least.items()},
            "l1": (x, _excess(l1)),
            "l2": (x, _excess(l2)),
        }


def _excess(ratio: FloatArray) -> FloatArray:
    """Over the least norm, less 1; what is none lies far below the picture: no zero has a log."""
    return np.maximum(ratio - 1.0, 1e-6 * LEAST_EXCESS)


@dataclass(frozen=True)
class SparseScene:
    """The limit at the cursor, and the path where that is known already."""

    sparsity: int
    w_true: FloatArray
    path: ScalePath | None
    exponent: float
    at_cursor: Solution

    @property
    def error(self) -> float:
        return float(population_error(self.at_cursor.w, self.w_true))


class PlantedSweep:
    """Data drawn once, and what has been solved on them from any scale."""

    def __init__(self, planted: PlantedData, depth: int) -> None:
        data = planted.draw()
        self.problem, self.w_true = Regression(data.X, data.y), data.w_true
        self._depth = depth
        # None until it is asked for: it takes some twenty times as long as one limit.
        self.known_path: ScalePath | None = None
        # The one at the cursor is wanted without the path and then with it.
        self.limit_at = lru_cache(maxsize=2)(self._limit_at)

    def _limit_at(self, exponent: float) -> Solution:
        model = DiagonalNet(self._depth, log_scale=exponent * math.log(10.0))
        return limit(model, self.problem, throw=False)

    def path(self) -> ScalePath:
        """Solved when first asked for."""
        self.known_path = self.known_path or self._solved_path()
        return self.known_path

    def _solved_path(self) -> ScalePath:
        log_scales = np.multiply(PATH_EXPONENTS, math.log(10.0))
        model = DiagonalNet(self._depth, 1.0)
        path = limit_path(model, self.problem, log_scales=log_scales, throw=False)
        return ScalePath(
            w_true=self.w_true,
            w=path.w,
            uncertified=sum(not solution.status.ok for solution in path),
            extremes=Extremes(least_l1(self.problem), min_norm(self.problem).w),
        )


# Less than a megabyte each: as many as ten readers look at.
@lru_cache(maxsize=32)
def sweep_of(planted: PlantedData, depth: int) -> PlantedSweep:
    return PlantedSweep(planted, depth)


def least_l1(problem: Regression) -> FloatArray:
    """An interpolator of least l1 norm, certified as one.

    The limit from a scale of nearly nothing is one, and several times quicker to find than a
    vertex of the linear program, which is solved where the dual of that limit proves too little.
    """
    # From e^-1e12 the potential differs from l1 by less than the certificate asks.
    rich = limit(DiagonalNet(2, log_scale=-1e12), problem, throw=False)
    # Inside |X^T nu| <= 1 as it is evaluated, rounding included.
    widest = float(np.abs(problem.X.T @ rich.dual).max()) * (1.0 + 8.0 * np.finfo(float).eps)
    dual = rich.dual / widest
    if certify(problem.X, problem.y, rich.w, dual, L1()).ok:
        return rich.w
    return basis_pursuit(problem).w


def _against_scale(
    heading: str, description: str, y_label: str, marks: tuple[Mark, ...], **options: object
) -> Chart:
    """A chart whose horizontal axis is the scale, from 1e-300 to 1e2, with a cursor."""
    ends = (float(place(EXPONENTS[0])) - 0.1, float(place(EXPONENTS[-1])) + 0.1)
    places = (2, 0, -2, -10, -30, -100, -300)
    return Chart(
        *(heading, description, "scale of the start α", y_label, (*marks, cursor())),
        ticks={round(float(place(exponent)), 4): power_of_ten(exponent) for exponent in places},
        options={"x_range": ends, **options},
    )


class SparseRegressionView(View[SparseScene]):
    """Limits from every scale on planted data."""

    name = "sparse-regression"
    title = "Sparse regression"
    question = "Which scales of the start find the few coefficients that matter?"
    controls = (
        scale_slider(EXPONENTS[0], EXPONENTS[-1], 1.0, -2.0, EXPONENTS),
        Slider("n", "Samples n", 10, 150, 2, 40),
        Slider("d", "Features d", 20, 200, 10, 200),
        SPARSITY,
        NOISE,
        Slider("depth", "Depth D", 2, 5, 1, 2),
        SEED,
    )

    charts = (
        _against_scale(
            "Coefficients against the scale",
            "Each curve is one coefficient of the limit; those of the truth are thick.",
            "coefficient wᵢ",
            CURVES,
        ),
        _against_scale(
            "Population error",
            "Error of the limit on new samples, less their noise, against the scale. Two level "
            "lines are the errors of the solutions of least l1 and least l2 norm.",
            "population error ‖w − w*‖²",
            (
                line("error", Hue.FLOW, "flow"),
                line("l1 error", Hue.RICH, "least l1 norm", 2, "dashed"),
                line("l2 error", Hue.KERNEL, "least l2 norm", 2, "dotted"),
                points("error now", "circle", Hue.FLOW, 10, fill=1.0, line_width=1),
            ),
            y_axis_type="log",
            y_range=(LEAST_ERROR, 30.0),
        ),
        _against_scale(
            "Excess norms",
            "How far the l1 and the l2 norm of the limit exceed the least possible ones: "
            "the first vanishes to the left, the second to the right.",
            "norm / least norm − 1",
            (
                line("l1", Hue.RICH, "l1 norm", dash="dashed"),
                points("l1 now", "circle", Hue.RICH, 10, fill=1.0, line_width=1),
                line("l2", Hue.KERNEL, "l2 norm", dash="dotted"),
                points("l2 now", "square", Hue.KERNEL, 10, fill=1.0, line_width=1),
            ),
            y_axis_type="log",
            y_range=(LEAST_EXCESS, 20.0),
        ),
        AGAINST_TRUTH,
    )

    def scene(self, settings: Settings) -> SparseScene:
        sweep = _sweep(settings)
        return _scene(settings, sweep, sweep.path())

    def first_scene(self, settings: Settings) -> SparseScene | None:
        """The limit at the cursor without the path; None where the path is known."""
        sweep = _sweep(settings)
        return None if sweep.known_path else _scene(settings, sweep, None)

    def data(self, scene: SparseScene) -> Data:
        x, path, w = [float(place(scene.exponent))], scene.path, scene.at_cursor.w
        # Without a path the curves are those of other data: faint, until their own are known.
        l1, l2 = np.full((2, 1), np.nan) if path is None else path.extremes.ratios(w[np.newaxis])
        return {
            **({} if path is None else path.data),
            "cursor": (x,),
            "error now": (x, [scene.error]),
            "l1 now": (x, _excess(l1)),
            "l2 now": (x, _excess(l2)),
            **against_truth(w, scene.w_true),
        }

    def text(self, scene: SparseScene) -> str:
        error = (
            f"From scale **{power_of_ten(scene.exponent)}** the flow ends with population error "
            f"**{scene.error:.3g}**"
        )
        path, limits = scene.path, f"{len(PATH_EXPONENTS)} limits on the curves are"
        proof = f"At the cursor: {proof_of(scene.at_cursor)}."
        if path is None:
            where = f"The {limits} being computed; faint curves belong to the settings before."
        else:
            rich, kernel = map(path.error, (path.extremes.rich, path.extremes.kernel))
            error += f"; the least l1 norm has {rich:.3g}, the least l2 norm {kernel:.3g}"
            where, missing = path.extremes.words(scene.at_cursor.w), path.uncertified
            proof += f" {missing} of the {limits} not" if missing else f" All {limits}"
            proof += " certified."
        return "\n\n".join((f"{error}. {_hits(scene)}", where, proof))

    def code(self, settings: Settings) -> str:
        data = chosen(PlantedData, settings).code()
        exponents = ", ".join(f"{exponent:g}" for exponent in PATH_EXPONENTS)
        return self.script(_SCRIPT.format(data=data, exponents=exponents, **settings))


def _sweep(settings: Settings) -> PlantedSweep:
    return sweep_of(chosen(PlantedData, settings), settings["depth"])


def _scene(settings: Settings, sweep: PlantedSweep, path: ScalePath | None) -> SparseScene:
    exponent = settings["log_scale"]
    return SparseScene(settings["sparsity"], sweep.w_true, path, exponent, sweep.limit_at(exponent))


def _hits(scene: SparseScene) -> str:
    found = np.argsort(-np.abs(scene.at_cursor.w))[: scene.sparsity]
    hits = int(np.count_nonzero(scene.w_true[found]))
    return (
        f"Of its {scene.sparsity} largest coefficients {hits} belong to the truth."
        f"{' Errors that small lie below the picture.' if scene.error < LEAST_ERROR else ''}"
    )


_SCRIPT = """\
{data}
exponents = np.array([{exponents}])
cursor = {log_scale:g}
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
"""
