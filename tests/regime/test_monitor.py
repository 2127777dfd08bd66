"""`Monitor` sees what is there, within its budget, and disturbs nothing."""

import copy
import gc
import itertools
import json
import warnings

import pytest
import torch

from flowbias.ground.arguments import InputError
from flowbias.kernels import (
    chosen_outputs,
    parameter_movement,
    relative_kernel_change,
    tangent_kernel,
)
from flowbias.nets import mlp
from flowbias.regime import Every, Geometric, History, Monitor, Record, Verdict, diagnose
from flowbias.regime.probe import Probe


def data():
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(10, 3, generator=generator, dtype=torch.float64),
        torch.randn(10, 1, generator=generator, dtype=torch.float64),
    )


def descend(module, x, y, monitor, steps, step_size=0.01):
    for _ in range(steps):
        loss = 0.5 * ((module(x) - y) ** 2).sum()
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= step_size * p.grad
        monitor.step(loss)


def test_records_are_what_diagnose_finds():
    x, y = data()
    net = mlp((3, 8, 1), rng=0, dtype=torch.float64)
    start = copy.deepcopy(net)
    with Monitor(net, x, y, budget=None, schedule=Every(5)) as monitor:
        descend(net, x, y, monitor, 20)
    records = monitor.history.records
    assert [record.step for record in records] == [5, 10, 15, 20]
    known, last = diagnose(start, net, x, y, functions=False), records[-1]
    assert last.kernel_change == pytest.approx(known.kernel_change, rel=1e-9)
    assert last.grad_distance == pytest.approx(known.grad_distance.overall, rel=1e-9)
    assert last.parameter_movement == pytest.approx(parameter_movement(start, net).overall)
    assert last.label_alignment == pytest.approx(known.label_alignment[1], rel=1e-9)
    assert records[0].loss > records[-1].loss


def test_some_of_many_outputs_are_watched():
    """What is read off a module is a module again, and it follows the one that is trained."""
    x, _ = data()
    y = torch.ones(10, 6, dtype=torch.float64)
    net = mlp((3, 8, 6), rng=0, dtype=torch.float64)
    kernels = [tangent_kernel(chosen_outputs(net, [1, 4]), x, reduce="trace")]
    with Monitor(chosen_outputs(net, [1, 4]), x, budget=None, schedule=Every(5)) as monitor:
        descend(net, x, y, monitor, 5)
    kernels.append(tangent_kernel(chosen_outputs(net, [1, 4]), x, reduce="trace"))
    found = monitor.history.records[-1].kernel_change
    assert found == pytest.approx(relative_kernel_change(*kernels), rel=1e-9)
    # Those of all outputs change by another share.
    assert found != pytest.approx(diagnosed_change(net, x, y), rel=1e-3)


def diagnosed_change(net, x, y):
    start = mlp((3, 8, 6), rng=0, dtype=torch.float64)
    return diagnose(start, net, x, y, functions=False).kernel_change


def test_training_is_not_disturbed():
    """Dropout in training mode, its random state, and every bit of the result stay the same."""
    x, y = data()
    ends = []
    for watched in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            mlp((3, 8, 4), rng=0, dtype=torch.float64),
            torch.nn.BatchNorm1d(4, dtype=torch.float64),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(4, 1, dtype=torch.float64),
        )
        with torch.no_grad():
            net[3].weight.fill_(0.5)
        monitor = Monitor(net, x, budget=None, schedule=Every(1 if watched else 10**6))
        descend(net, x, y, monitor, 6)
        ends.append(copy.deepcopy(net.state_dict()))
        assert net.training
        assert len(monitor.history.records) == (6 if watched else 0)
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


class Clock:
    """Seconds that pass as told: `tick` at each reading."""

    def __init__(self, tick):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.mark.parametrize("budget", [0.05, 0.2])
def test_the_budget_is_kept_and_used(budget):
    x, _ = data()
    net, clock = mlp((3, 4, 1), rng=0, dtype=torch.float64), Clock(0.01)
    with Monitor(net, x, schedule=Every(1), budget=budget, clock=clock) as monitor:
        for _ in range(200):
            clock.now += 0.5
            monitor.step(1.0)
    history = monitor.history
    # Its making, the first look and the last one: all of it.
    assert history.overhead <= budget
    assert history.spent >= (len(history.records) + 1) * clock.tick
    assert len(history.records) >= 20
    assert history.records[-1].step >= 190


