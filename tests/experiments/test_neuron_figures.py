"""azulay2021, Figure 7.2 and the paths on it: each check notices what it is there for."""

import numpy as np
import pytest

from flowbias.experiments.azulay import fig07_2
from flowbias.experiments.azulay.neuron_contours import DIRECTION, Start
from flowbias.experiments.beyond import neuron_paths
from tests.experiments.judging import (
    alone_in,
    failing,
    named,
    names_of,
    passes_without,
    smoke_table,
)


@pytest.fixture(scope="module")
def contours():
    return smoke_table(fig07_2.EXPERIMENT)


@pytest.fixture(scope="module")
def paths():
    return smoke_table(neuron_paths.EXPERIMENT)


def _with_values(start, value):
    """The table with other level sets around one start: value(first, second)."""

    def corrupt(table):
        rows = (table["alpha"] == start.alpha) & (table["shape"] == start.shape)
        values = table["value"].copy()
        values[rows] = value(table["first"][rows], table["second"][rows], values[rows])
        return table.replaced(value=values)

    return corrupt


def _distance(start):
    """The squared distance from the start."""
    first, second = start.alpha * DIRECTION
    return lambda x, y, _: (x - first) ** 2 + (y - second) ** 2


def _bumped(x, y, value):
    """Lower far from the start than there."""
    return np.where(np.hypot(x + 2.0, y + 2.0) < 0.3, 0.0, value + 1e-3)


CONTOURS = [
    ({"least-at-start"}, _with_values(Start(2.0, 0.0), _bumped)),
    ({"shape-gives-distance"}, _with_values(Start(2.0, 0.8), lambda x, y, v: v**1.1)),
    (
        {"small-scale-gives-norm"},
        _with_values(Start(0.01, 0.1), lambda x, y, v: v * (1.0 + 0.2 * np.sign(x))),
    ),
    ({"kernel-norm-near-start"}, _with_values(Start(1.0, 0.1), _distance(Start(1.0, 0.1)))),
    (
        {"not-kernel-in-between"},
        _with_values(
            Start(2.5, 0.1),
            lambda x, y, v: np.where(np.hypot(x - 1.5, y - 2.0) < 1.0, v, v + 0.5 * v**2),
        ),
    ),
]


def test_the_sound_contours_pass(contours):
    assert not failing(fig07_2.EXPERIMENT, contours)


@pytest.mark.parametrize(("names", "corrupt"), CONTOURS, ids=named)
def test_contour_checks_notice(contours, names, corrupt):
    assert failing(fig07_2.EXPERIMENT, corrupt(contours)) == names


def test_every_contour_check_fails_alone_somewhere(contours):
    assert alone_in(CONTOURS) == names_of(fig07_2.EXPERIMENT, contours)


def test_nothing_passes_without_values(contours):
    assert not passes_without(fig07_2.EXPERIMENT, contours, "value")


def _moved(column, by, **where):
    def corrupt(table):
        rows = table["part"] == "path"
        for key, value in where.items():
            rows &= table[key] == value
        values = table[column].copy()
        values[rows] += by
        return table.replaced(**{column: values})

    return corrupt


PATHS = [
    ({"flow-reaches-limit"}, _moved("first", 1e-6)),
    ({"limit-is-least"}, _moved("searched_second", 0.02, alpha=1.0)),
    ({"certified"}, _moved("certified", -1.0, alpha=2.5)),
    ({"scale-decides"}, _moved("least_first", 0.5, alpha=0.01)),
]


def test_the_sound_paths_pass(paths):
    assert not failing(neuron_paths.EXPERIMENT, paths)


@pytest.mark.parametrize(("names", "corrupt"), PATHS, ids=named)
def test_path_checks_notice(paths, names, corrupt):
    assert failing(neuron_paths.EXPERIMENT, corrupt(paths)) == names


def test_every_path_check_fails_alone_somewhere(paths):
    assert alone_in(PATHS) == names_of(neuron_paths.EXPERIMENT, paths)


@pytest.mark.parametrize(
    "column", ["first", "limit_first", "searched_second", "least_first", "certified"]
)
def test_no_path_passes_without(paths, column):
    assert not passes_without(neuron_paths.EXPERIMENT, paths, column)
