"""Leaky ReLU neurons on more samples than they can fit: judged by small steps of their flows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import lsq_linear

from flowbias.flows.leaky_neuron.field import activation
from flowbias.limits.neurons.leaky import leaky_limit
from flowbias.models.neuron import Neuron
from flowbias.results.solution import SolveError, Status


def left_pull(model, X, y, a, w):
    """The least subgradient of the loss in w that Clarke allows, relative to its terms."""
    X, y = np.asarray(X), np.asarray(y)
    sums, size = X @ w, np.linalg.norm(X, axis=1) * np.linalg.norm(w)
    held = np.abs(sums) <= 1e-9 * size
    c = np.where(sums >= 0.0, 1.0, model.slope)
    pull = (c * (a * c * sums - y))[~held] @ X[~held]
    if held.any():
        ends = sorted((model.slope, 1.0))
        normals = (X[held] * -y[held][:, None]).T
        pull = pull + normals @ lsq_linear(normals, -pull, bounds=ends, method="bvls").x
    return np.linalg.norm(pull) / (np.linalg.norm(X) * np.linalg.norm(y))


def small_steps(model, X, y, steps=20_000, share=1e-2):
    """Where Euler's method ends, at that share of the steps that are stable: chatter and all."""
    a, w, X = model.a, np.array(model.w), np.asarray(X)
    stiffest = (max(1.0, model.slope) * np.linalg.norm(X, 2)) ** 2
    for _ in range(steps):
        sums = X @ w
        c = np.where(sums >= 0.0, 1.0, model.slope)
        f = c * sums
        r = a * f - y
        step = share / (f @ f + a * a * stiffest + np.sqrt(stiffest) * np.linalg.norm(r))
        a, w = a - step * (r @ f), w - step * a * ((c * r) @ X)
    return a, a * w


KEEP_A_LOSS = {
    "one direction, two targets": ([[1.0, 0.0], [1.0, 0.0]], [1.0, 2.0]),
    "opposite targets": ([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0]),
    "no target is left": ([[1.0, 0.0], [2.0, 0.0]], [2.0, -1.0]),
    "a sum of the others": ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [1.0, 1.0, -0.3]),
    "all kinks hold": ([[-1.0], [2.0]], [-1.0, -0.5]),
    "a row of zeros": ([[1.0, 0.0], [0.0, 0.0]], [1.0, 1.0]),
}


@pytest.mark.parametrize("case", KEEP_A_LOSS)
@pytest.mark.parametrize("slope", [0.5, 1.6])
def test_flow_that_keeps_a_loss_ends_at_a_local_minimum(case, slope):
    X, y = (np.array(part) for part in KEEP_A_LOSS[case])
    model = Neuron(1.0, [0.4, 0.3][: X.shape[1]], slope)
    solution = leaky_limit(model, X, y, 1e-10)
    assert solution.status is Status.PROJECTED
    assert "at a local minimum of the loss" in solution.message
    a = solution.details["a"]
    fitted = a * activation(X @ solution.w / a, slope)
    assert_allclose(solution.distance, np.linalg.norm(fitted - y) / np.linalg.norm(y), rtol=1e-12)
    assert left_pull(model, X, y, a, solution.w / a) <= 1e-13
    assert_allclose(a**2 - (solution.w / a) @ (solution.w / a), model.delta, rtol=1e-12)
    # An error of first order in the steps, which are a hundredth of the stable ones.
    assert_allclose(small_steps(model, X, y)[1], solution.w, atol=1e-2)


def test_a_saddle_is_never_certified():
    solution = leaky_limit(Neuron(1.0, [1.0], 0.5), [[1.0]], [-1.0], 1e-10)  # nothing rests
    assert solution.status is Status.STALLED
    assert "saddle" in solution.route
    with pytest.raises(SolveError, match=r"where the flow ends is not proved: .* Start elsewhere"):
        solution.checked(throw=True)


def more_samples_than_features(seed):
    """Fitted by a neuron, next to that, or noise; slopes from 0.1 to 3, sizes over four decades."""
    rng = np.random.default_rng([31, seed])
    d = int(rng.integers(1, 6))
    X = rng.standard_normal((int(rng.integers(d + 1, 3 * d + 1)), d))
    slope, size = 10.0 ** rng.uniform(-1.0, 0.5), 10.0 ** rng.uniform(-2.0, 2.0)
    y = rng.choice([-1.0, 1.0]) * activation(X @ rng.standard_normal(d), slope)
    y = y + (0.0, 0.1, 1.0)[seed % 3] * rng.standard_normal(len(y))
    a = size * rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-1.0, 1.0)
    return Neuron(a, size * rng.standard_normal(d), slope), X, y


def test_more_samples_than_features():
    """At least 13 of 14 have a limit: a stationary point, and where small steps end if they do."""
    proved = judged = 0
    for seed in range(14):
        model, X, y = more_samples_than_features(seed)
        solution = leaky_limit(model, X, y, 1e-10)
        if not solution.status.ok:
            continue
        proved += 1
        a = solution.details["a"]
        assert left_pull(model, X, y, a, solution.w / a) <= 1e-10
        assert (solution.status is Status.CERTIFIED) == (solution.distance == 0.0)
        outer, w = small_steps(model, X, y)
        if left_pull(model, X, y, outer, w / outer) <= 1e-3:  # at rest, and no longer under way
            judged += 1
            assert np.sign(outer) == np.sign(a)
            # Minima are apart by about their size; what steps and a slow end leave is far less.
            assert_allclose(w, solution.w, atol=0.1 * np.linalg.norm(solution.w))
    assert proved >= 13
    assert judged >= 4


def test_outer_weight_that_falls_far_below_the_inner_ones():
    """y far below the start: a falls to y / ||w||, and w goes on at a^2 of the speed."""
    rng = np.random.default_rng(32)
    X, w = rng.standard_normal((7, 3)), rng.standard_normal(3)
    y = 1e-3 * rng.standard_normal(7)
    model = Neuron(-0.1, 3.0 * w, 0.8)
    solution = leaky_limit(model, X, y, 1e-10)
    assert solution.status is Status.PROJECTED
    a = solution.details["a"]
    assert abs(a) < 1e-3 * np.linalg.norm(solution.w / a)
    assert left_pull(model, X, y, a, solution.w / a) <= 1e-12
