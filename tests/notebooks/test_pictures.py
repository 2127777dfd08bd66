"""Pictures: labelled, drawn from the object's own numbers, on new axes or on given ones."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import (
    COLOURS,
    MOST_CURVES,
    MOST_STEMS,
    RED,
    curves,
    positive_times,
    stems,
)
from tests.notebooks.results import all_results, data
from tests.notebooks.test_html import NAMES

# A record draws the panels of its experiment, each on axes of its own.
ON_AXES = tuple(name for name in NAMES if "record" not in name)


def result(name):
    return all_results()[name]


def panel(name, number=0):
    return result(name).plot().axes[number]


def line(axes, number):
    return axes.lines[number].get_xydata()


def points(axes):
    """All that is drawn as marks or lines, without the lines across the axes."""
    return [drawn for drawn in axes.lines if drawn.get_transform().contains_branch(axes.transData)]


@pytest.mark.parametrize("name", ON_AXES)
def test_axes_are_labelled(name):
    for axes in result(name).plot().axes:
        # A colour bar has its label on one axis; a list of texts has no axes at all.
        if axes.axison and axes.get_label() != "<colorbar>":
            rows_are_named = all(tick.get_text() for tick in axes.get_yticklabels())
            assert axes.get_xlabel()
            assert axes.get_ylabel() or rows_are_named


@pytest.mark.parametrize("name", ON_AXES)
def test_axes_of_somebody_else_get_the_first_panel(name):
    figure = Figure()
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    other = right.subplots()
    assert result(name).plot(ax=axes) is figure
    assert axes.has_data()
    assert not other.has_data()


@pytest.mark.parametrize("name", ["solution", "trajectory", "upper claim", "sweep", "record"])
def test_a_picture_is_written_where_asked(tmp_path, name):
    result(name).plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_notebooks_show_a_picture_without_pyplot():
    formatters = pytest.importorskip("IPython.core.formatters")
    shown, _ = formatters.DisplayFormatter().format(result("solution").plot())
    assert shown["image/png"].startswith(b"\x89PNG")
    told, _ = formatters.DisplayFormatter().format(result("solution"))
    assert told["text/html"] == result("solution")._repr_html_()


CELLS = """
import numpy as np, flowbias as fb
from IPython.core.displayhook import CapturingDisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        pass

shell = Shell.instance()
shell.run_cell("%matplotlib inline")
shell.user_ns["sol"] = fb.min_norm(np.eye(2), [1.0, 2.0])
ends = shell.display_trap.hook = CapturingDisplayHook(shell=shell, outputs=[])
for cell in ("figure = sol.plot()", "sol.plot()", "_ = sol.plot(ax=figure.axes[0])", "figure"):
    with capture_output() as shown:
        assert shell.run_cell(cell).error_in_exec is None
    kinds = [*(output.data for output in shown.outputs), *(end["data"] for end in ends.outputs)]
    ends.outputs.clear()
    print(cell, sum("image/png" in kind for kind in kinds), sep=": ")
