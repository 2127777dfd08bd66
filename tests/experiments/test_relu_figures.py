"""ReLU networks on the circle and on the line: each check notices what it is there for."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

from flowbias.experiments._base import torch_device
from flowbias.experiments.woodworth import fig06ab, fig07, iclr_fig04cd
from flowbias.experiments.woodworth.circle_networks import (
    by_descent,
    by_flow_and_descent,
    draw_circles,
    largest_stable_step,
    network,
)
from flowbias.experiments.woodworth.fig06ab import default_level
from flowbias.experiments.woodworth.fig07 import GRID, POINTS, RANGE, VALUES
from tests.experiments.conformance import Conformance
from tests.experiments.judging import changed, several

# --- circle: scale ------------------------------------------------------------------------------


SCALES = [
    ({"trained-to-zero"}, changed("train_rmse", lambda v: v + 0.02, depth=3)),
    (
        {"small-starts-generalize"},
        changed("rmse", lambda v: 10.0 * v, depth=2, log10_level=-3.0),
    ),
    (
        {"error-plateau-in-the-kernel-regime"},
        changed("rmse", lambda v: 1.2 * v, depth=3, log10_level=1.5),
    ),
    ({"better-than-zero"}, changed("zero_rmse", lambda v: 0.1 * v, networks="doubled")),
    (
        {"as-printed-large-starts-lose-to-zero"},
        changed("zero_rmse", lambda v: 3.0 * v, networks="single"),
    ),
    (
        {"as-printed-features-turn-at-any-large-scale"},
        changed("grad_distance", lambda v: 0.3 * v, networks="single", depth=5, log10_level=2.0),
    ),
    (
        {"kernel-regime-at-large-scales"},
        changed("grad_distance", lambda v: v + 2e-3, networks="doubled"),
    ),
    (
        {"grad-distance-monotone"},
        changed("grad_distance", lambda v: v + 0.3, networks="doubled", depth=5, log10_level=1.5),
    ),
    (
        {"transition"},
        changed("grad_distance", lambda v: np.minimum(v, 0.35), depth=2),
    ),
    (
        {"default-start-outside"},
        changed("rmse", lambda v: 4.0 * v, depth=5, log10_level=default_level(5)),
    ),
    (
        {"he-start-at-the-edge"},
        several(
            changed("grad_distance", lambda v: 0.0 * v + 0.06, depth=2, log10_level=-2.0),
            changed("grad_distance", lambda v: 0.0 * v + 0.055, depth=2, log10_level=-1.0),
        ),
    ),
]


class TestScales(Conformance):
    experiment = fig06ab.EXPERIMENT
    corruptions = SCALES
    whole = ("rmse", "grad_distance", "train_rmse", "zero_rmse")


# --- circle: the networks -----------------------------------------------------------------------


def test_labels_have_size_one_and_starts_are_zero():
    import torch

    circles = draw_circles(np.random.default_rng(3), 2)
    for circle in circles:
        assert np.mean(circle.y_test**2) == pytest.approx(1.0)
        assert circle.X_test.shape == (400, 2)
        with torch_device() as device:
            net = network(3, 1.0, circle.seed, device)
        assert not net(torch.as_tensor(circle.X, device=device)).detach().cpu().any()


def test_flow_and_small_steps_of_descent_end_alike():
    """Two ways to the same limit, in the kernel regime and on its edge."""
    circles = draw_circles(np.random.default_rng(0), 1) * 2
    with torch_device() as device:
        starts = [network(2, level, circles[0].seed, device) for level in (0.0, 1.0)]
        flow = by_flow_and_descent(
            starts, circles, rounds=1, flow_steps=80, step_size=0.01, descent_steps=0
        )
        sizes = [0.2 * largest_stable_step(net, circles[0]) for net in starts]
        descent = by_descent(starts, circles, sizes, 800)
    assert max(flow.train_rmse.max(), descent.train_rmse.max()) < 1e-4
    assert np.abs(flow.rmse - descent.rmse).max() < 0.01
    assert np.allclose(flow.grad_distance, descent.grad_distance, rtol=0.2)


def test_descent_that_diverges_is_no_result():
    circles = draw_circles(np.random.default_rng(0), 1)
    with torch_device() as device:
        start = network(2, 1.0, circles[0].seed, device)
        trained = by_descent([start], circles, [1.0], 200)
    assert not trained.train_rmse[0] < 1.0


# --- circle: step size --------------------------------------------------------------------------


def _set(column, value, **where):
    return changed(column, lambda v: np.full_like(v, value), **where)


def _errors_of_the_smallest_step(table):
    values = table["rmse"].copy()
    for replicate in table.levels("replicate"):
        rows = (table["depth"] == 2) & (table["replicate"] == replicate)
        values[rows] = values[rows & (table["fraction"] == 0.3)][0]
    return table.replaced(rmse=values)


STEPS = [
    (
        {"small-steps-stay"},
        several(
            _set("grad_distance", 0.055, depth=5, fraction=0.3),
            _set("grad_distance", 0.105, depth=5, fraction=0.5),
        ),
    ),
    ({"large-steps-leave"}, _set("grad_distance", 0.05, depth=3, fraction=2.0)),
    ({"the-edge-is-stability"}, _set("grad_distance", 0.01, depth=3, fraction=1.5)),
    ({"step-size-matters"}, _errors_of_the_smallest_step),
    (
        {"too-large-diverges"},
        several(
            _set("train_rmse", 1e-4, fraction=10.0),
            _set("grad_distance", 0.9, fraction=10.0),
            _set("rmse", 1.0, fraction=10.0),
        ),
    ),
]


class TestSteps(Conformance):
    experiment = iclr_fig04cd.EXPERIMENT
    corruptions = STEPS
    whole = ("rmse", "grad_distance", "train_rmse")


# A whole task in a process of its own: one data set, a few steps.
SMALL_TASK = """
import sys
from flowbias.experiments import Task
from flowbias.experiments.workers import rows_of
from flowbias.experiments.woodworth.iclr_fig04cd import compute
settings = (("fractions", "1.5"), ("replicates", 1), ("steps", 5), ("group", 0))
task = Task("woodworth-iclr-fig4cd", "sweep", settings)
sys.stdout.write(rows_of(task, compute(task)).digest)
"""


def test_every_process_computes_the_same_bits():
    """Whatever the order of its sets of words, which PYTHONHASHSEED decides."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SMALL_TASK],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(digests) == 1


