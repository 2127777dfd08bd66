"""The symmetry that makes an inverse metric a Hessian, on metrics where the answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowbias.derive import hessian_map, hessian_map_of_metric
from flowbias.derive.hessian_map import lifted_derivative
from flowbias.ground.arguments import InputError
from tests.derive.zoo import ALL, KNOWN, disguised, example, neuron


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.key)
def test_verdict(e):
    found = hessian_map(e.parametrization(), points=1)
    assert found.holds == KNOWN[e.key].hessian
    assert found.defect < 1e-12 or found.defect > 0.1


@pytest.mark.parametrize("d", [3, 5])
@pytest.mark.parametrize("a", [0.4, 1.0, 1.7])
def test_one_neuron_fails(d, a):
    """delta < 0, = 0 and > 0 (||w|| = 1).  [azulay2021, section 5]"""
    assert hessian_map(neuron(d, a), points=0).defect > 1e-3


@pytest.mark.parametrize("key", ["two-neurons", "weight-normalization", "sigmoid"])
def test_derivative_of_the_inverse_metric(key):
    """T against difference quotients of H along J^T H e_k, in the plain coordinates of w."""
    model = example(key).parametrization()
    at, T, _ = lifted_derivative(model, model.tensor(model.start))
    root = at.root.numpy()
    back = np.linalg.inv(root)
    T = np.einsum("abc,ai,bj,ck->ijk", T.detach().numpy(), back, back, back)
    J = model.jacobian(model.start)
    lifts = np.linalg.solve(J @ J.T, J)
    h = 1e-6
    for k in range(model.d):
        ahead, behind = (
            np.linalg.inv(model.metric(model.start + s * h * lifts[k])) for s in (1.0, -1.0)
        )
        quotient = (ahead - behind) / (2 * h)
        np.testing.assert_allclose(T[:, :, k], quotient, atol=1e-6 * np.abs(T).max())
        # The lift moves the k-th predictor alone.
        np.testing.assert_allclose(J @ lifts[k], np.eye(model.d)[k], atol=1e-13)


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_other_coordinates_of_w_and_theta_change_no_number(seed):
    keys = ("cubes", "neuron-positive", "chain", "circular-convolution")
    e = example(keys[seed % len(keys)])
    plain = hessian_map(e.parametrization(), points=0)
    other = hessian_map(disguised(e, seed), points=0)
    np.testing.assert_allclose(other.defect, plain.defect, atol=1e-11)


def outer_metric(w):
    import torch

    return torch.eye(len(w), dtype=w.dtype) + torch.outer(w, w)


@given(seed=st.integers(0, 10**6), d=st.integers(2, 5))
def test_the_control_fails(seed, d):
    """I + w w^T is no Hessian: d_k H_ij - d_j H_ik = delta_ik w_j - delta_ij w_k."""
    w = np.random.default_rng(seed).standard_normal(d)
    found = hessian_map_of_metric(outer_metric, w)
    assert not found.holds
    assert found.defect > 1e-2 * min(1.0, float(np.linalg.norm(w)))


def test_the_control_by_hand():
    """At w = (s, 0) in the frame diag(1/sqrt(1 + s^2), 1): T_abc from its formula."""
    s = 0.7
    r = 1.0 / np.sqrt(1.0 + s * s)
    # d_k H_ij = delta_ik w_j + w_i delta_jk: H_11 by w1: 2 s; H_12 = H_21 by w2: s.
    T = np.zeros((2, 2, 2))
    T[0, 0, 0], T[0, 1, 1], T[1, 0, 1] = 2 * s * r**3, s * r, s * r
    D = T - np.swapaxes(T, 1, 2)
    expected = np.linalg.norm(D) / np.linalg.norm(T)
    found = hessian_map_of_metric(outer_metric, [s, 0.0])
    assert found.defect == pytest.approx(expected, rel=1e-12)


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 4))
def test_hessians_pass(seed, d):
    """Hess of log sum exp(A w) + ||w||^2: dense and curved, and a Hessian."""
    import torch

    rng = np.random.default_rng(seed)
    A = torch.tensor(rng.standard_normal((6, d)))

    def potential(w):
        return torch.logsumexp(A @ w, 0) + (w**2).sum()

    found = hessian_map_of_metric(torch.func.hessian(potential), rng.standard_normal(d))
    assert found.holds
    assert found.defect < 1e-12


def test_a_special_start_does_not_decide():
    """For w = a v at v = 0 all derivatives of the metric along lifts vanish; along flows not."""
    found = hessian_map(lambda th: th[0] * th[1:], [1.0, 0.0, 0.0, 0.0])
    assert found.at_points[0] == 0.0
    assert not found.holds


def test_one_predictor():
    found = hessian_map(lambda th: th.prod().reshape(1), [0.5, 0.4, 0.3])
    assert found.holds
    assert "one predictor" in repr(found)


@pytest.mark.parametrize(
    ("F", "start", "message"),
    [
        (
            lambda th: th[:3] * th[3:],
            [0.5, 0.0, 0.3, 0.2, 0.0, 0.6],
            "rank 3, got rank 2: the metric J J.T is not invertible there, .* along w2",
        ),
        (
            lambda th: th.softmax(0),
            [0.1, 0.2, 0.3],
            r"along w1 \+ w2 \+ w3. Nor does it elsewhere: .* softmax .* Return 2 of them",
        ),
        (lambda th: th[:2] ** 2, [0.5, 0.0, 0.3], "along w2. A parameter that starts at 0 is"),
        (lambda th: th[0] * th[1:], [0.0, 0.0, 0.0], "got rank 0"),
    ],
)
def test_singular_start_names_the_zero_directions(F, start, message):
    with pytest.raises(InputError, match=message):
        hessian_map(F, start)


def test_bad_metrics():
    with pytest.raises(InputError, match=r"H: must map w of shape \(d,\) to a matrix"):
        hessian_map_of_metric(lambda w: w, [1.0, 2.0])
    with pytest.raises(InputError, match="H: must be symmetric and positive definite"):
        hessian_map_of_metric(lambda w: -outer_metric(w), [1.0, 2.0])


def test_readable():
    text = repr(hessian_map(neuron(3, 0.4)))
    assert text.startswith("HessianMap(no: (J J^T)^-1 is not a Hessian")
    assert "tolerance 1e-09" in text
