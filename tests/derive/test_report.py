"""Verdicts: right on known examples, honest in between, and readable."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.derive import report as report_module
from flowbias.derive.commuting import Commuting
from flowbias.derive.hessian_map import HessianMap
from flowbias.derive.orbit import OrbitDimension
from flowbias.derive.report import implicit_bias
from flowbias.derive.time_warp import TimeWarp
from flowbias.derive.verdict import Findings, Verdict, decide, shape_change
from flowbias.ground.arguments import InputError

from .test_warped import hopf, neuron
from .zoo import example

# The sources of every kind of verdict; the gallery judges all of the zoo.
EXPECTED = {
    "cubes": Verdict.MIRROR_FLOW,
    "neuron-negative": Verdict.WARPED,
    "two-neurons": Verdict.NONE,
    "symmetric-factorization": Verdict.NONE,
}


@pytest.fixture(scope="module")
def reports():
    return {key: implicit_bias(example(key).parametrization()) for key in EXPECTED}


@pytest.mark.parametrize("key", EXPECTED)
def test_verdict(reports, key):
    report = reports[key]
    assert report.verdict is EXPECTED[key], report
    assert report.reason
    assert "\n" not in report.reason
    assert (report.potential is None) == (report.verdict is Verdict.NONE)


def test_two_generic_neurons_fail_by_the_dimension_of_their_orbit(reports):
    report = reports["two-neurons"]
    assert "orbit has dimension 5 > 3" in report.reason
    assert report.findings.time_warp.residual > 1e-3


def test_orbit_larger_than_the_predictor_does_not_exclude_a_potential():
    """The Hopf map R^4 -> R^3: brackets reach all of R^4, and still J J^T = 4 |w| I."""
    report = implicit_bias(hopf())
    assert report.findings.orbit.dimension == 4
    assert report.verdict is Verdict.WARPED


@pytest.mark.parametrize("d", [3, 5])
def test_one_linear_neuron(d):
    """[azulay2021, section 5]: the Hessian map fails, the warp repairs it, g is |a|."""
    report = implicit_bias(neuron(1.1, np.linspace(0.2, 0.7, d)))
    assert report.findings.hessian_map.defect > 1e-3
    assert max(report.findings.time_warp.residual, report.findings.time_warp.curl) <= 1e-8
    state = report.potential.state_at(np.linspace(0.1, -0.2, d))
    assert_allclose(np.exp(state.log_g), state.theta[0] / 1.1, rtol=1e-11)


def test_two_predictors_are_judged_by_the_shape_of_the_metric():
    """Two neurons, d = 2: the warp's system is always solvable there, and proves nothing."""
    report = implicit_bias(
        lambda th: th[0] * th[2:4] + th[1] * th[4:], [0.9, 0.5, 0.6, -0.3, 0.2, 0.7]
    )
    assert report.findings.time_warp.residual < 1e-12
    assert report.verdict is Verdict.NONE
    assert "no function of the predictor" in report.reason
    # A map whose metric is a function of w has no change of shape at fixed w.
    assert shape_change(hopf()) < 1e-12 < 1e-2 < report.findings.shape_change


def test_limits_through_a_report(reports):
    a = np.array([0.5, 0.8, 0.6])
    X, y = np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.4]]), np.array([0.3, -0.2])
    known = fb.limit(fb.DiagonalNet(depth=3, scale=1.0, w0=a), X, y).w
    assert_allclose(reports["cubes"].limit(X, y).w, known, rtol=1e-9, atol=1e-10)
    assert_allclose(fb.limit(reports["cubes"].model, X, y).w, known, rtol=1e-9, atol=1e-10)
    with pytest.raises(InputError, match=r"Follow the flow: fb\.flow"):
        reports["two-neurons"].limit(X, y)
    # A warped model finds its limit itself: along the flow.
    warped = fb.limit(reports["neuron-negative"].model, X, y)
    neuron = fb.Neuron(0.4, [0.6, -0.3, 0.5])
    assert_allclose(warped.w, fb.limit(neuron, X, y).w, rtol=1e-9, atol=1e-10)


def test_a_report_reads(reports):
    text = repr(reports["neuron-negative"])
    for part in ("mirror flow after a time warp", "because", "a*a - w1*w1 - w2*w2 - w3*w3"):
        assert part in text
    assert "report.limit" in text
    assert "report.limit" not in repr(reports["two-neurons"])


@pytest.mark.parametrize("key", ["cubes", "two-neurons"])
def test_plot(reports, key):
    figure = reports[key].plot()
    assert figure.axes[0].get_xlabel()
    drawn = figure.axes[0].lines if key == "cubes" else figure.axes[0].images
    assert drawn


