"""Parametrizations that separate, coordinate by coordinate, against closed forms and flows."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import flowbias as fb
from flowbias.derive.derived_model import DerivedModel, SeparableModel, mirror_model
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.separable_potential import CoordinateFlows, SeparablePotential, owners
from flowbias.designs.tasks import Coordinates
from flowbias.potentials import check_potential
from flowbias.problems.regression import InputError
from flowbias.results.solution import SolveError, Status

N, D = 8, 20
# 1e-12 a step, a few hundred steps of one sign.
FOLLOWED = 1e-10
SCALES = (10.0, 1.0, 0.03, 1e-3, 1e-5, 1e-8)


def data(seed=0, sparse=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    return X, X[:, :3] @ [1.0, -1.0, 0.5] if sparse else rng.standard_normal(N)


def tied(depth, scale, d=D, shape=1.0):
    F = Parametrization(lambda th: th[:d] ** depth - th[d:] ** depth, np.full(2 * d, scale) * shape)
    return mirror_model(F)


def cubic(start):
    """u v^2 - a b^2, which has no closed form."""
    u, v, a, b = np.split(np.arange(len(start)), 4)
    return mirror_model(Parametrization(lambda th: th[u] * th[v] ** 2 - th[a] * th[b] ** 2, start))


class Counted(Parametrization):
    """How often J^T z was evaluated."""

    calls = 0

    def pulled_back(self, theta, z):
        self.calls += 1
        return super().pulled_back(theta, z)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("depth", [2, 3])
def test_limits_of_our_own_networks_at_any_scale(depth, scale, sparse):
    X, y = data(sparse=sparse)
    found = fb.limit(tied(depth, scale), X, y)
    known = fb.limit(fb.DiagonalNet(depth=depth, scale=scale), X, y)
    assert found.status is Status.CERTIFIED
    assert_allclose(found.w, known.w, rtol=FOLLOWED, atol=FOLLOWED)


def test_an_untied_start_of_any_shape():
    X, y = data(1)
    weights = np.random.default_rng(1).uniform(1e-4, 1e-2, (4, D))
    F = Parametrization(
        lambda th: th[:D] * th[2 * D : 3 * D] - th[D : 2 * D] * th[3 * D :], weights.ravel()
    )
    known = fb.limit(fb.UntiedDiagonalNet.from_weights(*weights), X, y)
    assert_allclose(fb.limit(mirror_model(F), X, y).w, known.w, rtol=FOLLOWED, atol=FOLLOWED)


@pytest.mark.parametrize("scale", [0.1, 0.03, 0.01, 1e-3])
def test_a_parametrization_without_a_closed_form_is_solved_within_few_evaluations(scale):
    X, y = data(2)
    start = np.full(4 * D, scale)
    u, v, a, b = np.split(np.arange(4 * D), 4)
    F = Counted(lambda th: th[u] * th[v] ** 2 - th[a] * th[b] ** 2, start)
    found = fb.limit(SeparableModel(F, np.tile(np.arange(D), 4)), X, y)
    assert found.status is Status.CERTIFIED
    # 13 for each step of the flows and for each trial of Newton's method: a few hundred of either.
    assert F.calls < 20_000


def test_a_limit_without_a_closed_form_is_where_the_parameters_go():
    """DOP853 in the 4 d parameters, which knows nothing of potentials."""
    d, n = 3, 2
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    start = np.repeat([0.5, 0.4, 0.6, 0.5], d) * rng.uniform(0.8, 1.2, 4 * d)
    model = cubic(start)

    def field(_, theta):
        residual = X @ model.parametrization.predictor_at(theta) - y
        return model.parametrization.pulled_back(theta, -X.T @ residual)

    run = solve_ivp(field, (0.0, 400.0), start, method="DOP853", rtol=1e-10, atol=1e-13)
    end = model.parametrization.predictor_at(run.y[:, -1])
    assert np.abs(X @ end - y).max() < 1e-8
    assert_allclose(fb.limit(model, X, y).w, end, rtol=1e-7, atol=1e-7)


def mixed():
    def predictor(th):
        return torch.stack([th[0] ** 2 - th[1] ** 2, th[2].exp(), th[3].tanh(), th[4] * th[5]])

    return Parametrization(predictor, [0.5, 0.5, 0.1, 0.2, 0.3, 0.1])


def test_blocks_of_different_kinds():
    X, y = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.5, 0.2]]), np.array([1.0, 2.0])
    model = mirror_model(mixed())
    assert owners(mixed()).tolist() == [0, 0, 1, 2, 3, 3]
    found = fb.limit(model, X, y)
    assert_allclose(found.w, fb.limit(DerivedModel(mixed()), X, y).w, rtol=1e-9)
    # tanh and exp have their ranges.
    assert abs(found.w[2]) < 1.0
    assert found.w[1] > 0.0


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), depth=st.sampled_from([2, 3, 4]))
def test_every_function_of_a_biased_start_agrees_with_the_closed_form(seed, depth):
    rng = np.random.default_rng(seed)
    plus, minus = 10.0 ** rng.uniform(-3.0, 1.0, (2, 3))
    potential = mirror_model(
        Parametrization(lambda th: th[:3] ** depth - th[3:] ** depth, np.concatenate([plus, minus]))
    ).potential
    net = fb.DiagonalNet.from_weights(plus, minus, depth=depth)
    closed, rate, shift = net.potential, net.mirror_rate, net.shift
    w = plus**depth - minus**depth + rng.choice([-1.0, 1.0], 3) * 10.0 ** rng.uniform(-6.0, 3.0, 3)
    z = (closed.grad(w) - shift) / rate
    # What one unit in the last place of w and of the start is worth in z.
    blur = (
        1e-15 * (np.abs(w) + plus**depth + minus**depth) / (rate * closed.hess_dual(closed.grad(w)))
    )
    assert (np.abs(potential.grad(w) - z) <= 1e-11 * np.abs(z) + blur).all()
    back = potential.grad_dual(potential.grad(w))
    assert_allclose(back, w, rtol=1e-12, atol=1e-15 * float((plus**depth + minus**depth).max()))


@pytest.mark.parametrize(
    ("F", "start"),
    [
        (lambda th: th[:2] ** 3 - th[2:] ** 3, [0.5, 0.8, 0.4, 0.8]),
        (torch.sigmoid, [0.3, -0.4]),
        (torch.exp, [0.1, 0.3]),
    ],
)
def test_conformance(F, start):
    potential = mirror_model(Parametrization(F, start)).potential
    check_potential(potential, dual_points=[[0.2, -0.1], [-0.3, 0.05], [0.05, 0.2]])


def test_outside_the_domain():
    # Depth 3: the dual is bounded by 1/(3 a); w = exp(theta) is positive.
    potential = tied(3, 0.5, 2).potential
    end = 1.0 / (3.0 * 0.5)
    assert np.isfinite(potential.grad_dual(np.array([0.999 * end, 0.0]))).all()
    beyond = potential.grad_dual(np.array([1.001 * end, 0.1]))
    assert np.isnan(beyond[0])
    assert np.isfinite(beyond[1])
    assert potential.conjugate(np.array([1.001 * end, 0.0])) == np.inf
    positive = mirror_model(Parametrization(torch.exp, [0.3, -0.2])).potential
    assert np.isnan(positive.grad(np.array([1.0, -0.1]))).tolist() == [False, True]
    assert positive.value(np.array([1.0, -0.1])) == np.inf
    assert np.isnan(positive.grad_dual(np.array([np.nan, np.inf]))).all()
    with pytest.raises(InputError, match=r"z: must have one entry per coordinate \(2\)"):
        positive.grad_dual(np.zeros(3))


def test_result_does_not_depend_on_what_was_asked_before():
    z = np.array([0.1, -0.2])
    fresh, used = tied(3, 0.5, 2).potential, tied(3, 0.5, 2).potential
    used.grad_dual(np.array([0.6, -0.6]))
    used.grad(np.array([1e3, 1.0]))
    assert_allclose(used.grad_dual(z), fresh.grad_dual(z), rtol=0)


BEYOND = {
    "above": (torch.sigmoid, 3.2),
    "below": (torch.square, -1.0),
    "two-sided": (torch.tanh, 4.0),
    "positive": (torch.exp, -1e-3),
}
WITHIN = {
    "above": (torch.sigmoid, 2.99),
    "below": (torch.square, 1e20),
    "two-sided": (torch.tanh, -2.99),
    "positive": (torch.exp, 1e-3),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_target_out_of_reach_is_refused_with_numbers(name):
    F, target = BEYOND[name]
    counted = Counted(F, [0.5, 0.8, 0.3])
    with pytest.raises(SolveError, match=r"gave up with X w .*twice that .*y seems out of reach"):
        fb.limit(SeparableModel(counted, np.arange(3)), [[1.0, 1.0, 1.0]], [target])
    # 600 steps to either side at most, a rejected one for each, and Newton's trials.
    assert counted.calls < 40_000


@pytest.mark.parametrize("name", WITHIN)
def test_a_target_just_within_reach_is_met(name):
    F, target = WITHIN[name]
    found = fb.limit(mirror_model(Parametrization(F, [0.5, 0.8, 0.3])), [[1.0, 1.0, 1.0]], [target])
    assert_allclose(found.w.sum(), target, rtol=1e-10)


def test_a_dual_that_promises_more_and_more_has_not_run_off():
    """From 1e-20 the first steps promise next to nothing, and y is within reach all the same."""
    X, y = np.array([[1.0, 2.0, -1.0]]), np.array([1.0])
    found = tied(2, 1e-20, 3).limit(X, y, throw=False)
    assert "out of reach" not in found.message


def test_parameters_that_are_shared_are_not_taken_apart():
    A = np.array([[1.0, 0.5], [0.3, 1.0]])
    mixing = Parametrization(lambda th: th.new_tensor(A) @ th.exp(), [0.1, 0.2])
    assert owners(mixing) is None
    # Only where the second parameter has moved does it show in the first predictor.
    shy = Parametrization(
        lambda th: torch.stack([th[0] + (th[1] - 1.0) ** 2, th[1] ** 2]), [0.5, 1.0]
    )
    assert owners(shy) is None
    assert isinstance(mirror_model(mixing), DerivedModel)


def test_a_derived_model_is_a_model():
    X, y = data(sparse=True)
    model, net = tied(2, 0.1), fb.DiagonalNet(depth=2, scale=0.1)
    log_scales = [1.0, -3.0, -12.0]
    path = fb.limit_path(model, X, y, log_scales=log_scales)
    known = fb.limit_path(net, X, y, log_scales=log_scales)
    assert path.certified
    assert_allclose(path.w, known.w, rtol=FOLLOWED, atol=FOLLOWED)
    assert_allclose(model.tangent_kernel(X), net.tangent_kernel(X), rtol=1e-12)
    limit, same = fb.limit(model, X, y), fb.limit(net, X, y)
    assert_allclose(limit.sensitivity().dw_dy, same.sensitivity().dw_dy, atol=1e-10)
    blocks = fb.limit(model, scipy.sparse.csr_array(X), y)
    assert_allclose(blocks.w, limit.w, rtol=1e-9, atol=1e-9)
    trajectory, other = fb.flow(model, X, y), fb.flow(net, X, y)
    # Both to a residual of 1e-8.
    assert_allclose(trajectory.at(0.5), other.at(0.5), atol=1e-6)
    assert_allclose(trajectory.parameters(0.5)[0][:D], other.parameters(0.5)[0], atol=1e-6)


def test_log_scales_that_lose_the_start_are_refused():
    with pytest.raises(InputError, match="log_scale: must leave theta0 within the double range"):
        tied(2, 0.1, 2).at_log_scale(-800.0)


def test_the_potential_of_some_coordinates_alone():
    F = Parametrization(lambda th: th[:3] ** 2 - th[3:] ** 2, np.array([0.3, 0.5, 0.7] * 2))
    whole = SeparablePotential.of(CoordinateFlows(F, owners(F)))
    part = Coordinates(whole, 0.0, 3).on(np.array([True, False, True])).potential
    z = np.array([0.2, -0.1, 0.4])
    assert_allclose(part.grad_dual(z[[0, 2]]), whole.grad_dual(z)[[0, 2]], rtol=1e-14)
    assert_allclose(part.grad(np.array([0.1, 0.2])), whole.grad(np.array([0.1, 9.0, 0.2]))[[0, 2]])


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_rich_limit_of_our_own_networks(depth):
    X, y = data(3)
    shape = np.random.default_rng(3).uniform(0.5, 1.5, D)
    derived = fb.rich_limit(tied(depth, 1.0, shape=np.tile(shape, 2)), X, y)
    known = fb.rich_limit(fb.DiagonalNet(depth=depth, scale=1.0, w0=shape), X, y)
    assert derived.status is Status.CERTIFIED
    assert_allclose(derived.w, known.w, atol=1e-10)
    for name, value in known.details.items():
        assert_allclose(derived.details[name], value, rtol=1e-6)


def test_rich_limit_is_where_limits_from_smaller_starts_go():
    X, y = data(4)
    parts = np.repeat([1.0, 0.7, 1.2, 0.4], D) * np.random.default_rng(4).uniform(0.5, 1.5, 4 * D)
    model = cubic(parts)
    rich = fb.rich_limit(model, X, y)
    away = [np.abs(s.w - rich.w).max() for s in fb.limit_path(model, X, y, log_scales=[-4.0, -9.0])]
    # An inactive weight is scale^3 over a power of its margin: e^15 smaller.
    assert away[1] < 1e-4 * away[0]


def test_rich_limit_of_one_sided_and_of_inhomogeneous_parametrizations():
    rng = np.random.default_rng(5)
    X = np.abs(rng.standard_normal((2, 4)))
    squares = fb.rich_limit(mirror_model(Parametrization(torch.square, np.ones(4))), X, X.sum(1))
    assert (squares.w >= 0.0).all()
    with pytest.raises(InputError, match="RICH_COSTS where its F separates and is homogeneous"):
        fb.rich_limit(mirror_model(Parametrization(torch.sigmoid, np.ones(4))), X, X.sum(1))


@pytest.mark.parametrize("depth", [2, 3])
def test_a_rich_limit_of_which_there_are_several_does_not_send_to_itself(depth):
    rich = fb.rich_limit(tied(depth, 1.0, 2), [[1.0, 1.0]], [1.0])
    assert rich.status is Status.NOT_UNIQUE
    assert "fb.limit of starts of smaller and smaller scale" in rich.message
    assert "fb.rich_limit" not in rich.message
