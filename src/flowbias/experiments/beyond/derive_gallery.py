"""What gradient flow of nineteen parametrizations minimizes, derived from their code alone.

Each F is handed to `derive.implicit_bias`. Where it finds a potential its section along the first
axis is drawn, with the papers' closed form on top where they have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from flowbias.derive import EXAMPLES, Example, Verdict, implicit_bias
from flowbias.derive.commuting import TOLERANCE
from flowbias.derive.report import AnyDerived, sections
from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, needs_torch
from flowbias.experiments.check import less_than, more_than, true
from flowbias.experiments.table import Columns, Table
from flowbias.ground.drawing import INK
from flowbias.ground.typing import Axes, FloatArray
from flowbias.models import DiagonalNet, Neuron, UntiedDiagonalNet
from flowbias.potentials import NeuronPotential
from flowbias.theory import Reference

ClosedForm = Callable[[FloatArray], float]


COLOURS = {
    Verdict.MIRROR_FLOW: "#1f6fb4",
    Verdict.WARPED: "#d98200",
    Verdict.NONE: "#8c1d40",
    Verdict.INCONCLUSIVE: "#777777",
}
#: What a test measured, its marker and its name.
EVIDENCE = (
    ("bracket", "o", "brackets"),
    ("hessian_defect", "s", "Hessian map"),
    ("warp_residual", "^", "time warp"),
)

BY_KEY = {example.key: example for example in EXAMPLES}
#: Panels exist before anything is computed: these are known to have a potential, a check says so.
WITH_POTENTIAL = (
    *("squares", "cubes", "fifth-powers", "product", "difference-of-products", "deep-diagonal"),
    *("sigmoid", "exponential"),
    *("neuron-positive", "neuron-balanced", "neuron-negative", "balanced-neurons", "chain"),
    *("weight-normalization", "polar"),
)
WITHOUT = ("two-neurons", "matrix-factorization", "symmetric-factorization", "circular-convolution")


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task an example."""
    for key in str(settings["examples"]).split():
        yield "example", {"example": key}


def compute(task: Task) -> Columns:
    """Verdict and numbers, repeated beside the section of the potential."""
    example = BY_KEY[task.text("example")]
    report = implicit_bias(example.parametrization())
    found = report.findings
    warp, hessian, orbit = found.time_warp, found.hessian_map, found.orbit
    return {
        "verdict": report.verdict.value,
        "reason": report.reason,
        "bracket": found.commuting.defect,
        "hessian_defect": np.nan if hessian is None else hessian.defect,
        "warp_residual": np.nan if warp is None else warp.residual,
        "orbit": np.nan if orbit is None else orbit.dimension,
        "predictors": report.parametrization.d,
        "parameters": report.parametrization.p,
        "start": report.parametrization.initial[0],
        "laws": np.nan if report.laws is None else len(report.laws.laws),
        **_section(example, report.potential),
    }


def _section(example: Example, potential: AnyDerived | None) -> Columns:
    """Q along the first axis, derived and in closed form."""
    if potential is None:
        return {name: [np.nan] for name in ("offset", "value", "exact", "closed_form")}
    offset, value = sections(potential, axes=[0])[0]
    exact, closed = np.full((2, len(offset)), np.nan)
    form = closed_form(example)
    if form is not None:
        start = example.parametrization().initial
        # Every twentieth point is compared.
        for i in range(0, len(offset), 20):
            w = start + offset[i] * np.eye(len(start))[0]
            exact[i], closed[i] = potential.value(w), form(w)
    return {"offset": offset, "value": value, "exact": exact, "closed_form": closed}


# --- what the papers give ------------------------------------------------------------------------

# A derived potential has Hess Q = g (J J^T)^{-1} with g = 1 at the start, and is least there. The
# papers' are off by a constant factor: the mirror rate of a diagonal network, 3 |a(0)| / 2 for one
# neuron [azulay2021, Theorem 2], with |a(0)| = ||w(0)||^(1/2) for balanced ones.


def _of_network(net: Any, start: FloatArray) -> ClosedForm:
    """Bregman divergence from the start, in the network's own time."""
    return lambda w: net.potential.bregman(w, start) / net.mirror_rate


