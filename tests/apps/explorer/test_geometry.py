"""Geometry: the limit lies on the line, the path leads to it, its level set touches the line."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowbias.apps.explorer.view import settings_of
from flowbias.apps.explorer.views.geometry import (
    GeometrySpaceView,
    GeometryView,
    level_curves,
    levels_in_plane,
)
from flowbias.apps.explorer.views.space import (
    DiagonalStart,
    direction,
    follow,
    kernel_of,
    projection,
    scale_stops,
    shown_reach,
)
from flowbias.flows import flow
from tests.apps.explorer.scripts import run_script

VIEW, SPACE = GeometryView(), GeometrySpaceView()


def plane_scene(**changes):
    return VIEW.scene(settings_of(VIEW.controls, {}) | changes)


def space_scene(**changes):
    return SPACE.scene(settings_of(SPACE.controls, {}) | changes)


STARTS = st.builds(
    DiagonalStart,
    scale=st.floats(-8, 1).map(lambda exponent: 10.0**exponent),
    depth=st.just(2),
    shape=st.floats(-0.9, 0.9),
    first=st.floats(-1.5, 1.5),
)


@given(start=STARTS, angle=st.floats(1, 179), y=st.floats(0.2, 2))
@settings(deadline=None, max_examples=15)
def test_the_path_leads_from_the_start_to_a_solution(start, angle, y):
    ends = follow(start, direction(angle), y)
    size = np.abs(ends.solution.w).max()
    assert ends.solution.certificate.ok
    # A certified limit satisfies its equation to 1e-10; the path is computed in doubles.
    assert abs(ends.x @ ends.solution.w - y) <= 1e-9 * size
    np.testing.assert_allclose(ends.path[-1], ends.solution.w, atol=1e-6 * size)
    np.testing.assert_allclose(ends.path[0], [start.first, 0.0], atol=1e-9 * (1 + start.scale**2))
    # The loss only falls: <x, w> goes straight from where it starts to y.
    assert np.all(np.diff(ends.path @ ends.x) * (y - ends.path[0] @ ends.x) >= -1e-9 * size**2)


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("first", [0.0, 0.7])
def test_the_path_is_that_of_the_integrated_flow(depth, first):
    start = DiagonalStart(0.2, depth, 0.0, first)
    ends = follow(start, direction(60.0), 1.0)
    integrated = flow(start.model(2), ends.x[np.newaxis], np.array([1.0])).w[::8]
    heights = ends.path @ ends.x
    for point in integrated:
        found = [np.interp(point @ ends.x, heights, ends.path[:, i]) for i in range(2)]
        # Linear between 200 points of the path.
        np.testing.assert_allclose(found, point, atol=2e-3)


def test_without_a_dual_in_doubles_the_path_goes_through_limits_of_smaller_targets():
    start = DiagonalStart(1e-30, 3, 0.0, 0.0)
    ends = follow(start, direction(60.0), 1.0)
    assert len(ends.path) == 2 + 3
    np.testing.assert_allclose(ends.path @ ends.x, [0.0, 0.25, 0.5, 0.75, 1.0], atol=1e-9)


@pytest.mark.parametrize("log_scale", [1.0, -1.0, -3.0, -100.0])
@pytest.mark.parametrize(("depth", "start"), [(2.0, 0.0), (2.0, 0.7), (4.0, 0.0)])
def test_the_level_of_the_limit_touches_the_line(log_scale, depth, start):
    """On the line the regularizer is nowhere below its value at the limit."""
    scene = plane_scene(log_scale=log_scale, depth=depth, start=start)
    ends = scene.ends
    own = float(ends.terms(ends.solution.w).sum())
    along = np.linspace(-1.0, 1.0, 401)[:, None] * np.array([-ends.x[1], ends.x[0]])
    heights = ends.terms(ends.solution.w + along).sum(axis=1)
    assert heights.min() >= own - 1e-9 * abs(own)
    assert heights[[0, -1]].min() > own
    gap = min(np.hypot(*(curve - ends.solution.w).T).min() for curve in scene.own_levels)
    # Vertices of a curve are at most a cell of the grid apart.
    assert gap <= 2.0 * scene.sight.reach * 2.0 / 160
    # To the one side of the line: the level set touches it and does not cross.
    assert max((curve @ ends.x).max() for curve in scene.own_levels) <= ends.y + 1e-2


def test_level_sets_are_drawn_on_every_share():
    ends = plane_scene().ends
    own, others = level_curves(ends, 1.7)
    heights = [float(ends.terms(curve[0]).sum()) for curve in others]
    assert len(own) == 1
    assert heights == sorted(heights)
    for curve in (*own, *others):
        values = ends.terms(curve).sum(axis=1)
        # Linear interpolation between nodes of the grid.
        np.testing.assert_allclose(values, values.mean(), rtol=2e-2)


def test_large_starts_go_to_least_l2_and_small_ones_to_least_l1():
    at = {}
    for exponent in (2.0, -0.5, -100.0):
        ends = plane_scene(log_scale=exponent).ends
        at[exponent] = ends.extremes.ratios(ends.solution.w)
    # The potential at scale 1e2 is quadratic up to (w / scale^2)^2; that at 1e-100 is l1 to 1/460.
    assert at[2.0][1] < 1.0 + 1e-6
    assert at[-100.0][0] < 1.0 + 1e-6
    assert min(at[-0.5]) > 1.01


def test_the_words_follow_the_numbers():
    def words(**changes):
        return VIEW.text(plane_scene(**changes))

    assert "**kernel** regime" in words(log_scale=2.0)
    assert "**rich** regime" in words(log_scale=-20.0)
    assert "between the two regimes" in words(log_scale=-0.5)
    assert "two extremes agree" in words(angle=90.0)
    assert "Several predictors have the least l1 norm" in words(angle=45.0)
    assert "shape 0.5" in words(shape=0.5)
    assert "shape slider is for depth 2 alone" in words(depth=3, shape=0.5)
    assert "starts at w = (0.5, 0)" in words(start=0.5)
    # From elsewhere than 0 the limit need not lie between the two extremes: here it is (2, 0).
    biased = words(start=0.5, log_scale=-20.0)
    assert "Its l1 norm is 1.73 times the least possible" in biased
    assert "its l2 norm 2 times" in biased
    assert "neither regime, nor between them" in biased
    assert "**rich** regime" in words(start=-0.5, log_scale=-20.0)
    assert re.search(r"certified, within \de-1\d of the exact limit", words())
    # At depth 6 the small coefficient is 1e-60, and bounded all the same.
    bounded = r"certified, within \de-\d+ of the exact limit"
    assert re.search(bounded, words(depth=6, log_scale=-10.0))
    assert re.search(bounded, SPACE.text(space_scene(depth=6, log_scale=-10.0)))


def test_the_shape_is_for_depth_two():
    at = {shape: plane_scene(shape=shape).ends.solution.w for shape in (0.0, 0.8, -0.8)}
    assert np.abs(at[0.8] - at[0.0]).max() > 1e-3
    np.testing.assert_allclose(at[0.8], at[-0.8], rtol=1e-9)
    deep = [plane_scene(depth=3, shape=shape).ends.solution.w for shape in (0.0, 0.8)]
    np.testing.assert_array_equal(*deep)


def test_everything_is_inside_what_is_shown():
    for angle in (0.0, 45.0, 90.0, 135.0):
        scene = plane_scene(angle=angle, y=2.0, start=-1.5, log_scale=-3.0)
        points = [
            scene.ends.solution.w,
            scene.ends.extremes.rich,
            scene.ends.extremes.kernel,
            *scene.ends.path,
        ]
        assert np.abs(points).max() < scene.sight.reach
    assert shown_reach(np.array([0.1, 0.2])) == 1.7


def test_scales_rise_without_gaps_and_end_at_1e_100():
    stops = np.array(scale_stops())
    assert (stops[0], stops[-1]) == (-100.0, 2.0)
    assert np.all(np.diff(stops) > 0.05)
    assert np.all(np.diff(stops)[stops[:-1] >= -6.0] < 0.11)


# --- in space ----------------------------------------------------------------------------------


@pytest.mark.parametrize("log_scale", [0.0, -2.0, -50.0])
def test_level_curves_lie_in_the_plane_and_around_the_limit(log_scale):
    scene = space_scene(log_scale=log_scale)
    ends = scene.ends
    own = float(ends.terms(ends.solution.w).sum())
    assert len(scene.levels) >= 5
    for curve in scene.levels:
        np.testing.assert_allclose(curve @ ends.x, 1.0, atol=1e-9)
        assert np.all(ends.terms(curve).sum(axis=1) > own)
    np.testing.assert_allclose(scene.fits @ ends.x, 1.0, atol=1e-9)


def test_curves_are_level():
    ends = space_scene(log_scale=0.0).ends
    own = float(ends.terms(ends.solution.w).sum())
    for curve in levels_in_plane(ends, 1.0):
        rise = ends.terms(curve).sum(axis=1) - own
        # Linear interpolation between nodes of the grid; the innermost curves have few of them.
        np.testing.assert_allclose(rise, rise.mean(), rtol=0.15)


@given(x=st.tuples(*[st.floats(-1.5, 1.5)] * 3).filter(lambda x: np.linalg.norm(x) > 0.05))
def test_a_plane_is_orthogonal_to_its_equation(x):
    rows = kernel_of(np.array([x]))
    np.testing.assert_allclose(rows @ rows.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(rows @ np.array(x), 0.0, atol=1e-12)


@pytest.mark.parametrize("azimuth", [0.0, 36.0, 200.0])
def test_a_projection_keeps_lengths_across_the_line_of_sight(azimuth):
    seen = projection(azimuth)
    np.testing.assert_allclose(seen.T @ seen, np.eye(2), atol=1e-12)
    # The third axis points upwards, and from azimuth 0 the second one to the right.
    assert seen[2, 0] == 0.0
    assert seen[2, 1] > 0.0
    assert projection(0.0)[1, 0] == 1.0


def test_small_starts_end_at_a_corner_of_space():
    few = space_scene(log_scale=-50.0)
    assert "largest: 1 of 3" in SPACE.text(few)
    np.testing.assert_allclose(few.ends.solution.w, [0.0, 1.0, 0.0], atol=1e-6)
    assert "largest: 3 of 3" in SPACE.text(space_scene(log_scale=1.0))


def test_an_equation_without_features_gets_one():
    scene = space_scene(first=0.0, second=0.0, third=0.0)
    assert scene.ends.solution.certificate.ok


# --- the code that makes the picture -------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"log_scale": -100.0}, {"depth": 3, "start": 0.5, "log_scale": -1.0}, {"shape": 0.5}],
    ids=str,
)
def test_the_code_gives_the_picture_in_the_plane(changes, monkeypatch):
    chosen = settings_of(VIEW.controls, {}) | changes
    made = run_script(VIEW.code(chosen), monkeypatch)
    ends = VIEW.scene(chosen).ends
    np.testing.assert_allclose(made["sol"].w, ends.solution.w, rtol=1e-12)
    np.testing.assert_allclose(made["path"], ends.path, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(made["l1"], ends.extremes.rich)
    np.testing.assert_allclose(made["l2"], ends.extremes.kernel)
    np.testing.assert_allclose(made["level"], ends.terms(ends.solution.w).sum())


@pytest.mark.parametrize("changes", [{}, {"log_scale": -20.0}, {"depth": 3}], ids=str)
def test_the_code_gives_the_picture_in_space(changes, monkeypatch):
    chosen = settings_of(SPACE.controls, {}) | changes
    made = run_script(SPACE.code(chosen), monkeypatch)
    ends = SPACE.scene(chosen).ends
    np.testing.assert_allclose(made["sol"].w, ends.solution.w, rtol=1e-12)
    np.testing.assert_allclose(made["path"], ends.path, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(made["corners"] @ ends.x, 1.0)
