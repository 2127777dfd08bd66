"""woodworth2020, Figures 6(c), 6(d) and 8: each check notices what it is there for."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `nets`")

from flowbias.datasets.image_files import AbsentFileError  # noqa: E402
from flowbias.experiments._base import Preset, Task  # noqa: E402
from flowbias.experiments.catalogue import EXPERIMENTS  # noqa: E402
from flowbias.experiments.table import Table  # noqa: E402
from flowbias.experiments.woodworth import cifar10, fig06c, image_training  # noqa: E402
from flowbias.experiments.woodworth.image_training import (  # noqa: E402
    SOURCES,
    STAND_INS,
    made_up_digits,
    made_up_objects,
    split_of,
)
from flowbias.experiments.workers import rows_of  # noqa: E402
from flowbias.ground.arguments import InputError  # noqa: E402
from flowbias.kernels import linearized_flow  # noqa: E402
from flowbias.nets import mlp  # noqa: E402
from tests.experiments.judging import (  # noqa: E402
    alone_in,
    changed,
    failing,
    mostly_nan,
    named,
    names_of,
    passes_without,
    recorded,
    several,
)

FIGURES = {"6c": fig06c.EXPERIMENT, "6d": cifar10.EXPERIMENT, "8": cifar10.TRAINING_CURVES}


@pytest.fixture(scope="module")
def tables():
    found = {key: _smoke(FIGURES[key]) for key in ("6c", "8")}
    # Figure 6(d) is the ends of the curves of Figure 8: trained once here.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_training, "vgg_curve", _curve_in(found["8"]))
        found["6d"] = _smoke(FIGURES["6d"])
    return found


def _curve_in(table):
    recorded = ("epoch", "loss", "train_error", "error", "converged", "movement", "device")

    def curve(task):
        rows = table.where(scale=task.number("scale"))
        settings = ("images", "test_images", "width", "step_size", "step_power", "epochs")
        assert all(rows[key][0] == task.number(key) for key in settings)
        return {name: rows[name] for name in recorded}

    return curve


def _smoke(experiment):
    # As the runner does, which refuses columns that are named as settings.
    tasks = experiment.task_list(Preset.SMOKE)
    return Table.stack(rows_of(task, experiment.compute(task)) for task in tasks)


def _is(value):
    return lambda column: column == value


def _small(column):
    return column <= 2.0


def _large(column):
    return column >= 50.0


def _set(value):
    return lambda values: np.full(len(values), value)


def _levels(small, middle, large):
    """Errors of Figure 6(c) as a step; the last layer as good as large starts, no kernel is."""
    return several(
        changed("error", _set(small), part="network", scale=_small),
        changed("error", _set(middle), part="network", scale=lambda a: (a > 2.0) & (a < 50.0)),
        changed("error", _set(large), part="network", scale=_large),
        changed("error", _set(large), part="last-layer"),
        changed("error", _set(0.9), part="linearized"),
    )


CORRUPTIONS = {
    "6c": [
        ({"all-fit"}, changed("accuracy", _set(0.999), part="network", scale=_is(2.0))),
        ({"all-fit"}, changed("loss", _set(0.06), part="network", scale=_is(2.0))),
        (
            {"plateau-small"},
            several(
                _levels(0.1, 0.2, 0.2), changed("error", _set(0.03), part="network", scale=_is(0.3))
            ),
        ),
        (
            {"plateau-large"},
            several(
                _levels(0.1, 0.2, 0.2),
                changed("error", _set(0.3), part="network", scale=_is(100.0)),
                changed("error", _set(0.25), part="last-layer"),
            ),
        ),
        ({"large-starts-generalize-worse"}, _levels(0.10, 0.14, 0.14)),
        (
            # Where nothing is wrong nothing is worse, and there is no way from one to the other.
            {"large-starts-generalize-worse", "order", "transition", "standard-start-is-outside"},
            _levels(0.0, 0.0, 0.0),
        ),
        (
            {"order"},
            several(_levels(0.1, 0.2, 0.2), changed("error", _set(0.16), part="last-layer")),
        ),
        ({"linearized-errs-more"}, changed("error", _set(0.0), part="linearized", scale=_is(1.0))),
        ({"large-starts-are-random-features"}, changed("error", _set(0.6), part="last-layer")),
        (
            {"transition"},
            several(
                _levels(0.1, 0.11, 0.2),
                changed("error", _set(0.19), part="network", scale=_is(4.0)),
            ),
        ),
        (
            {"standard-start-is-outside"},
            several(
                _levels(0.1, 0.2, 0.2), changed("error", _set(0.14), part="network", scale=_is(1.0))
            ),
        ),
        (
            {"large-starts-hardly-move"},
            changed("movement", _set(0.5), part="network", scale=_large),
        ),
        ({"twin-interpolates"}, changed("residual", _set(1e-3), part="twin")),
        (
            {"twin-learns-from-small-starts"},
            changed("error", lambda e: 1.2 * e, part="twin", scale=_is(0.3)),
        ),
        (
            {"twin-drowns-in-large-starts"},
            changed("error", _set(0.75), part="twin", scale=_is(100.0)),
        ),
    ],
    "6d": [
        ({"all-fit"}, changed("train_error", _set(0.01), part="network", scale=_is(2.0))),
        ({"all-fit"}, changed("train_error", _set(0.0), part="last-layer")),
        ({"transition"}, changed("error", lambda e: e + 0.4, part="network", scale=_is(0.8))),
        (
            {"standard-start-is-outside"},
            changed("error", _set(0.3), part="network", scale=_is(1.0)),
        ),
        ({"last-layer-is-worse"}, changed("error", _set(0.0), part="last-layer")),
        (
            {"large-starts-hardly-move"},
            changed("movement", _set(9.0), part="network", scale=_is(2.0)),
        ),
    ],
    "8": [
        ({"all-fit"}, changed("train_error", lambda e: np.maximum(e, 0.01), part="curve")),
        (
            {"small-starts-are-slow"},
            changed("epoch", lambda e: e / 8, part="curve", scale=_is(0.8)),
        ),
        ({"large-starts-end-higher"}, changed("error", _set(0.0), part="curve", scale=_is(2.0))),
        ({"start-knows-nothing"}, changed("train_error", _set(0.55), part="curve", epoch=_is(0.0))),
    ],
}
CASES = [(key, names, corrupt) for key, rows in CORRUPTIONS.items() for names, corrupt in rows]


@pytest.mark.parametrize("key", FIGURES)
def test_the_sound_table_passes(tables, key):
    assert not failing(FIGURES[key], tables[key])


@pytest.mark.parametrize(("key", "names", "corrupt"), CASES, ids=named)
def test_checks_notice(tables, key, names, corrupt):
    assert failing(FIGURES[key], corrupt(tables[key])) == names


@pytest.mark.parametrize("key", FIGURES)
def test_every_check_fails_alone_somewhere(tables, key):
    assert alone_in(CORRUPTIONS[key]) == names_of(FIGURES[key], tables[key])


VALUES = {
    "6c": ["error", "accuracy", "loss", "movement", "residual", "limit_error"],
    "6d": ["error", "train_error", "movement"],
    "8": ["error", "train_error"],
}


@pytest.mark.parametrize(
    ("key", "column"), [(k, c) for k, columns in VALUES.items() for c in columns]
)
def test_nothing_passes_without(tables, key, column):
    assert not passes_without(FIGURES[key], tables[key], column)
    assert failing(FIGURES[key], mostly_nan(tables[key], column))


@pytest.mark.parametrize("key", ["6d", "8"])
def test_the_recorded_runs_show_what_the_gallery_says(key):
    """Of CIFAR-10 at preset paper, a quarter of an hour of one core each."""
    figure = FIGURES[key]
    table = recorded(f"{figure.name}-paper.csv")
    assert not failing(figure, table)
    settings = figure.settings[Preset.PAPER]
    assert set(table["data"]) == {settings["data"]}
    assert set(table["images"]) == {settings["images"]}
    assert table.levels("replicate").size == settings["replicates"]


def test_the_recorded_run_of_mnist_is_whole_and_fails_the_ratio_alone():
    """At preset paper, hours of one core."""
    figure = FIGURES["6c"]
    table = recorded(f"{figure.name}-paper.csv")
    assert failing(figure, table) == {"large-starts-generalize-worse"}
    for level in (0.0119, 0.0191):  # of 1.2% to 1.9%, which smoke is too small to be held to
        off = changed("error", _set(level), part="network", scale=_small)(table)
        assert "small-starts-level" in failing(figure, off)
    tasks = [dict(task.settings) | {"part": task.part} for task in figure.task_list(Preset.PAPER)]
    # The twin is one task for all scales.
    asked = {(t["part"], t.get("scale"), t.get("step_size")) for t in tasks if t["part"] != "twin"}
    single = table.rows(table["part"] != "twin")
    have = [*zip(single["part"], single["scale"], single["step_size"], strict=True)]
    assert sorted(have) == sorted(asked)


def test_a_seed_that_ends_early_is_not_covered_up_by_one_that_goes_on(tables):
    whole = tables["8"]
    short = whole.rows(whole["epoch"] <= 4.0).replaced(replicate=1.0)
    assert not failing(FIGURES["8"], Table.stack([whole, whole.replaced(replicate=1.0)]))
    assert "all-fit" in failing(FIGURES["8"], Table.stack([whole, short]))


@pytest.mark.parametrize("key", FIGURES)
def test_figures_say_what_was_trained_on(tables, key):
    figure = FIGURES[key].plot(tables[key])
    for axes in figure.axes:
        assert any("made-up" in text.get_text() for text in axes.texts)


@pytest.mark.parametrize("key", FIGURES)
def test_made_up_pictures_are_told_from_the_data_of_the_task(key):
    """At whatever preset: a smoke run of genuine pictures would not be called made up."""
    figure = FIGURES[key]
    told = {preset: figure.stand_ins(preset) for preset in Preset}
    assert told == {**dict.fromkeys(Preset, ""), Preset.SMOKE: "made-up pictures"}
    genuine = {"made-up digits": "MNIST", "made-up objects": "CIFAR-10"}
    smoke = dict(figure.settings[Preset.SMOKE])
    smoke["data"] = genuine[smoke["data"]]
    changed = dataclasses.replace(figure, settings={**figure.settings, Preset.SMOKE: smoke})
    assert changed.stand_ins(Preset.SMOKE) == ""
    # What is loaded says the same of itself.
    assert all(part.name == name for name in STAND_INS for part in SOURCES[name]())


def test_no_other_figure_has_anything_made_up():
    named = {e.name for e in EXPERIMENTS if e.stand_ins(Preset.SMOKE)}
    assert named == {figure.name for figure in FIGURES.values()}


def _task(**settings):
    fixed = {"data": "made-up digits", "replicate": 0, "images": 30, "choosing_images": 7}
    return Task("x", "twin", tuple({**fixed, "test_images": 20, "width": 60, **settings}.items()))


def test_the_twin_is_the_linearized_flow_at_infinity():
    task = _task(scales="0.5 3.0")
    split = split_of(task)
    columns = fig06c.twin_columns(task)
    for place, scale in enumerate((0.5, 3.0)):
        net = mlp((784, 60, 10), scale=scale, start="normal", rng=0, dtype=torch.float64)
        flow = linearized_flow(net, torch.from_numpy(split.train.x), np.eye(10)[split.train.y])
        wrong = flow.predict(torch.from_numpy(split.test.x)).argmax(1) != split.test.y
        assert columns["error"][place] == wrong.mean()


def test_a_split_shares_no_picture_and_depends_on_the_replicate():
    parts = split_of(_task(images=1980, choosing_images=20, test_images=9000))
    sizes = [len(part.y) for part in (parts.train, parts.choose, parts.test)]
    assert sizes == [1980, 20, 2000]
    rows = np.concatenate([parts.train.x, parts.choose.x, parts.test.x])
    assert len(np.unique(rows, axis=0)) == sum(sizes)
    assert not np.array_equal(split_of(_task(replicate=1)).train.y, split_of(_task()).train.y)


def test_pictures_to_choose_by_are_never_test_pictures():
    with pytest.raises(InputError, match="images: must be at most 2000 with those to choose by"):
        split_of(_task(images=1990, choosing_images=11))


@pytest.mark.parametrize("key", FIGURES)
def test_presets_but_smoke_use_genuine_images_and_never_fetch(tmp_path, monkeypatch, key):
    monkeypatch.setenv("FLOWBIAS_DATA", str(tmp_path))
    task = FIGURES[key].task_list(Preset.LAPTOP)[0]
    command = f"flowbias data fetch {task.text('data').lower().replace('-', '')}"
    _forget_images()
    with pytest.raises(AbsentFileError, match=command):
        FIGURES[key].compute(task)
    assert not any(tmp_path.iterdir())


def _forget_images():
    image_training._genuine.cache_clear()


@pytest.mark.parametrize("source", ["MNIST", "CIFAR-10"])
def test_genuine_images_have_the_shape_of_the_made_up_ones(source):
    try:
        train, test = SOURCES[source]()
    except AbsentFileError as error:
        pytest.skip(str(error))
    made = {"MNIST": made_up_digits, "CIFAR-10": made_up_objects}[source](5, 0)
    assert train.images.shape[1:] == test.images.shape[1:] == made.images.shape[1:]
    assert train.labels.max() == 9 > made.labels.max()