# --- line ---------------------------------------------------------------------------------------


def _bent(column, by, **where):
    """A bump between the second and the third point, in units of the range."""
    bump = by * RANGE * np.exp(-(((GRID + 0.35) / 0.1) ** 2))
    return changed(column, lambda v: v + np.tile(bump, len(v) // len(GRID)), **where)


def test_the_values_go_up_and_down():
    assert (np.diff(np.sign(np.diff(VALUES))) != 0).all()
    assert len(POINTS) == len(VALUES)


def _nearly_as_in_the_first_panel(table):
    """Infinitely wide networks: the second panel's limit a tenth of the way to the third's."""
    values = table["wide"].copy()
    a, b, c = ((table["scale"] == 30.0) & (table["panel"] == panel) for panel in "abc")
    values[b] = 0.9 * values[a] + 0.1 * values[c]
    return table.replaced(wide=values)


CURVES = [
    ({"trained-to-zero"}, changed("train_rmse", lambda v: v + 0.02, panel="b", scale=3.0)),
    ({"small-start-is-the-linear-spline"}, _bent("learned", 0.07, scale=0.03)),
    (
        {"small-starts-agree"},
        several(
            _bent("learned", 0.04, scale=0.03, panel="a"),
            _bent("learned", -0.04, scale=0.03, panel="c"),
        ),
    ),
    ({"large-start-is-the-kernel-interpolant"}, _bent("kernel", 0.05, scale=30.0, panel="b")),
    (
        {"large-start-is-near-the-infinitely-wide-one"},
        several(*(_bent(column, 1.0, scale=30.0, panel="c") for column in ("learned", "kernel"))),
    ),
    ({"large-starts-differ"}, _nearly_as_in_the_first_panel),
    ({"which-splines-they-resemble"}, changed("cubic", lambda v: v + 0.5)),
    ({"straight-lines-bend-with-the-scale"}, _bent("learned", 0.5, scale=3.0, panel="c")),
]


class TestCurves(Conformance):
    experiment = fig07.EXPERIMENT
    corruptions = CURVES
    whole = ("learned", "linear", "cubic", "kernel", "wide", "train_rmse")
