"""Width and matrices: flows that fit, words that follow from the numbers."""

import re
from dataclasses import replace

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.explorer.view import settings_of
from flowbias.apps.explorer.views import matrices
from flowbias.apps.explorer.views.matrices import RESIDUAL, MatricesView, width_of
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

VIEW = MatricesView()


def settings(**changes):
    return settings_of(VIEW.controls, {}) | changes


def scene_of(**changes):
    return VIEW.scene(settings(**changes))


def test_the_end_of_the_flow_fits_what_is_seen_and_lies_by_its_limit():
    scene = scene_of(log_alpha=-1.0, log_width=3.0)
    seen = scene.mask
    assert seen.sum() == 60
    size = np.linalg.norm(scene.truth[seen])
    assert np.linalg.norm((scene.end.M - scene.truth)[seen]) <= RESIDUAL * size
    net = fb.MatrixFactorization.gaussian((10, 10), width=1000, scale=0.1, rng=0)
    exact = fb.limit(net, scene.seen.problem)
    # What is left of the residual, times the conditioning of a start as large as this.
    assert np.linalg.norm(scene.end.M - exact.M) <= 100 * RESIDUAL * size


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"log_alpha": -2.0, "log_width": 6.0}, "**kernel** regime"),
        (
            {"log_alpha": -3.0, "log_width": 3.0, "seed": 1},
            "**rich** regime. The truth is recovered",
        ),
        ({"log_alpha": -1.5, "log_width": 2.5}, "between the regimes"),
        ({"log_alpha": 0.0, "log_width": 3.0}, "of size α²√k = 32: that is not small"),
    ],
)
def test_words_follow_the_numbers(changes, says):
    pytest.importorskip("cvxpy")
    scene = scene_of(**changes)
    text = VIEW.text(scene)
    assert says in text
    assert "not a certificate" in text
    unseen = ~scene.mask
    size = np.linalg.norm(scene.truth[unseen])
    assert scene.moved == pytest.approx(
        np.linalg.norm((scene.end.M - scene.end.start)[unseen]) / size
    )
    assert scene.off == pytest.approx(np.linalg.norm((scene.end.M - scene.truth)[unseen]) / size)
    assert ("kernel" in says) == (scene.moved <= 0.05)
    assert ("recovered" in says) == (scene.off <= 0.05)
    assert ("rich" in says) == (scene.excess <= 0.05)
    level = 10.0 ** (2 * changes["log_alpha"]) * width_of(changes["log_width"])
    assert f"α²k = {level:.2g}" in text


def test_the_extremes_bound_the_nuclear_norm():
    pytest.importorskip("cvxpy")
    scene = scene_of(log_alpha=-1.5, log_width=2.5)
    least = np.linalg.norm(scene.least_nuclear, "nuc")
    most = np.linalg.norm(scene.seen.zero_filled, "nuc")
    share = (np.linalg.norm(scene.end.M, "nuc") - least) / (most - least)
    assert scene.excess == pytest.approx(share)
    assert 0.0 < share < 1.0
    np.testing.assert_array_equal(scene.seen.zero_filled == 0.0, ~scene.mask)


def test_a_least_nuclear_norm_that_is_not_the_truth_is_said_to_be_none():
    pytest.importorskip("cvxpy")
    scene = scene_of(log_alpha=-1.0, log_width=6.0, rank=3, observed=40)
    there = replace(scene, end=scene.end._replace(M=scene.least_nuclear))
    assert there.excess == pytest.approx(0.0, abs=1e-9)
    assert "**rich** regime. The least nuclear norm is not the truth here" in VIEW.text(there)
    truth = replace(scene, end=scene.end._replace(M=scene.truth))
    assert truth.excess > 0.05
    assert "rich" not in VIEW.text(truth)
    assert "The truth is recovered" in VIEW.text(truth)


def test_an_end_beyond_both_extremes_is_not_said_to_lie_between_them():
    pytest.importorskip("cvxpy")
    scene = scene_of(log_alpha=-2.0, log_width=2.0)
    assert "That is between the regimes" in VIEW.text(replace(scene, end=between(scene, 0.5)))
    beyond = replace(scene, end=between(scene, 1.5))
    assert beyond.excess > 1.0
    assert "neither regime, nor between them" in VIEW.text(beyond)


def between(scene, share):
    """An end on the line through the least nuclear norm and the least Frobenius norm."""
    M = scene.least_nuclear + share * (scene.seen.zero_filled - scene.least_nuclear)
    return scene.end._replace(M=M, start=np.zeros_like(M) + 1.0)


def test_without_its_solver_the_page_says_what_to_install(monkeypatch):
    def absent(*_, **__):
        raise ImportError("nuclear_norm needs cvxpy. Install the extra `sdp`.")

    monkeypatch.setattr(matrices, "nuclear_norm", absent)
    # Kept results are of this data and solver; 31 is used nowhere else.
    scene = scene_of(seed=31, log_alpha=-1.5, log_width=2.5)
    assert scene.excess is None
    assert "extra `sdp`" in VIEW.text(scene)
    assert "cannot be said" in VIEW.text(scene)
    Shown(VIEW, scene)


def test_pictures_show_the_matrices_the_right_way_up():
    scene = scene_of(log_alpha=-1.0, log_width=6.0)
    maps, spectra = Shown(VIEW, scene).figures
    cells, crosses = (one.data_source.data for one in maps.renderers[:2])
    of = {
        (int(x), int(y)): value
        for x, y, value in zip(*(cells[k] for k in ("x", "y", "value")), strict=True)
    }
    assert len(of) == 260
    assert of[0, 9] == scene.truth[0, 0]
    assert of[3, 9] == scene.truth[0, 3]
    assert of[24, 0] == scene.end.M[9, 0]
    for row, col in np.argwhere(scene.mask):
        assert of[12 + col, 9 - row] == scene.truth[row, col]
    hidden = set(zip(crosses["x"].tolist(), crosses["y"].tolist(), strict=True))
    assert hidden == {(12 + col, 9 - row) for row, col in np.argwhere(~scene.mask)}
    spectra = [one.data_source.data["y"] for one in spectra.renderers]
    np.testing.assert_allclose(spectra[-1], np.linalg.svd(scene.end.M, compute_uv=False))
    np.testing.assert_allclose(spectra[0], np.linalg.svd(scene.truth, compute_uv=False))


@pytest.mark.parametrize("wanted", [{"log_alpha": -1.0}, {"log_width": 6.0, "rank": 2, "seed": 3}])
def test_code_makes_the_same_numbers(wanted, monkeypatch):
    names = run_script(VIEW.code(settings(**wanted)), monkeypatch)
    scene = scene_of(**wanted)
    # The same flow: the integrator takes the same steps.
    np.testing.assert_allclose(names["M"], scene.end.M, rtol=0, atol=1e-9)
    assert re.search(r"width=\d+,", VIEW.code(settings(**wanted)))


def test_warming_up_has_the_solver_ready():
    matrices._least_nuclear.cache_clear()
    matrices.load_solver.cache_clear()
    VIEW.warm_up()
    VIEW.warm_up()
    assert matrices._least_nuclear.cache_info().misses == 1
