"""The gallery of derived potentials: each check notices what it is there for."""

import numpy as np
import pytest

from flowbias.experiments.beyond.derive_gallery import EXPERIMENT, WITH_POTENTIAL, WITHOUT
from tests.experiments.conformance import Conformance
from tests.experiments.judging import changed, smoke_table

NONE, WARPED = "no potential of the predictor alone", "mirror flow after a time warp"


@pytest.fixture(scope="module")
def table():
    return smoke_table(EXPERIMENT)


CORRUPTIONS = [
    ({"potentials-exist"}, changed("verdict", lambda _: NONE, example="squares")),
    ({"no-potential"}, changed("verdict", lambda _: WARPED, example="two-neurons")),
    ({"no-potential"}, changed("warp_residual", lambda _: 1e-8, example="two-neurons")),
    ({"reasons"}, changed("reason", lambda _: "", example="cubes")),
    ({"as-printed"}, changed("exact", lambda v: (1.0 + 1e-6) * v, example="cubes")),
    ({"as-printed"}, changed("value", lambda v: 1.01 * v, example="cubes")),
    ({"convex"}, changed("value", lambda v: -v, example="exponential")),
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