def test_drawn_sections_are_the_potential(reports):
    from flowbias.derive.report import sections

    potential = reports["cubes"].potential
    offset, value = sections(potential, reach=0.5)[1]
    for k in (10, 60):
        w = potential.model.initial + offset[k] * np.eye(3)[1]
        # Drawn with local errors of 1e-4 and interpolated between steps.
        assert_allclose(value[k], potential.value(w), rtol=1e-3)


def test_singular_start_is_refused():
    with pytest.raises(InputError, match="not invertible there"):
        implicit_bias(torch.square, [1.0, 0.0])


def test_a_test_that_did_not_run_says_so(monkeypatch):
    def refuse(model, rng):
        raise InputError("theta: must be small enough, got too many. Study a smaller one.")

    monkeypatch.setattr(report_module, "conservation_laws", refuse)
    report = implicit_bias(lambda th: th[:3] * th[3:], np.full(6, 0.7))
    assert report.verdict is Verdict.MIRROR_FLOW
    skipped = {item.name: item.summary for item in report.evidence if item.holds is None}
    assert set(skipped) == {"time warp", "conservation laws"}
    assert "not needed" in skipped["time warp"]
    assert "not run: theta: must be small enough" in skipped["conservation laws"]
    assert report.laws is None


# --- the decision alone ---------------------------------------------------------------------------

FAILING = Commuting(defect=0.5, start_defect=0.5, pair=(1, 2), relative=np.zeros((3, 3)), points=3)
ORBIT = OrbitDimension(
    dimension=3,
    generic_dimension=3,
    parameters=4,
    predictors=3,
    at_points=(3,),
    longest=2,
    smallest_kept=0.5,
    largest_dropped=1e-16,
    complete=True,
    metric_change=0.0,
)
BROKEN = HessianMap(defect=0.4, at_points=(0.4,), predictors=3, tolerance=1e-9)
WARP = TimeWarp(
    residual=1e-16,
    curl=1e-16,
    phi=np.zeros(3),
    residual_at_points=(0.0,),
    curl_at_points=(0.0,),
    predictors=3,
    tolerance=1e-9,
    model=None,
    z=np.zeros(3),
)
FOUND = Findings(FAILING, ORBIT, BROKEN, WARP)
WIDE = replace(ORBIT, dimension=4)
CHANGING = replace(WIDE, metric_change=0.3)

DECISIONS = {
    "warped": ({}, Verdict.WARPED),
    "commuting": ({"commuting": replace(FAILING, defect=1e-15)}, Verdict.INCONCLUSIVE),
    "commuting, Hessian": (
        {"commuting": replace(FAILING, defect=1e-15), "hessian_map": replace(BROKEN, defect=0.0)},
        Verdict.MIRROR_FLOW,
    ),
    "brackets near the tolerance": (
        {"commuting": replace(FAILING, defect=1e-7)},
        Verdict.INCONCLUSIVE,
    ),
    "residual": ({"time_warp": replace(WARP, residual=0.1)}, Verdict.NONE),
    "residual, no orbit": ({"time_warp": replace(WARP, residual=0.1), "orbit": None}, Verdict.NONE),
    "residual near": ({"time_warp": replace(WARP, residual=1e-7)}, Verdict.INCONCLUSIVE),
    "curl": ({"time_warp": replace(WARP, curl=0.1)}, Verdict.NONE),
    "curl near": ({"time_warp": replace(WARP, curl=1e-7)}, Verdict.INCONCLUSIVE),
    "no orbit": ({"orbit": None}, Verdict.INCONCLUSIVE),
    "orbit not decided": ({"orbit": replace(ORBIT, complete=False)}, Verdict.INCONCLUSIVE),
    "no warp": ({"time_warp": None}, Verdict.INCONCLUSIVE),
    "no Hessian map": ({"hessian_map": None}, Verdict.INCONCLUSIVE),
    "Hessian against brackets": (
        {"hessian_map": replace(BROKEN, defect=0.0)},
        Verdict.INCONCLUSIVE,
    ),
    "Hessian on a wide orbit": (
        {"hessian_map": replace(BROKEN, defect=0.0), "orbit": WIDE},
        Verdict.MIRROR_FLOW,
    ),
    "shape": ({"orbit": CHANGING, "shape_change": 0.2}, Verdict.NONE),
    "size alone": ({"orbit": CHANGING, "shape_change": 0.0}, Verdict.INCONCLUSIVE),
    "singular on the orbit": (
        {"orbit": replace(WIDE, metric_change=float("nan"))},
        Verdict.INCONCLUSIVE,
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decision(name):
    changes, verdict = DECISIONS[name]
    decision = decide(replace(FOUND, **changes))
    assert decision.verdict is verdict, decision
    assert decision.reason
