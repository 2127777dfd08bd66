"""Stages in the explorer: steps that are proved, a flow that nears them, words and code of both."""

import re

import numpy as np
import pytest

from flowbias.apps.explorer.view import settings_of
from flowbias.apps.explorer.views.stages import SCALES, StagesView, X
from flowbias.flows import flow
from flowbias.limits import basis_pursuit
from flowbias.models import DiagonalNet
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

VIEW = StagesView()
DEFAULTS = settings_of(VIEW.controls, {})
ANGLES = VIEW.controls[2].grid


def scene_of(**changed):
    return VIEW.scene(DEFAULTS | changed)


def test_the_example_of_the_paper():
    """[Zhao et al. 2026]: the first feature wakes, and sleeps when the second one does."""
    path = scene_of().followed.path
    told = [event.told_of(str(event.feature)) for event in path.events]
    assert told == ["0 wakes (+)", "0 falls asleep (+)", "1 wakes (+)", "2 wakes (-)"]
    np.testing.assert_allclose(path.w[-1], [0.0, 10 / 7, -10 / 49], atol=1e-12)
    np.testing.assert_allclose(path.times[:3], [0.0, 1.0, 4.0], atol=1e-12)


@pytest.mark.parametrize("angle", ANGLES[::5])
@pytest.mark.parametrize("log_scale", [SCALES[0], -100.0, SCALES[-1]])
def test_every_direction_is_certified_and_ends_at_least_l1_norm(angle, log_scale):
    followed = scene_of(angle=angle, log_scale=log_scale).followed
    assert followed.path.certificate.ok
    least = basis_pursuit(X, followed.path.data.y)
    # Both are certified to 1e-10.
    np.testing.assert_allclose(followed.path.w[-1], least.w, atol=1e-9)
    assert np.isfinite(followed.w).all()


@pytest.mark.parametrize("exponent", [-1.0, -10.0, -100.0])
def test_the_flow_is_that_of_the_scale_on_the_slow_clock(exponent):
    """tau = 4 t / log(1 / scale^2) at depth 2."""
    scene = scene_of(log_scale=exponent)
    log_scale = exponent * np.log(10.0)
    t = scene.followed.tau[::20] * -2.0 * log_scale / 4.0
    followed = flow(DiagonalNet(2, log_scale=log_scale), X, scene.followed.path.data.y, t=t)
    # Residuals of 1e-8 where the view's flow has converged, interpolation between steps elsewhere.
    np.testing.assert_allclose(scene.followed.w[::20], followed.w, atol=1e-5)


def test_the_smaller_the_start_the_closer_the_flow_follows():
    shares = [
        np.mean(scene_of(log_scale=exponent).followed.distance > 0.01)
        for exponent in (-1.0, -10.0, -100.0, -1000.0)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    # A jump is spread over 1 / 4605 of tau; one place of the cursor may stand in each of the three.
    assert shares[-1] <= 3 / 101


def test_jumps_are_drawn_finely_at_every_scale():
    for exponent in SCALES[::5]:
        w = scene_of(log_scale=exponent).followed.w
        # Steps of the integrator; without them a jump from 1e-1000 would be one line of length 1.
        assert np.abs(np.diff(w, axis=0)).max() < 0.15


def test_scales_rise_from_1e_1000_to_a_tenth():
    assert (SCALES[0], SCALES[-1]) == (-1000.0, -1.0)
    assert np.all(np.diff(SCALES) > 0.0)


def test_pictures_show_the_scene():
    scene = scene_of(moment=70)
    followed, shown = scene.followed, Shown(VIEW, scene)
    assert shown.columns("cursor")["x"] == [followed.cursors[70]]
    columns = shown.columns("curves")
    curves = np.reshape(columns["y"], (3, -1))[:, :-1]
    np.testing.assert_array_equal(curves, followed.w.T)
    steps = np.reshape(shown.columns("steps")["y"], (3, -1))[:, :-1]
    np.testing.assert_array_equal(steps.T, np.repeat(followed.path.w, 2, axis=0))
    assert len(shown.columns("saddles")["x"]) == len(followed.path)
    now = scene.sight.projection.T @ followed.w[np.searchsorted(followed.tau, followed.cursors[70])]
    np.testing.assert_allclose([shown.columns("now")[axis][0] for axis in "xy"], now)
    shown.show(scene_of(moment=20, azimuth=90.0))
    # Bokeh alone would send the curves again, for their gaps.
    assert shown.columns("curves") is columns
    assert shown.columns("cursor")["x"] == [followed.cursors[20]]


def test_steps_are_the_stages_on_the_whole_axis():
    followed = scene_of().followed
    tau, w = followed.steps
    assert (tau[0], tau[-1]) == (followed.cursors[0], followed.cursors[-1])
    assert np.all(np.diff(tau) >= 0.0)
    np.testing.assert_array_equal(w[:-1:2], followed.path.at(tau[:-1:2]))


def test_all_that_fits_lies_on_the_line():
    scene = scene_of()
    ends = np.transpose(VIEW.data(scene)["fits"])
    direction = np.linalg.svd(X)[2][-1]
    np.testing.assert_allclose(X @ direction, 0.0, atol=1e-12)
    drawn = ends[1] - ends[0]
    seen = direction @ scene.sight.projection
    assert abs(drawn[0] * seen[1] - drawn[1] * seen[0]) < 1e-12 * np.linalg.norm(drawn)


def test_the_words_follow_the_numbers():
    scene = scene_of(moment=50)
    text = VIEW.text(scene)
    assert f"τ = **{scene.tau:.3g}**" in text
    assert "rests at **w = (0.8, 0, 0)**" in text
    assert "The flow from 1e-10 is at" in text
    assert "w₁ wakes (+) at 1, w₁ falls asleep (+) at 4, w₂ wakes (+) at 4, w₃ wakes (-)" in text
    assert re.search(r"4 stages, certified, to the limit; zeta leaves its bounds by \d", text)
    assert "rests at **w = (0, 0, 0)**" in VIEW.text(scene_of(moment=0))
    assert "from 1e-1000 " in VIEW.text(scene_of(log_scale=-1000.0))


@pytest.mark.parametrize(
    "changed", [{}, {"log_scale": -1000.0, "angle": 152.0}, {"log_scale": -1.3, "moment": 7}]
)
def test_copied_code_gives_the_same_numbers(changed, monkeypatch):
    chosen = DEFAULTS | changed
    scene = VIEW.scene(chosen)
    names = run_script(VIEW.code(chosen), monkeypatch)
    np.testing.assert_array_equal(names["path"].w, scene.followed.path.w)
    np.testing.assert_array_equal(names["tau"], scene.followed.tau)
    np.testing.assert_array_equal(names["w"], scene.followed.w)
    np.testing.assert_array_equal(names["w"][names["now"]], scene.flow_now)