def test_where_there_is_time_it_looks_at_more_inputs():
    x, _ = data()
    net, clock = mlp((3, 4, 1), rng=0, dtype=torch.float64), Clock(0.01)
    with Monitor(net, x, clock=clock) as monitor:
        for _ in range(30):
            clock.now += 5.0
            monitor.step()
    assert monitor.history.records[-1].inputs == 10
    assert monitor.history.overhead <= 0.1


def costly(monkeypatch, clock, row, interrupted=None):
    """Let a probe take so many seconds for each gradient, at one look (by number) far more."""
    looks = itertools.count()

    def grow(probe, inputs, plain=Probe.grow):
        clock.now += 2 * row * (inputs - probe.inputs)
        plain(probe, inputs)

    def look(probe, *when, plain=Probe.look):
        clock.now += row * probe.inputs * (50 if next(looks) == interrupted else 1)
        return plain(probe, *when)

    monkeypatch.setattr(Probe, "grow", grow)
    monkeypatch.setattr(Probe, "look", look)


def watched(clock, steps):
    with Monitor(mlp((3, 4, 1), rng=0, dtype=torch.float64), data()[0], clock=clock) as monitor:
        for _ in range(steps):
            clock.now += 1.0
            monitor.step()
    return monitor.history


@pytest.mark.parametrize(("row", "inputs"), [(0.6, 1), (0.25, 2), (0.05, 10)])
def test_ten_looks_within_a_hundred_steps(monkeypatch, row, inputs):
    """Ten seconds are there: of 0.6 for a gradient, ten looks at two inputs would take 14.4."""
    clock = Clock(0.0)
    costly(monkeypatch, clock, row)
    history = watched(clock, 100)
    assert len(history.records) >= 10
    assert history.overhead <= 0.1
    assert history.records[-1].inputs >= inputs
    if inputs == 1:
        assert {record.inputs for record in history.records} == {1}


def test_a_look_that_was_interrupted_says_nothing_of_the_next(monkeypatch):
    clock = Clock(0.0)
    costly(monkeypatch, clock, 0.02, interrupted=1)
    history = watched(clock, 100)
    assert history.overhead <= 0.1
    # The second look is paid for by a tenth of each step, and the third one comes then.
    second, third = history.records[1:3]
    assert third.step <= second.step + 10.0 * (50 * 0.02 * second.inputs) + 5


def test_the_collector_of_garbage_waits_for_training(monkeypatch):
    collecting = []

    def grow(probe, inputs, plain=Probe.grow):
        collecting.append(gc.isenabled())
        plain(probe, inputs)

    monkeypatch.setattr(Probe, "grow", grow)
    watched(Clock(0.0), 20)
    assert collecting[0] is False
    assert gc.isenabled()


def test_memory_is_taken_once():
    x, y = data()
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    monitor = Monitor(net, x, budget=None, schedule=Every(1))
    places = set()
    for _ in range(3):
        descend(net, x, y, monitor, 1)
        places.add(monitor._probe._room.data_ptr())
    assert len(places) == 1


def test_a_training_too_short_to_pay_for_a_look_has_none():
    x, y = data()
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    with Monitor(net, x, clock=Clock(1.0)) as monitor:
        descend(net, x, y, monitor, 5)
    assert monitor.history.records == []
    assert len(monitor.history.losses) == 5
    assert "no look fitted into the budget" in repr(monitor.history)
    with Monitor(net, x, clock=Clock(1.0), budget=None, schedule=Every(3)) as monitor:
        descend(net, x, y, monitor, 5)
    first, last = monitor.history.records
    assert (first.step, last.step) == (3, 5)
    assert first.loss > last.loss > 0.0
    assert 0.0 < first.kernel_change < last.kernel_change
    assert monitor.history.verdict is not None


