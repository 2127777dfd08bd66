"""What azulay2021 prints about neurons and what is right, on instances that tell them apart.

The entries are those of docs/errata.md.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

from flowbias.limits.neurons.linear import neuron_limit
from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problems.regression import Regression
from flowbias.theory.neuron_extremes import kernel_matrix, kernel_solution
from flowbias.theory.neuron_geometry import neuron_metric, time_warp, warp_at_zero
from flowbias.theory.neurons import followed, vanishing_start

X, Y = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]]), np.array([1.0, 0.4])
W = np.array([0.4, -0.3, 1.0])
SHORTEST = np.linalg.pinv(X) @ Y
RESTING = W - np.linalg.pinv(X) @ X @ W


def printed_qhat(x, delta):
    """[azulay2021, Theorem 2]: the statement's own formula."""
    S = np.hypot(x, delta / 2)
    return (x**2 - delta / 2 * (delta / 2 + S)) * np.sqrt(S - delta / 2) / x


@pytest.mark.parametrize("delta", [0.0, 0.7, 3.0])
def test_a3_slope_of_qhat_has_three_halves(delta):
    """Appendices B, D and F.2 print qhat' = sqrt(S - delta/2); Theorem 2's qhat has 3/2 of it."""
    x, h = 1.3, 1e-6
    slope = (printed_qhat(x + h, delta) - printed_qhat(x - h, delta)) / (2 * h)
    root = np.sqrt(np.hypot(x, delta / 2) - delta / 2)
    assert_allclose(slope, 1.5 * root, rtol=1e-8)
    assert abs(slope - root) > 0.4 * root
    potential = NeuronPotential(delta)
    assert_allclose(potential.grad(np.array([x]))[0], slope, rtol=1e-8)
    area = quad(lambda t: 1.5 * np.sqrt(np.hypot(t, delta / 2) - delta / 2), 0.0, x)[0]
    # And the value at 0, which the paper leaves open, is -delta^(3/2)/2.
    assert_allclose(printed_qhat(x, delta) + delta**1.5 / 2, area, rtol=1e-9)
    # So g H is the Hessian of q for g = 3/2 |a|, not for the |a| that appendix B.1 derives.
    v = np.array([0.3, 1.2])
    hessian = np.linalg.inv(potential.hess_dual(potential.grad(v)))
    a = time_warp(delta, float(np.linalg.norm(v)))
    assert_allclose(1.5 * a * neuron_metric(delta)(v), hessian, rtol=1e-12)


@pytest.mark.parametrize("delta", [0.1, 2.0])
def test_a4_lemma_3_has_the_limit_root_delta(delta):
    """Lemma 3 states lim g(x) = 0 as x -> 0; its own proof ends with sqrt(delta)."""
    small = time_warp(delta, 1e-9)
    assert_allclose(small, np.sqrt(delta), rtol=1e-12)
    assert small > 0.3
    assert all(claim.holds for claim in warp_at_zero(delta, 1e-3))


def test_a5_vanishing_predictor_is_not_enough_for_the_shortest_fit():
    """Theorem 3: a -> 0 at fixed w makes a w vanish, and the null-space part of w stays."""
    ends = [neuron_limit(Neuron(a, W), X, Y, 1e-10).checked(True).w for a in (1e-4, 1e-8)]
    off = [np.linalg.norm(end - SHORTEST) for end in ends]
    assert min(off) > 0.1
    assert_allclose(off[0], off[1], rtol=1e-3)
    # The flow itself says so.
    assert_allclose(followed(Neuron(1e-8, W), Regression(X, Y)).w[-1], ends[1], atol=1e-6)
    # With vanishing inner weights it does become the shortest fit, whatever a does.
    for a in (1e-6, 1.0):
        small = neuron_limit(Neuron(a, 1e-6 * W), X, Y, 1e-10).w
        assert np.linalg.norm(small - SHORTEST) < 1e-5
    assert vanishing_start(NeuronSum([1e-3, 0.5], [1e-4 * W, -1e-5 * W[::-1]]), X, Y).holds


