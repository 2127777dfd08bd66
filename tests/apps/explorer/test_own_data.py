"""Your data: certified limits on files, between the two least norms, and files to take along."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.explorer.view import settings_of
from flowbias.apps.explorer.views.own_data import ARCHIVE, MOST_COEFFICIENTS, OwnDataView
from flowbias.ground.arguments import InputError
from tests.apps.explorer.drawn import Shown
from tests.apps.explorer.scripts import run_script

VIEW = OwnDataView()


def settings(**changes):
    return settings_of(VIEW.controls, {}) | changes


def npz(X, y):
    file = io.BytesIO()
    np.savez(file, X=X, y=y)
    return file.getvalue()


def drawn(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(n)


def test_the_limit_is_that_of_the_library_on_the_file():
    X, y = drawn(8, 15)
    scene = VIEW.scene(settings(file=npz(X, y), log_scale=-2.0, depth=3))
    expected = fb.limit(fb.DiagonalNet(depth=3, scale=1e-2), X, y)
    # Both are certified to 1e-10.
    np.testing.assert_allclose(scene.solution.w, expected.w, atol=1e-8)
    assert scene.solution.certificate.ok
    assert not scene.is_example


def test_ratios_are_those_of_the_norms_to_the_least():
    X, y = drawn(8, 15)
    scene = VIEW.scene(settings(file=npz(X, y)))
    l1, l2 = scene.extremes.ratios(scene.solution.w)
    least_l1 = np.abs(fb.basis_pursuit(X, y).w).sum()
    least_l2 = np.linalg.norm(np.linalg.pinv(X) @ y)
    assert l1 == pytest.approx(np.abs(scene.solution.w).sum() / least_l1, rel=1e-8)
    assert l2 == pytest.approx(np.linalg.norm(scene.solution.w) / least_l2, rel=1e-8)
    assert min(l1, l2) >= 1.0


@pytest.mark.parametrize(
    ("log_scale", "says"),
    [(2.0, "**kernel** regime"), (-100.0, "**rich** regime"), (-1.0, "between the two regimes")],
)
def test_regimes_are_named_where_the_norms_say_so(log_scale, says):
    scene = VIEW.scene(settings(log_scale=log_scale))
    assert says in VIEW.text(scene)
    assert "CERTIFIED" in VIEW.text(scene)
    assert "built-in example" in VIEW.text(scene)
    l1, l2 = scene.extremes.ratios(scene.solution.w)
    assert ("rich" in says) == (l1 <= 1.01)
    assert ("kernel" in says) == (l2 <= 1.01)


def test_data_that_nothing_fits_is_projected_and_explained():
    X, y = drawn(12, 4)
    scene = VIEW.scene(settings(file=npz(X, y)))
    text = VIEW.text(scene)
    assert "PROJECTED" in text
    assert "least-squares" in text
    assert "two extremes agree" in text
    np.testing.assert_allclose(scene.solution.w, np.linalg.pinv(X) @ y, atol=1e-8)


def test_a_limit_of_few_digits_says_so():
    scene = VIEW.scene(settings())
    few = replace(scene, solution=replace(scene.solution, status=fb.Status.FEW_DIGITS))
    assert "FEW_DIGITS: feasibility" in VIEW.text(few)
    assert few.solution.message in VIEW.text(few)


def test_many_minimizers_of_l1_are_said_to_be_many():
    scene = VIEW.scene(settings(file=b"1,1,1\n"))
    assert "Several predictors have the least l1 norm" in VIEW.text(scene)
    assert "Several" not in VIEW.text(VIEW.scene(settings()))


def test_a_distance_is_said_where_there_is_one():
    assert "e-15 of the exact limit." in VIEW.text(VIEW.scene(settings()))
    tiny = VIEW.text(VIEW.scene(settings(file=b"1e-300,2e-300,1e-300\n")))
    assert "of the exact limit." in tiny


def test_zero_outputs_have_a_limit_too():
    scene = VIEW.scene(settings(file=b"1,2,0\n0,1,0\n"))
    assert scene.extremes.ratios(scene.solution.w) == (1.0, 1.0)
    Shown(VIEW, scene)


def test_wide_data_shows_its_largest_coefficients():
    X, y = drawn(10, 200)
    scene = VIEW.scene(settings(file=npz(X, y), log_scale=1.0))
    assert len(scene.shown) == MOST_COEFFICIENTS
    assert "Small coefficients that are not drawn: 140." in VIEW.text(scene)
    together = np.max(
        np.abs([scene.solution.w, scene.extremes.rich, scene.extremes.kernel]), axis=0
    )
    assert together[scene.shown].min() >= np.sort(together)[-MOST_COEFFICIENTS]


def test_pictures_hold_the_three_predictors():
    scene = VIEW.scene(settings())
    bars, plane = Shown(VIEW, scene).figures
    marks = [one.data_source.data for one in bars.renderers if hasattr(one.glyph, "marker")]
    for data, w in zip(
        marks, (scene.extremes.kernel, scene.extremes.rich, scene.solution.w), strict=True
    ):
        np.testing.assert_array_equal(data["y"], w[scene.shown])
    places = [one.data_source.data for one in plane.renderers]
    assert places[0]["y"] == [1.0]
    assert places[1]["x"] == [1.0]
    assert (places[2]["x"][0], places[2]["y"][0]) == scene.extremes.ratios(scene.solution.w)


def test_a_wrong_file_is_refused_and_the_view_goes_on():
    for wrong in (b"1,2,nan\n", b"\x80\x04", b"words"):
        with pytest.raises(InputError, match=r"^file: "):
            VIEW.scene(settings(file=wrong))
    assert VIEW.scene(settings()).is_example


def test_what_was_done_to_a_file_is_said():
    text = VIEW.text(VIEW.scene(settings(file=b"c,a,z\nu,1,2\nv,2,5\nu,3,1\n")))
    assert "y is 'z', the last column; --target takes another." in text
    assert "'c' is 1 for 'v', 0 for 'u'." in text
    # The page has no options.
    assert "Options are those of the command: flowbias limit DATA" in text
    rows = np.random.default_rng(0).normal(size=(9, 2))
    apart = "\n".join(f"{1000 * a},{b},{a - b}" for a, b in rows)
    text = VIEW.text(VIEW.scene(settings(file=apart.encode())))
    assert "which decides what is sparse; --standardize takes that out." in text
    assert "Options" not in VIEW.text(VIEW.scene(settings(file=b"a,b,y\n1,2,3\n")))


def test_downloads_read_back():
    X, y = drawn(6, 9)
    text = "\n".join(
        ",".join(map(repr, map(float, [*row, one]))) for row, one in zip(X, y, strict=True)
    )
    names = ",".join(f"x{i}" for i in range(9))
    scene = VIEW.scene(settings(file=f"{names},y\n{text}\n".encode()))
    files = {one.name: one.content for one in VIEW.downloads(scene)}
    lines = files["flowbias-w.csv"].decode().splitlines()
    assert lines[0] == "feature,w"
    assert [float(line.split(",")[1]) for line in lines[1:]] == scene.solution.w.tolist()
    assert lines[1].startswith("x0,")
    report = json.loads(files["flowbias-report.json"])
    assert report["w"] == scene.solution.w.tolist()
    assert report["status"] == "CERTIFIED"
    assert report["data"] == "upload"
    archive = np.load(io.BytesIO(files[ARCHIVE]), allow_pickle=False)
    np.testing.assert_array_equal(archive["X"], X)
    np.testing.assert_array_equal(archive["w"], scene.solution.w)


def test_code_makes_the_same_numbers(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for wanted in (settings(log_scale=-1.0, depth=3), settings(file=npz(*drawn(6, 9)))):
        scene = VIEW.scene(wanted)
        for one in VIEW.downloads(scene):
            (tmp_path / one.name).write_bytes(one.content)
        names = run_script(VIEW.code(wanted), monkeypatch)
        np.testing.assert_allclose(names["sol"].w, scene.solution.w, atol=1e-9)
        np.testing.assert_allclose(names["rich"].w, scene.extremes.rich, atol=1e-8)
