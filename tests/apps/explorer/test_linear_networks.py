"""Linear networks: bounds that bound, a spectrum that is conserved."""

from dataclasses import replace

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.explorer.view import chosen, settings_of
from flowbias.apps.explorer.views.linear_networks import (
    LinearNetworksView,
    LinearSetup,
    narrowed,
)
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

VIEW = LinearNetworksView()
SMALL = {"d": 50, "n": 10}


def settings(**changes):
    return settings_of(VIEW.controls, {}) | SMALL | changes


def scene_of(**changes):
    return VIEW.scene(settings(**changes))


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"log_width": 1.0, "log_scale": -2.0},
        {"log_ratio": 1.0},
        {"log_ratio": -1.0, "outputs": 1},
        {"log_width": 4.0, "seed": 5},
    ],
)
def test_bounds_bound(wanted):
    scene = scene_of(**wanted)
    # Local errors of 1e-11 a step, some hundred steps, over the smallest residual 1e-5 shown.
    assert np.all(scene.loss <= scene.loss_bound * (1 + 1e-4))
    assert np.all(scene.rate_bound <= scene.rate * (1 + 1e-4))
    assert scene.loss[0] == scene.loss_bound[0] == 1.0
    assert scene.loss[-1] < 1e-6
    assert np.all(np.diff(scene.loss) < 0.0)


def test_the_rate_is_the_slope_of_the_loss():
    scene = scene_of()
    inside = slice(1, -1)
    slope = -np.gradient(np.log(scene.loss), scene.t)
    # Second differences of 60 points over three decades of time.
    np.testing.assert_allclose(scene.rate[inside], slope[inside], rtol=0.05)


def test_the_imbalance_is_that_of_the_weights():
    setup = chosen(LinearSetup, settings(log_width=2.0))
    X, _, net = setup.draw()
    scene = scene_of(log_width=2.0)
    P1 = np.linalg.svd(X, full_matrices=False)[2].T
    U1, V = P1.T @ net.factors.U, net.factors.V
    values = np.sort(np.linalg.eigvalsh(U1.T @ U1 - V.T @ V))[::-1]
    found = scene.imbalance.eigenvalues
    np.testing.assert_allclose(found[:10], values[:10], atol=1e-10)
    np.testing.assert_allclose(found[-2:], values[-2:], atol=1e-10)


def test_words_follow_the_numbers():
    good = scene_of(log_width=4.0)
    assert good.accounted >= 0.5
    assert "a good guarantee" in VIEW.text(good)
    assert f"{good.accounted:.0%} of the fall" in VIEW.text(good)
    poor = scene_of(log_width=1.5, log_ratio=0.3)
    assert 0.0 < poor.accounted < 0.5
    assert "most of the speed is not foreseen" in VIEW.text(poor)
    none = scene_of(log_width=1.0, n=20)
    assert none.imbalance.level == 0.0
    assert "guarantees nothing" in VIEW.text(none)


def test_the_end_is_as_far_from_least_norm_as_said():
    wanted = settings(log_scale=-2.0, log_width=2.0)
    scene = VIEW.scene(wanted)
    X, Y, net = chosen(LinearSetup, wanted).draw()
    theta = np.linalg.pinv(X) @ Y
    far = np.linalg.norm(fb.limit(net, X, Y).M - theta) / np.linalg.norm(theta)
    # The residual at which the flow was left is 1e-5.
    assert scene.from_min_norm == pytest.approx(far, abs=1e-4)


def test_layers_are_as_large_as_the_sliders_say():
    _, _, net = chosen(LinearSetup, settings(log_width=3.0, log_scale=-1.0, log_ratio=0.6)).draw()
    sizes = [np.sqrt(np.mean(part**2)) for part in net.factors]
    # 2000 entries or more: a standard deviation is known to a few percent.
    np.testing.assert_allclose(sizes, 0.1 * 10.0 ** np.array([0.3, -0.3]), rtol=0.1)


@pytest.mark.parametrize("width", [1.0, 3.0])
def test_pictures_hold_the_curves(width):
    scene = scene_of(log_width=width)
    spectrum, loss, rate = Shown(VIEW, scene).figures
    marks = [one.data_source.data for one in spectrum.renderers if hasattr(one.glyph, "marker")]
    values = scene.imbalance.eigenvalues
    assert np.concatenate([one["y"] for one in marks]).tolist() == values[values != 0.0].tolist()
    assert min(marks[0]["y"]) > 0.0 > max(marks[1]["y"])
    curves = [one.data_source.data for one in (*loss.renderers, *rate.renderers)]
    for data, y in zip(
        curves, (scene.loss, scene.loss_bound, scene.rate[1:], scene.rate_bound[1:]), strict=True
    ):
        shown = np.isfinite(data["y"])
        np.testing.assert_array_equal(np.asarray(data["y"])[shown], y[shown])


@pytest.mark.parametrize("wanted", [{}, {"log_width": 1.0, "outputs": 3, "log_ratio": -0.4}])
def test_code_makes_the_same_numbers(wanted, monkeypatch):
    names = run_script(VIEW.code(settings(**wanted)), monkeypatch)
    scene = scene_of(**wanted)
    np.testing.assert_allclose(names["imbalance"].eigenvalues, scene.imbalance.eigenvalues)
    # Ends of steps, whose lengths follow estimates of local errors of 1e-6: rounding reaches the
    # third digit of those, and on some processors the third of the end.
    assert names["trajectory"].t[-1] == pytest.approx(scene.t[-1], rel=1e-2)
    bound = np.exp(-names["claim"].predicted * scene.t[-1])
    assert bound == pytest.approx(scene.loss_bound[-1], rel=1e-6)


@pytest.mark.parametrize("width", [10, 60, 500])
def test_a_narrowed_network_has_the_same_flow(width):
    setup = chosen(LinearSetup, settings(n=10, d=50, outputs=3))
    X, Y, net = replace(setup, log_width=np.log10(width)).draw()
    narrow = narrowed(net)
    assert narrow.width == min(width, 53)
    t = [0.0, 0.1, 0.5, 1.0]
    # Two integrations with local errors of 1e-10.
    np.testing.assert_allclose(
        fb.flow(narrow, X, Y, t=t).M, fb.flow(net, X, Y, t=t).M, rtol=1e-8, atol=1e-9
    )
