"""Potentials found by integration, against the closed forms of the papers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.derive import derived_model
from flowbias.derive.derived_model import DerivedModel
from flowbias.derive.derived_potential import DerivedPotential
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.unit_time import Evaluations
from flowbias.ground.arguments import InputError
from flowbias.potentials import check_potential
from flowbias.results.solution import SolveError

# Asked for: 1e-8 of the closed forms. What integration at 1e-12 per step gives: about 1e-12.
CLOSED_FORM = 1e-11
# u^D - v^D of weights around 1 is rounded at 1e-16, however small the difference.
ROUNDED = 1e-15
LIMIT = 1e-10
START = np.array([0.5, 0.8, 1.1])


def tied(depth, plus=START, minus=START):
    d = len(plus)
    F = Parametrization(lambda th: th[:d] ** depth - th[d:] ** depth, np.concatenate([plus, minus]))
    return DerivedPotential(F)


def untied(weights):
    d = weights.shape[1]
    F = Parametrization(
        lambda th: th[:d] * th[2 * d : 3 * d] - th[d : 2 * d] * th[3 * d :], weights.ravel()
    )
    return DerivedPotential(F)


# A closed form in the units of the flow's own time: rate * z is what the library calls z.
CLOSED = {
    2: (fb.Hypentropy(scale=START), 4.0),
    3: (fb.DepthPotential(depth=3, scale=START), 3.0),
    5: (fb.DepthPotential(depth=5, scale=START), 15.0),
}


@pytest.mark.parametrize("depth", CLOSED)
def test_every_function_agrees_with_the_closed_form(depth):
    potential, (closed, rate) = tied(depth), CLOSED[depth]
    unit = np.exp(closed.log_unit) / rate
    for w in (np.array([0.3, -1.0, 2.0]), np.array([-1e-6, 1e-3, 0.02])):
        dual = closed.grad(w)
        z = dual * unit
        assert_allclose(potential.grad_dual(z), w, rtol=CLOSED_FORM, atol=ROUNDED)
        assert_allclose(potential.grad(w), z, rtol=CLOSED_FORM, atol=ROUNDED)
        slopes = np.diag(closed.hess_dual(dual) / unit)
        assert_allclose(potential.hess_dual(z), slopes, rtol=CLOSED_FORM, atol=1e-14)
        assert_allclose(potential.value(w), closed.value(w) * unit, rtol=CLOSED_FORM)
        assert_allclose(potential.conjugate(z), closed.conjugate(dual) * unit, rtol=CLOSED_FORM)


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_untied_start_of_any_shape(seed):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 1.2, (4, 3)) * rng.choice([-1.0, 1.0], (4, 3))
    potential = untied(weights)
    net = fb.UntiedDiagonalNet.from_weights(*weights)
    z = rng.uniform(-1.0, 1.0, 3)
    # mirror_rate g: the library's dual point is g z, counted from its own zero.
    closed = net.potential.grad_dual(net.shift + net.mirror_rate * z)
    assert_allclose(potential.grad_dual(z), closed, rtol=CLOSED_FORM, atol=CLOSED_FORM)


@pytest.mark.parametrize("depth", CLOSED)
def test_limit_through_the_derived_potential(depth):
    rng = np.random.default_rng(depth)
    X, y = rng.standard_normal((2, 3)), 0.5 * rng.standard_normal(2)
    minus = START * rng.uniform(0.7, 1.2, 3)  # a biased start
    derived = fb.limit(DerivedModel(tied(depth, START, minus).model), X, y)
    known = fb.limit(fb.DiagonalNet.from_weights(START, minus, depth=depth), X, y)
    assert derived.certificate.ok
    assert_allclose(derived.w, known.w, rtol=LIMIT, atol=LIMIT)


def test_limit_of_an_untied_start():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((2, 3)), rng.standard_normal(2)
    weights = rng.uniform(0.2, 1.2, (4, 3))
    known = fb.limit(fb.UntiedDiagonalNet.from_weights(*weights), X, y)
    assert_allclose(fb.limit(untied(weights), X, y).w, known.w, rtol=LIMIT, atol=LIMIT)


# The last step of a flow may overdraw, and the smoothness test has a few calls of its own.
SLACK = 500


class Counted(Parametrization):
    """How often J^T z was evaluated."""

    calls = 0

    def pulled_back(self, theta, z):
        self.calls += 1
        return super().pulled_back(theta, z)


BEYOND = {
    "above the range": (torch.sigmoid, 3.2),
    "below the range": (torch.square, -1.0),
}


@pytest.mark.parametrize("name", BEYOND)
def test_targets_that_cannot_be_reached_are_given_up_soon(name):
    F, target = BEYOND[name]
    counted = Counted(F, [0.5, 0.8, 0.3])
    with pytest.raises(SolveError, match=r"gave up with X w .* of y away.* y seems out of reach"):
        fb.limit(DerivedModel(counted), [[1.0, 1.0, 1.0]], [target])
    assert counted.calls <= derived_model.MOST_EVALUATIONS + SLACK


def test_a_far_target_is_met_but_not_certified():
    """w = theta^2 keeps its proportions; the straight line back from 1e20 has no double steps."""
    start = np.array([0.5, 0.8, 0.3])
    counted = Counted(torch.square, start)
    found = DerivedModel(counted).limit([[1.0, 1.0, 1.0]], [1e20], throw=False)
    assert_allclose(found.w, 1e20 * start**2 / np.sum(start**2), rtol=1e-9)
    assert "w is too far from w(0)" in found.message
    assert counted.calls <= derived_model.MOST_EVALUATIONS + SLACK


def test_a_spent_budget_ends_a_solve_and_is_not_remembered(monkeypatch):
    model = DerivedModel(tied(3).model)
    X, y = np.array([[1.0, 0.5, -0.3]]), np.array([0.8])
    monkeypatch.setattr(derived_model, "MOST_EVALUATIONS", 100)
    with pytest.raises(SolveError, match="all 100 evaluations of F spent"):
        model.limit(X, y)
    monkeypatch.undo()
    assert model.limit(X, y).certificate.ok
    spent = DerivedPotential(model.parametrization, evaluations=Evaluations(0))
    assert np.isnan(spent.grad_dual(np.array([0.1, 0.0, 0.0]))).all()


def test_conformance():
    two = np.array([0.5, 0.8])
    check_potential(tied(3, two, 0.9 * two), dual_points=[[0.2, -0.1]])


def test_conformance_where_fields_mix_the_predictors():
    """w = A exp(B theta) with B B^T diagonal: commuting fields, but no coordinate separates."""
    A = np.array([[1.0, 0.5], [0.3, 1.0]])
    B = np.array([[0.6, 0.8], [0.8, -0.6]])
    F = Parametrization(
        lambda th: th.new_tensor(A) @ (th.new_tensor(B) @ th).exp(), np.array([0.1, 0.2])
    )
    potential = DerivedPotential(F)
    assert abs(potential.hess_dual(np.zeros(2))[0, 1]) > 0.1
    check_potential(potential, dual_points=[[0.1, -0.2]])


def test_outside_the_domain():
    # Depth 3: the dual is bounded by 1/(3 a); w = exp(theta): the predictor is positive.
    potential = tied(3)
    z = np.array([0.99, 0.0, 0.0]) / (3.0 * START)
    assert np.isfinite(potential.grad_dual(z)).all()
    assert np.isnan(potential.grad_dual(1.02 * z)).all()
    assert np.isnan(potential.hess_dual(1.02 * z)).all()
    assert potential.conjugate(1.02 * z) == np.inf
    positive = DerivedPotential(Parametrization(lambda th: th.exp(), [0.3, -0.2]))
    assert np.isnan(positive.grad(np.array([1.0, -0.1]))).all()
    assert positive.value(np.array([1.0, -0.1])) == np.inf
    assert np.isnan(positive.grad_dual(np.array([np.nan, 0.0]))).all()


def test_result_does_not_depend_on_what_was_asked_before():
    z, w = np.array([0.1, -0.2, 0.05]), np.array([0.2, 0.1, -0.3])
    fresh, used = tied(3), tied(3)
    for k in range(3):
        used.grad(w + 0.01 * k)
        used.grad_dual(z - 0.01 * k)
    assert_allclose(used.grad_dual(z), fresh.grad_dual(z), rtol=0)
    assert_allclose(used.grad(w), fresh.grad(w), rtol=0)


def test_one_point_at_a_time():
    with pytest.raises(InputError, match=r"z: must be one vector of shape \(3,\), got shape"):
        tied(2).grad_dual(np.zeros((4, 3)))
