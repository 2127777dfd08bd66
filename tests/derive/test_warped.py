"""Mirror flow after a change of time: one linear neuron has it all in closed form."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.derive.derived_model import WarpedModel
from flowbias.derive.derived_potential import (
    DerivedPotential,
    HessianWarp,
    WarpedPotential,
    along_dual,
    along_predictor,
    start_of,
)
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.time_warp import warp_field
from flowbias.derive.warped_limit import warped_limit
from flowbias.ground.arguments import InputError
from flowbias.potentials import check_potential
from flowbias.potentials.neuron import NeuronPotential
from flowbias.results.solution import SolveError, Status

V = {3: np.array([0.6, -0.3, 0.5]), 5: np.array([0.4, -0.3, 0.5, 0.2, -0.1])}
CLOSED_FORM = 1e-11


def neuron(a, v):
    return Parametrization(lambda th: th[0] * th[1:], np.concatenate([[a], v]))


def hopf():
    """R^4 -> R^3: J J^T = 4 |w| I depends on w alone though the orbit is all of R^4; g = |w|."""

    return Parametrization(hopf_map, np.array([0.7, -0.2, 0.4, 0.5]))


def hopf_map(th):
    x, y, u, v = th
    real, imaginary = 2 * (x * u + y * v), 2 * (y * u - x * v)
    return torch.stack([real, imaginary, x * x + y * y - u * u - v * v])


@pytest.mark.parametrize(("d", "a"), [(3, 1.2), (5, -0.9), (3, 0.4)])
def test_neuron_in_closed_form(d, a):
    """g = |a|, and grad Q counts the inner weight: (v - v(0))/|a(0)|.  [azulay2021, Theorem 2]"""
    v = V[d]
    potential, closed = WarpedPotential(neuron(a, v)), NeuronPotential(delta=a * a - v @ v)
    w = a * v + 0.2 * np.cos(np.arange(d))
    # The paper's potential has g = 3/2 |a|; ours g = 1 at the start.
    unit = 1.5 * abs(a)
    z = (closed.grad(w) - closed.grad(a * v)) / unit
    assert_allclose(potential.grad(w), z, rtol=CLOSED_FORM, atol=CLOSED_FORM)
    assert_allclose(potential.grad_dual(z), w, rtol=CLOSED_FORM, atol=CLOSED_FORM)
    hess = closed.hess_dual(closed.grad(w)) * unit
    assert_allclose(potential.hess_dual(z), hess, rtol=CLOSED_FORM, atol=CLOSED_FORM)
    assert_allclose(potential.value(w), closed.bregman(w, a * v) / unit, rtol=1e-9)
    outer, _ = closed.weights(float(np.linalg.norm(w)))
    assert_allclose(np.exp(potential.state_at(z).log_g), outer / abs(a), rtol=CLOSED_FORM)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_rate_of_g_is_the_least_squares_field(seed):
    """volume and stretch against phi of `time_warp`, which shares no formula with them."""
    rng = np.random.default_rng(seed)
    model = neuron(rng.uniform(0.5, 1.5), rng.uniform(-1.0, 1.0, 3))
    warp, c = HessianWarp(model), rng.standard_normal(3)
    J = model.jacobian(model.start)
    velocity, h = J.T @ c, 1e-5
    ahead, behind = (warp.volume(model.start + s * h * velocity) for s in (1.0, -1.0))
    rate = (ahead - behind) / (2 * h) - warp.stretch(model.start, c)
    # Central difference: h^2 times third derivatives of order 10.
    assert_allclose(rate, warp_field(model, model.start) @ (J @ velocity), rtol=1e-7, atol=1e-7)


def test_potential_does_not_depend_on_the_path():
    model = neuron(1.2, V[3])
    warp, start = HessianWarp(model), start_of(model)
    direct = along_dual(model, warp, start, np.array([0.3, -0.2, 0.1]))
    corner = along_dual(model, warp, start, np.array([0.5, 0.3, -0.4]))
    around = along_dual(model, warp, corner, direct.z - corner.z)
    line = along_predictor(
        model, warp, start, model.predictor_at(direct.theta) - model.initial, rtol=1e-12
    )
    for other in (around, line):
        assert_allclose(other.theta, direct.theta, atol=1e-11)
        assert_allclose(other.z, direct.z, atol=1e-11)
        assert_allclose(
            [other.potential, other.log_g], [direct.potential, direct.log_g], atol=1e-11
        )
    # Without the warp the same two paths end apart: the test can fail.
    plain = DerivedPotential(model).warp
    one = along_dual(model, plain, start, direct.z)
    two = along_dual(model, plain, along_dual(model, plain, start, corner.z), direct.z - corner.z)
    assert np.abs(one.theta - two.theta).max() > 1e-3


def test_conformance():
    check_potential(WarpedPotential(neuron(1.1, V[3][:2])), dual_points=[[0.2, -0.1]])


def test_conformance_fails_for_the_unwarped_potential_of_a_neuron():
    with pytest.raises(AssertionError, match="must not be below"):
        check_potential(DerivedPotential(neuron(1.1, V[3])), dual_points=[[0.5, 0.4, -0.3]])


def test_hopf_map_is_warped_to_the_euclidean_norm():
    potential = WarpedPotential(hopf())
    w0, w = potential.model.initial, potential.model.initial + np.array([0.1, -0.3, 0.2])
    # g H = I / (4 |w(0)|).
    weight = 1.0 / (4.0 * np.linalg.norm(w0))
    assert_allclose(potential.grad(w), weight * (w - w0), rtol=CLOSED_FORM)
    assert_allclose(potential.value(w), 0.5 * weight * np.sum((w - w0) ** 2), rtol=CLOSED_FORM)


def _data(model, seed, size):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2, model.d))
    return X, X @ model.initial + size * rng.standard_normal(2)


@pytest.mark.parametrize(("a", "d"), [(1.2, 3), (-0.8, 5)])
def test_limit_of_a_neuron(a, d):
    model = WarpedModel(neuron(a, V[d]))
    X, y = _data(model.parametrization, 1, 0.5)
    known = fb.limit(fb.Neuron(a=a, w=V[d]), X, y)
    found = model.limit(X, y)
    assert found.status is Status.CERTIFIED
    assert found.certificate.ok
    assert_allclose(found.w, known.w, rtol=1e-10, atol=1e-10)
    assert_allclose(X @ found.w, y, rtol=1e-10, atol=1e-10)


def test_bare_potential_in_the_solver_of_potentials_that_do_not_separate():
    model = neuron(1.2, V[3])
    X, y = _data(model, 1, 0.3)
    known = fb.limit(fb.Neuron(a=1.2, w=V[3]), X, y)
    assert_allclose(fb.limit(WarpedPotential(model), X, y).w, known.w, rtol=1e-9, atol=1e-9)


def test_limit_is_refused_where_the_outer_weight_changes_sign():
    """delta < 0 and data of the other sign: the start's branch has a stationary point as well."""
    v = V[3]
    model = WarpedModel(neuron(0.15, v))
    X = np.array([[1.0, 0.2, 0.1]])
    y = np.array([-1.5])
    trajectory = fb.flow(model, X, y)
    ended = trajectory.parameters(float(trajectory.t[-1]))[0]
    assert ended[0] < 0.0  # it does change sign
    with pytest.raises(SolveError, match="g fell to 0 on the way") as refusal:
        model.limit(X, y)
    solution = refusal.value.solution
    assert solution.status is Status.STALLED
    # How well the end fits is measured; what would take a dual is not known.
    assert not solution.certificate.ok
    assert solution.certificate.feasibility <= 1e-6
    assert np.isnan([solution.certificate.stationarity, solution.certificate.gap]).all()
    assert_allclose(solution.w, fb.limit(fb.Neuron(a=0.15, w=v), X, y).w, atol=1e-4)