def test_the_loss_of_every_step_is_kept():
    x, y = data()
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    with Monitor(net, x, budget=None, schedule=Every(100)) as monitor:
        descend(net, x, y, monitor, 7)
        monitor.step()
    losses = monitor.history.losses
    assert losses[-1] is None
    assert all(a > b for a, b in itertools.pairwise(losses[:7]))


def test_looks_that_could_not_be_paid_are_made_up_for():
    x, _ = data()
    net, clock = mlp((3, 4, 1), rng=0, dtype=torch.float64), Clock(0.01)
    with Monitor(net, x, clock=clock) as monitor:
        for _ in range(100):
            clock.now += 0.02
            monitor.step()
    steps = [record.step for record in monitor.history.records]
    due = list(itertools.accumulate(range(16), lambda step, _: Geometric().following(step)))
    # Of the schedule 1, 2, 3, 4, 5, 7, ... few steps come after the first look, but more were owed.
    assert len(steps) > sum(steps[0] <= step <= 100 for step in due) > 0
    assert {record.inputs for record in monitor.history.records[:3]} == {2}
    assert monitor.history.overhead <= 0.1


def test_one_combination_stands_for_many_outputs():
    """On average over signs its kernel is the trace; and it costs one gradient for each input."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    net = mlp((3, 40, 50), rng=0, dtype=torch.float64)
    found = {}
    for budget in (None, 1e9):
        module = copy.deepcopy(net)
        clock = Clock(1e-6)
        with Monitor(module, x, budget=budget, schedule=Every(1), clock=clock) as monitor:
            for _ in range(20):
                clock.now += 1.0
                with torch.no_grad():
                    module[0].weight += 0.01 * torch.randn(
                        module[0].weight.shape, generator=torch.Generator().manual_seed(1)
                    )
                monitor.step()
        found[budget] = monitor
    exact, sketched = (found[budget].history.records[-1] for budget in (None, 1e9))
    assert found[None]._probe.rows.outputs.shape == (6, 50)
    assert found[1e9]._probe.rows.outputs.shape == (6, 1)
    # One draw of signs over 50 outputs, which says little of what was learned in 12 numbers.
    assert sketched.grad_distance == pytest.approx(exact.grad_distance, rel=0.3)
    assert sketched.beyond == pytest.approx(exact.beyond, abs=3.0 * sketched.beyond_error)
    assert sketched.parameter_movement == pytest.approx(exact.parameter_movement, rel=1e-9)


def test_a_training_of_no_steps_has_no_record():
    with Monitor(mlp((3, 4, 1), rng=0, dtype=torch.float64), data()[0]) as monitor:
        pass
    assert monitor.history.records == []
    assert monitor.history.verdict is None


def test_a_loss_with_its_graph_is_no_reason_to_warn():
    x, y = data()
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else torch warns once a process, perhaps in another test
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Monitor(net, x, budget=None) as monitor:
                descend(net, x, y, monitor, 3)
    finally:
        torch.set_warn_always(always)
    assert all(isinstance(record.loss, float) for record in monitor.history.records)
    assert len(monitor.history.records) == 3
    assert all(isinstance(loss, float) for loss in monitor.history.losses)


@pytest.mark.parametrize("schedule", [Geometric(1.3), Every(7)])
def test_schedules_move_on(schedule):
    steps = list(itertools.accumulate(range(20), lambda step, _: schedule.following(step)))
    assert all(a < b for a, b in itertools.pairwise(steps))
    # Also where a look had to wait.
    assert Every(7).following(10) == 14
    assert Geometric(1.5).following(3) == 5


def test_running_statistics_are_followed():
    x, _ = data()
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 2, dtype=torch.float64),
        torch.nn.BatchNorm1d(2, dtype=torch.float64),
        torch.nn.Linear(2, 1, dtype=torch.float64),
    )
    start = copy.deepcopy(net).eval()
    monitor = Monitor(net, x, budget=None, schedule=Every(1))
    net(10.0 * x)
    with torch.no_grad():
        net[0].weight += 0.5
    monitor.step()
    with pytest.warns(UserWarning, match="those of after are used for both"):
        known = diagnose(start, copy.deepcopy(net).eval(), x, functions=False)
    assert monitor.history.records[0].kernel_change == pytest.approx(known.kernel_change, rel=1e-9)
    assert known.kernel_change > 0.1


def test_saved_histories_come_back(tmp_path):
    x, y = data()
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    with Monitor(net, x, y, budget=None) as monitor:
        descend(net, x, y, monitor, 30)
    monitor.save(tmp_path / "a" / "history.json")
    assert History.load(tmp_path / "a" / "history.json") == monitor.history
    assert json.loads(monitor.history.to_json())["steps"] == 30
    monitor.plot(tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 5000
    assert "30 steps" in repr(monitor.history)


def _record(step, change):
    return Record(step, float(step), 1.0, change, 0.3, None, None, beyond=change)


def test_a_history_is_told_by_its_last_record():
    history = History([_record(1, 0.01), _record(2, 1.0)])
    assert history.verdict is Verdict.IN_BETWEEN
    long = repr(History([_record(step, 1.0) for step in range(1, 101)]))
    # A dozen lines of a hundred, both ends among them.
    assert len(long.splitlines()) == 14
    assert f"{1:>9} " in long
    assert f"{100:>9} " in long


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "another"}'])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match="path: must be a history"):
        History.load(tmp_path / "a.json")
    with pytest.raises(InputError, match="path: must be a history"):
        History.load(tmp_path / "absent.json")


def test_texts_in_the_place_of_numbers_are_refused(tmp_path):
    x, _ = data()
    monitor = Monitor(mlp((3, 4, 1), rng=0, dtype=torch.float64), x, budget=None)
    monitor.step(1.0)
    told = json.loads(monitor.history.to_json())
    told["records"][0]["kernel_change"] = "much"
    (tmp_path / "a.json").write_text(json.dumps(told))
    with pytest.raises(InputError, match="path: must be a history"):
        History.load(tmp_path / "a.json")


def test_a_training_that_diverges_is_not_stopped_by_its_monitor():
    x, y = data()
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    monitor = Monitor(net, x, budget=None, schedule=Every(1))
    descend(net, x, y, monitor, 1)
    with torch.no_grad():
        next(net.parameters()).fill_(float("nan"))
    with pytest.warns(UserWarning, match="the monitor stopped at step 2"):
        monitor.step()
    monitor.step()
    assert len(monitor.history.records) == 1
    assert "step 2" in monitor.history.failure


def test_a_module_that_changes_its_shape_ends_the_recording():
    x, _ = data()
    net = torch.nn.Sequential(torch.nn.Linear(3, 1, dtype=torch.float64))
    monitor = Monitor(net, x, budget=None, schedule=Every(1))
    net.append(torch.nn.Linear(1, 1, dtype=torch.float64))
    with pytest.warns(UserWarning, match="must keep the parameters"):
        monitor.step(1.0)


class Renews(torch.nn.Linear):
    """Puts a parameter of its own in the place of what it was given."""

    def forward(self, x):
        self.weight = torch.nn.Parameter(self.weight.detach().clone())
        return super().forward(x)


def test_a_module_that_changes_its_parameters_ends_the_recording():
    x, _ = data()
    monitor = Monitor(Renews(3, 1, dtype=torch.float64), x, budget=None, schedule=Every(1))
    with pytest.warns(UserWarning, match="the monitor stopped at step 1"):
        monitor.step(1.0)


def test_the_start_is_known_to_be_taken_anew_while_statistics_move():
    x, _ = data()
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)).double()
    monitor = Monitor(net, x, budget=None, schedule=Every(1))
    moving = []
    for given in (x, None):
        if given is not None:
            net(given)
        monitor.step()
        moving.append(monitor._probe.unsettled)
    assert moving == [True, False]


def test_labels_that_are_all_the_same_are_left_out():
    x, _ = data()
    monitor = Monitor(mlp((3, 4, 1), rng=0, dtype=torch.float64), x, [1.0] * 10, budget=None)
    monitor.step(1.0)
    assert monitor.history.records[0].label_alignment is None
    assert monitor.history.failure is None


def test_pauses_are_no_training():
    x, _ = data()
    clock = Clock(0.0)
    monitor = Monitor(mlp((3, 4, 1), rng=0, dtype=torch.float64), x, budget=None, clock=clock)
    for _ in range(2):
        with monitor:
            clock.now += 2.0
            monitor.step()
        clock.now += 1000.0
    assert monitor.history.elapsed == 4.0
    assert [record.seconds for record in monitor.history.records] == [2.0, 4.0]


@pytest.mark.parametrize("loss", ["low", torch.ones(3)])
def test_a_loss_is_one_number(loss):
    monitor = Monitor(mlp((3, 4, 1), rng=0, dtype=torch.float64), data()[0], budget=None)
    with pytest.raises(InputError, match="loss: must be one number"):
        monitor.step(loss)


def _breaks(monitor):
    with monitor:
        monitor.step()
        monitor.step()
        raise RuntimeError("boom")


def test_an_exception_in_the_loop_is_not_swallowed():
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    monitor = Monitor(net, data()[0], budget=None, schedule=Every(3))
    with pytest.raises(RuntimeError, match="boom"):
        _breaks(monitor)
    # Nothing is measured on the way out of an error.
    assert monitor.history.records == []


def test_the_probe_is_bounded():
    x, y = data()
    net = mlp((3, 4, 1), rng=0, dtype=torch.float64)
    for options, inputs in (({"most_inputs": 4}, 4), ({}, 10), ({"max_memory": 2000}, 3)):
        monitor = Monitor(net, x, y, budget=None, **options)
        monitor.step()
        # Four gradients of 16 numbers in double precision are 512 bytes for each input.
        assert monitor.history.inputs == inputs
    assert len({*Monitor(net, x, most_inputs=7)._probe._x[0][:, 0].tolist()}) == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 0.0}, "budget: must be > 0"),
        ({"most_inputs": 0}, "most_inputs: must be an integer >= 1"),
        ({"y": torch.ones(3)}, "y: must have one row of finite numbers per input"),
        ({"y": torch.full((10,), float("nan"))}, "y: must have one row of finite numbers"),
        ({"y": ["a"] * 10}, "y: must be numbers"),
        ({"schedule": 5}, "schedule: must have a method `following`"),
    ],
)
def test_bad_settings_are_named(options, words):
    with pytest.raises(InputError, match=words):
        Monitor(mlp((3, 4, 1), dtype=torch.float64), data()[0], **options)
    with pytest.raises(InputError, match="ratio: must be > 1"):
        Geometric(1.0)
    with pytest.raises(InputError, match="steps: must be >= 1"):
        Every(0)


def test_statistics_that_settle_do_not_move_the_kernel():
    x, _ = data()
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    ).double()
    with Monitor(net, x, budget=None, schedule=Every(1)) as monitor:
        for _ in range(3):
            net(x)
            monitor.step()
        with torch.no_grad():
            net[3].weight += 0.1
        monitor.step()
    changes = [record.kernel_change for record in monitor.history.records]
    assert changes[:3] == [0.0, 0.0, 0.0]
    assert changes[3] > 0.0
    shares = [record.beyond for record in monitor.history.records]
    assert shares[:3] == [0.0, 0.0, 0.0]
    assert History(records=monitor.history.records[:3]).verdict is Verdict.KERNEL


@pytest.mark.parametrize("budget", [None, 1e9])
def test_a_move_of_the_last_digits_is_no_feature_learned(budget):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3))
    with Monitor(net, torch.randn(30, 5), budget=budget, schedule=Every(1)) as monitor:
        for _ in range(4):
            with torch.no_grad():
                for p in net.parameters():
                    p.mul_(1.0 + 1e-7 * torch.randn_like(p))
            monitor.step()
    assert len(monitor.history.records) == 4
    assert all(record.beyond == 0.0 for record in monitor.history.records)
    assert monitor.history.verdict is Verdict.KERNEL


@pytest.mark.parametrize("count", [3, 40])
def test_a_history_says_how_many_of_its_records_are_listed(count):
    history = History(records=[Record(i, 0.0, None, 0.0, 0.0, 0.0, None) for i in range(count)])
    title, _, *rows = repr(history).splitlines()
    listed = f"{count} records" if len(rows) == count else f"({len(rows)} of them listed)"
    assert listed in title
    assert listed in history._repr_html_()
    assert (len(rows) == count) is (count == 3)
