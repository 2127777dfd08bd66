"""Experiments beyond the papers: sound tables pass, and each check notices its corruption."""

from collections.abc import Callable

import numpy as np
import pytest

from flowbias.experiments._base import Preset
from flowbias.experiments.beyond import descent_vs_flow, rich_limit
from flowbias.experiments.beyond.descent_vs_flow import UNSTABLE
from flowbias.experiments.beyond.rich_limit import best_place
from flowbias.experiments.table import Table
from tests.experiments.conformance import Conformance
from tests.experiments.judging import Corruption, higher, smoke_table

SELECTION, DESCENT = rich_limit.EXPERIMENT, descent_vs_flow.EXPERIMENT


@pytest.fixture(scope="module")
def selection() -> Table:
    return smoke_table(SELECTION)


@pytest.fixture(scope="module")
def descent() -> Table:
    return smoke_table(DESCENT)


def changed(column: str, rows: Callable[[Table], np.ndarray], change: Callable) -> Corruption:
    """`column` changed in some rows."""

    def corrupt(table: Table) -> Table:
        return table.replaced(
            **{column: np.where(rows(table), change(table[column]), table[column])}
        )

    return corrupt


# --- what depth selects ------------------------------------------------------------------------


def end_of_depth_10(table):
    return (table["depth"] == 10) & (table["log10_start"] == np.nanmin(table["log10_start"]))


def end_of_depth(depth):
    def rows(table):
        return (table["depth"] == depth) & (table["decades"] == np.nanmax(table["decades"]))

    return rows


def slower_approach(rows):
    """The distance to its ninth tenth power, at some depths."""

    def corrupt(table):
        way = table["place"] - table["optimum"]
        slow = table["optimum"] + np.sign(way) * np.abs(way) ** 0.9
        return table.replaced(place=np.where(rows(table["depth"]), slow, table["place"]))

    return corrupt


def first_of_curve(table):
    return (table["part"] == "curve") & (table["exponent"] == 1.0)


def deep_starts_to_be_slow(table):
    """Depth 3 far away down to 1e-30, depth 2 down to 1e-1000."""
    late = {2: 1000.0, 3: 30.0}
    spoiled = {}
    for depth, column in ((2, "to_plain"), (3, "to_weighted")):
        early = (table["depth"] == depth) & (table["decades"] < late[depth])
        spoiled[column] = np.where(early, 0.1, table[column])
    return table.replaced(**spoiled)


def one_of_moderate_start(table):
    """A single limit, so that its share alone is not what is noticed."""
    return np.arange(len(table)) == np.flatnonzero(table["decades"] < 100.0)[0]


def at_depth_3(table):
    return table["depth"] == 3


def depth_4_before_depth_3(table):
    """Consistent in itself, but out of order."""
    columns = ("place", "selected", "optimum")
    at_4 = table["depth"] == 4
    return table.replaced(**{name: table[name] - 0.002 * at_4 for name in columns})


def reached_at_once(table):
    early = (table["depth"] == 2) & (table["decades"] == np.nanmin(table["decades"]))
    return table.replaced(to_plain=np.where(early, 1e-4, table["to_plain"]))


# Which checks notice what. Some mistakes cannot be made in one place alone.
SELECTION_CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    ({"many-minimizers"}, higher("l1_norm", 1e-6)),
    ({"many-minimizers"}, higher("is_unique", 1.0)),
    ({"limit-is-selected"}, changed("place", end_of_depth_10, lambda place: place + 1e-6)),
    ({"selection-is-optimum"}, higher("selected", 1e-8)),
    ({"rate-on-segment"}, slower_approach(lambda depth: depth == 2)),
    ({"rate-on-segment"}, slower_approach(lambda depth: depth == 6)),
    ({"depth-moves-selection"}, depth_4_before_depth_3),
    ({"depth-moves-selection"}, changed("optimum", first_of_curve, lambda place: place + 1e-6)),
    ({"certified"}, higher("error_bound", 1e-4)),
    ({"limits-are-proved"}, changed("proved", end_of_depth(2), lambda _: 0.0)),
    ({"limits-are-proved"}, changed("proved", one_of_moderate_start, lambda _: 0.0)),
    ({"depth-2-forgets-shape"}, changed("to_plain", end_of_depth(2), lambda _: 1e-3)),
    ({"depth-2-forgets-shape"}, changed("to_weighted", end_of_depth(2), lambda _: 1e-3)),
    ({"depth-3-keeps-shape"}, changed("to_weighted", end_of_depth(3), lambda _: 1e-3)),
    ({"depth-3-keeps-shape"}, changed("to_plain", end_of_depth(3), lambda _: 1e-3)),
    ({"rich-limit-knows-weights"}, higher("rich_limit_distance", 1e-3)),
    ({"first-order"}, changed("first_order", at_depth_3, lambda distance: 1.1 * distance)),
    ({"powers-of-the-start"}, lambda table: table.replaced(margin=1.1 * table["margin"])),
    (
        {"powers-of-the-start", "first-order"},
        changed("first_order", at_depth_3, lambda distance: distance**1.1),
    ),
    ({"depth-makes-it-reachable"}, reached_at_once),
    ({"depth-makes-it-reachable", "first-order"}, deep_starts_to_be_slow),
]
SELECTION_VALUES = (
    "place",
    "l1_norm",
    "error_bound",
    "selected",
    "optimum",
    "is_unique",
    "to_plain",
    "to_weighted",
    "first_order",
    "rich_limit_distance",
    "margin",
    "proved",
)


