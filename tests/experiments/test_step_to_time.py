"""Descent on the flow's axis of time: the sound table passes, each check notices its own."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

from flowbias.experiments.beyond.step_to_time import EXPERIMENT
from flowbias.experiments.beyond.timed_descents import ModifiedFlow
from flowbias.experiments.table import Table
from flowbias.flows import flow, gradient_descent
from flowbias.models import MatrixFactorization
from flowbias.problems.matrix import MatrixCompletion
from tests.experiments.conformance import Conformance
from tests.experiments.judging import Corruption, higher, scaled, smoke_table


@pytest.fixture(scope="module")
def table() -> Table:
    return smoke_table(EXPERIMENT)


def to_the_power(column: str, power: float, start: str) -> Corruption:
    """The column multiplied by a power of the step: another exponent."""

    def corrupt(table: Table) -> Table:
        chosen = (table["part"] == "order") & (table["start"] == start)
        factor = np.where(chosen, (table["share"] / 0.5) ** power, 1.0)
        return table.replaced(**{column: factor * table[column]})

    return corrupt


def ahead_of_the_flow(table: Table) -> Table:
    """ln L of one descent 60% farther than it is."""
    chosen = (table["share"] == 0.25) & (table["start"] == "network")
    return table.replaced(
        descent_loss=np.where(chosen, table["descent_loss"] ** 1.6, table["descent_loss"])
    )


def at_the_rate_of_the_flow(table: Table) -> Table:
    """Both rates without what the step adds."""
    return table.replaced(rate=table["flow_rate"], step_rate=table["flow_rate"])


def hardly_faster(table: Table) -> Table:
    rate = 1.01 * table["flow_rate"]
    return table.replaced(rate=rate, step_rate=rate)


CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    ({"losses-collapse"}, ahead_of_the_flow),
    ({"distance-is-of-first-order"}, to_the_power("distance", 0.2, "network")),
    ({"distance-is-of-first-order"}, to_the_power("distance", -0.2, "completion")),
    ({"distance-is-of-first-order"}, scaled("distance", 0.0, share=0.5**6, start="network")),
    ({"modified-distance-is-of-second-order"}, to_the_power("modified_distance", 0.2, "network")),
    (
        {"modified-distance-is-of-second-order"},
        to_the_power("modified_distance", -1.0, "completion"),
    ),
    ({"drift-is-of-first-order"}, to_the_power("drift", 0.2, "completion")),
    ({"drift-is-of-first-order"}, to_the_power("drift", -0.2, "network")),
    ({"modified-drift-is-of-second-order"}, to_the_power("modified_drift", -1.0, "network")),
    ({"modified-drift-is-of-second-order"}, to_the_power("modified_drift", 0.2, "completion")),
    ({"flow-conserves-the-imbalance"}, higher("flow_drift", 2e-8)),
    ({"flow-conserves-the-imbalance"}, scaled("drift", 1e-9, part="order")),
    ({"late-rates-are-known"}, scaled("rate", 1.02, share=0.125, start="network")),
    ({"late-rates-are-known"}, scaled("step_rate", 1.02, share=0.125, start="completion")),
    ({"descent-is-faster-late"}, at_the_rate_of_the_flow),
    ({"descent-is-faster-late"}, hardly_faster),
    ({"width-is-free"}, higher("apart", 1e-10)),
    ({"width-is-free"}, scaled("steps", 0.0, part="weights")),
]
VALUES = [
    *("loss", "descent_loss", "distance", "modified_distance", "drift", "modified_drift"),
    *("flow_drift", "rate", "step_rate", "flow_rate"),
]


class TestChecks(Conformance):
    experiment = EXPERIMENT
    corruptions = CORRUPTIONS
    values = VALUES
    whole = ("apart",)  # one row


def test_it_is_drawn(table):
    losses, distances, drifts = EXPERIMENT.plot(table).axes
    assert len(losses.lines) == 6  # the flow and two descents, twice
    assert len(distances.lines) == len(drifts.lines) == 6  # two starts twice, two powers
    assert "steps" in losses.get_xlabel()


# --- the modified flow -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def completion():
    rng = np.random.default_rng(2)
    flat = rng.choice(12, 8, replace=False)
    problem = MatrixCompletion(flat // 3, flat % 3, rng.standard_normal(8), (4, 3))
    return problem, MatrixFactorization(
        0.5 * rng.standard_normal((4, 5)), 0.5 * rng.standard_normal((3, 5))
    )


def test_it_is_the_gradient_of_the_modified_loss(completion):
    """Against differences of L + (h/4) ||grad L||^2 itself."""
    problem, model = completion
    h = 0.3

    def modified_loss(flat):
        U, V = flat[:20].reshape(4, 5), flat[20:].reshape(3, 5)
        r = problem.measure(U @ V.T) - problem.target
        R = problem.adjoint(r)
        return 0.5 * r @ r + 0.25 * h * (np.sum((R @ V) ** 2) + np.sum((R.T @ U) ** 2))

    root = model.root
    velocity = ModifiedFlow(root, problem, h)._velocity(root).reshape(-1)
    differences = approx_fprime(root.reshape(-1), modified_loss, 1e-7)
    assert_allclose(velocity, -differences, rtol=1e-5, atol=1e-6)


def test_without_a_step_it_is_the_flow(completion):
    problem, model = completion
    times = np.array([0.0, 0.5, 3.0])
    roots = ModifiedFlow(model.root, problem, 0.0).roots_at(times)
    products = roots[:, :4] @ np.swapaxes(roots[:, 4:], 1, 2)
    assert_allclose(products, flow(model, problem, t=times).M, rtol=0, atol=1e-8)


def test_one_step_agrees_to_third_order(completion):
    problem, model = completion
    apart = []
    for h in (0.02, 0.01):
        run = gradient_descent(model, problem, step_size=h, max_steps=1)
        first, after = run.root_at([0, 1])
        there = ModifiedFlow(first, problem, h).roots_at(np.array([0.0, h]))[1]
        apart.append(np.linalg.norm(after - there))
    assert_allclose(apart[0] / apart[1], 8.0, rtol=0.1)