def _powers(depth: int) -> Callable[[FloatArray], ClosedForm]:
    def closed(theta: FloatArray) -> ClosedForm:
        net = DiagonalNet(depth=depth, scale=1.0, w0=theta[:3])
        return _of_network(net, np.zeros(3))

    return closed


def _products(theta: FloatArray) -> ClosedForm:
    u, v, x, y = np.split(theta, 4)
    net = UntiedDiagonalNet.from_weights(u, x, v, y)
    return _of_network(net, u * v - x * y)


def _neuron(theta: FloatArray) -> ClosedForm:
    neuron = Neuron(theta[0], theta[1:])
    rate = 1.5 * abs(neuron.a)
    return lambda w: neuron.potential.bregman(w, neuron.initial) / rate


def _balanced(theta: FloatArray) -> ClosedForm:
    start = theta[0] * theta[2:5] + theta[1] * theta[5:8]
    rate = 1.5 * float(np.sqrt(np.linalg.norm(start)))
    return lambda w: NeuronPotential(0.0).bregman(w, start) / rate


_CLOSED_FORMS: dict[str, Callable[[FloatArray], ClosedForm]] = {
    "squares": _powers(2),
    "cubes": _powers(3),
    "fifth-powers": _powers(5),
    "difference-of-products": _products,
    "neuron-positive": _neuron,
    "neuron-balanced": _neuron,
    "neuron-negative": _neuron,
    "balanced-neurons": _balanced,
}


def closed_form(example: Example) -> ClosedForm | None:
    """What the papers say the example minimizes; None where they say nothing."""
    form = _CLOSED_FORMS.get(example.key)
    return None if form is None else form(np.array(example.theta0))


# --- panels ------------------------------------------------------------------------------------


def first_rows(table: Table) -> Table:
    """One row an example."""
    _, first = np.unique(table["example"], return_index=True)
    return table.rows(np.sort(first))


