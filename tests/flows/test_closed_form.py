"""The closed form in time against both integrated routes, and where it must and must not apply."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from flowbias.flows import FlowStatus, flow
from flowbias.flows.lifted.closed_form import BalancedForm, scalar_product, time_form
from flowbias.ground.arguments import InputError
from flowbias.models.lifted import NarrowWarning
from flowbias.models.linear_net import LinearNet

RNG = np.random.default_rng(4)
# A few hundred local errors of 1e-12.
TIGHT = 1e-9
SIZE = 1.3


def whitened(n, d):
    return SIZE * np.linalg.qr(RNG.standard_normal((d, n)))[0].T


def balanced(shape, scale, X=None, width=None):
    width = width or shape[1] + 3
    return LinearNet.balanced(scale * RNG.standard_normal(shape), X, width=width, rng=0)


def imbalanced(r, m, width, level):
    """U^T U - V^T V = level I."""
    V = RNG.standard_normal((m, width))
    values, vectors = np.linalg.eigh(V.T @ V + level * np.eye(width))
    U = np.linalg.qr(RNG.standard_normal((r, width)))[0] @ (vectors * np.sqrt(values)) @ vectors.T
    return U, V


def one_output(scale):
    X = whitened(4, 9)
    return balanced((9, 1), scale, X), X, RNG.standard_normal((4, 1))


def several_outputs(scale, m=3):
    X = whitened(5, 5)
    return balanced((5, m), scale, X), X, RNG.standard_normal((5, m))


def one_unit(scale):
    U, V = scale * RNG.standard_normal((7, 1)), scale * RNG.standard_normal((2, 1))
    Y = RNG.standard_normal((4, 1)) @ RNG.standard_normal((1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowWarning)
        return LinearNet(U, V), whitened(4, 7), Y


def scalar(scale):
    U, V = scale * RNG.standard_normal((4, 6)), scale * RNG.standard_normal((1, 6))
    return LinearNet(U, V), RNG.standard_normal((3, 1)) @ RNG.standard_normal((1, 4)), np.ones(3)


def uneven(level):
    U, V = imbalanced(6, 3, 4, abs(level))
    U, V = (U, V) if level > 0 else (V, U)
    return LinearNet(U, V), 0.8 * np.eye(len(U)), RNG.standard_normal((len(U), len(V)))


CASES = {
    "balanced": several_outputs(1.0),
    "balanced, small": several_outputs(1e-4),
    "square": several_outputs(1e-2, 5),
    "null space, one output": one_output(1.0),
    "null space, one output, small": one_output(1e-8),
    "one unit": one_unit(1.0),
    "one unit, small": one_unit(1e-5),
    "scalar": scalar(1.0),
    "scalar, small": scalar(1e-6),
    "level above zero": uneven(0.7),
    "level below zero": uneven(-1.5),
    "rank of Y below that of the net": (*several_outputs(0.5)[:2], np.ones((5, 3))),
    "Y = 0": (*several_outputs(0.5)[:2], np.zeros((5, 3))),
}
EVERY_CASE = pytest.mark.parametrize(("net", "X", "Y"), CASES.values(), ids=CASES.keys())
pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")


def rate(X, Y):
    """The fastest rate of growth, ||X^T Y||."""
    return np.linalg.norm(X.T @ Y, 2) or np.linalg.norm(X, 2) ** 2


@EVERY_CASE
def test_three_ways_agree_over_the_transient(net, X, Y):
    times = np.geomspace(1e-3, 1e2, 11) / rate(X, np.atleast_2d(Y.T).T)
    closed = flow(net, X, Y, t=times)
    assert closed.route == "closed form"
    for route in ("gram", "parameter"):
        other = flow(net, X, Y, t=times, route=route, rtol=1e-12)
        assert other.route == route
        for i, (a, b) in enumerate(zip(closed.M, other.M, strict=True)):
            assert np.linalg.norm(a - b) <= TIGHT * np.linalg.norm(b)
            size = np.linalg.norm(other.gram(i))
            assert np.linalg.norm(closed.gram(i) - other.gram(i)) <= TIGHT * size
            if closed.has_weights:
                for u, v in zip(closed.factors(i), other.factors(i), strict=True):
                    assert_allclose(u, v, rtol=0, atol=TIGHT)
    assert closed.imbalance_drift < 1e-13


@EVERY_CASE
@pytest.mark.parametrize("t", [1e6, 1e100, 1e290, np.inf])
def test_nothing_overflows(net, X, Y, t):
    trajectory = flow(net, X, Y, t=[1.0])
    with np.errstate(all="raise", under="ignore"):
        there = trajectory.at(t)
    assert np.all(np.isfinite(there))
    # Zero error up to what X cannot reach; along f = 0, of a Y of lower rank, the approach is 1/t.
    outputs = np.atleast_2d(Y.T).T
    best = X @ np.linalg.lstsq(X, outputs)[0]
    assert np.abs(X @ there - best).max() <= 10.0 / t * (np.linalg.matrix_rank(Y) < 3) + 1e-12


@EVERY_CASE
def test_short_times_are_relative(net, X, Y):
    # (M(t) - M(0))/t is the velocity, to the digits that the difference leaves.
    t = 1e-6 / rate(X, np.atleast_2d(Y.T).T)
    trajectory = flow(net, X, Y, t=[0.0, t])
    change = (trajectory.M[1] - trajectory.M[0]) / t
    G, d = trajectory.gram(0), net.shape[0]
    R = X.T @ (X @ trajectory.M[0] - np.atleast_2d(Y.T).T)
    velocity = -(R @ G[d:, d:] + G[:d, :d] @ R)
    assert np.linalg.norm(change - velocity) <= 1e-4 * np.linalg.norm(velocity) + 1e-14


def test_to_a_residual():
    net, X, Y = CASES["balanced, small"]
    trajectory = flow(net, X, Y, residual=1e-6)
    assert trajectory.status is FlowStatus.CONVERGED
    assert 0.5e-6 <= trajectory.residual[-1] <= 1e-6
    assert np.all(np.diff(trajectory.loss) <= 0.0)
    assert trajectory.t_end == np.inf
    assert trajectory.stats.evaluations == 0


@pytest.mark.parametrize("loss", ["half", "sum", 0.3])
def test_the_clock(loss):
    net, X, Y = CASES["null space, one output"]
    closed = flow(net, X, Y, t=[0.1, 0.7], loss=loss)
    other = flow(net, X, Y, t=[0.1, 0.7], loss=loss, route="gram", rtol=1e-12)
    assert_allclose(closed.M, other.M, rtol=0, atol=TIGHT)
    assert_allclose(closed.loss, other.loss, rtol=0, atol=TIGHT)


def test_where_it_does_not_apply():
    net, X, Y = CASES["balanced"]
    stretched = X * np.linspace(1.0, 1.001, 5)[:, None]
    assert flow(net, stretched, Y, t=[1.0]).route == "gram"
    nudged = LinearNet(net.factors.U + 1e-6 * RNG.standard_normal((5, 6)), net.factors.V)
    assert flow(nudged, X, Y, t=[1.0]).route == "gram"
    with pytest.raises(InputError, match="lambda-balanced"):
        flow(nudged, X, Y, t=[1.0], route="closed form")


def test_the_null_space_needs_weights_not_only_their_gram_matrix():
    # Several outputs and a null space: V itself meets U2, and its closed form is not elementary.
    X, Y = whitened(4, 9), RNG.standard_normal((4, 3))
    net = balanced((9, 3), 0.5, X)
    assert flow(net, X, Y, t=[1.0]).route == "gram"
    # The moving rows alone do have one; taken for the weights it would be wrong.
    start = flow(net, X, Y, t=[0.0, 1.0])
    form = time_form(start._compression.weights, start._fit.target / SIZE)
    assert isinstance(form, BalancedForm)
    assert not form.has_weights
    there, L = form.at(SIZE**2), start._states[1]
    assert_allclose(there @ there.T, L @ L.T, rtol=0, atol=TIGHT)
    wrong = start._compression.product(there)
    assert np.abs(wrong - start.M[1]).max() > 1e-3


def test_weights_up_to_a_rotation_are_not_handed_out():
    net, X, Y = CASES["balanced"]
    trajectory = flow(net, X, Y, t=[1.0])
    assert not trajectory.has_weights
    with pytest.raises(InputError, match="rotation"):
        trajectory.factors(0)


def test_commuting_starts_keep_their_weights():
    # Spectral: the singular vectors of Y, two of the rates equal.
    left, right = (np.linalg.qr(RNG.standard_normal((k, 3)))[0] for k in (7, 3))
    X = whitened(7, 12)
    basis = X.T / SIZE
    Y = left @ np.diag([3.0, 2.0, 2.0]) @ right.T
    size = np.diag([0.1, 0.02, 0.3])
    mixing = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
    resting = RNG.standard_normal((12, 3))
    U = basis @ left @ size @ mixing + (resting - basis @ (basis.T @ resting))
    net = LinearNet(U, right @ size @ mixing)
    times = np.geomspace(1e-3, 10.0, 6)
    closed = flow(net, X, Y, t=times)
    assert closed.route == "closed form"
    assert closed.has_weights
    other = flow(net, X, Y, t=times, route="parameter", rtol=1e-12)
    assert_allclose(closed.M, other.M, rtol=0, atol=TIGHT)
    assert_allclose(closed.factors(-1).U, other.factors(-1).U, rtol=0, atol=TIGHT)


# --- the scalar network --------------------------------------------------------------------------


@pytest.mark.parametrize("imbalance", [0.0, 1e-6, 0.8, -3.0])
@pytest.mark.parametrize("product", [0.4, -0.3])
def test_scalar_network_against_its_own_equation(product, imbalance):
    target = 2.0 if imbalance or product > 0 else -2.0
    times = [0.05, 0.3, 1.0]
    solved = solve_ivp(
        lambda t, p: (target - p) * np.sqrt(imbalance**2 + 4.0 * p**2),
        [0.0, 1.0],
        [product],
        method="DOP853",
        t_eval=times,
        rtol=1e-12,
        atol=1e-14,
    )
    here = [scalar_product(target, product, imbalance, t) for t in times]
    # From p < 0 a small imbalance is all that carries p through zero: digits of t are lost there.
    assert_allclose(here, solved.y[0], rtol=0, atol=1e-9)
    assert scalar_product(target, product, imbalance, np.inf) == pytest.approx(target, rel=1e-14)


def test_scalar_network_without_imbalance_ends_at_the_saddle():
    # p keeps its sign, and the target has the other.
    assert scalar_product(2.0, -0.3, 0.0, np.inf) == 0.0
    net = LinearNet([[0.5]], [[-0.5]])
    trajectory = flow(net, [[1.0]], [1.0], throw=False)
    assert trajectory.status is FlowStatus.STOPPED
    assert "saddle" in trajectory.message


@given(
    st.floats(-5, 5),
    st.floats(-3, 3),
    st.floats(1e-3, 3),
    st.floats(0.01, 3.0),
    st.floats(0.01, 3.0),
)
def test_scalar_flow_is_a_semigroup(target, product, imbalance, s, t):
    whole = scalar_product(target, product, imbalance, s + t)
    halves = scalar_product(target, scalar_product(target, product, imbalance, s), imbalance, t)
    # Errors may grow along p < 0 < target by the growth of the slowest passage of zero.
    assert abs(whole - halves) <= 1e-8 * (1.0 + abs(target))
