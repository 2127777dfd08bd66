"""The closed form in time as a claim: what it refuses, and that it fails where the form is off."""

import re

import numpy as np
import pytest
import scipy.linalg

import flowbias as fb
from flowbias import theory
from flowbias.flows.lifted.closed_form import BalancedForm
from flowbias.theory import linear_networks
from tests.theory.linear_network_instances import balanced_start
from tests.theory.verdicts import why_nothing

STARTS = [balanced_start(np.random.default_rng(seed)) for seed in range(6)]
TIMES = [0.3, 1.0]


def holds(start, loss="half"):
    return [claim.holds for claim in theory.balanced_closed_form(*start, TIMES, loss)]


def test_starts_are_of_every_kind():
    levels = [net.imbalance(X).eigenvalues.sum() for net, X, _ in STARTS]
    signs = set(np.sign(np.round(levels, 9)))
    assert signs == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("loss", ["half", 0.3])
def test_one_claim_per_time(start, loss):
    assert holds(start, loss) == [True, True]


def test_hidden_units_that_are_zero_change_nothing():
    V = np.array([[0.3, -0.5], [0.2, 0.9]])
    U = scipy.linalg.sqrtm(V.T @ V + 0.7 * np.eye(2))
    padded = (np.pad(part, ((0, 0), (0, 9))) for part in (U, V))
    assert holds((fb.LinearNet(*padded), np.eye(2), np.array([[1.0, 0.0], [0.5, 2.0]])))


@pytest.mark.parametrize("start", STARTS)
def test_another_clock_fails(start, monkeypatch):
    at = BalancedForm.at
    monkeypatch.setattr(BalancedForm, "at", lambda form, t: at(form, (1.0 + 1e-6) * t))
    assert holds(start) == [False, False]


@pytest.mark.parametrize("start", STARTS)
def test_another_imbalance_fails(start, monkeypatch):
    monkeypatch.setattr(BalancedForm, "imbalance", 0.123)
    assert holds(start) == [False, False]


@pytest.mark.parametrize("change", [(1.0, 1.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.01), (1.01, 1, 1, 1)])
def test_another_scalar_form_fails(change, monkeypatch):
    """Without the imbalance, at another time, for another target."""
    ours = linear_networks.scalar_product
    assert theory.scalar_closed_form(0.7, -0.2, 1.5, 0.8).holds

    def other(*arguments):
        return ours(*(a * b for a, b in zip(arguments, change, strict=True)))

    monkeypatch.setattr(linear_networks, "scalar_product", other)
    assert not theory.scalar_closed_form(0.7, -0.2, 1.5, 0.8).holds


def test_scalar_form_passes_zero_and_stays_where_it_must():
    assert theory.scalar_closed_form(1.0, -0.9, 2.0, 1.5).measured > 0.0 > 1.0 * -0.9
    saddle = theory.scalar_closed_form(0.5, -0.5, 1.0, 3.0)  # balanced, of the wrong sign
    assert saddle.holds
    assert -0.25 < saddle.predicted < 0.0


def test_needs_balance_and_whitened_data():
    X, Y = np.eye(2), np.array([[1.0, 0.0], [0.5, 2.0]])
    net = fb.LinearNet.balanced([[0.5, 0.1], [0.2, -0.3]])
    assert re.search(
        "X: must have equal singular values, got 2 to 1",
        why_nothing(theory.balanced_closed_form, net, np.diag([1.0, 2.0]), Y, TIMES),
    )
    uneven = fb.LinearNet([[1.0, 0.0], [0.0, 2.0]], np.eye(2))
    assert re.search(
        r"^net: must be .* got 1\.5 off lam = 1\.5\.",
        why_nothing(theory.balanced_closed_form, uneven, X, Y, TIMES),
    )