def draw_evidence(axes: Axes, table: Table) -> None:
    """What each test measured, example by example, coloured by the verdict."""
    # Zeros are drawn here: below any rounding error.
    floor = 1e-18
    rows = first_rows(table)
    count = len(rows)
    height = -np.arange(count)
    colours = [COLOURS[Verdict(verdict)] for verdict in rows["verdict"]]
    for (name, marker, label), shift in zip(EVIDENCE, (0.2, 0.0, -0.2), strict=True):
        at = np.maximum(rows[name], floor)
        axes.scatter(at, height + shift, c=colours, marker=marker, s=22, label=label, zorder=3)
    axes.axvline(TOLERANCE, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.set_yticks(height, [BY_KEY[key].title for key in rows["example"]], fontsize=7)
    for tick, colour in zip(axes.get_yticklabels(), colours, strict=True):
        tick.set_color(colour)
    axes.set(xscale="log", xlim=(0.3 * floor, 30.0), xlabel="relative defect (dotted: tolerance)")
    axes.legend(loc="lower left", bbox_to_anchor=(0.1, 0.0), fontsize=8)


def draw_section(axes: Axes, table: Table, example: Example) -> None:
    """The potential along the first axis through the start."""
    rows = table.where(example=example.key)
    if not len(rows):
        axes.text(0.5, 0.5, "not in this preset", transform=axes.transAxes, ha="center")
        axes.set_axis_off()
        return
    colour = COLOURS[Verdict(rows["verdict"][0])]
    start = rows["start"][0]
    axes.plot(start + rows["offset"], rows["value"], color=colour)
    axes.axvline(start, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
    if "closed_form" in rows.columns:
        circles: dict[str, Any] = {"linestyle": "none", "marker": "o", "fillstyle": "none"}
        axes.plot(start + rows["offset"], rows["closed_form"], color=INK, **circles)
        axes.text(
            0.5, 0.95, "circles: closed form", transform=axes.transAxes, ha="center", va="top"
        )
    axes.set(xlabel="first predictor $w_1$", ylabel="potential $Q(w)$")


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """Verdicts as known, reasons given, potentials as the papers have them."""
    rows = first_rows(table)
    known = _among(rows, WITH_POTENTIAL)
    good = np.isin(known["verdict"], [Verdict.MIRROR_FLOW.value, Verdict.WARPED.value])
    yield Check(
        "potentials-exist",
        "diagonal networks have a potential, one neuron and balanced ones after a change of time",
        f"{int(good.sum())} of {len(known)}",
        true(good),
    )
    known = _among(rows, WITHOUT)
    refused = known["verdict"] == Verdict.NONE.value
    margin = float(np.min(known["warp_residual"], initial=np.inf)) / TOLERANCE
    yield Check(
        "no-potential",
        "generic neurons and matrix factorizations have no potential of the predictor alone",
        f"{int(refused.sum())} of {len(known)}, residuals at least {margin:.0e} tolerances",
        true(refused),
        more_than(margin, 1e3),
    )
    said = np.array([len(reason) > 0 and "\n" not in reason for reason in rows["reason"]])
    decided = rows["verdict"] != Verdict.INCONCLUSIVE.value
    yield Check(
        "reasons",
        "every verdict is decided and has a reason in one line",
        f"{int((said & decided).sum())} of {len(rows)}",
        true(said & decided),
    )
    rows = table.rows(np.flatnonzero(np.isfinite(table["closed_form"])))
    errors, drawn = [], []
    for key in np.unique(rows["example"]):
        one = rows.where(example=key)
        size = np.abs(one["closed_form"]).max()
        errors.append(float(np.abs(one["exact"] - one["closed_form"]).max() / size))
        drawn.append(float(np.abs(one["value"] - one["closed_form"]).max() / size))
    worst = max(errors, default=np.nan)
    yield Check(
        "as-printed",
        "derived potentials are those that the papers print",
        f"{len(errors)} compared, relative difference at most {worst:.1e}",
        # Integrated to a relative 1e-10 or better, of the largest value; as drawn to 1e-4.
        less_than(errors, 1e-8),
        less_than(drawn, 1e-3),
    )
    bends = []
    for key in _among(first_rows(table), WITH_POTENTIAL)["example"]:
        value = table.where(example=key)["value"]
        inside = value[np.isfinite(value)]
        bend = np.diff(inside, 2).min() if len(inside) > 2 else -np.inf
        bends.append(float(min(bend, inside.min(initial=0.0)) / np.abs(inside).max(initial=1e-9)))
    yield Check(
        "convex",
        "every potential is convex along the axis, and least at the start",
        f"second differences and values above {min(bends, default=np.nan):.1e} of the largest",
        more_than(bends, -1e-3),
    )


def _among(rows: Table, keys: tuple[str, ...]) -> Table:
    return rows.rows(np.flatnonzero(np.isin(rows["example"], keys)))


_ALL = " ".join(example.key for example in EXAMPLES)
# Each verdict, and each kind of closed form.
_FEW = "squares cubes exponential neuron-positive two-neurons symmetric-factorization"

EXPERIMENT = Experiment(
    name="derive-gallery",
    title="The implicit bias of nineteen parametrizations",
    reference=Reference("azulay2021", "section 5"),
    summary=(
        "Each parametrization w = F(theta) is given as code. Brackets of its gradient fields, the "
        "Hessian test of its metric and the search for a change of time decide whether gradient "
        "flow minimizes a potential of the predictor: blue, yes; orange, after a change of time; "
        "red, no. The potentials are drawn along the first axis through the start (dotted)."
    ),
    paper_says=(
        "Diagonal networks have a potential; the metric of one linear neuron is no Hessian, but "
        "becomes one when time is changed. The other verdicts are not in the papers."
    ),
    settings={
        Preset.SMOKE: {"examples": _FEW},
        Preset.LAPTOP: {"examples": _ALL},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "What the tests measured", draw_evidence),
        *(
            Panel(letter, BY_KEY[key].title, partial(draw_section, example=BY_KEY[key]))
            for letter, key in zip("bcdefghijklmnop", WITH_POTENTIAL, strict=True)
        ),
    ),
    check=check,
    needs=needs_torch,
    choices={"examples": tuple(BY_KEY)},
)
