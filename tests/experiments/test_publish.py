"""A run leaves a page, and for each figure a PNG, an SVG and its table."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from flowbias.experiments import Panel, Preset
from flowbias.experiments.drawing import draw
from flowbias.experiments.progress import Silence
from flowbias.experiments.publish import drawings_of, publish
from flowbias.experiments.record import RunStart
from flowbias.experiments.runner import Options, check_folder, run_many
from flowbias.ground.arguments import InputError
from tests.experiments.toy import compute_or_fail, toy

ABOUT = {"command": "flowbias run toy", "start": RunStart.now()}


def published(tmp_path, *experiments, jobs=1, about=ABOUT):
    options = Options(Preset.SMOKE, jobs=jobs, cache=tmp_path / "cache")
    records = run_many(experiments, options, Silence())
    return publish(records, tmp_path / "out", options, **about)


def test_files_of_a_figure(tmp_path):
    page, (record,), _ = published(tmp_path, toy())
    assert {file.name for file in page.parent.iterdir()} == {
        "index.html",
        "toy.png",
        "toy.svg",
        "toy.csv",
    }
    assert (page.parent / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert (page.parent / "toy.svg").read_text().startswith("<svg")
    values = np.genfromtxt(page.parent / "toy.csv", delimiter=",", names=True)["value"]
    assert values.tobytes() == record.table["value"].tobytes()


def test_a_figure_is_drawn_once(tmp_path, monkeypatch):
    page, *_ = published(tmp_path, toy())
    first = (page.parent / "toy.png").read_bytes()

    def refuse(*_):
        raise AssertionError("drawn again")

    monkeypatch.setattr("flowbias.experiments.publish.draw", refuse)
    page, (record,), _ = published(tmp_path, toy())
    assert record.holds
    assert (page.parent / "toy.png").read_bytes() == first


def test_a_date_that_is_set_meanwhile_does_not_change_how_long_it_took(tmp_path):
    now = RunStart.now()
    ahead = replace(now, date=now.date + timedelta(hours=1))
    published_at, _, seconds = published(tmp_path, toy(), about={**ABOUT, "start": ahead})
    assert 0.0 < seconds < 3600.0
    assert f"{ahead.date:%Y-%m-%d}" in published_at.read_text(encoding="utf-8")


def test_a_damaged_drawing_is_drawn_again(tmp_path):
    page, *_ = published(tmp_path, toy())
    first = (page.parent / "toy.svg").read_bytes()
    for file in (tmp_path / "cache").rglob("*.npz"):
        file.write_bytes(file.read_bytes()[:-1])
    published(tmp_path, toy())
    assert (page.parent / "toy.svg").read_bytes() == first


def test_a_kept_drawing_is_the_drawing(tmp_path):
    _, (record,), _ = published(tmp_path, toy())
    kept = drawings_of([record], Options(Preset.SMOKE, jobs=1, cache=tmp_path / "cache"))
    assert kept == {"toy": draw(record.experiment.panels, record.table)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_figure_that_cannot_be_drawn_costs_no_other(tmp_path, jobs):
    def broken(axes, table):
        raise KeyError("no such column")

    undrawable = toy(name="bad", panels=(Panel("a", "A", broken),))
    page, (bad, good), _ = published(tmp_path, undrawable, toy(), jobs=jobs)
    assert "no such column" in bad.failures[0].cause
    assert not bad.holds
    assert good.holds
    assert (page.parent / "toy.png").exists()
    assert not (page.parent / "bad.png").exists()
    assert "no such column" in page.read_text()


def test_a_figure_with_failed_tasks_is_not_drawn(tmp_path):
    page, *_ = published(tmp_path, toy(compute=compute_or_fail))
    assert [file.name for file in page.parent.iterdir()] == ["index.html"]
    assert "told to fail" in page.read_text()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_an_output_folder_that_is_a_file(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"out: must be a folder, but .*file is none"):
        check_folder("out", tmp_path / "file" / below)