@pytest.mark.parametrize("shape", [0.0, 0.5])
def test_a6_large_scale_needs_a_small_residual(shape):
    """F.2.1: alpha -> infinity at fixed y has a residual of the order of alpha, and no kernel."""
    far, near = [], []
    for scale in (1e2, 1e4):
        model = Neuron.from_scale_shape(scale, shape, W)
        size = np.linalg.norm(model.initial)
        for target, distances in ((Y, far), (X @ model.initial + Y, near)):
            end = neuron_limit(model, X, target, 1e-10).checked(True).w
            kernel = kernel_solution(model, Regression(X, target))
            distances.append(np.linalg.norm(end - kernel) / size)
    assert min(far) > 1e-2
    assert_allclose(far[0], far[1], rtol=1e-3)
    assert max(near) < 1e-6


def test_a6_condition_26_depends_on_the_unit_of_the_predictor():
    """(1-s)^2/alpha << 1 has the unit of 1/v: measured in another one it says something else.

    With alpha = 1e6 and s = 0 it holds by far, and the limit is off the kernel's by a tenth of
    the start; in units of 1e6 the same flow has alpha = 1.
    """
    model = Neuron.from_scale_shape(1e3, 0.0, W)
    target = X @ (5.0 * model.initial)
    end = neuron_limit(model, X, target, 1e-10).w
    kernel = kernel_solution(model, Regression(X, target))
    assert (1.0 - model.shape) ** 2 / model.scale**2 < 1e-5
    assert np.linalg.norm(end - kernel) > 0.1 * np.linalg.norm(model.initial)
    unit = Neuron.from_scale_shape(1.0, 0.0, W)
    assert_allclose(neuron_limit(unit, X, target / 1e6, 1e-10).w, end / 1e6, rtol=1e-9)


def test_a7_tangent_kernel_has_the_square_of_a():
    """Section 7.2 prints K = x^T B^{-1} x'; appendix F, and the gradients, have a(0)^2 times it."""
    model = Neuron.from_scale_shape(1.4, 0.3, W)
    printed = X @ np.linalg.solve(kernel_matrix(model), X.T)
    assert_allclose(model.tangent_kernel(X), model.a**2 * printed)
    assert np.linalg.norm(model.tangent_kernel(X) - printed) > np.linalg.norm(printed)


def test_a8_metric_of_balanced_neurons_has_one_power_of_the_length():
    """Appendix C prints 1/(sum |c_i| ||v||) 1/||v|| in front; one of the two lengths is too many.

    And sum |c_i| = 1, since all a_i w_i = a_i^2 e point the same way: g depends on v alone.
    """
    a = np.array([1.1, -0.4, 0.7])
    model = NeuronSum(a, np.outer(a, W / np.linalg.norm(W)))
    v = model.initial
    length = float(np.linalg.norm(v))
    parts = a[:, None] * model.W
    assert_allclose(np.linalg.norm(parts, axis=1).sum(), length)
    metric = np.linalg.inv(a @ a * np.eye(3) + model.W.T @ model.W)
    right = (np.eye(3) - np.outer(v, v) / (2 * length**2)) / length
    assert_allclose(metric, right, rtol=1e-12, atol=1e-12)
    assert np.linalg.norm(metric - right / length) > 0.3 * np.linalg.norm(metric)


def test_a9_zero_error_is_a_hypothesis_that_can_fail_at_delta_0():
    """Theorem 2 allows delta = 0, Proposition 1 needs it: a flow may then end in the saddle 0."""
    start = Neuron(-1.0, [1.0])
    assert (
        abs(followed_in_one_dimension(start, 5.0)) < 1e-8
    )  # the minimizer, the only predictor that fits, is 1/2
    assert not neuron_limit(start, [[2.0]], [1.0], 1e-10).status.ok


def followed_in_one_dimension(neuron, time):
    """a w after `time`, from a = -w: (a w)' = -(a^2 + w^2) 2 (2 a w - 1), in closed form."""
    # With v = a w = -a^2: v' = -4 |v| (2 v - 1) = 4 v (2 v - 1), so (2 v - 1)/v grows like e^{4t}.
    v = neuron.a * neuron.w[0]
    ratio = (2.0 * v - 1.0) / v * np.exp(4.0 * time)
    return 1.0 / (2.0 - ratio)
