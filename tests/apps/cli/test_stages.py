"""`flowbias stages` says what `flowbias.stages` says."""

import sys

import numpy as np
import pytest

import flowbias as fb
from flowbias.apps.cli import ExitCode
from flowbias.ground.drawing import COLOURS
from tests.apps.cli.program import document, invoke


def known_path(data, depth=2, **options):
    return fb.stages(fb.DiagonalNet(depth, 1.0), data.X, data.y, **options)


def table_of(run):
    """Cells of the rows below the heading, what happens in one."""
    lines = run.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("stage "))
    rows = [line.split(maxsplit=4) for line in lines[start + 1 :]]
    return [row for row in rows if row[0].isdigit()]


@pytest.mark.parametrize(("words", "depth"), [((), 2), (("--depth", "2.5"), 2.5)])
def test_json_holds_the_path_to_the_last_digit(npz, data, words, depth):
    run = invoke("stages", npz, *words, "--json")
    assert (run.exit_code, run.stderr) == (ExitCode.ALL_WELL, "")
    told, known = document(run.stdout), known_path(data, depth)
    assert told["w"] == known.w.tolist()
    assert told["tau"] == known.times.tolist()
    assert told["residual"] == known.residual.tolist()
    assert [tuple(event.values()) for event in told["events"]] == list(known.events)
    assert (told["status"], told["certified"], told["whole"]) == ("CERTIFIED", True, True)
    assert told["certificate"]["excess"] == known.certificate.excess
    assert (told["samples"], told["features"], told["names"]) == (8, 20, None)
    assert told["depth"] == depth


def test_people_see_each_stage_and_what_happens_by_name(csv, data):
    run = invoke("stages", csv)
    assert run.exit_code == ExitCode.ALL_WELL
    known, rows = known_path(data), table_of(run)
    assert len(known) > 5
    assert [int(row[0]) for row in rows] == list(range(len(known)))
    # As many digits as are printed.
    np.testing.assert_allclose([float(row[1]) for row in rows], known.times, rtol=1e-5)
    assert [int(row[2]) for row in rows] == [len(stage.support) for stage in known]
    np.testing.assert_allclose([float(row[3]) for row in rows], known.residual, rtol=0.06)
    told = ", ".join(row[4] for row in rows[1:]).split(", ")
    sides = {1: "(+)", -1: "(-)"}
    assert told == [f"gene {e.feature} {e.change} {sides[e.sign]}" for e in known.events]
    assert f"CERTIFIED: {known.message}" in run.stdout


def test_csv_and_npz_of_the_same_numbers_agree(npz, csv):
    by_npz, by_csv = (document(invoke("stages", file, "--json").stdout) for file in (npz, csv))
    assert by_csv["w"] == by_npz["w"]
    assert by_csv["names"] == [f"gene {i}" for i in range(20)]


def test_a_path_may_be_cut_short(npz, data):
    told = document(invoke("stages", npz, "--max-stages", "3", "--json").stdout)
    assert told["w"] == known_path(data).w[:3].tolist()
    assert (told["certified"], told["whole"]) == (True, False)
    assert "cut short" in invoke("stages", npz, "--max-stages", "3").stdout


def test_what_is_right_to_few_digits_says_so(npz):
    # No certificate in double precision is this exact.
    assert "FEW_DIGITS: " in invoke("stages", npz, "--tol", "1e-30").stdout


def test_a_path_that_is_not_certified_is_shown_and_ends_with_1(npz, monkeypatch):
    # Nothing that doubles compute is as exact as this, and fractions are for small X.
    monkeypatch.setattr(sys.modules[fb.stages.__module__], "PROVED", 1e-300)
    monkeypatch.setattr("flowbias.limits.exact_stages.CONE_ENTRIES", 0)
    run = invoke("stages", npz, "--tol", "1e-300")
    assert run.exit_code == ExitCode.DOUBTFUL
    assert len(table_of(run)) > 5
    assert "STALLED: " in run.stdout
    assert "not certified" in run.stdout


def test_nothing_to_fit_is_one_stage(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("1,2,0\n3,4,0\n")
    run = invoke("stages", file)
    assert run.exit_code == ExitCode.ALL_WELL
    assert len(table_of(run)) == 1


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_pictures_are_written_with_the_names_of_the_features(csv, tmp_path, suffix, head):
    file = tmp_path / "new" / f"stages.{suffix}"
    run = invoke("stages", csv, "--out", file)
    assert run.exit_code == ExitCode.ALL_WELL
    assert f"written to {file}" in run.stdout
    assert file.read_bytes().startswith(head)


def test_a_picture_names_the_largest_features_as_they_are(data):
    path = known_path(data)
    names = [f"$\\frac {i}$" for i in range(20)]
    first, *others = np.argsort(-np.abs(path.w).max(axis=0))[: len(COLOURS)]
    names[first] = "longer than there is room for"
    axes = path.plot(names=names).axes[0]
    shown = {text.get_text() for text in axes.texts}
    assert shown == {"longer …om for", *(names[i] for i in others)}
    axes.figure.canvas.draw()  # which would fail on such a formula


def test_numbers_are_written_to_the_last_digit(csv, tmp_path, data):
    known = known_path(data)
    invoke("stages", csv, "--out", tmp_path / "stages.csv")
    header, *lines = (tmp_path / "stages.csv").read_text().splitlines()
    assert header.split(",")[:4] == ["tau", "residual", "gene 0", "gene 1"]
    numbers = np.array([[float(x) for x in line.split(",")] for line in lines])
    np.testing.assert_array_equal(numbers[:, 0], known.times)
    np.testing.assert_array_equal(numbers[:, 2:], known.w)
    invoke("stages", csv, "--out", tmp_path / "stages.npz")
    with np.load(tmp_path / "stages.npz", allow_pickle=False) as written:
        np.testing.assert_array_equal(written["w"], known.w)
        np.testing.assert_array_equal(written["tau"], known.times)
        assert str(written["status"]) == "CERTIFIED"
        assert written["excess"] == known.certificate.excess


# --- which column is y ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("stages",), ("limit", "--scale", "1"), ("path", "--count", "2")]
)
def test_any_column_may_be_the_target(tmp_path, words):
    """The same numbers, once with y by its name and once under another one."""
    command, *options = words
    told = []
    for header, target in (("a,y,b", ()), ("a,Y,b", ("--target", "Y"))):
        file = tmp_path / "data.csv"
        file.write_text(f"{header}\n1,2,3\n4,5,7\n")
        told.append(document(invoke(command, file, *target, *options, "--json").stdout))
    assert told[0]["w"] == told[1]["w"]
    assert told[1]["names"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        ("a,price,y\n1,2,3\n", "prices", "got 'prices'. Did you mean 'price'?"),
        ("a,price,y\n1,2,3\n", "", "got ''. There are 'a', 'price', 'y'."),
        ("1,2,3\n4,5,6\n", "y", "target: must be the name of a column, got 'y'"),
        ("1,2,3\n4,5,6\n", "4", "got '4'. The first line names none: count them from 1."),
    ],
)
def test_a_target_that_is_no_column_is_refused(tmp_path, text, target, says):
    file = tmp_path / "data.csv"
    file.write_text(text)
    run = invoke("stages", file, "--target", target)
    assert (run.exit_code, run.stdout) == (ExitCode.BAD_INPUT, "")
    assert says in run.stderr


def test_a_target_may_stand_above_numbers_that_are_names(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("2019,2020,price\n1,2,3\n4,5,7\n")
    told = document(invoke("stages", file, "--target", "price", "--json").stdout)
    assert told["names"] == ["2019", "2020"]
