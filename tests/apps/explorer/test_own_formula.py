"""Your formula: verdicts, limits and level sets of what readers type."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.explorer.typed_parametrization import TypedFunction, UnfinishedError, section_of
from flowbias.apps.explorer.view import settings_of
from flowbias.apps.explorer.views import own_formula
from flowbias.apps.explorer.views.own_formula import OwnFormulaView
from flowbias.derive.report import Report
from flowbias.derive.verdict import Verdict
from flowbias.ground import torch
from flowbias.ground.arguments import InputError
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

pytest.importorskip("torch")
VIEW = OwnFormulaView()


def settings(**changes):
    return settings_of(VIEW.controls, {}) | changes


@cache
def scene_of(**changes):
    return VIEW.scene(settings(**changes))


def test_squares_have_the_limit_of_the_diagonal_net():
    scene = scene_of()
    assert scene.report.verdict is Verdict.MIRROR_FLOW
    expected = fb.limit(fb.DiagonalNet(depth=2, scale=10.0**-0.5), [[1.0, 2.0]], [1.0])
    # The derived potential is integrated to about 1e-10.
    np.testing.assert_allclose(scene.solution.w, expected.w, atol=1e-8)
    np.testing.assert_allclose(scene.trajectory.w[-1], expected.w, atol=1e-5)
    text = VIEW.text(scene)
    assert "w = `u^2 - v^2`: **mirror flow**" in text
    assert "CERTIFIED" in text
    assert "commuting: yes" in text


def test_the_section_is_the_potential_of_the_closed_form():
    function = TypedFunction.of("u^2 - v^2", 1)
    section = section_of(function, function.start(10.0**-0.5, 1.0), (-1.0, 2.0))
    potential = fb.DiagonalNet(depth=2, scale=10.0**-0.5).potential
    knots = section.x
    assert knots[0] < -0.7
    assert knots[-1] > 1.5
    slopes = potential.grad(knots) - potential.grad(np.zeros(1))
    # z here is counted in J J^T = (Hess Q)^-1: proportional to the gradient of any potential.
    ratio = section(knots, 1)[knots != 0.0] / slopes[knots != 0.0]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-8)
    w = np.linspace(knots[0], knots[-1], 50)
    values = ratio[0] * (potential.value_terms(w) - potential.value_terms(np.zeros(1)))
    # Cubic pieces between 15 points: what an eye can see is 1e-2 of the largest.
    np.testing.assert_allclose(section(w), values, atol=2e-3 * values.max())


def test_the_limits_own_level_touches_the_line_of_solutions():
    scene = scene_of()
    (own,) = scene.own_levels
    misfit = own @ scene.problem.X[0] - scene.problem.y[0]
    # One side only, and as near as the grid of 81 points allows.
    spread = np.ptp(own)
    assert misfit.max() <= 0.01 * spread
    assert misfit.max() >= -0.01 * spread
    nearest = own[np.argmax(misfit)]
    np.testing.assert_allclose(nearest, scene.end, atol=0.1 * spread)


def test_one_neuron_is_mirror_flow_after_a_time_warp():
    scene = scene_of(formula="a*u", log_scale=0.0)
    assert scene.report.verdict is Verdict.WARPED
    assert scene.levels == ()
    text = VIEW.text(scene)
    assert "share a parameter" in text
    expected = fb.limit(fb.Neuron(a=1.0, w=np.ones(2)), [[1.0, 2.0]], [1.0])
    np.testing.assert_allclose(scene.solution.w, expected.w, atol=1e-8)


def test_without_a_potential_the_flow_is_followed_and_not_called_certified():
    scene = scene_of(formula="a*u + b*u*v", equations="1, 2, 0.5 = 1", ratio=0.7)
    assert scene.report.potential is None
    assert scene.solution is None
    text = VIEW.text(scene)
    assert "not a certificate" in text
    assert "CERTIFIED" not in text
    assert "three coefficients" in text
    np.testing.assert_allclose(scene.problem.X @ scene.end, scene.problem.y, atol=1e-5)
    Shown(VIEW, scene)


def test_a_flow_that_is_only_followed_is_said_to_be():
    scene = scene_of(solve="follow")
    assert scene.solution is None
    assert "not a certificate" in VIEW.text(scene)
    np.testing.assert_array_equal(scene.end, scene.trajectory.w[-1])


def test_equations_out_of_reach_are_not_compared_with_what_fits():
    scene = scene_of(formula="u^2", equations="1, 2 = -1")
    assert not scene.fits
    assert scene.solution is None
    text = VIEW.text(scene)
    assert "does **not** come to fit" in text
    assert "**mirror flow**" in text
    assert "regime" not in text
    Shown(VIEW, scene)


def _too_long(*_, **__):
    raise UnfinishedError


def test_what_takes_too_long_is_given_up_and_said(monkeypatch):
    start = {"equations": "2, 1 = 1"}
    with monkeypatch.context() as patched:
        # A limit takes less than the flow, which is followed first: no formula ends in between.
        patched.setattr(Report, "limit", _too_long)
        scene = VIEW.scene(settings(formula="u^3 - v^3", **start))
    assert scene.unfinished == ("the certified limit",)
    assert "the certified limit." in VIEW.text(scene)
    assert "not a certificate" in VIEW.text(scene)
    monkeypatch.setattr(own_formula, "MOST_NODES", 1_000)
    scene = VIEW.scene(settings(formula="v^2 - u^2", **start))
    assert scene.report is None
    assert scene.unfinished == ("the tests of the formula", "the level sets")
    assert "**no verdict**" in VIEW.text(scene)
    np.testing.assert_allclose(scene.problem.X @ scene.end, scene.problem.y, atol=1e-5)
    Shown(VIEW, scene)
    monkeypatch.setattr(own_formula, "MOST_NODES", 50)
    with pytest.raises(InputError, match="a flow that can be followed within 150 evaluations"):
        VIEW.scene(settings(formula="v^2 - u^2", **start))


def test_a_limit_that_is_not_certified_is_not_the_end():
    scene = scene_of()
    stalled = replace(scene.solution, status=fb.Status.STALLED, w=scene.solution.w + 1.0)
    shown = replace(scene, solution=stalled)
    np.testing.assert_array_equal(shown.end, scene.trajectory.w[-1])
    text = VIEW.text(shown)
    assert "not a certificate" in text
    assert "A certified limit was not found: not certified" in text


def test_one_predictor_may_have_both_least_norms():
    scene = scene_of(formula="u", equations="1, 1 = 1", solve="follow")
    text = VIEW.text(scene)
    assert "Within 1% of both least norms." in text
    assert "Several predictors have the least l1 norm" in text


def test_two_readers_do_not_mix_up_their_derivatives():
    own_formula._derived.cache_clear()
    texts = [f"u^2 - {k}*v^2" for k in range(2, 8)]
    with ThreadPoolExecutor(2) as pool:
        found = list(
            pool.map(lambda text: VIEW.scene(settings(formula=text, solve="follow")), texts)
        )
    assert [scene.report.verdict for scene in found] == [Verdict.MIRROR_FLOW] * 6


def test_levels_that_cannot_be_followed_are_not_drawn():
    scene = scene_of(equations="1, 2 = 1e6", solve="follow")
    assert scene.levels == ()
    assert "could not be followed far enough" in VIEW.text(scene)


def test_warming_up_loads_torch_and_survives_its_absence(monkeypatch):
    own_formula._derived.cache_clear()
    own_formula.load_torch.cache_clear()
    VIEW.warm_up()
    assert own_formula._derived.cache_info().currsize == 1

    def absent():
        raise ImportError("torch is not installed.")

    monkeypatch.setattr("flowbias.derive.parametrization.require_torch", absent)
    own_formula._derived.cache_clear()
    own_formula.load_torch.cache_clear()
    VIEW.warm_up()
    own_formula.load_torch.cache_clear()


def test_pictures_hold_the_scene():
    scene = scene_of(solve="follow")
    shown = Shown(VIEW, scene)
    plane, times = shown.figures
    assert shown.columns("window") == {"x": scene.window, "y": scene.window}
    assert plane.x_range.renderers == shown.marks("window")
    # A legend names what is drawn: no third coefficient here.
    assert [item.visible for item in times.legend[0].items] == [True, True, False]
    data = {
        one.glyph.marker: one.data_source.data
        for one in plane.renderers[1:]
        if hasattr(one.glyph, "marker")
    }
    assert (data["circle"]["x"][0], data["circle"]["y"][0]) == tuple(scene.end)
    curves = [one.data_source.data["y"] for one in times.renderers]
    np.testing.assert_array_equal(curves[1], scene.trajectory.w[1:, 1])
    assert len(curves[2]) == 0
    on_line = scene.line @ scene.problem.X[0]
    np.testing.assert_allclose(on_line, scene.problem.y[0], atol=1e-9)
    np.testing.assert_array_less(scene.end, scene.window[1])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"formula": "__import__"}, "column 1: unknown name"),
        ({"formula": "u.data"}, "column 2"),
        ({"equations": "1, x = 2"}, "equation 1"),
        ({"formula": "u*0 + v*0"}, "theta0: must be a point where dF/dtheta has rank 2"),
        ({"formula": "sqrt(u - 9)"}, "F: "),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(changes, says):
    with pytest.raises(InputError) as refusal:
        scene_of(**changes)
    assert says in str(refusal.value)


def test_without_torch_the_page_says_which_extra(monkeypatch):
    def absent():
        raise ImportError("torch is not installed. Install the extra `nets`.")

    monkeypatch.setattr("flowbias.derive.parametrization.require_torch", absent)
    own_formula._derived.cache_clear()
    with pytest.raises(InputError, match=r"formula: .*extra `nets`"):
        scene_of(formula="u^2 - 3*v^2")
    assert torch.require_torch() is not None


@pytest.mark.parametrize(
    "wanted",
    [{}, {"formula": "exp(u)", "log_scale": 0.0, "solve": "follow"}],
)
def test_code_makes_the_same_numbers(wanted, monkeypatch):
    names = run_script(VIEW.code(settings(**wanted)), monkeypatch)
    scene = scene_of(**wanted)
    assert names["report"].verdict is scene.report.verdict
    np.testing.assert_allclose(names["trajectory"].w[-1], scene.trajectory.w[-1], atol=1e-9)
    assert ("sol" in names) == (scene.solution is not None)
    if scene.solution is not None:
        np.testing.assert_allclose(names["sol"].w, scene.solution.w, atol=1e-9)
