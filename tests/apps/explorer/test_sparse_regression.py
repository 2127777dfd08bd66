"""Sparse regression in the explorer: its numbers by other means, its words by its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowbias.apps.explorer.views import sparse_regression as scenes
from flowbias.apps.explorer.views.sparse_regression import (
    EXPONENTS,
    PATH_EXPONENTS,
    SparseRegressionView,
    SparseScene,
    least_l1,
    place,
)
from flowbias.datasets import sparse_regression
from flowbias.limits import min_norm
from flowbias.problems.regression import Regression
from flowbias.results.solution import Status
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

VIEW = SparseRegressionView()
SMALL = {"n": 12, "d": 30, "sparsity": 2, "noise": 0.1, "depth": 2, "seed": 3}


def scene_at(log_scale: float, **changed: float) -> SparseScene:
    return VIEW.scene(SMALL | {"log_scale": log_scale} | changed)


def small_settings() -> Any:
    return st.fixed_dictionaries(
        {
            "n": st.integers(10, 24),
            "d": st.integers(20, 40),
            "sparsity": st.integers(1, 6),
            "noise": st.sampled_from([0.0, 0.1, 0.5]),
            "depth": st.integers(2, 5),
            "seed": st.integers(0, 50),
        }
    )


def least_l1_norm(X: Any, y: Any) -> float:
    """By the linear program in split variables, certificates and vertices apart."""
    result = scipy.optimize.linprog(np.ones(2 * X.shape[1]), A_eq=np.hstack([X, -X]), b_eq=y)
    return float(result.fun)


def test_limit_at_the_cursor_solves_the_equations_of_woodworth() -> None:
    """X w = y, and arcsinh(w / (2 scale^2)) is a combination of rows."""
    scene = scene_at(-1.0)
    X, y, w_true = sparse_regression(12, 30, 2, 0.01, 3)
    w = scene.at_cursor.w
    np.testing.assert_allclose(X @ w, y, atol=1e-10)
    dual = np.arcsinh(w / (2.0 * 0.1**2))
    combined = X.T @ np.linalg.lstsq(X.T, dual, rcond=None)[0]
    # The certificate is relative to 1e-10; arcsinh' amplifies by at most 1 / (2 scale^2) = 50.
    np.testing.assert_allclose(combined, dual, atol=1e-7)
    assert scene.path.error(w) == pytest.approx(sum((w - w_true) ** 2))


@settings(max_examples=10)
@given(small_settings())
@example({"n": 20, "d": 20, "sparsity": 3, "noise": 0.5, "depth": 2, "seed": 1})
# Here the l1 norm rises by 1e-4 on the way, between 6e-2 and 3e-2.
@example({"n": 18, "d": 20, "sparsity": 2, "noise": 0.1, "depth": 2, "seed": 1})
def test_norms_are_the_least_ones_at_either_end(chosen: dict[str, float]) -> None:
    path = VIEW.scene(chosen | {"log_scale": 0.0}).path
    assert path.uncertified == 0
    l1, l2 = path.extremes.ratios(path.w)
    # Q is |w| (log(|w| / scale^2) - 1) up to scale^2, and least at the limit: the l1 norm of that
    # exceeds the least one by less than log d + 1 over log(1 / scale^2), 1381 at scale 1e-300.
    assert l1[-1] - 1.0 < 0.01
    # The potential at scale 1e2 is quadratic up to (w / scale^depth)^2, 1e-8 at depth 2.
    assert l2[0] - 1.0 < 1e-6


@settings(max_examples=10)
@given(small_settings())
def test_least_l1_is_the_linear_programs(chosen: dict[str, float]) -> None:
    n, d = int(chosen["n"]), int(chosen["d"])
    n = min(n, d - 1)  # beyond it the program has no interpolator to choose
    noise_var = float(chosen["noise"]) ** 2
    X, y, _ = sparse_regression(n, d, int(chosen["sparsity"]), noise_var, int(chosen["seed"]))
    w = least_l1(Regression(X, y))
    np.testing.assert_allclose(X @ w, y, atol=1e-9)
    assert np.abs(w).sum() == pytest.approx(least_l1_norm(X, y), rel=1e-7)


def test_a_dual_that_proves_too_little_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = sparse_regression(12, 30, 2, 0.01, 3)
    problem = Regression(X, y)
    monkeypatch.setattr(scenes, "limit", lambda model, problem, throw: min_norm(problem))
    assert np.abs(least_l1(problem)).sum() == pytest.approx(least_l1_norm(X, y), rel=1e-7)


def test_usually_no_linear_program_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(scenes, "basis_pursuit")
    for seed in range(3):
        X, y, _ = sparse_regression(12, 30, 2, 0.01, seed)
        assert np.isfinite(least_l1(Regression(X, y))).all()


@pytest.mark.parametrize("exponent", set(EXPONENTS) & set(PATH_EXPONENTS))
def test_cursor_and_curves_agree(exponent: float) -> None:
    scene = scene_at(exponent)
    on_path = scene.path.w[PATH_EXPONENTS.index(exponent)]
    # Two certified limits at one scale: each within 1e-10 of the exact one in its potential.
    np.testing.assert_allclose(scene.at_cursor.w, on_path, atol=1e-8)


def test_the_axis_has_every_place_of_the_cursor_in_order() -> None:
    assert EXPONENTS[0] == PATH_EXPONENTS[-1] == -300.0
    assert EXPONENTS[-1] == PATH_EXPONENTS[0] == 2.0
    assert np.diff(place(np.array(EXPONENTS))).min() > 0.0
    control = VIEW.controls[0]
    assert control.grid == EXPONENTS  # type: ignore[union-attr]
    assert set(PATH_EXPONENTS) <= set(EXPONENTS)


def test_a_moving_cursor_keeps_the_path_and_the_curves() -> None:
    shown = Shown(VIEW, scene_at(-1.0))
    kept = {name: shown.columns(name) for name in ("support", "others", "error", "l1", "l2 error")}
    moved = scene_at(-2.0)
    assert moved.path is scene_at(-1.0).path
    shown.show(moved)
    assert all(shown.columns(name) is columns for name, columns in kept.items())
    shown.show(scene_at(-2.0, seed=4))
    assert all(shown.columns(name) is not columns for name, columns in kept.items())


def test_the_first_scene_has_the_numbers_of_the_whole_one() -> None:
    scenes.sweep_of.cache_clear()
    chosen = SMALL | {"log_scale": -1.0}
    first = VIEW.first_scene(chosen)
    whole = VIEW.scene(chosen)
    assert first is not None
    assert first.path is None
    assert whole.path is not None
    # Drawn and solved once: the same objects, not equal ones.
    assert first.w_true is whole.w_true
    assert first.at_cursor is whole.at_cursor
    assert (first.sparsity, first.exponent) == (whole.sparsity, whole.exponent)
    assert VIEW.first_scene(chosen) is None
    assert VIEW.first_scene(chosen | {"log_scale": -2.0}) is None
    assert VIEW.first_scene(chosen | {"depth": 3}) is not None


def test_curves_of_other_data_are_faint_until_their_own_are_there() -> None:
    scenes.sweep_of.cache_clear()
    whole = scene_at(-1.0)
    other = SMALL | {"log_scale": -2.0, "seed": 4}
    first = VIEW.first_scene(other)
    assert first is not None
    shown = Shown(VIEW, whole)
    lines = [
        line
        for figure in shown.figures[:3]
        for line in figure.renderers
        if type(line.glyph).__name__ == "Line"
    ]
    assert len(lines) == 7
    assert not any(line.muted for line in lines)
    along = shown.columns("error")
    shown.show(first)
    assert all(line.muted and line.muted_glyph.line_alpha <= 0.2 for line in lines)
    assert shown.columns("error") is along
    w, point = first.at_cursor.w, shown.columns("error now")
    assert point["x"] == [place(-2.0)]
    assert point["y"] == [np.square(w - first.w_true).sum()]
    # Relative to least norms that are not known yet.
    assert np.isnan([shown.columns(name)["y"] for name in ("l1 now", "l2 now")]).all()
    np.testing.assert_array_equal(shown.columns("w")["y"], w)
    # Back to the data whose curves are still there, and on to those that were waited for.
    for scene in (whole, first, VIEW.scene(other)):
        shown.show(scene)
        assert all(line.muted == (scene is first) for line in lines)
    assert shown.columns("error") is not along


def test_words_say_that_curves_are_still_to_come() -> None:
    scenes.sweep_of.cache_clear()
    chosen = SMALL | {"log_scale": -1.0}
    first = VIEW.first_scene(chosen)
    assert first is not None
    text, whole = VIEW.text(first), VIEW.text(VIEW.scene(chosen))
    assert "23 limits on the curves are being computed; faint curves belong" in text
    assert "being computed" not in whole
    error = f"population error **{np.square(first.at_cursor.w - first.w_true).sum():.3g}**"
    for part in (error, "largest coefficients", "At the cursor: certified"):
        assert part in text
        assert part in whole
    assert "are certified" not in text


def test_pictures_show_the_scene() -> None:
    scene = scene_at(-2.0)
    shown = Shown(VIEW, scene)
    w, path = scene.at_cursor.w, scene.path
    x = float(np.arcsinh(-1.0))
    assert [one.data_source.data["x"] for one in shown.marks("cursor")] == [[x]] * 3
    now = {
        "error": path.error(w),
        "l1": np.abs(w).sum() / np.abs(path.extremes.rich).sum() - 1.0,
        "l2": np.linalg.norm(w) / np.linalg.norm(path.extremes.kernel) - 1.0,
    }
    at = PATH_EXPONENTS.index(-2.0)
    for name, value in now.items():
        now_at = shown.columns(f"{name} now")
        # Sums of thirty terms in another order, of which an excess loses a digit or two.
        assert (now_at["x"], now_at["y"]) == ([x], [pytest.approx(value, rel=1e-12)])
        assert shown.columns(name)["x"][at] == x
        # Two certified limits at one scale.
        assert shown.columns(name)["y"][at] == pytest.approx(value, rel=1e-6)
    assert shown.columns("l1 error")["y"][0] == path.error(path.extremes.rich)
    assert shown.columns("l2 error")["y"][0] == path.error(path.extremes.kernel)
    np.testing.assert_array_equal(shown.columns("w")["y"], w)
    truth = shown.columns("truth")
    np.testing.assert_array_equal(path.w_true[truth["x"] - 1], truth["y"])
    assert len(truth["x"]) == 2


def test_curves_are_split_into_truth_and_others() -> None:
    scene = scene_at(-2.0)
    shown = Shown(VIEW, scene)
    support = np.flatnonzero(scene.path.w_true)
    drawn = shown.columns("support")
    first = slice(0, len(PATH_EXPONENTS))
    np.testing.assert_array_equal(drawn["y"][first], scene.path.w[:, support[0]])
    np.testing.assert_array_equal(drawn["x"][first], place(np.array(PATH_EXPONENTS)))
    assert np.isnan(drawn["y"][len(PATH_EXPONENTS)])
    total = sum(np.isfinite(shown.columns(name)["y"]).sum() for name in ("support", "others"))
    assert total == scene.path.w.size


def test_words_name_the_regime_that_the_norms_are_in() -> None:
    """A norm within a hundredth of the least one counts as having arrived."""
    for exponent in (0.0, -0.25, -0.5, -3.0, -6.0, -8.0, -300.0):
        scene = scene_at(exponent)
        w, least = scene.at_cursor.w, scene.path.extremes
        at_rich = np.abs(w).sum() <= 1.01 * np.abs(least.rich).sum()
        at_kernel = np.linalg.norm(w) <= 1.01 * np.linalg.norm(least.kernel)
        text = VIEW.text(scene)
        found = ("**kernel** regime" in text, "**rich** regime" in text)
        assert found == (at_kernel, at_rich)
        assert (found == (False, False)) == ("between the two regimes" in text)
        wanted = {0.0: (True, False), -3.0: (False, False), -300.0: (False, True)}
        assert found == wanted.get(exponent, found)
    assert "two extremes agree" in VIEW.text(scene_at(-1.0, n=30, d=20))


def test_words_count_what_belongs_to_the_truth() -> None:
    scene = scene_at(-4.0, n=24, noise=0.0)
    assert scene.path.error(scene.at_cursor.w) < 1e-4
    assert "Of its 2 largest coefficients 2 belong" in VIEW.text(scene)
    w = np.where(scene.path.w_true == 0.0, 1.0, 0.0)
    missed = replace(scene, at_cursor=replace(scene.at_cursor, w=w))
    assert "Of its 2 largest coefficients 0 belong" in VIEW.text(missed)


def test_words_say_what_lies_below_the_picture() -> None:
    # More samples than features and no noise: the truth is all that fits.
    exact = VIEW.text(scene_at(-2.0, n=24, d=20, noise=0.0))
    assert "Errors that small lie below the picture." in exact
    assert "below the picture" not in VIEW.text(scene_at(-2.0))


def test_words_say_what_is_proved() -> None:
    scene = scene_at(-1.0)
    text = VIEW.text(scene)
    assert f"All {len(PATH_EXPONENTS)} limits on the curves are certified" in text
    assert f"within {scene.at_cursor.certificate.error_bound:.0e} of the exact limit" in text
    unproved = replace(scene.at_cursor.certificate, error_bound=np.inf)
    stalled = replace(scene.at_cursor, status=Status.STALLED, certificate=unproved)
    path = replace(scene.path, uncertified=3)
    text = VIEW.text(replace(scene, at_cursor=stalled, path=path))
    assert "At the cursor: not certified" in text
    assert "no bound on its distance" in text
    assert "3 of the 23 limits on the curves are not certified" in text


def test_limits_that_failed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = scenes.limit_path

    def half_done(*args: Any, **options: Any) -> Any:
        path = solve(*args, **options)
        failed = replace(path.solutions[0], status=Status.STALLED)
        return replace(path, solutions=(failed, failed, *path.solutions[2:]))

    monkeypatch.setattr(scenes, "limit_path", half_done)
    assert scene_at(-1.0, seed=49).path.uncertified == 2
    scenes.sweep_of.cache_clear()


@pytest.mark.parametrize(
    "changed",
    [
        {"log_scale": -2.0},
        {"log_scale": -0.75, "depth": 4, "noise": 0.35},
        {"log_scale": -300.0, "n": 26, "d": 20},
    ],
)
def test_copied_code_gives_the_same_numbers(
    changed: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = SMALL | changed
    scene = VIEW.scene(chosen)
    names = run_script(VIEW.code(chosen), monkeypatch)
    np.testing.assert_array_equal(names["path"].w, scene.path.w)
    np.testing.assert_array_equal(names["at_cursor"].w, scene.at_cursor.w)
    np.testing.assert_array_equal(names["error"], scene.path.error(scene.path.w))
    # The least l1 norm there is a vertex of the linear program.
    l1, l2 = scene.path.extremes.ratios(scene.path.w)
    np.testing.assert_allclose(names["excess_l1"], l1 - 1.0, atol=1e-9)
    np.testing.assert_allclose(names["excess_l2"], l2 - 1.0, atol=1e-12)
