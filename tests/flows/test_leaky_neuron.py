"""The flow of a leaky ReLU neuron against independent integrations, and along its kinks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from flowbias.flows.leaky_neuron.field import LeakyStart, PatternField
from flowbias.flows.leaky_neuron.follow import follow_leaky
from flowbias.flows.leaky_neuron.patterns import _root
from flowbias.flows.request import FlowRequest
from flowbias.flows.trajectory import FlowError, FlowStatus
from flowbias.ground.arguments import InputError
from flowbias.models.neuron import Neuron

# Half the width of a smoothed kink: the smoothed flow is off by about as much.
WIDTH = 1e-6


def flow(model, X, y, t=None, *, loss="half", residual=1e-8, rtol=None, route=None):
    return follow_leaky(model, X, y, FlowRequest.of(t, loss, residual, rtol, None, route))


def smoothed(model, X, y, times, width=WIDTH):
    """(a, w) at the times for the activation with its kink rounded off; d + 1 unknowns, Radau."""

    def bend(s):
        return width * np.logaddexp(0.0, s / width)  # a soft [s]+

    def velocity(_, state):
        a, s = state[0], X @ state[1:]
        out = model.slope * s + (1.0 - model.slope) * bend(s)
        slopes = model.slope + (1.0 - model.slope) * 0.5 * (1.0 + np.tanh(0.5 * s / width))
        r = a * out - y
        return -np.concatenate([[r @ out], a * ((r * slopes) @ X)])

    start = np.concatenate([[model.a], model.w])
    with np.errstate(all="ignore"):
        done = solve_ivp(velocity, (0, times[-1]), start, "Radau", times, rtol=1e-9, atol=1e-11)
    return done.y[0], done.y[1:].T


def random_neuron(rng, slope=None, n=None):
    n = int(rng.integers(1, 6)) if n is None else n
    d = n + int(rng.integers(1, 5))
    X, y = rng.standard_normal((n, d)), 2.0 * rng.standard_normal(n)
    w = rng.standard_normal(d) * np.exp(rng.uniform(-1.5, 0.5))
    a = rng.choice([-1.0, 1.0]) * np.sqrt(rng.choice([0.0, 0.1, 1.0]) + w @ w)
    return Neuron(a, w, rng.uniform(0.1, 2.0) if slope is None else slope), X, y


# Two samples whose pulls across the first one's kink have opposite signs: the second pulls s_1 up,
# the first down, with full strength above the kink and with `slope` below it.
HELD_X = np.array([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0]])


def held(slope):
    """A flow that both sides drive to the kink of sample 0, on which it slides, and then leaves."""
    if slope < 1.0:
        return Neuron(1.0, [0.3, 0.2, 0.1], slope), HELD_X, np.array([-2.0, 2.5])
    # Mirrored: for slope > 1 the kink holds where a y > 0, with full strength above it once more.
    return Neuron(1.0, [-0.3, 0.2, 0.1], slope), HELD_X, np.array([2.0, -5.0])


# --- against other integrations ------------------------------------------------------------------


def test_slope_one_is_the_linear_neuron():
    rng = np.random.default_rng(1)
    for _ in range(4):
        model, X, y = random_neuron(rng, slope=1.0)

        def velocity(_, state, X=X, y=y):
            g = (state[0] * (X @ state[1:]) - y) @ X
            return -np.concatenate([[state[1:] @ g], state[0] * g])

        times = np.linspace(0.1, 3.0, 7)
        start = np.concatenate([[model.a], model.w])
        linear = solve_ivp(velocity, (0, 3), start, "DOP853", times, rtol=1e-12, atol=1e-13).y
        path = flow(model, X, y, times)
        assert_allclose(path.a, linear[0], rtol=1e-8)
        assert_allclose(path.inner, linear[1:].T, rtol=1e-8, atol=1e-9)
        assert not path.slides


@pytest.mark.parametrize("seed", range(4))
def test_follows_the_smoothed_flow(seed):
    model, X, y = random_neuron(np.random.default_rng([2, seed]), n=4)
    times = np.linspace(0.05, 1.0, 6)
    path = flow(model, X, y, times)
    a, inner = smoothed(model, X, y, times)
    assert_allclose(path.a, a, atol=100 * WIDTH)
    assert_allclose(path.inner, inner, atol=100 * WIDTH)


@pytest.mark.parametrize("slope", [0.1, 0.3, 1.8])
def test_slides_along_a_kink_that_holds(slope):
    """Chattering: both sides point to the kink. The limit of the smoothed flows slides along it."""
    model, X, y = held(slope)
    path = flow(model, X, y, residual=1e-9)
    assert path.slides
    assert path.status is FlowStatus.CONVERGED
    entered, left = (s for s in path.switches if s.samples == (0,))
    assert (entered.after, left.before) == ((0,), (0,))
    times = np.linspace(entered.t, left.t, 5)[1:-1]
    sums = path.at(times) @ X[0]
    assert np.abs(sums).max() <= 1e-14
    grid = np.linspace(0.01, 1.2 * left.t, 8)
    a, inner = smoothed(model, X, y, grid)
    on_grid = flow(model, X, y, grid)
    assert_allclose(on_grid.a, a, atol=100 * WIDTH)
    assert_allclose(on_grid.inner, inner, atol=100 * WIDTH)


@pytest.mark.parametrize("slope", [0.1, 0.3, 1.8])
def test_kink_holds_while_its_multiplier_is_between_slope_and_one(slope):
    model, X, y = held(slope)
    path = flow(model, X, y)
    start = LeakyStart(model.a, np.asarray(model.w), model.slope, X, y)
    entered, left = (s for s in path.switches if s.samples == (0,))

    def state(t):
        a, inner = path.parameters(t)
        return np.concatenate([[a], start.basis.T @ (inner - model.w)])

    pattern = PatternField(start, path.pattern(0.5 * (entered.t + left.t)))
    low, high = min(1.0, slope), max(1.0, slope)
    inside = [float(pattern.multipliers(state(t))[0]) for t in np.linspace(entered.t, left.t, 9)]
    assert low < min(inside[:-1])
    assert max(inside[:-1]) < high
    assert min(abs(inside[-1] - low), abs(inside[-1] - high)) <= 1e-10
    # Both sides drive back to the kink.
    for side in (1, -1):
        sides = pattern.sides.copy()
        sides[0] = side
        drift = PatternField(start, sides).velocity(0.0, state(0.5 * (entered.t + left.t)))
        assert side * float(start.rows[0] @ drift[1:]) < 0.0


@pytest.mark.parametrize("sides", [[1, 1, -1], [-1, 0, 1], [0, 0, 1]])
def test_jacobian_is_the_derivative_of_the_velocity(sides):
    model, X, y = random_neuron(np.random.default_rng(8), n=3)
    field = PatternField(
        LeakyStart(model.a, model.w, model.slope, X, y), np.array(sides, dtype=np.int8)
    )
    state = np.random.default_rng(9).standard_normal(4)
    step = 1e-5
    differences = [
        (field.velocity(0.0, state + step * e) - field.velocity(0.0, state - step * e)) / (2 * step)
        for e in np.eye(4)
    ]
    # Central differences of a cubic: off by its third derivative times step^2.
    assert_allclose(field.jacobian(0.0, state), np.transpose(differences), atol=1e-7)


def test_stiff_data_agree_with_the_smoothed_flow():
    rng = np.random.default_rng(3)
    left, _, right = np.linalg.svd(rng.standard_normal((3, 5)), full_matrices=False)
    X = (left * np.array([10.0, 1.0, 0.1])) @ right
    model, y = Neuron(1.0, 0.5 * rng.standard_normal(5), 0.4), rng.standard_normal(3)
    times = np.array([0.01, 0.1, 1.0, 10.0])
    path = flow(model, X, y, times)
    assert path.stats.jacobians > 0  # the implicit integrator was chosen
    a, inner = smoothed(model, X, y, times)
    assert_allclose(path.a, a, atol=1e3 * WIDTH)
    assert_allclose(path.inner, inner, atol=1e3 * WIDTH)


# --- what must hold along every flow -------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_switches_are_zeros_of_the_activation(seed):
    model, X, y = random_neuron(np.random.default_rng([4, seed]), n=5)
    path = flow(model, X, y)
    assert path.status is FlowStatus.CONVERGED
    assert np.all(np.diff(path.loss) <= 1e-9 * path.loss[0])
    assert path.conserved_drift <= 1e-8
    for switch in path.switches:
        inner = path.parameters(switch.t)[1]
        lengths = np.linalg.norm(X[list(switch.samples)], axis=1) * np.linalg.norm(inner)
        assert np.all(np.abs(X[list(switch.samples)] @ inner) <= 1e-13 * lengths)
    for (begin, sides), end in zip(
        path.segments, [s for s, _ in path.segments[1:]] + [path.t[-1]], strict=True
    ):
        middle = path.parameters(0.5 * (begin + end))[1]
        sums = (X @ middle) / np.linalg.norm(X, axis=1)
        assert np.all(sides * sums >= 0.0)
        assert np.all(np.abs(sums[sides == 0]) <= 1e-14 * np.linalg.norm(middle))


def test_residual_below_what_the_first_rtol_allows():
    """Explicit steps hover at some 100 rtol; rtol is lowered where that is in the way."""
    model, X, y = random_neuron(np.random.default_rng([4, 1]), n=5)
    path = flow(model, X, y, residual=1e-9, rtol=1e-8)
    assert path.status is FlowStatus.CONVERGED
    assert path.residual[-1] <= 1e-9 * (1.0 + 1e-3)


def test_residuals_loss_and_outputs_belong_together():
    model, X, y = random_neuron(np.random.default_rng(5), n=3)
    path = flow(model, X, y, [0.0, 0.3, 2.0], loss="half_mean")
    s = path.inner @ X.T
    outputs = path.a[:, None] * np.where(s > 0.0, s, model.slope * s)
    assert_allclose(path.residuals, outputs - y, atol=1e-14)
    assert_allclose(path.loss, np.sum((outputs - y) ** 2, axis=1) / (2 * 3), rtol=1e-12)
    assert_allclose(path.w[0], model.a * model.w)
    assert_allclose(path.at(0.3), path.w[1], rtol=1e-13)
    assert "LeakyTrajectory(followed to t = 2" in repr(path)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([0.5, 3.0]))
def test_the_constant_of_the_loss_is_the_clock(seed, factor):
    model, X, y = random_neuron(np.random.default_rng(seed), n=2)
    times = np.array([0.1, 0.5])
    assert_allclose(
        flow(model, X, y, times, loss=factor).w, flow(model, X, y, factor * times).w, atol=1e-8
    )


@pytest.mark.parametrize("model_and_data", [held(0.3), random_neuron(np.random.default_rng(6))])
def test_doubled_samples_double_the_speed(model_and_data):
    """Also of different lengths: sigma is homogeneous. Their kinks are one kink."""
    model, X, y = model_and_data
    times = np.array([0.1, 0.2, 0.6])
    twice = flow(model, np.vstack([X, np.sqrt(2.0) * X]), np.append(y, np.sqrt(2.0) * y), times)
    assert_allclose(twice.w, flow(model, X, y, 3.0 * times).w, atol=1e-9)
    assert np.array_equal(twice.pattern(0.2)[: len(y)], twice.pattern(0.2)[len(y) :])


def test_samples_in_one_direction_share_their_subgradient():
    """Targets -1 and -3 at one x act as two targets -2, on the kink as well."""
    model, X, y = held(0.3)
    times = np.linspace(0.1, 1.0, 5)
    apart = flow(model, X[[0, 0, 1]], [-1.0, -3.0, y[1]], times)
    assert apart.slides
    assert all(sides[0] == sides[1] for _, sides in apart.segments)
    assert_allclose(apart.w, flow(model, X[[0, 0, 1]], y[[0, 0, 1]], times).w, atol=1e-9)
    assert_allclose(apart.residuals[:, 1] - apart.residuals[:, 0], 2.0, atol=1e-12)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_follows_rotations_and_permutations(seed):
    rng = np.random.default_rng(seed)
    model, X, y = random_neuron(rng, n=3)
    Q = np.linalg.qr(rng.standard_normal((X.shape[1],) * 2))[0]
    order = rng.permutation(3)
    t = [0.2, 0.7]
    turned = flow(Neuron(model.a, Q @ model.w, model.slope), X[order] @ Q.T, y[order], t)
    assert_allclose(turned.w @ Q, flow(model, X, y, t).w, atol=1e-8)


# --- where a flow ends otherwise -----------------------------------------------------------------


def test_balanced_neuron_without_rest_ends_at_the_saddle():
    """delta = 0 and all of w in the row space: a w >= 0 in one dimension never becomes -1.

    Rounding leaves the saddle in the end, and must not be taken for the flow.
    """
    for slope in (0.5, 1.0):
        path = flow(Neuron(1.0, [1.0], slope), [[1.0]], [-1.0])
        assert path.status is FlowStatus.STOPPED
        assert "saddle" in path.message
        assert path.ending is None or not path.ending.fits
        with pytest.raises(FlowError, match="saddle"):
            path.checked(throw=True)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], [1.0, 2.0]),  # one direction, two targets
        ([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0]),  # both signs of s_0 would have to be positive
        ([[1.0, 0.0], [0.0, 0.0]], [1.0, 1.0]),  # a row of zeros
    ],
)
def test_contradicting_samples_are_never_converged(X, y):
    path = flow(Neuron(1.0, [0.4, 0.3], 0.5), X, y)
    assert path.status is FlowStatus.STOPPED
    assert path.ending is None or not path.ending.fits


def test_start_on_a_kink():
    X, y = np.eye(2), np.array([1.0, -1.0])
    # Orthogonal samples leave their kinks in the direction of their own targets.
    path = flow(Neuron(1.0, [0.0, 0.0], 0.5), X, y)
    assert path.status is FlowStatus.CONVERGED
    assert path.segments[0][1].tolist() == [1, -1]
    # Sample 1 moves s_0 down: less than sample 0 moves it up, but more than half of that.
    both = flow(Neuron(1.0, [0.0, 0.5], 0.5), [[1.0, 0.0], [1.0, 1.0]], [2.0, -1.0])
    assert both.status is FlowStatus.STOPPED
    assert "both sides" in both.message


def test_kink_that_begins_to_repel():
    """delta < 0: a kink that holds for a < 0 repels for a > 0, and the flow is no longer unique."""
    model = Neuron(-0.004, [-3.0, 0.45, 0.0], 0.2)
    X = np.array([[0.15, 1.0, -1.1], [0.9, 0.0, -1.1]])
    path = flow(model, X, [0.46, -1.72])
    assert path.segments[-1][1].tolist() == [0, -1]
    assert path.status is FlowStatus.STOPPED
    assert "repels" in path.message
    assert abs(path.a[-1]) < 0.01


def test_start_on_a_kink_that_is_left_twice():
    """a changes its sign at once: s_0 leaves its kink by 1e-10 only, comes back and crosses it."""
    rng = np.random.default_rng(7)
    X, y, w = rng.standard_normal((4, 4)), 2.0 * rng.standard_normal(4), rng.standard_normal(4)
    w -= X[0] * (X[0] @ w) / (X[0] @ X[0])
    s = X @ w
    toward = -float(np.sign(y @ np.where(s > 0.0, s, 0.3 * s)))  # against where a is driven to
    model = Neuron(1e-4 * toward, w, 0.3)
    path = flow(model, X, y, [0.1, 0.5], rtol=1e-8)
    assert path.status is FlowStatus.FOLLOWED
    assert np.sign(path.a[-1]) == -toward
    a, inner = smoothed(model, X, y, np.array([0.1, 0.5]))
    assert_allclose(path.w, a[:, None] * inner, atol=100 * WIDTH)


def test_times_beyond_what_was_followed_are_refused():
    model, X, y = held(0.3)
    path = flow(model, X, y)
    with pytest.raises(InputError, match="t: must lie in"):
        path.at(2.0 * path.t_end)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Neuron(1.0, [1.0], 0.5), HELD_X, [1.0, 2.0]), "X: must have one column"),
        ((Neuron(1.0, [1e100, 0.0, 0.0], 0.5), HELD_X, [1.0, 2.0]), "a, w: must have a largest"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        flow(*arguments)


def test_unknown_route():
    model, X, y = held(0.3)
    with pytest.raises(InputError, match="route: must be 'patterns'"):
        flow(model, X, y, route="dual")


class AlwaysPositive:
    """A margin that is above zero wherever it is asked for by itself."""

    def margins(self, states):
        return np.full((len(states), 1), 1e-17)


def test_a_margin_that_is_zero_to_rounding_switches_at_the_end_of_its_step():
    # Evaluated together with other points it was seen below zero; alone it is not.
    assert _root(AlwaysPositive(), lambda time: np.zeros(2), (0.25, 0.5), 0) == 0.5
