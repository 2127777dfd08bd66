"""`flowbias limit` says what `flowbias.limit` says."""

import math

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.cli import ExitCode
from tests.apps.cli.program import document, invoke


def test_json_holds_the_limit_to_the_last_digit(npz, data):
    run = invoke("limit", npz, "--scale", "1e-3", "--json")
    assert (run.exit_code, run.stderr) == (ExitCode.ALL_WELL, "")
    told, known = document(run.stdout), fb.limit(fb.DiagonalNet(2, 1e-3), data.X, data.y)
    assert told["w"] == known.w.tolist()
    assert told["dual"] == known.dual.tolist()
    assert (told["status"], told["certified"], told["route"]) == ("CERTIFIED", True, known.route)
    assert told["certificate"]["error_bound"] == known.certificate.error_bound
    assert told["l1"] == np.abs(known.w).sum()
    assert (told["samples"], told["features"], told["names"]) == (8, 20, None)


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (("--depth", "3", "--scale", "0.1"), fb.DiagonalNet(3, 0.1)),
        (("--depth", "2.5", "--log-scale", "-4"), fb.DiagonalNet(2.5, log_scale=-4.0)),
        (("--scale", "1e-400"), fb.DiagonalNet(2, log_scale=-400 * math.log(10))),
        (("--scale", "0.3", "--shape", "-0.5"), fb.UntiedDiagonalNet(0.3, shape=-0.5)),
    ],
)
def test_every_start_can_be_asked_for(npz, data, words, model):
    told = document(invoke("limit", npz, *words, "--json").stdout)
    assert told["model"] == repr(model)
    # log(1e-400) is rounded once here and once there.
    np.testing.assert_allclose(told["w"], fb.limit(model, data.X, data.y).w, rtol=1e-12, atol=1e-15)


def test_csv_and_npz_of_the_same_numbers_agree(npz, csv):
    by_npz, by_csv = (
        document(invoke("limit", file, "--scale", "0.1", "--json").stdout) for file in (npz, csv)
    )
    assert by_csv["w"] == by_npz["w"]
    assert by_csv["names"] == [f"gene {i}" for i in range(20)]


def test_people_see_status_certificate_and_the_largest_coefficients_by_name(csv, data):
    run = invoke("limit", csv, "--scale", "1e-3")
    w = fb.limit(fb.DiagonalNet(2, 1e-3), data.X, data.y).w
    order = [f"gene {i}" for i in np.argsort(-np.abs(w))[:10]]
    lines = run.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("largest"))
    assert [line.rsplit(maxsplit=1)[0] for line in lines[start + 1 :]] == order
    assert float(lines[start + 1].rsplit(maxsplit=1)[1]) == pytest.approx(np.abs(w).max())
    words = ("status", "route", "feasibility", "stationarity", "gap", "error bound", "l1 norm")
    for word in (*words, "l2 norm", "nonzero", "time"):
        assert any(line.startswith(word) for line in lines[:start]), word


def test_a_limit_that_is_not_certified_is_shown_and_ends_with_1(npz):
    # No certificate in double precision is this exact.
    run = invoke("limit", npz, "--scale", "1e-3", "--tol", "1e-30")
    assert run.exit_code == ExitCode.DOUBTFUL
    assert "STALLED: not certified" in run.stdout
    told = document(invoke("limit", npz, "--scale", "1e-3", "--tol", "1e-30", "--json").stdout)
    assert (told["status"], told["certified"]) == ("STALLED", False)


def test_data_that_cannot_be_fitted_say_so(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("1,0\n1,2\n")
    run = invoke("limit", file, "--scale", "1")
    assert run.exit_code == ExitCode.ALL_WELL
    assert "PROJECTED: y is not in the range" in run.stdout


def test_out_npz_holds_w_dual_and_certificate_without_pickles(npz, tmp_path, data):
    file = tmp_path / "new" / "folder" / "w.npz"
    assert invoke("limit", npz, "--scale", "0.1", "--out", file).exit_code == ExitCode.ALL_WELL
    known = fb.limit(fb.DiagonalNet(2, 0.1), data.X, data.y)
    with np.load(file, allow_pickle=False) as written:
        assert np.array_equal(written["w"], known.w)
        assert np.array_equal(written["dual"], known.dual)
        for measure in ("feasibility", "stationarity", "gap", "error_bound"):
            assert written[measure] == getattr(known.certificate, measure)
        assert str(written["status"]) == "CERTIFIED"


def test_out_csv_names_each_coefficient(csv, tmp_path, data):
    file = tmp_path / "w.csv"
    run = invoke("limit", csv, "--scale", "0.1", "--out", file)
    assert f"written to {file}" in run.stdout
    header, *lines = file.read_text().splitlines()
    assert header == "feature,w"
    known = fb.limit(fb.DiagonalNet(2, 0.1), data.X, data.y).w
    assert lines == [f"gene {i},{float(value)!r}" for i, value in enumerate(known)]


def test_names_are_shown_as_they_are(tmp_path):
    file = tmp_path / "[bold]data.csv"
    file.write_text("[red],[/x],y\n1,0,3\n0,1,2\n")
    run = invoke("limit", file, "--scale", "1")
    assert "[red]" in run.stdout
    assert "[/x]" in run.stdout
    assert str(file) in run.stdout
