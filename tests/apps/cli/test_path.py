"""`flowbias path` draws, writes and tells the limits of `flowbias.limit_path`."""

import math

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.cli import ExitCode
from flowbias.apps.cli.files import read_data
from flowbias.apps.cli.scales import draw_path, log_scales_between, sweep
from flowbias.ground.drawing import apart
from tests.apps.cli.program import document, invoke


def swept(file, count=12, smallest="1e-6"):
    scales = log_scales_between("1e3", smallest, count)
    return sweep(fb.DiagonalNet(2, 1.0), None, read_data(file), scales, 1e-10)


def test_json_holds_the_path_and_both_ends(npz, data):
    run = invoke("path", npz, "--from", "10", "--to", "1e-400", "--count", "4", "--json")
    assert (run.exit_code, run.stderr) == (ExitCode.ALL_WELL, "")
    told = document(run.stdout)
    expected = np.linspace(math.log(10), -400 * math.log(10), 4)
    np.testing.assert_allclose(told["log_scale"], expected, rtol=1e-14)
    path = fb.limit_path(fb.DiagonalNet(2, 1.0), data.X, data.y, log_scales=told["log_scale"])
    assert told["w"] == path.w.tolist()
    assert told["least_l2"] == fb.min_norm(data.X, data.y).w.tolist()
    # At 1e-400 nothing of the way to the rich limit is left to see.
    np.testing.assert_allclose(told["least_l1"], told["w"][-1], atol=1e-9)


def test_the_order_of_the_ends_does_not_matter(npz):
    words = ("--count", "5", "--json")
    down, up = (
        document(invoke("path", npz, "--from", a, "--to", b, *words).stdout)
        for a, b in (("10", "0.1"), ("0.1", "10"))
    )
    assert down["w"] == up["w"]


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_pictures_are_written_and_repeatable(npz, tmp_path, suffix, head):
    files = [tmp_path / f"{name}.{suffix}" for name in ("one", "two")]
    for file in files:
        run = invoke("path", npz, "--count", "8", "--out", file)
        assert run.exit_code == ExitCode.ALL_WELL
        assert f"written to {file}" in run.stdout
    assert files[0].read_bytes().startswith(head)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_picture_is_drawn_even_if_no_file_is_named(npz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "written to out/path.png" in invoke("path", npz, "--count", "3").stdout
    assert (tmp_path / "out" / "path.png").exists()


def test_json_alone_writes_no_file(npz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke("path", npz, "--count", "3", "--json")
    assert not (tmp_path / "out").exists()


def test_numbers_are_written_to_the_last_digit(csv, tmp_path):
    words = ("path", csv, "--count", "3", "--json", "--out")
    told = document(invoke(*words, tmp_path / "path.csv").stdout)
    header, *lines = (tmp_path / "path.csv").read_text().splitlines()
    assert header.split(",")[3:5] == ["gene 0", "gene 1"]
    assert [[float(x) for x in line.split(",")[3:]] for line in lines] == told["w"]
    invoke(*words, tmp_path / "path.npz")
    with np.load(tmp_path / "path.npz", allow_pickle=False) as written:
        assert written["w"].tolist() == told["w"]
        assert written["least_l1"].tolist() == told["least_l1"]


def test_large_scales_are_on_the_right_and_the_largest_coefficients_are_named(csv):
    path = swept(csv)
    axes = draw_path(path).axes[0]
    ranked = np.argsort(-np.abs(path.w).max(axis=0))
    named = {text.get_text() for text in axes.texts}
    assert named == {f"gene {i}" for i in ranked[:6]}
    curve = next(
        line for line in axes.lines if np.array_equal(line.get_ydata(), path.w[:, ranked[0]])
    )
    assert curve.get_xdata()[0] == pytest.approx(3.0)
    assert curve.get_xdata()[-1] == pytest.approx(-6.0)
    assert axes.get_xlim()[0] < axes.get_xlim()[1]


def test_both_ends_are_marked_beyond_the_curves(csv):
    path = swept(csv)
    axes = draw_path(path).axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    ticks = dict(zip(labels, axes.get_xticks(), strict=True))
    (rich,) = (x for text, x in ticks.items() if "ell_1" in text)
    (kernel,) = (x for text, x in ticks.items() if "ell_2" in text)
    assert rich < -6.0 < 3.0 < kernel
    top = int(np.abs(path.w).max(axis=0).argmax())
    dots = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert [[rich, path.rich.w[top]], [kernel, path.kernel.w[top]]] in dots


def test_scales_beyond_double_range_have_ticks(csv):
    axes = draw_path(swept(csv, smallest="1e-5000")).axes[0]
    assert "$10^{-4000}$" in {label.get_text() for label in axes.get_xticklabels()}


def test_names_are_not_taken_for_formulas(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("$\\frac$,a,y\n1,2,3\n")
    assert invoke("path", file, "--count", "3", "--out", tmp_path / "path.svg").exit_code == 0


def test_long_names_stay_within_the_axes(tmp_path):
    rng, file = np.random.default_rng(0), tmp_path / "data.csv"
    names = [f"WIDE MEAN W{i:02d}" for i in range(8)]
    rows = rng.normal(size=(5, 9))
    np.savetxt(file, rows, delimiter=",", header=",".join([*names, "y"]), comments="")
    figure = draw_path(swept(file))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    left, right = axes.bbox.x0, axes.transData.transform((axes.get_xticks()[0], 0.0))[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 6
    assert all(left < box.x0 < box.x1 < right for box in boxes)


def test_names_are_moved_apart_and_keep_their_order():
    placed = apart(np.array([0.0, 5.0, 0.1, 0.05, 9.0]), 1.0)
    assert np.diff(np.sort(placed)).min() >= 1.0 - 1e-12
    assert np.argsort(placed).tolist() == [0, 3, 2, 1, 4]
    # What was apart stays where it was; what was not moves around its middle.
    np.testing.assert_allclose(placed, [-0.95, 5.0, 1.05, 0.05, 9.0])


def test_a_path_that_is_not_certified_ends_with_1(npz, tmp_path):
    words = ("--count", "3", "--tol", "1e-30", "--out", tmp_path / "path.csv")
    run = invoke("path", npz, *words)
    assert run.exit_code == ExitCode.DOUBTFUL
    assert "STALLED" in run.stdout
