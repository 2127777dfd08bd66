"""azulay2021, Figure 7.2 and the paths on it: each check notices what it is there for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.experiments.azulay import fig07_2
from flowbias.experiments.azulay.fig07_2 import DIRECTION, STARTS, NeuronStart, around
from flowbias.experiments.beyond import neuron_paths
from tests.experiments.conformance import Conformance


def _with_values(start, value, part="contour"):
    """The table with other level sets around one start: value(first, second)."""

    def corrupt(table):
        rows = (table["alpha"] == start.alpha) & (table["shape"] == start.shape)
        rows &= table["part"] == part
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
    ({"least-at-start"}, _with_values(NeuronStart(2.0, 0.0), _bumped)),
    ({"shape-gives-distance"}, _with_values(NeuronStart(2.0, 0.8), lambda x, y, v: v**1.2)),
    (
        {"small-scale-gives-norm"},
        _with_values(NeuronStart(0.01, 0.1), lambda x, y, v: v * (1.0 + 0.2 * np.sign(x))),
    ),
    (
        {"kernel-norm-near-start"},
        _with_values(NeuronStart(1.0, 0.1), _distance(NeuronStart(1.0, 0.1)), "near"),
    ),
    (
        {"not-kernel-in-between"},
        _with_values(
            NeuronStart(2.5, 0.1),
            lambda x, y, v: np.where(np.hypot(x - 1.5, y - 2.0) < 1.0, v, v + 0.5 * v**2),
        ),
    ),
]


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.title)
def test_the_level_sets_are_those_of_the_potential(start):
    """The paper's formula at many points at once, against the library's at one after the other."""
    points = np.random.default_rng(0).uniform(-10.0, 10.0, (50, 2))
    points[0] = 0.0
    potential, v0 = start.neuron.potential, start.alpha * DIRECTION
    expected = [potential.bregman(point, v0) for point in points]
    # Differences of terms of the size of the largest.
    assert_allclose(around(start, *points.T), expected, rtol=1e-13, atol=1e-13 * max(expected))


class TestContours(Conformance):
    experiment = fig07_2.EXPERIMENT
    corruptions = CONTOURS
    whole = ("value",)


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


class TestPaths(Conformance):
    experiment = neuron_paths.EXPERIMENT
    corruptions = PATHS
    whole = ("first", "limit_first", "searched_second", "least_first", "certified")
