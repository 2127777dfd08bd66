"""What figures cost, as runs measured it: a file that runs add to, and the one of the package."""

import dataclasses
import json

import pytest

from flowbias.experiments import EXPERIMENTS, Preset, run
from flowbias.experiments.record import Cost, known_costs, note_costs, same_presets, total
from flowbias.ground.arguments import InputError
from tests.experiments.toy import toy


def test_the_costs_of_the_package_are_of_its_figures():
    figures = {experiment.name: experiment for experiment in EXPERIMENTS}
    known = known_costs()
    assert known
    for name, costs in known.items():
        for preset, cost in costs.items():
            # Two cores take half of it at best; both numbers are rounded to tenths.
            on_two = cost.on_two_cores
            assert on_two is None or cost.seconds / 2 - 0.1 <= on_two <= cost.seconds + 0.1
            assert "cores" in cost.machine
            assert 0 <= cost.held <= cost.checks
            # Presets that do the same cost the same.
            same = same_presets(figures[name], Preset(preset))
            assert {known[name][each].seconds for each in same} == {cost.seconds}


def test_presets_that_do_the_same_are_known_from_one_run(tmp_path):
    figure = toy(settings={Preset.SMOKE: {"count": 1}, Preset.LAPTOP: {"count": 2}})
    record = run(figure, preset="paper", jobs=1, cache=tmp_path / "cache")
    note_costs(tmp_path / "costs.json", [record])
    noted = json.loads((tmp_path / "costs.json").read_text())["toy"]
    assert list(noted) == ["laptop", "paper", "full"]
    held = sum(check.holds for check in record.checks)
    assert {(cost["held"], cost["checks"]) for cost in noted.values()} == {
        (held, len(record.checks))
    }


def test_cached_results_count_with_what_they_took(tmp_path):
    first = run(toy(), preset="smoke", jobs=1, cache=tmp_path)
    again = run(toy(), preset="smoke", jobs=1, cache=tmp_path)
    assert again.compute_seconds == first.compute_seconds > 0.0


@pytest.mark.parametrize(
    ("tasks", "cores", "expected"),
    [
        ((), 2, 0.0),
        ((3.0, 1.0, 1.0, 1.0), 1, 6.0),
        ((3.0, 1.0, 1.0, 1.0), 2, 3.0),
        ((1.0, 1.0, 1.0, 3.0), 2, 4.0),  # in their order, as a queue hands them out
        ((1.0, 2.0), 3, 2.0),
    ],
)
def test_how_long_cores_take_that_share_the_tasks(tmp_path, tasks, cores, expected):
    record = run(toy(), preset="smoke", jobs=1, cache=tmp_path)
    assert dataclasses.replace(record, task_seconds=tasks).seconds_on(cores) == expected


def test_a_sum_of_what_was_not_all_measured_is_none():
    costs = {
        "a": {"smoke": Cost(1.0, "m"), "laptop": Cost(3.0, "m")},
        "b": {"smoke": Cost(2.0, "m")},
    }
    assert total(costs, ["a", "b"], "smoke") == 3.0
    assert total(costs, ["a", "b"], "laptop") is None


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": {"smoke": {"hours": 1}}}'])
def test_what_no_run_has_written_is_refused(tmp_path, text):
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(InputError, match="costs: must be a file that a run has written"):
        note_costs(file, [])
    assert file.read_text() == text
