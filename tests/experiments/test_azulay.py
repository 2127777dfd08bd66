"""azulay2021, Figure 7.1: the sound table passes, and each check notices what it is there for."""

import numpy as np
import pytest

from flowbias.experiments._base import Preset
from flowbias.experiments.azulay import fig07_1
from flowbias.experiments.azulay.fig07_1 import EXPERIMENT, FOLLOWED, PAPER_SHAPES, shape_of
from flowbias.experiments.table import Table
from flowbias.limits import limit
from flowbias.models import UntiedDiagonalNet
from tests.experiments.conformance import Conformance
from tests.experiments.judging import Corruption, higher, smoke_table

VALUES = ("error", "error_bound", "l1_error", "l2_error", "to_balanced", "to_limit")


@pytest.fixture(scope="module")
def table() -> Table:
    return smoke_table(EXPERIMENT)


def errors(table: Table, chosen: np.ndarray, value: object) -> Table:
    """Other errors in some rows of the map."""
    chosen = chosen & (table["part"] == "grid")
    assert chosen.any()
    return table.replaced(error=np.where(chosen, value, table["error"]))


def rich_too_far(table):
    """Low errors up to a control of 1e-2."""
    return errors(table, table["log10_control"] <= -2.0, table["l1_error"])


def exchanged_shapes(table):
    """The second shape is worse than the third; s = 0 stays the best."""
    _, second, third, *_ = table.part("grid").levels("shape")
    order = np.arange(len(table))
    is_grid = table["part"] == "grid"
    at_second, at_third = (np.flatnonzero(is_grid & (table["shape"] == s)) for s in (second, third))
    order[at_second], order[at_third] = at_third, at_second
    return errors(table, is_grid, table["error"][order])


def slowly_better_with_shape(table):
    """0.07 percent less from shape to shape: too little to be seen from one to the next."""
    index = np.searchsorted(table.part("grid").levels("shape"), table["shape"])
    return errors(table, table["log10_alpha"] >= 0.0, table["error"] * 0.9993**index)


def shape_without_effect(table):
    """Every shape has the error of s = 0 at its scale."""
    grid = table["part"] == "grid"
    order = np.arange(len(table))
    for row in np.flatnonzero(grid & (table["shape"] > 0.0)):
        same = grid & (table["shape"] == 0.0) & (table["replicate"] == table["replicate"][row])
        order[row] = np.flatnonzero(same & (table["log10_alpha"] == table["log10_alpha"][row]))[0]
    return errors(table, grid, table["error"][order])


def last_shape_never_rich(table):
    last = table["shape"] == table.part("grid").levels("shape")[-1]
    return errors(table, last, np.maximum(table["error"], 0.03))


def low_at_the_first_control_only(table):
    """What the rich end costs is no longer low, and neither is least l1 norm."""
    later = table["log10_control"] > np.nanmin(table["log10_control"][table["part"] == "grid"])
    spoiled = errors(table, later, np.maximum(table["error"], 0.026))
    return spoiled.replaced(l1_error=np.maximum(table["l1_error"], 0.026))


def on_the_papers_curve(shape: float, factor: float) -> Corruption:
    def corrupt(table: Table) -> Table:
        chosen = (table["part"] == "paper") & (table["shape"] == shape)
        return table.replaced(error=np.where(chosen, factor * table["error"], table["error"]))

    return corrupt


# Which checks notice what. Some mistakes cannot be made in one place alone.
CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    ({"papers-curves-are-ordered"}, on_the_papers_curve(0.5, 1.3)),
    ({"papers-curves-are-ordered"}, on_the_papers_curve(0.99, 0.1)),
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
    ({"one-quantity-decides"}, higher("to_balanced", 1e-4)),
    ({"limits-are-where-weights-end"}, higher("to_limit", 1e-4)),
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


def test_a_limit_that_does_not_know_the_shape_is_noticed(monkeypatch):
    """The flows know nothing of the formula by which limits are computed."""
    monkeypatch.setattr(
        fig07_1, "limit", lambda net, X, y: limit(UntiedDiagonalNet(log_scale=net.log_scale), X, y)
    )
    task = next(task for task in EXPERIMENT.task_list(Preset.SMOKE) if task.part == "flow")
    found = Table.of(EXPERIMENT.compute(task))
    # Where both layers are equally large the two formulas are one.
    assert found["to_limit"][0] < 100.0 * fig07_1.FLOW_RESIDUAL
    assert (found["to_limit"][1:] > 100.0 * fig07_1.FLOW_RESIDUAL).all()
    assert (found["to_balanced"] < 100.0 * fig07_1.FLOW_RESIDUAL).all()


def test_it_is_drawn_on_three_axes_and_a_colour_bar(table):
    paper_axes, map_axes, collapse_axes, bar = EXPERIMENT.plot(table).axes
    assert "scale of the start α" in paper_axes.get_xlabel()
    assert paper_axes.get_xscale() == "linear"
    labels = [text.get_text() for text in paper_axes.get_legend().get_texts()]
    assert labels == [f"s = {shape:g}" for shape in PAPER_SHAPES]
    assert {line.get_xdata().size for line in paper_axes.lines} == {20}
    assert "shape of the start s" in map_axes.get_xlabel()
    assert "scale of the start α" in map_axes.get_ylabel()
    assert "√k/4" in collapse_axes.get_xlabel()
    assert len(collapse_axes.get_legend().get_texts()) == len(FOLLOWED)
    assert "population error" in bar.get_ylabel()
    # One white line with its value per level.
    assert [text.get_text() for text in map_axes.texts] == [
        f"$10^{{{x:g}}}$" for x in range(-8, 3, 2)
    ]