shell.run_cell("import matplotlib.pyplot as plt; print(len(plt.get_fignums()))")
"""


def test_a_notebook_shows_each_picture_once(tmp_path):
    """At the end of a cell that made it, whether its last line is the figure or not."""
    pytest.importorskip("matplotlib_inline")
    run = subprocess.run(
        [sys.executable, "-c", CELLS],
        capture_output=True,
        text=True,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "figure = sol.plot(): 1",
        "sol.plot(): 1",
        "_ = sol.plot(ax=figure.axes[0]): 0",
        "figure: 1",
        "0",
    ]


@pytest.mark.parametrize(("backend", "joins"), [("template", True), ("agg", False)])
def test_figures_join_pyplot_where_a_user_has_one_that_shows(backend, joins, tmp_path):
    program = (
        "import matplotlib.pyplot as plt, numpy as np, flowbias as fb\n"
        "sol = fb.min_norm(np.eye(2), [1.0, 2.0])\n"
        f"sol.plot({str(tmp_path / 'a.png')!r})\n"
        "kept = len(plt.get_fignums())\n"
        "sol.plot()\n"
        "print(kept, len(plt.get_fignums()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": backend},
    )
    # What goes to a file is not for the screen.
    assert run.stdout.split() == ["0", "1" if joins else "0"], run.stderr


def test_drawing_opens_no_window_and_keeps_no_state():
    program = (
        "import sys, numpy as np, flowbias as fb; "
        "fb.min_norm(np.eye(2), [1.0, 2.0]).plot(); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "False", run.stderr


# --- the data drawn are the object's -------------------------------------------------------------


@pytest.mark.parametrize("name", ["solution", "neuron sum", "descent"])
def test_stems_are_the_coefficients(name):
    number = 1 if name == "descent" else 0
    axes = panel(name, number)
    assert_array_equal(points(axes)[-1].get_ydata(), result(name).w)
    ends = [segment[1, 1] for segment in axes.collections[0].get_segments()]
    assert_array_equal(ends, result(name).w)


def test_of_many_coefficients_the_largest_are_drawn():
    w = np.random.default_rng(0).standard_normal(3 * MOST_STEMS)
    axes = Figure().subplots()
    stems(axes, w)
    kept = np.flatnonzero(np.abs(w) >= np.sort(np.abs(w))[-MOST_STEMS])
    assert_array_equal(points(axes)[-1].get_xydata(), np.column_stack([kept, w[kept]]))
    assert f"the largest {MOST_STEMS} of {len(w)}" in axes.get_title()


def test_curves_draw_each_column_once_the_largest_in_colour():
    values = np.random.default_rng(0).standard_normal((5, 2 * MOST_CURVES))
    axes = Figure().subplots()
    curves(axes, np.arange(5.0), values)
    drawn = points(axes)
    sizes = np.abs(values).max(axis=0)
    ranked = np.argsort(-sizes)[: MOST_CURVES + len(COLOURS)]
    coloured = [each for each in drawn if each.get_color() in COLOURS]
    assert_array_equal([each.get_ydata() for each in coloured], values[:, ranked[:6]].T)
    assert len(drawn) == len(ranked)
    named = [text.get_text() for text in axes.texts]
    assert named == [f"$w_{{{j}}}$" for j in ranked[: len(COLOURS)]]


def test_a_path_is_drawn_from_small_to_large_scales():
    path, axes = result("path"), panel("path")
    order = np.argsort(path.log_scales)
    largest = np.argsort(-np.abs(path.w).max(axis=0), kind="stable")
    first = next(each for each in points(axes) if each.get_color() == COLOURS[0])
    assert_allclose(first.get_xdata(), path.log_scales[order] / np.log(10.0))
    assert_array_equal(first.get_ydata(), path.w[order, largest[0]])


@pytest.mark.parametrize("name", ["trajectory", "leaky trajectory", "lifted trajectory"])
def test_the_loss_is_drawn_against_positive_times(name):
    flow, axes = result(name), panel(name, 1)
    positive = (flow.t > 0.0) & (flow.loss > 0.0)
    assert_array_equal(line(axes, 0), np.column_stack([flow.t, flow.loss])[positive])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_the_coefficients_of_a_flow_are_drawn():
    flow, axes = result("trajectory"), panel("trajectory")
    drawn = np.array([each.get_ydata()[-1] for each in points(axes)])
    assert_array_equal(np.sort(drawn), np.sort(flow.w[-1]))


def test_singular_values_are_drawn_over_time():
    flow, axes = result("lifted trajectory"), panel("lifted trajectory")
    last = np.linalg.svd(flow.M[-1], compute_uv=False)
    assert_allclose([each.get_ydata()[-1] for each in points(axes)], last, rtol=1e-12)
    assert axes.texts[0].get_text() == r"$\sigma_{1}$"


def test_of_one_column_the_entries_are_drawn():
    flow, axes = result("one column"), panel("one column")
    drawn = np.array([each.get_ydata()[-1] for each in points(axes)])
    assert_array_equal(np.sort(drawn), np.sort(flow.M[-1, :, 0]))


def test_switches_are_marked():
    flow, axes = result("leaky trajectory"), panel("leaky trajectory")
    marked = [each.get_xdata()[0] for each in axes.lines if each.get_linestyle() == ":"]
    assert marked == [switch.t for switch in flow.switches if switch.t > 0.0] != []


def test_one_time_is_drawn_on_a_linear_axis():
    X, y, _ = data()
    flow = fb.flow(fb.DiagonalNet(depth=2, scale=0.1), X, y, t=[0.0, 1.0])
    axes = flow.plot().axes[1]
    assert_array_equal(line(axes, 0)[:, 0], [0.0, 1.0])
    assert axes.get_xscale() == "linear"
    assert positive_times(np.array([0.0, 1.0, 2.0])) == slice(1, None)


@pytest.mark.parametrize("name", ["descent", "lifted descent"])
def test_residuals_are_drawn_against_steps(name):
    descent = result(name)
    steps = np.arange(descent.steps + 1)
    assert_array_equal(line(panel(name), 0), np.column_stack([steps, descent.residual]))


@pytest.mark.parametrize(("name", "first"), [("lifted solution", 0), ("lifted descent", 1)])
def test_a_matrix_is_drawn_with_its_singular_values(name, first):
    axes = result(name).plot().axes
    M = result(name).M
    assert_array_equal(axes[first].images[0].get_array(), M)
    assert axes[first].images[0].get_clim() == (-np.abs(M).max(), np.abs(M).max())
    values = np.linalg.svd(M, compute_uv=False)
    assert_allclose(line(axes[first + 1], 0)[:, 1], values[values > 0.0], rtol=1e-12)


def test_a_certificate_is_drawn_against_what_is_allowed():
    certificate, axes = result("refused certificate"), panel("refused certificate")
    drawn = {(float(x), float(y)) for each in points(axes) for x, y in each.get_xydata()}
    for row, measure in enumerate(certificate.measures):
        if 0.0 < measure.value < np.inf:
            assert (measure.value, row) in drawn
        if measure.allowed is not None:
            assert (measure.allowed, row) in drawn
    failing = [each for each in axes.lines if each.get_color() == RED]
    assert len(failing) == sum(not measure.ok for measure in certificate.measures) > 0


def test_the_decades_of_a_certificate_stand_apart():
    solution = fb.limit(fb.DiagonalNet(2, 1e-3), [[1.0, 2.0]], [1.0])
    figure = solution.certificate.plot()
    figure.draw_without_rendering()
    labels = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    assert len(boxes) > 1
    assert all(a.x1 + 5.0 < b.x0 for a, b in itertools.pairwise(boxes))


def test_what_never_wakes_has_no_name():
    path = fb.stages(fb.DiagonalNet(2, 1.0), [[1.0, 2.0, 0.0]], [1.0])
    assert [text.get_text() for text in path.plot().axes[0].texts] == ["$w_{1}$"]


def test_measures_without_a_logarithm_are_written():
    certificate = fb.Certificate(0.0, 0.0, 0.0, np.inf, 1e-10, (float("nan"), 0.0))
    written = [text.get_text() for text in certificate.plot().axes[0].texts]
    assert written == ["0", "nan", "0", "inf", "0", "0", "inf"]


@pytest.mark.parametrize("name", ["upper claim", "equal claim", "failed claim"])
def test_a_claim_is_drawn_on_its_side(name):
    claim, axes = result(name), panel(name)
    origin = claim.predicted if name == "equal claim" else 0.0
    mark = points(axes)[-1]
    assert mark.get_xdata()[0] == claim.measured - origin
    low, high = axes.patches[0].get_x(), axes.patches[0].get_x() + axes.patches[0].get_width()
    assert (low <= mark.get_xdata()[0] <= high) == claim.holds
    left, right = axes.get_xlim()
    assert left < claim.measured - origin < right
    assert left < claim.predicted - origin < right


def test_a_claim_without_finite_numbers_is_not_drawn():
    claim = fb.theory.Claim(
        *("c", 1.0, np.inf, fb.theory.Kind.UPPER, fb.theory.Reference("a", "b"), "s", "t")
    )
    with pytest.raises(InputError, match=r"claim: .* got measured 1.0 and predicted inf\. Print"):
        claim.plot()


def test_the_spectrum_of_an_imbalance_is_drawn():
    assert_array_equal(points(panel("imbalance"))[-1].get_ydata(), result("imbalance").eigenvalues)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("uncertainty", lambda shown: shown.w_error),
        ("refits", lambda shown: shown.residuals),
        ("jackknife", lambda shown: shown.residuals),
        ("grad distance", lambda shown: shown.per_sample),
    ],
)
def test_one_number_each_is_drawn_as_stems(name, values):
    assert_array_equal(points(panel(name))[-1].get_ydata(), values(result(name)))


@pytest.mark.parametrize("name", ["kernel regime", "wide regime"])
def test_a_regime_draws_its_rate_and_how_far_it_is_needed(name):
    regime = getattr(result(name), "regime", result(name))
    radius, rate = line(panel(name), 0).T
    assert_array_equal(rate, [regime.least_rate(r) for r in radius])
    assert rate[0] > 0.0 > rate[-1]
    moved = panel(name).lines[-1].get_xdata()
    assert_array_equal(moved, [regime.movement_bound] * 2)
    assert regime.movement_bound < radius[-1]


def test_a_regime_that_does_not_hold_draws_no_bound():
    assert len(panel("no kernel regime").lines) == 2


def test_the_linearized_twin_draws_its_whole_course():
    flow = result("linearized flow")
    t, loss = line(panel("linearized flow"), 0).T
    assert_array_equal(loss, [flow.loss(time) for time in t])
    assert_allclose(loss[0], flow.loss(0.0), rtol=0.05)  # 1/100 of the fastest time
    assert_allclose(loss[-1], flow.loss(), atol=1e-12 * loss[0])
    drawn = points(panel("linearized flow", 1))[-1].get_ydata()
    assert_array_equal(drawn, np.sort(flow.eigenvalues[flow.learnable])[::-1])


def test_a_report_without_potential_draws_its_brackets():
    drawn = panel("report").images[0].get_array()
    assert_array_equal(drawn, result("report").findings.commuting.relative)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("diagnosis", lambda found: found.gaps.position),
        ("diagnosis of a module", lambda found: found.beyond.share),
        ("prediction", lambda found: found.feature_change),
    ],
)
def test_a_verdict_is_drawn_between_its_lines(name, value):
    axes = panel(name)
    assert axes.lines[0].get_xdata()[0] == value(result(name))
    words = [text.get_text() for text in axes.texts]
    # Of features that hardly turned nothing that was learned is rich.
    assert words == ["kernel", *["rich"] * (name != "diagnosis of a module")]
    lines = result(name).thresholds
    kernel = {
        "diagnosis": lines.kernel_position,
        "diagnosis of a module": lines.kernel_gap,
        "prediction": lines.kernel_outlook,
    }[name]
    patch = axes.patches[0]
    assert_allclose(patch.get_x() + patch.get_width(), kernel)


def test_all_measures_stand_beside_the_verdict():
    diagnosis = result("diagnosis")
    written = [text.get_text() for text in panel("diagnosis", 1).texts]
    known = [value for value in diagnosis.measures().values() if value is not None]
    assert written[1::2] == [f"{value:.4g}" for value in known]


def test_a_sweep_is_drawn_against_the_scale():
    sweep = result("sweep")
    for number, measure in enumerate(("position", "kernel_change")):
        expected = np.column_stack([sweep.scales, sweep.curve(measure)])
        assert_array_equal(line(panel("sweep", number), 0), expected)


def test_a_history_is_drawn_over_steps():
    records = result("history").records
    changes = [(r.step, r.kernel_change) for r in records if r.kernel_change > 0.0]
    assert_array_equal(line(panel("history"), 0), changes)
    losses = [(step, loss) for step, loss in enumerate(result("history").losses, 1)]
    assert_array_equal(line(panel("history", 1), 0), losses)


def test_losses_of_training_are_drawn():
    training, copies = result("training"), result("copies")
    expected = np.column_stack([training.recorded, training.losses])
    assert_array_equal(line(panel("training"), 0), expected)
    drawn = [each.get_ydata()[-1] for each in panel("copies").lines]
    assert_array_equal(drawn, copies.losses)
