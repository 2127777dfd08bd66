"""Steps: a descent ends at the limit of its effective start, and the words say how near."""

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.explorer.view import settings_of
from flowbias.apps.explorer.views.planted_data import population_error
from flowbias.apps.explorer.views.steps import EXAMPLE, StepsView, planted_of
from flowbias.ground.arguments import InputError
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

VIEW = StepsView()


def settings(**changes):
    return settings_of(VIEW.controls, {}) | changes


def scene_of(**changes):
    return VIEW.scene(settings(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch": EXAMPLE.n},
        {"log_step": -0.5, "batch": 5},
        {"log_scale": -2.0, "log_step": -0.5},
    ],
    ids=str,
)
def test_the_end_is_the_limit_of_the_effective_start_and_not_of_the_nominal_one(changes):
    run = scene_of(**{"batch": 2, **changes}).run
    assert run.status.name == "CONVERGED"
    effective = fb.limit(run.effective_start, run.problem)
    size = np.linalg.norm(effective.w)
    # The residual is 1e-10 of y at most, and X takes no more than a factor of ten to w.
    assert np.linalg.norm(run.w - effective.w) <= 1e-8 * size
    assert np.linalg.norm(run.w - run.limit.w) >= 1e-4 * size


def test_smaller_batches_and_larger_steps_shrink_the_start_more():
    def smallest(**changes):
        return float(scene_of(**changes).shrunk.min())

    whole, some, one = (smallest(batch=batch) for batch in (EXAMPLE.n, 5, 1))
    assert one < some < whole < 1.0
    assert smallest(batch=5, log_step=-0.6) < some


def test_scales_are_those_of_the_effective_start():
    scene = scene_of()
    log_scale = scene.exponent * np.log(10.0)
    plus, minus = (np.abs(part) for part in scene.run.effective_start.initial_parameters())
    # The potential's scale is the product of both sides.
    np.testing.assert_allclose(np.sqrt(plus * minus) / np.exp(log_scale), scene.shrunk, rtol=1e-9)


def test_the_words_follow_the_numbers():
    scene = scene_of()
    text, run = VIEW.text(scene), scene.run
    assert "Steps of 1e-1 on batches of 1, from scale 3.2e-1, end" in text
    assert f"**{run.explained.nominal:.1e}** (relatively) from the limit" in text
    assert f"**{run.explained.distance:.1e}** from that" in text
    assert run.message in text
    assert f"from {scene.shrunk.min():.2g} to {scene.shrunk.max():.2g} times" in text
    w_true = planted_of(settings()).draw().w_true
    assert f"Population error: {population_error(run.w, w_true):.2g} at the end" in text
    assert "on all samples" in VIEW.text(scene_of(batch=EXAMPLE.n))
    assert "certified" in text


def test_steps_that_are_too_large_are_refused_with_what_is_stable():
    with pytest.raises(InputError, match=r"step: must be smaller, got 1e0\. It diverged after"):
        scene_of(log_step=0.0)


def test_pictures_hold_the_three_ends():
    scene = scene_of()
    shown, run = Shown(VIEW, scene), scene.run
    each = {"end": run.w, "nominal": run.limit.w, "effective": run.effective_limit.w}
    for name, w in each.items():
        np.testing.assert_array_equal(shown.columns(name)["y"], w)
    np.testing.assert_array_equal(shown.columns("residual")["y"], run.residual)
    assert list(shown.columns("shrunk")["x"]) == list(range(1, len(run.w) + 1))


@pytest.mark.parametrize("changes", [{}, {"batch": EXAMPLE.n, "log_step": -0.6}], ids=str)
def test_the_code_gives_the_same_descent(changes, monkeypatch):
    made = run_script(VIEW.code(settings(**changes)), monkeypatch)
    run = scene_of(**changes).run
    assert made["run"].steps == run.steps
    # The same steps; products of another shape may round otherwise.
    np.testing.assert_allclose(made["run"].w, run.w, atol=1e-8)
