"""Two ways to the same trajectory that share only the integrator, and the limit as a third."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import flow
from flowbias.ground.arguments import InputError
from flowbias.limits import limit
from flowbias.models import Model
from flowbias.potentials import L2, DistancePotential, Hypentropy
from tests.registry import FEATURES, MODELS

EVERY_MODEL = pytest.mark.parametrize("model", [pytest.param(m, id=name) for name, m in MODELS])
RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, FEATURES))
Y = np.array([0.5, -1.0, 0.8])
TIMES = [0.01, 0.1, 0.5, 2.0]
# A few hundred local errors of 1e-11, in weights of order one.
TIGHT = 2e-9


@EVERY_MODEL
def test_dual_and_parameter_routes_agree(model):
    dual = flow(model, X, Y, t=TIMES, route="dual")
    parameter = flow(model, X, Y, t=TIMES, route="parameter")
    # In the predictor a local error counts times the weights, here up to ten.
    assert_allclose(parameter.w, dual.w, rtol=TIGHT, atol=10 * TIGHT)
    assert_allclose(parameter.residual, dual.residual, rtol=1e-6, atol=10 * TIGHT)
    assert parameter.dual is None
    for t in TIMES:
        for a, b in zip(parameter.parameters(t), dual.parameters(t), strict=True):
            assert_allclose(a, b, rtol=TIGHT, atol=TIGHT)


@EVERY_MODEL
def test_conserved_quantities_are_constant_along_the_parameter_flow(model):
    trajectory = flow(model, X, Y, t=TIMES, route="parameter")
    assert trajectory.conserved_drift < TIGHT
    # Not by being trivial: the weights themselves move.
    moved = np.concatenate(
        [
            np.ravel(a - b)
            for a, b in zip(trajectory.parameters(2.0), trajectory.parameters(0.0), strict=True)
        ]
    )
    assert np.abs(moved).max() > 1e-3


@EVERY_MODEL
def test_the_flow_ends_at_the_limit(model):
    trajectory = flow(model, X, Y)
    assert trajectory.residual[-1] <= 1e-8
    # The residual times the condition number of the last Jacobian; one-signed coordinates that
    # go to zero do so last.
    assert trajectory.distance_to_limit < 1e-5


@EVERY_MODEL
def test_the_dual_is_the_certificate(model):
    trajectory = flow(model, X, Y, t=TIMES)
    z = trajectory.dual @ X
    frozen = model.potential.hess_dual(model.shift + np.zeros(FEATURES)) == 0.0
    back = model.potential.grad(trajectory.w) - model.shift
    # Digits of w lost in its own rounding come back divided by w'.
    slope = model.potential.hess_dual(model.shift + z)
    with np.errstate(divide="ignore", invalid="ignore"):
        allowed = 1e-10 * (1.0 + np.abs(trajectory.w) / slope)
    assert np.all(frozen | (np.abs(back - z) <= allowed))


@pytest.mark.parametrize(
    "potential", [Hypentropy(0.3), DistancePotential(0.5), L2(weights=2.0)], ids=repr
)
def test_a_bare_potential_flows_at_rate_one(potential):
    trajectory = flow(potential, X, Y)
    assert trajectory.distance_to_limit < 1e-6
    with pytest.raises(InputError, match="PARAMETERS"):
        trajectory.parameters(0.0)
    with pytest.raises(InputError, match="PARAMETERS"):
        flow(potential, X, Y, route="parameter")


def test_the_flow_of_the_l2_potential_in_closed_form():
    # Q = ||w||^2/2: w(t) = X^T K^-1 (I - e^{-K t}) y, K = X X^T.
    values, vectors = np.linalg.eigh(X @ X.T)
    trajectory = flow(L2(), X, Y, t=TIMES)
    for t, w in zip(TIMES, trajectory.w, strict=True):
        fitted = vectors @ (-np.expm1(-values * t) / values * (vectors.T @ Y))
        assert_allclose(w, X.T @ fitted, rtol=0, atol=TIGHT)


class SharedWeights(NamedTuple):
    left: np.ndarray
    right: np.ndarray


class Rotated(Model):
    """w = A^T (a * b) with fixed A: a user's model, of its own shape, that has no potential."""

    mixing = np.random.default_rng(5).standard_normal((4, FEATURES))

    def initial_parameters(self):
        return SharedWeights(np.full(4, 0.5), np.array(0.3) * np.ones((4, 1)))

    def predictor(self, parameters):
        return self.mixing.T @ (parameters.left * parameters.right[:, 0])

    def parameter_gradient(self, parameters, g):
        pulled = self.mixing @ g
        return SharedWeights(parameters.right[:, 0] * pulled, (parameters.left * pulled)[:, None])


def test_a_users_model_needs_three_methods():
    trajectory = flow(Rotated(), X, Y)
    assert trajectory.route == "parameter"
    assert trajectory.residual[-1] <= 1e-8
    weights = trajectory.parameters(trajectory.t[-1])
    assert isinstance(weights, SharedWeights)
    assert weights.right.shape == (4, 1)
    assert_allclose(X @ trajectory.w[-1], Y, atol=1e-7)
    with pytest.raises(NotImplementedError, match="Write conserved"):
        _ = trajectory.conserved_drift
    with pytest.raises(InputError, match="POTENTIAL"):
        limit(Rotated(), X, Y)
    with pytest.raises(InputError, match="POTENTIAL"):
        flow(Rotated(), X, Y, route="dual")
