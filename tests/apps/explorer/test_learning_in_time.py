"""Time in the explorer: the flow by other means, its stages, and words that count them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from flowbias.apps.explorer.views.learning_in_time import LearningInTimeView, Passage, TimeScene
from flowbias.datasets import sparse_regression
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

VIEW = LearningInTimeView()
SMALL = {
    "moment": 50, "log_scale": -4.0, "depth": 2, "n": 16, "d": 20, "sparsity": 3,
    "noise": 0.1, "seed": 1,
}  # fmt: skip


def scene_of(**changed: float) -> TimeScene:
    return VIEW.scene(SMALL | changed)


def drawn_by_hand(t: FloatArray, w: FloatArray, limit: FloatArray) -> Passage:
    """A passage of which only times, predictors and the limit matter."""
    passage = scene_of().passage
    solution = replace(passage.limit, w=limit)
    return replace(passage, t=t, w=w, loss=np.ones(len(t)), w_true=limit, limit=solution)


@pytest.mark.parametrize("depth", [2, 3])
def test_flow_is_that_of_the_weights(depth: int) -> None:
    """Integrate w+ and w- themselves, dw/dt = - grad of half the mean square."""
    passage = scene_of(depth=depth, log_scale=-1.0, seed=2).passage
    X, y, w_true = sparse_regression(16, 20, 3, 0.01, 2)

    def descend(_: float, weights: FloatArray) -> FloatArray:
        plus, minus = weights.reshape(2, -1)
        pull = X.T @ (y - X @ (plus**depth - minus**depth)) / len(y)
        speed = depth * np.stack([plus, minus]) ** (depth - 1)
        return np.ravel(speed * np.stack([pull, -pull]))

    shown = passage.t[:121:20]
    start = np.full(40, 0.1)
    found = solve_ivp(descend, (0.0, shown[-1]), start, "LSODA", shown, rtol=1e-9, atol=1e-12)
    plus, minus = found.y.T.reshape(len(shown), 2, -1).transpose(1, 0, 2)
    w = plus**depth - minus**depth
    # Local errors of 1e-6 of the view's flow, over some hundred steps.
    np.testing.assert_allclose(passage.w[:121:20], w, atol=1e-4)
    np.testing.assert_allclose(passage.error[:121:20], np.sum((w - w_true) ** 2, 1), atol=1e-3)


@settings(max_examples=5)
@given(
    st.fixed_dictionaries(
        {
            "n": st.integers(10, 24),
            "d": st.integers(20, 30),
            "depth": st.just(2),
            "log_scale": st.sampled_from([1.0, 0.0, -2.0, -6.0, -10.0]),
            "noise": st.sampled_from([0.0, 0.1, 0.5]),
            "seed": st.integers(0, 50),
        }
    )
)
def test_loss_falls_all_the_way_to_the_limit(chosen: dict[str, float]) -> None:
    passage = scene_of(**chosen).passage
    size = int(chosen["n"]), int(chosen["d"])
    X, y, _ = sparse_regression(*size, 3, float(chosen["noise"]) ** 2, int(chosen["seed"]))
    losses = [0.5 * np.mean((X @ w - y) ** 2) for w in passage.w]
    # At a residual of 1e-4 the difference X w - y has lost four digits, its square eight.
    np.testing.assert_allclose(passage.loss, losses, rtol=1e-8)
    # Between steps the integrator interpolates to about its tolerance, 1e-6.
    assert np.diff(passage.loss).max() <= 1e-6 * passage.loss[0]
    assert np.all(passage.half_way < len(passage.t))
    # The axis begins a third of the time before a hundredth of the loss at w = 0 is seen to be
    # gone; one step of the integrator may take a few hundredths.
    assert passage.loss[0] >= 0.95 * 0.5 * np.mean(y**2)
    # Residual 1e-4, times the condition of X on these few rows.
    assert passage.distance_to_limit < 1e-2


def test_times_grow_with_the_logarithm_of_the_scale() -> None:
    """At depth 2 small coefficients grow exponentially: waiting times go as log(1/scale)."""
    early, late = (scene_of(log_scale=e, noise=0.0).passage for e in (-5.0, -10.0))
    first = [float(p.t[p.half_way.min()]) for p in (early, late)]
    # log(1/scale) doubles; what is left is the time of the rise itself.
    assert first[1] / first[0] == pytest.approx(2.0, rel=0.1)


def test_times_grow_as_a_power_at_depth_three() -> None:
    early, late = (scene_of(log_scale=e, noise=0.0, depth=3).passage for e in (-2.0, -3.0))
    first = [float(p.t[p.half_way.min()]) for p in (early, late)]
    # 1/scale grows tenfold; samples are 10% apart.
    assert first[1] / first[0] == pytest.approx(10.0, rel=0.15)


def test_small_starts_learn_in_stages_and_large_ones_at_once() -> None:
    assert not scene_of(log_scale=1.0).passage.follow_separately().any()
    assert scene_of(log_scale=-10.0).passage.follow_separately().any()


def test_stages_of_steps_drawn_by_hand() -> None:
    """Steps at samples 10, 30, 20, then two at once; the last coefficient is too small to count."""
    t = np.geomspace(1.0, 100.0, 201)
    limit = np.array([1.0, -2.0, 0.5, 0.4, 0.4, 0.1])
    steps = np.array([10, 30, 20, 40, 40, 0])
    passage = drawn_by_hand(t, np.where(np.arange(201)[:, None] >= steps, limit, 0.0), limit)
    np.testing.assert_array_equal(passage.large, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(passage.half_way, [10, 30, 20, 40, 40])
    # In order of time: 10, 20, 30, 40 follow; the second at 40 does not.
    np.testing.assert_array_equal(passage.follow_separately(), [True, True, True, False])
    for at, count in ((9, 0), (10, 1), (29, 2), (30, 3), (200, 5)):
        text = VIEW.text(TimeScene(passage, at))
        assert f"**{count} of 5** coefficients" in text
    assert "in stages: 3 times" in text


@pytest.mark.parametrize(("slow", "is_separate"), [(0.19, True), (0.21, False)])
def test_half_way_and_a_tenth_on_ramps_drawn_by_hand(slow: float, is_separate: bool) -> None:
    """One coefficient rises evenly; when it is at half the other is at 0.095, or at 0.105."""
    ramp = np.linspace(0.0, 1.0, 201)
    second = np.where(ramp <= 0.5, slow * ramp, ramp)
    passage = drawn_by_hand(np.geomspace(1.0, 2.0, 201), np.stack([ramp, second], 1), np.ones(2))
    np.testing.assert_array_equal(passage.half_way, [100, 101])
    np.testing.assert_array_equal(passage.follow_separately(), [is_separate])


def test_a_coefficient_that_never_comes_is_not_counted() -> None:
    limit = np.ones(3)
    w = np.tile([1.0, 0.05, 0.05], (201, 1))
    passage = drawn_by_hand(np.geomspace(1.0, 2.0, 201), w, limit)
    np.testing.assert_array_equal(passage.half_way, [0, 201, 201])
    assert not passage.follow_separately().any()
    assert "**1 of 3**" in (text := VIEW.text(TimeScene(passage, 200)))
    # One that rises alone rises with nobody.
    assert "together" not in text


def test_words_tell_when_the_error_was_least() -> None:
    scene = scene_of(noise=0.5, sparsity=1, n=14)
    passage = scene.passage
    best = np.argmin(passage.error)
    assert passage.error[best] < 0.9 * passage.error[-1]
    text = VIEW.text(scene)
    assert f"least, {passage.error[best]:.2g}, at time {passage.t[best]:.3g}" in text
    assert f"At time **{passage.t[100]:.3g}** the loss is {passage.loss[100]:.2g}" in text
    assert f"**{passage.error[100]:.2g}**" in text
    assert f"and ends at {passage.error[-1]:.2g}" in text
    assert "is least" not in VIEW.text(scene_of(noise=0.0, n=20))


def test_words_say_what_is_proved_of_the_limit() -> None:
    scene = scene_of()
    bound = scene.passage.limit.certificate.error_bound
    text = VIEW.text(scene)
    assert scene.passage.message in text
    assert f"{scene.passage.distance_to_limit:.1e} (relatively) from its limit" in text
    assert scene.passage.message.startswith("converged")
    assert "Limit: certified: feasibility" in text
    assert f"within {bound:.0e} of the exact limit" in text


@pytest.mark.parametrize(("depth", "lowest"), [(3, -4.0), (4, -2.0)])
def test_scales_whose_times_doubles_cannot_resolve_are_refused(depth: int, lowest: float) -> None:
    with pytest.raises(InputError, match=rf"must be >= 1e{lowest:g} at depth {depth}, got"):
        scene_of(depth=depth, log_scale=lowest - 0.5)
    assert scene_of(depth=depth, log_scale=lowest / 2).passage.limit.status.ok


def test_pictures_show_the_scene_and_keep_it_while_the_cursor_moves() -> None:
    scene = scene_of()
    shown, passage = Shown(VIEW, scene), scene.passage
    kept = {name: shown.columns(name) for name in ("loss", "error", "support", "others", "limit")}
    for name in ("loss", "error"):
        np.testing.assert_array_equal(kept[name]["x"], passage.t)
        np.testing.assert_array_equal(kept[name]["y"], getattr(passage, name))
    np.testing.assert_array_equal(kept["limit"]["y"], passage.limit.w)
    assert np.all(kept["limit"]["x"] > passage.t[-1])
    moved = scene_of(moment=60)
    assert moved.passage is passage
    shown.show(moved)
    # Bokeh alone would send the curves again, for their gaps.
    assert all(shown.columns(name) is columns for name, columns in kept.items())
    assert [one.data_source.data["x"] for one in shown.marks("cursor")] == [[passage.t[120]]] * 2
    np.testing.assert_array_equal(shown.columns("w")["y"], passage.w[120])
    shown.show(scene_of(seed=2))
    assert all(shown.columns(name) is not columns for name, columns in kept.items())


def test_the_cursor_spans_the_axis() -> None:
    assert scene_of(moment=0).at == 0
    assert scene_of(moment=100).at == len(scene_of().passage.t) - 1
    assert VIEW.controls[0].plays  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changed", [{}, {"depth": 3, "log_scale": -0.5, "noise": 0.35}, {"n": 26, "moment": 7}]
)
def test_copied_code_gives_the_same_numbers(
    changed: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = SMALL | changed
    scene = VIEW.scene(chosen)
    names = run_script(VIEW.code(chosen), monkeypatch)
    for name in ("t", "w", "loss", "error"):
        np.testing.assert_array_equal(names[name], getattr(scene.passage, name))
    np.testing.assert_array_equal(names["limit"].w, scene.passage.limit.w)
    assert names["cursor"] == scene.at
