"""The figure on steps, batches, noise, momentum and decay: its checks notice what they are for."""

import numpy as np

from flowbias.experiments.beyond.descent_steps import EXPERIMENT, SHARES
from tests.experiments.conformance import Conformance
from tests.experiments.judging import Corruption, higher, scaled, smoke_table


def at_end(samples: int, factor: float) -> Corruption:
    """Errors of the longest step times a factor."""
    return scaled("error", factor, samples=samples, share=SHARES[-1])


def certificate_lost(table):
    return table.replaced(certified=np.where(table["share"] == SHARES[2], 0.0, table["certified"]))


def spread_evenly(table):
    """Gains of all samples that do not know the support."""
    return table.replaced(gain_all=np.where(np.isnan(table["gain_all"]), np.nan, 1.0))


class TestDescentSteps(Conformance):
    experiment = EXPERIMENT
    corruptions = (
        ({"explained"}, higher("distance", 1e-5)),
        ({"explained"}, certificate_lost),
        ({"explained"}, scaled("nominal", 1e-6)),
        ({"full-batches-hinder"}, at_end(0, 0.5)),
        ({"small-batches-help"}, at_end(1, 3.0)),
        ({"gain-on-support"}, spread_evenly),
        ({"noise-drifts"}, scaled("effective_error", 1e3)),
        ({"momentum-lengthens"}, scaled("ratio", 1.2)),
        ({"decay-is-lasso"}, higher("apart", 1e-4)),
        ({"decay-is-lasso"}, higher("gap", 1e-4)),
    )
    whole = ("distance", "nominal", "certified", "error", "gain_all", "gain_one", "ratio", "apart")


def test_it_is_drawn_on_five_axes():
    first, second, third, fourth, fifth = EXPERIMENT.plot(smoke_table(EXPERIMENT)).axes
    assert {text.get_text() for text in first.texts} == {"all samples", "batches of 1"}
    assert "gain" in second.get_ylabel()
    assert "its effective limit" in {text.get_text() for text in third.texts}
    assert "momentum" in fourth.get_xlabel()
    assert "lasso" in fifth.get_ylabel()