def test_refusal_of_a_warped_model_says_why_in_the_solution():
    model = WarpedModel(neuron(0.15, V[3]))
    X, y = np.array([[1.0, 0.2, 0.1]]), np.array([-1.5])
    with pytest.raises(SolveError, match="g fell to 0 on the way"):
        fb.limit(model, X, y)
    assert "g fell to 0 on the way" in fb.limit(model, X, y, throw=False).message


def test_limit_where_theta_moves_at_fixed_predictor():
    """Hopf map: g H = I / (4 |w(0)|), so the limit is the nearest solution to w(0)."""
    model = WarpedModel(hopf())
    w0 = model.initial
    X, y = _data(model.parametrization, 0, 1.0)
    found = fb.limit(model, X, y)
    assert found.status is Status.CERTIFIED
    assert_allclose(found.w, w0 + np.linalg.lstsq(X, y - X @ w0)[0], atol=1e-10)
    # The reason for the rule: the flow's own parameters are not those of the straight line.
    trajectory = fb.flow(model.parametrization, X, y, residual=1e-6)
    ended = trajectory.parameters(float(trajectory.t[-1]))[0]
    start, warp = start_of(model.parametrization), model.potential.warp
    line = along_predictor(model.parametrization, warp, start, found.w - w0, rtol=1e-12)
    assert np.abs(line.theta - ended).max() > 1e-3


def test_limit_with_more_samples_than_features_is_least_squares():
    model = neuron(1.1, V[3])
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((5, 3)), rng.standard_normal(5) * 0.3
    found = warped_limit(WarpedPotential(model), X, y + X @ model.initial)
    assert found.status is Status.PROJECTED
    assert_allclose(found.w, np.linalg.lstsq(X, y + X @ model.initial)[0], atol=1e-10)
    # Asked for more digits than there are, it does not claim to have them.
    asked = warped_limit(WarpedPotential(model), X, y + X @ model.initial, tol=1e-30, throw=False)
    assert asked.status is Status.STALLED


def test_data_of_another_size():
    with pytest.raises(InputError, match=r"one column per predictor \(3\), got 2"):
        warped_limit(WarpedPotential(neuron(1.1, V[3])), np.eye(2), np.ones(2))


def test_value_where_the_straight_line_in_the_dual_leaves_the_domain():
    """delta < 0: rays of the dual run into the ball of the kink, straight lines in w need not."""
    inner = np.array([0.6, -0.3, 0.5])
    neuron = fb.Neuron(0.4, inner)
    model = Parametrization(lambda th: th[0] * th[1:], np.array([0.4, *inner]))
    far = neuron.initial - np.array([0.37, 0.0, 0.0])
    expected = neuron.potential.bregman(far, neuron.initial) / (1.5 * 0.4)
    assert_allclose(WarpedPotential(model).value(far), expected, rtol=1e-9)
