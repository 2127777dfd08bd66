"""Time warps: against lstsq, against closed forms of g, and on both sides of the verdict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowbias.derive import log_warp_along, time_warp
from flowbias.derive.hessian_map import lifted_derivative
from flowbias.derive.time_warp import warp_curl, warp_field, warp_residual
from flowbias.ground.arguments import InputError
from tests.derive.zoo import ALL, KNOWN, disguised, example, neuron

# The path of log g is integrated with local error 1e-11.
ALONG_FLOW = 1e-10


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.key)
def test_verdict(e):
    found = time_warp(e.parametrization(), points=1)
    assert found.holds == KNOWN[e.key].warp
    for number in (found.residual, found.curl):
        assert number < 1e-12 or number > 1e-2


def neuron_field(model):
    """grad log|a| = w/(2 a^2 S): a^2 = S + delta/2 on the orbit, S^2 = ||w||^2 + delta^2/4."""
    a, v = model.start[0], model.start[1:]
    delta, w = a * a - v @ v, a * v
    S = np.hypot(np.linalg.norm(w), delta / 2)
    return w / (2 * a * a * S)


@pytest.mark.parametrize("d", [3, 5])
@pytest.mark.parametrize("a", [0.4, -1.7])
def test_one_neuron_runs_on_the_time_of_its_outer_weight(d, a):
    """phi = grad log|a| and g = |a|.  [azulay2021, section 5]"""
    model = neuron(d, a)
    found = time_warp(model, points=1)
    assert found.holds
    assert max(found.residual, found.curl) <= 1e-8
    np.testing.assert_allclose(found.phi, neuron_field(model), rtol=1e-12)
    outer = np.log(np.abs(found.flow.theta[:, 0] / a))
    np.testing.assert_allclose(found.flow.log_g, outer, atol=ALONG_FLOW)
    assert np.ptp(outer) > 0.05


# g in closed form. Where w = (scalar) v, the data pull v straight: grad Q = v and g is the scalar.
# In polar form H is (c/r)^2 across and 1 along w (c = ||v||, or 1): log g = log r + (r/c)^2/2.
LOG_G = {
    "chain": lambda th: np.log(np.abs(th[0] * th[1])),
    "balanced-neurons": lambda th: np.log(np.hypot(th[0], th[1])),
    "weight-normalization": lambda th: np.log(th[0]) + th[0] ** 2 / (2 * th[1:] @ th[1:]),
    "polar": lambda th: np.log(th[0]) + th[0] ** 2 / 2,
}


@pytest.mark.parametrize("key", LOG_G)
def test_g_in_closed_form(key):
    """Also a proof that g depends on where the flow is and not on how it came there."""
    flow = time_warp(example(key).parametrization(), points=0).flow
    expected = np.array([LOG_G[key](theta) for theta in flow.theta])
    np.testing.assert_allclose(flow.log_g, expected - expected[0], atol=ALONG_FLOW)
    assert np.ptp(expected) > 0.02


def least_squares(model):
    """phi and the residual from the linear system as it is written, by lstsq."""
    at, T, _ = lifted_derivative(model, model.tensor(model.start))
    back = np.linalg.inv(at.root.numpy())
    # The residual is measured in the frame of the metric, so the equations are weighted by it.
    T = T.detach().numpy()
    H = back.T @ back
    rows, right = [], []
    plain = np.einsum("abc,ai,bj,ck->ijk", T, back, back, back)
    for i in range(model.d):
        for j in range(model.d):
            for k in range(model.d):
                row = np.zeros(model.d)
                row[j] += H[i, k]
                row[k] -= H[i, j]
                rows.append(row)
                right.append(plain[i, j, k] - plain[i, k, j])
    weight = np.kron(np.kron(at.root.numpy().T, at.root.numpy().T), at.root.numpy().T)
    phi, *_ = np.linalg.lstsq(weight @ np.array(rows), weight @ np.array(right))
    left = weight @ (np.array(rows) @ phi - np.array(right))
    return phi, np.linalg.norm(left) / np.linalg.norm(T)


@pytest.mark.parametrize("key", ["two-neurons", "chain", "matrix-factorization", "polar"])
def test_the_trace_is_least_squares(key):
    model = example(key).parametrization()
    phi, residual = least_squares(model)
    np.testing.assert_allclose(warp_field(model, model.start), phi, rtol=1e-10, atol=1e-12)
    assert warp_residual(model, model.start) == pytest.approx(residual, abs=1e-13)


@pytest.mark.parametrize("key", ["two-neurons", "matrix-factorization", "chain"])
def test_curl_by_difference_quotients(key):
    """d_k phi_j - d_j phi_k with differences along the lifts, in the frame of the metric."""
    model = example(key).parametrization()
    at, _, _ = lifted_derivative(model, model.tensor(model.start))
    root, lifts = at.root.numpy(), at.lifts.detach().numpy()
    h = 1e-5
    slopes = np.array(
        [
            warp_field(model, model.start + h * v) - warp_field(model, model.start - h * v)
            for v in lifts
        ]
    )
    slopes = slopes / (2 * h) @ root
    size = np.linalg.norm(slopes) + np.linalg.norm(root.T @ warp_field(model, model.start)) ** 2
    expected = np.linalg.norm(slopes - slopes.T) / size
    assert warp_curl(model, model.start) == pytest.approx(expected, abs=1e-7)


def test_two_generic_neurons_have_no_warp():
    found = time_warp(example("two-neurons").parametrization(), points=0)
    assert 0.03 < found.residual < 0.5
    assert not found.holds


def test_two_predictors_are_judged_by_the_curl():
    """d = 2: two equations, two unknowns; two generic neurons fail by the curl alone."""
    start = [0.9, 0.5, 0.6, -0.3, 0.2, 0.7]
    found = time_warp(lambda th: th[0] * th[2:4] + th[1] * th[4:6], start, points=1)
    assert found.always_solvable
    assert found.residual < 1e-12
    assert found.curl > 1e-3
    assert not found.holds
    assert "whatever F is" in repr(found)


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_other_coordinates_change_no_number(seed):
    keys = ("neuron-positive", "two-neurons", "circular-convolution")
    e = example(keys[seed % len(keys)])
    plain, other = e.parametrization(), disguised(e, seed)
    for measure in (warp_residual, warp_curl):
        here, there = measure(plain, plain.start), measure(other, other.start)
        np.testing.assert_allclose(there, here, atol=1e-10)


def test_commuting_fields_need_no_warp():
    """phi = 0 for a Hessian map, also where only rounding says so."""
    model = disguised(example("cubes"), 7)
    found = time_warp(model, points=1)
    assert found.holds
    np.testing.assert_allclose(found.flow.log_g, 0.0, atol=1e-10)


def test_one_predictor():
    found = time_warp(lambda th: th.prod().reshape(1), [0.5, 0.4, 0.3])
    assert found.holds
    assert found.phi.tolist() == [0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: time_warp(lambda th: th[0] * th[1:], [0.0, 0.0, 0.0]),
            "the metric J J.T is not inv",
        ),
        (
            lambda: log_warp_along(neuron(3, 1.0), z=[1.0], times=[0, 1]),
            r"z: must have one entry per predictor \(3\), got shape \(1,\)",
        ),
        (
            lambda: log_warp_along(neuron(3, 1.0), z=[1.0] * 3, times=[0.5, 1]),
            r"times: must start at 0 and increase, got \[0.5, 1.0\]",
        ),
        (
            # theta' = 3 theta^2 blows up at time 1 / (3 theta0).
            lambda: log_warp_along(lambda th: th**3, [1.0, 2.0], z=[1.0, 1.0], times=[0, 0.2]),
            r"times: must end before the flow along z leaves the double range, got 0.2\.",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
