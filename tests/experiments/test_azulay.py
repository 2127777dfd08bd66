"""azulay2021, Figure 7.1: the sound table passes, and each check notices what it is there for."""

from collections.abc import Callable

import numpy as np
import pytest

from flowbias.experiments.azulay.fig07_1 import EXPERIMENT
from flowbias.experiments.azulay.scale_and_shape import shape_of
from flowbias.experiments.table import Table
from tests.experiments.conformance import Conformance
from tests.experiments.judging import Corruption, higher, smoke_table

VALUES = (
    "error",
    "tied_error",
    "tied_distance",
    "error_bound",
    "l1_error",
    "l2_error",
    "sign_distance",
    "flow_distance",
)


@pytest.fixture(scope="module")
def table() -> Table:
    return smoke_table(EXPERIMENT)


def both_errors(table: Table, change: Callable[[np.ndarray], np.ndarray]) -> Table:
    """The error of both networks changed alike, so that they still agree."""
    return table.replaced(error=change(table["error"]), tied_error=change(table["tied_error"]))


def rich_too_far(table):
    """Low errors up to a control of 1e-2."""
    early = table["log10_control"] <= -2.0
    return both_errors(table, lambda error: np.where(early, table["l1_error"], error))


def exchanged_shapes(table):
    """The second shape is worse than the third; s = 0 stays the best."""
    _, second, third, *_ = table.part("grid").levels("shape")
    order = np.arange(len(table))
    is_grid = table["part"] == "grid"
    at_second, at_third = (np.flatnonzero(is_grid & (table["shape"] == s)) for s in (second, third))
    order[at_second], order[at_third] = at_third, at_second
    return both_errors(table, lambda error: error[order])


def slowly_better_with_shape(table):
    """0.07 percent less from shape to shape: too little to be seen from one to the next."""
    index = np.searchsorted(table.part("grid").levels("shape"), table["shape"])
    plateau = table["log10_alpha"] >= 0.0
    return both_errors(table, lambda error: np.where(plateau, error * 0.9993**index, error))


def shape_without_effect(table):
    """Every shape has the error of s = 0 at its scale."""
    grid = table["part"] == "grid"
    order = np.arange(len(table))
    for row in np.flatnonzero(grid & (table["shape"] > 0.0)):
        same = grid & (table["shape"] == 0.0) & (table["replicate"] == table["replicate"][row])
        order[row] = np.flatnonzero(same & (table["log10_alpha"] == table["log10_alpha"][row]))[0]
    return both_errors(table, lambda error: error[order])


def last_shape_never_rich(table):
    last = table["shape"] == table.part("grid").levels("shape")[-1]
    return both_errors(table, lambda error: np.where(last, np.maximum(error, 0.03), error))


def low_at_the_first_control_only(table):
    """What the rich end costs is no longer low, and neither is least l1 norm."""
    later = table["log10_control"] > np.nanmin(table["log10_control"][table["part"] == "grid"])
    spoiled = both_errors(table, lambda error: np.where(later, np.maximum(error, 0.026), error))
    return spoiled.replaced(l1_error=np.maximum(table["l1_error"], 0.026))


# Which checks notice what. Some mistakes cannot be made in one place alone.
CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    ({"rich-where-control-is-small"}, rich_too_far),
    ({"rich-where-control-is-small"}, higher("l1_error", -0.006)),
    ({"rich-where-control-is-small", "shape-towards-kernel"}, low_at_the_first_control_only),
    ({"kernel-where-control-is-large"}, higher("l2_error", 0.05)),
    ({"kernel-where-control-is-large"}, higher("l2_error", -0.05)),
    ({"shape-towards-kernel"}, exchanged_shapes),
    ({"shape-towards-kernel"}, last_shape_never_rich),
    (
        {
            "shape-towards-kernel",
            "rich-where-control-is-small",
            "kernel-where-control-is-large",
        },
        shape_without_effect,
    ),
    ({"balanced-is-best"}, slowly_better_with_shape),
    ({"one-quantity-decides"}, higher("tied_distance", 1e-6)),
    ({"one-quantity-decides"}, higher("tied_error", 1e-6)),
    ({"sign-of-shape"}, higher("sign_distance", 1e-6)),
    ({"weights-integrated"}, higher("flow_distance", 1e-4)),
    ({"certified"}, higher("error_bound", 1e-4)),
]


class TestChecks(Conformance):
    experiment = EXPERIMENT
    corruptions = CORRUPTIONS
    values = VALUES


def test_shapes_have_the_growth_they_are_named_after():
    growth = np.linspace(0.0, 4.0, 13)
    shape = shape_of(growth)
    # 1 - s^2 = 1e-4 keeps twelve of sixteen digits.
    assert np.log10((1.0 + shape**2) / (1.0 - shape**2)) == pytest.approx(growth, abs=1e-11)
    assert shape[0] == 0.0
    assert shape[-1] == pytest.approx(0.9999, abs=1e-8)


def test_the_map_covers_the_corner_where_shape_wins(table):
    grid = table.part("grid")
    assert grid.levels("shape")[-1] > 0.9998
    # From rich to kernel at the last shape, and at s = 0.
    for shape in grid.levels("shape")[[0, -1]]:
        error = grid.where(shape=shape)["error"]
        assert error.min() < 0.03
        assert error.max() > 0.8


def test_every_row_of_the_map_shares_its_data(table):
    grid = table.part("grid")
    for replicate in grid.levels("replicate"):
        assert len(grid.where(replicate=replicate).levels("l2_error")) == 1
    assert len(grid.levels("l2_error")) == len(grid.levels("replicate"))


def test_it_is_drawn_on_two_axes_and_a_colour_bar(table):
    figure = EXPERIMENT.plot(table)
    map_axes, collapse_axes, bar = figure.axes
    assert "shape of the start s" in map_axes.get_xlabel()
    assert "scale of the start α" in map_axes.get_ylabel()
    assert "√k/4" in collapse_axes.get_xlabel()
    assert "population error" in bar.get_ylabel()
    # One white line with its value per level.
    values = [text.get_text() for text in map_axes.texts]
    levels = table.part("level").levels("log10_control")
    assert values == [f"$10^{{{level:g}}}$" for level in levels]