class TestSelection(Conformance):
    experiment = SELECTION
    corruptions = SELECTION_CORRUPTIONS
    values = SELECTION_VALUES


def test_best_place_has_its_closed_form_at_both_ends():
    # Depth 2: w1 w3 = w2^2. Infinite depth: 1/w1 + 1/w3 = 2/w2. Both to brentq's 1e-15.
    t = best_place(1.0)
    assert (0.2 + t) * t == pytest.approx((0.8 - 2.0 * t) ** 2, rel=1e-13)
    t = best_place(0.0)
    assert 1.0 / (0.2 + t) + 1.0 / t == pytest.approx(2.0 / (0.8 - 2.0 * t), rel=1e-13)


@pytest.mark.parametrize("exponent", [0.2, 1 / 3, 0.5, 2 / 3, 0.9])
def test_no_place_on_the_segment_is_better(exponent):
    t = np.linspace(0.0, 0.4, 2001)
    total = np.sum(np.stack([0.2 + t, 0.8 - 2.0 * t, t]) ** exponent, axis=0)
    best = best_place(exponent)
    at_best = sum(w**exponent for w in (0.2 + best, 0.8 - 2.0 * best, best))
    # Rounding of three powers.
    assert at_best >= total.max() * (1.0 - 1e-15)
    assert abs(t[total.argmax()] - best) <= t[1]


def test_the_selection_is_drawn_on_three_axes(selection):
    first, second, third = SELECTION.plot(selection).axes
    assert {text.get_text() for text in first.texts} == {f"D = {d}" for d in (2, 3, 4, 6, 10)}
    assert "depth" in second.get_xlabel()
    assert "relative distance" in third.get_ylabel()


# --- descent beside flow -----------------------------------------------------------------------


def at_share(*shares):
    return lambda table: np.isin(table["share"], shares)


def steeper(column: str, power: float) -> Corruption:
    def corrupt(table: Table) -> Table:
        small = table["share"] <= 0.125
        bent = table[column] * table["share"] ** power
        return table.replaced(**{column: np.where(small, bent, table[column])})

    return corrupt


def exchanged_steps(table):
    """Half the stable step ends farther than nine tenths of it."""
    half, most = (np.flatnonzero(table["share"] == share) for share in (0.5, 0.9))
    distance = table["distance"].copy()
    distance[half], distance[most] = distance[most], distance[half]
    return table.replaced(distance=distance)


DESCENT_CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    ({"stable-steps-fit"}, changed("residual", at_share(0.25), lambda _: 1e-9)),
    ({"stable-steps-fit"}, changed("rests", at_share(0.5), lambda _: 0.0)),
    ({"proportional-to-step"}, steeper("distance", 0.3)),
    ({"proportional-to-step"}, steeper("distance", -0.3)),
    ({"explained-by-smaller-start"}, steeper("explained_distance", 0.3)),
    ({"explained-by-smaller-start"}, steeper("explained_distance", -0.3)),
    ({"step-shrinks-start"}, changed("largest_start", at_share(0.9), lambda start: 1.01 * start)),
    ({"step-shrinks-start"}, changed("typical_start", at_share(0.9), lambda _: 1.0)),
    ({"larger-step-ends-farther"}, exchanged_steps),
    ({"rest-is-flatter"}, changed("sharpness", at_share(1.1), lambda _: 1.01)),
    ({"rest-is-flatter"}, changed("rests", at_share(*UNSTABLE), lambda _: 0.0)),
    ({"unstable-steps-end-elsewhere"}, changed("distance", at_share(1.1), lambda far: far * 1e-3)),
    ({"large-steps-diverge"}, changed("diverges", at_share(5.0), lambda _: 0.0)),
]
DESCENT_VALUES = (
    "rests",
    "diverges",
    "residual",
    "distance",
    "sharpness",
    "explained_distance",
    "largest_start",
    "typical_start",
)


class TestDescent(Conformance):
    experiment = DESCENT
    corruptions = DESCENT_CORRUPTIONS
    values = DESCENT_VALUES


def test_descents_that_do_not_rest_are_infinitely_far(descent):
    restless = descent.rows(descent["rests"] == 0.0)
    assert len(restless) > 0
    assert np.isinf(restless["distance"]).all()
    assert (restless["share"] > 1.0).all()


def test_the_unit_of_the_step_is_the_stable_one(descent):
    """In the kernel regime descent and flow end so close that the share is the sharpness there."""
    kernel = descent.rows((descent["log10_start"] == 0.0) & (descent["share"] < 1.0))
    # The metric follows w, of which the weights hold a hundredth: distances below 1e-2 are below
    # 1e-3 in sharpness.
    assert kernel["sharpness"] == pytest.approx(kernel["share"], rel=1e-3)


def test_the_descent_is_drawn_on_three_axes(descent):
    for axes in DESCENT.plot(descent).axes:
        assert "step size h" in axes.get_xlabel()
        names = {text.get_text() for text in axes.texts}
        assert {"no rest", "unstable"} <= names
        assert len(names) == 5  # and one name per start


# --- both --------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", [SELECTION, DESCENT], ids=lambda made: made.name)
@pytest.mark.parametrize("preset", Preset)
def test_no_two_tasks_share_a_name(experiment, preset):
    names = [task.name for task in experiment.task_list(preset)]
    assert len(names) == len(set(names))
