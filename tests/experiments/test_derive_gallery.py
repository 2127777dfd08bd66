"""The gallery of derived potentials: each check notices what it is there for."""

import numpy as np
import pytest

from flowbias.experiments.beyond.derive_gallery import EXPERIMENT, WITH_POTENTIAL, WITHOUT
from tests.experiments.conformance import Conformance
from tests.experiments.judging import smoke_table

NONE, WARPED = "no potential of the predictor alone", "mirror flow after a time warp"


@pytest.fixture(scope="module")
def table():
    return smoke_table(EXPERIMENT)


def _changed(column, key, change):
    def corrupt(table):
        rows = table["example"] == key
        assert rows.any()
        values = table[column].copy()
        if values.dtype.kind == "U":
            values = values.astype("U200")
        values[rows] = change(values[rows])
        return table.replaced(**{column: values})

    return corrupt


CORRUPTIONS = [
    ({"potentials-exist"}, _changed("verdict", "squares", lambda _: NONE)),
    ({"no-potential"}, _changed("verdict", "two-neurons", lambda _: WARPED)),
    ({"no-potential"}, _changed("warp_residual", "two-neurons", lambda _: 1e-8)),
    ({"reasons"}, _changed("reason", "cubes", lambda _: "")),
    ({"as-printed"}, _changed("exact", "cubes", lambda v: (1.0 + 1e-6) * v)),
    ({"as-printed"}, _changed("value", "cubes", lambda v: 1.01 * v)),
    ({"convex"}, _changed("value", "exponential", lambda v: -v)),
]


class TestChecks(Conformance):
    experiment = EXPERIMENT
    corruptions = CORRUPTIONS
    whole = ("value", "exact", "closed_form", "warp_residual")


def test_examples_are_listed_once():
    assert not set(WITH_POTENTIAL) & set(WITHOUT)
    assert len(EXPERIMENT.panels) == 1 + len(WITH_POTENTIAL)


def test_every_verdict_is_among_the_few(table):
    assert len(np.unique(table["verdict"])) == 3
