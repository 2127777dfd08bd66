"""What figures need beyond the package, and whether it is here."""

import pytest

from flowbias.datasets.image_sets import MNIST
from flowbias.experiments import EXPERIMENTS, Preset, run
from flowbias.experiments.record import NEEDS, Package, command_for, missing
from flowbias.experiments.runner import Options, run_many
from tests.experiments.toy import toy


def test_every_need_of_every_figure_is_known():
    for experiment in EXPERIMENTS:
        for preset in Preset:
            for task in experiment.task_list(preset)[:50]:
                assert set(experiment.needs(task)) <= set(NEEDS)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("woodworth-fig1", set()),
        ("woodworth-fig6c", {"torch", "MNIST"}),
        ("woodworth-fig8", {"torch", "CIFAR-10"}),
        ("woodworth-iclr-fig5", {"cvxpy"}),
        ("derive-gallery", {"torch"}),
    ],
)
def test_what_a_figure_computes_with_is_what_it_needs(name, needs):
    (experiment,) = [each for each in EXPERIMENTS if each.name == name]
    tasks = experiment.task_list(Preset.LAPTOP)
    assert {need for task in tasks for need in experiment.needs(task)} == needs


def test_one_command_gets_all_that_is_missing():
    wanted = ["torch", "MNIST", "cvxpy", "CIFAR-10", "torch"]
    assert command_for(wanted) == (
        "pip install 'flowbias[nets,sdp]' && flowbias data fetch mnist cifar10"
    )
    assert command_for(["MNIST"]) == "flowbias data fetch mnist"


def test_what_is_not_there_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWBIAS_DATA", str(tmp_path))
    monkeypatch.setitem(NEEDS, "torch", Package("numpy", "nets"))
    monkeypatch.setitem(NEEDS, "cvxpy", Package("no_such_package", "sdp"))
    assert missing(["torch", "cvxpy", "MNIST", "cvxpy"]) == ("cvxpy", "MNIST")


# --- smoke on the paper's data where they are at hand ---------------------------------------------

MADE_UP = {"data": "made-up", "size": 1, "tone": 5}


def by_size(settings):
    yield "pictures", settings


def echo(task):
    return {"seen": task.text("data")}


def of_pictures():
    return toy(
        settings={Preset.SMOKE: MADE_UP, Preset.LAPTOP: {"data": "MNIST", "size": 9}},
        genuine={"data": "MNIST", "size": 3, "tone": 7},
        choices={"data": ("made-up", "MNIST")},
        tasks=by_size,
        compute=echo,
        check=lambda table: [],
        stand_in=lambda task: "made-up pictures" if task.text("data") == "made-up" else "",
        needs=lambda task: () if task.text("data") == "made-up" else ("MNIST",),
    )


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """What a run of `of_pictures` computed with, whose results are all kept in one cache."""
    monkeypatch.setenv("FLOWBIAS_DATA", str(tmp_path))

    def what(preset="smoke", **settings):
        record = run(
            of_pictures(), preset=preset, settings=settings, jobs=1, cache=tmp_path / "cache"
        )
        if record.table is None:
            return record.lacks
        (data,), (size,) = record.table["seen"], record.table["size"]
        assert record.stand_in == ("made-up pictures" if data == "made-up" else "")
        usual = 7 if (preset, data) == ("smoke", "MNIST") else 5
        assert record.table["tone"] == settings.get("tone", usual)
        return str(data), int(size)

    return what


@pytest.fixture
def digits(tmp_path):
    """Files of the right names; nobody reads them here."""

    def put():
        (tmp_path / "mnist").mkdir()
        for file in MNIST.files:
            (tmp_path / "mnist" / file.name).touch()

    return put


def test_smoke_takes_the_paper_s_data_where_they_are_and_stand_ins_where_not(seen, digits):
    assert seen() == ("made-up", 1)
    digits()
    # Not what the cache has of the stand-ins.
    assert seen() == ("MNIST", 3)
    assert seen() == ("MNIST", 3)


def test_other_presets_have_no_stand_ins(seen, digits):
    assert seen("laptop") == ("MNIST",)
    digits()
    assert seen("laptop") == ("MNIST", 9)


def test_who_asks_for_stand_ins_has_them_in_their_size(seen, digits):
    digits()
    assert seen(data="made-up") == ("made-up", 1)
    assert seen(data="MNIST") == ("MNIST", 3)
    assert seen(size=2) == ("MNIST", 2)
    # What every preset has is a change where the genuine data have another.
    assert seen(tone=5) == ("MNIST", 3)


def test_half_a_data_set_is_not_at_hand(seen, digits, tmp_path):
    digits()
    (tmp_path / "mnist" / MNIST.files[0].name).unlink()
    assert seen() == ("made-up", 1)


def test_what_workers_elsewhere_have_nobody_knows(seen, digits, monkeypatch, tmp_path):
    digits()
    sent = []
    monkeypatch.setattr(
        "flowbias.experiments.runner.run_on_cluster",
        lambda jobs, address: sent.extend(job.task.text("data") for job in jobs) or (),
    )
    run_many([of_pictures()], Options(Preset.SMOKE, cluster="tcp://127.0.0.1:9", cache=tmp_path))
    assert sent == ["made-up"]


def test_every_figure_with_stand_ins_has_settings_for_the_genuine_data():
    for experiment in EXPERIMENTS:
        assert bool(experiment.genuine) == bool(experiment.stand_ins(Preset.SMOKE))
        assert not experiment.on_genuine_data.stand_ins(Preset.SMOKE)
        assert experiment.genuine.keys() <= experiment.settings[Preset.SMOKE].keys()
