"""What claims on two-layer linear networks refuse, and that all of them have instances."""

import inspect
import re

import numpy as np
import pytest

from flowbias import theory
from flowbias.models import LinearNet
from flowbias.problems.matrix import MatrixRegression
from flowbias.theory.measured_flow import follow_weights
from tests.theory.linear_network_instances import (
    LINEAR_NETWORK_CLAIMS,
    flow_start,
)
from tests.theory.verdicts import why_nothing


def small():
    return LinearNet(np.eye(2), np.eye(2)), np.eye(2), 2.0 * np.eye(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.convergence_rate(small()[0], np.eye(2), np.eye(2)), "zero error"),
        (lambda: theory.convergence_rate(small()[0], np.eye(3), np.eye(3)), "net: must have"),
        (lambda: theory.exponential_guarantee(*small(), [-1.0]), "t: must"),
        (lambda: theory.exponential_guarantee(*small(), [50.0]), "earlier times"),
        (lambda: theory.local_guarantee(*small(), [0.1]), "two times"),
        (lambda: theory.scalar_rate(1.0, 2.0, 2.0), "y: must differ"),
        (lambda: theory.smallest_singular_value(np.eye(2), np.ones((3, 1))), "B: must have"),
        (lambda: theory.scaled_imbalance(*small(), 0.0), "factor: must"),
        (lambda: theory.attaining_weights(np.triu(np.ones((2, 2))), np.eye(2)), "symmetric"),
        (lambda: theory.attaining_weights(-np.eye(3), np.ones((3, 1))), "negative eigenvalues"),
        (lambda: theory.wide_start_bounds(3, 1, 2, 10), "width: must be > 16"),
        (lambda: theory.wide_start_bounds(3, 1, 2, 10**6, exponent=0.2), "exponent: must"),
        (lambda: theory.wide_start_bounds(3, 1, 2, 10**6, delta=1.5), "delta: must"),
        (lambda: theory.product_singular_values(np.eye(3), np.ones((3, 2))), "n = 3 <= m"),
        (lambda: theory.output_orthogonality_is_not_enough(0.0, 1.0), "y: must"),
    ],
)
def test_refused_with_a_reason(call, message):
    assert re.search(message, why_nothing(call))


def test_refusals_that_need_a_start():
    rng = np.random.default_rng(9)
    net, X, Y = flow_start(rng)
    assert re.search("margin", why_nothing(theory.margin_guarantee, net, X, 1e-6 * Y, [0.1]))
    saddle = LinearNet(np.diag([1.0, 0.0]), np.diag([1.0, 0.0]))
    assert re.search(
        "saddle",
        why_nothing(follow_weights, saddle, MatrixRegression(np.eye(2), np.eye(2) * 1.5)),
    )
    assert re.search(
        "c\\(0\\) > 0",
        why_nothing(
            lambda: theory.weights_converge(
                LinearNet(0.1 * np.eye(2), 0.1 * np.eye(2)), np.eye(2), np.eye(2)
            )
        ),
    )
    wide = theory.wide_start_bounds(2, 1, 1, 10**4)
    assert re.search(
        "singular values",
        why_nothing(
            lambda: theory.wide_start(LinearNet(np.eye(2, 3), np.ones((1, 3))), [[1.0, 0.0]], wide)
        ),
    )
    inside = LinearNet.invariant(X, Y.shape[1], width=9, scale=0.8, rng=rng)
    assert re.search(
        "never leaves",
        why_nothing(
            lambda: theory.growth_from_invariant_set(
                LinearNet(np.eye(2, 3), [[0.0, 0.0, 1.0]]), [[1.0, 0.0]], [[1.0]]
            )
        ),
    )
    assert inside.invariance_defect(X) < 1e-12


def test_every_claim_here_has_instances():
    modules = {
        "convergence_guarantees",
        "imbalance_bounds",
        "imbalance_tightness",
        "linear_networks",
        "wide_networks",
    }
    public = {
        name
        for name in theory.__all__
        if inspect.isfunction(function := getattr(theory, name))
        and function.__module__.rsplit(".", 1)[1] in modules
        and "Claim" in str(inspect.signature(function).return_annotation)
    }
    assert public == set(LINEAR_NETWORK_CLAIMS)
