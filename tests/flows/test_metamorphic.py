"""Change the problem in a way whose effect is known: the trajectory must follow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.flows import flow
from flowbias.models import DiagonalNet, UntiedDiagonalNet

RNG = np.random.default_rng(11)
N, D = 4, 7
X, Y = RNG.standard_normal((N, D)), RNG.standard_normal(N)
T = np.array([0.02, 0.2, 1.0])
MODELS = [
    DiagonalNet(2, 0.4),
    DiagonalNet(3, 0.6),
    UntiedDiagonalNet(0.5, shape=0.4),
    DiagonalNet.from_weights(0.5, 0.3, depth=2),
]
models = pytest.mark.parametrize("model", MODELS, ids=repr)
# A few hundred local errors of 1e-11 in each of the two trajectories compared.
SAME = {"rtol": 2e-9, "atol": 2e-9}


@models
@pytest.mark.parametrize(
    ("loss", "constant"), [("half", 1.0), ("sum", 2.0), ("half_mean", 1 / N), ("mean", 2 / N)]
)
def test_the_loss_constant_only_sets_the_clock(model, loss, constant):
    plain = flow(model, X, Y, t=T)
    other = flow(model, X, Y, t=T / constant, loss=loss)
    assert_allclose(other.w, plain.w, rtol=1e-13, atol=1e-15)  # the same internal times
    assert_allclose(other.loss, constant * plain.loss, rtol=1e-12)
    assert_allclose(flow(model, X, Y, t=T / constant, loss=constant).w, other.w, rtol=1e-15)


@models
def test_permuted_features(model):
    order = np.random.default_rng(0).permutation(D)
    assert_allclose(flow(model, X[:, order], Y, t=T).w, flow(model, X, Y, t=T).w[:, order], **SAME)


@models
def test_rotated_samples(model):
    # ||X w - y|| does not change when the samples are rotated, hence nothing does.
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((N, N)))[0]
    rotated = flow(model, rotation @ X, rotation @ Y, t=T)
    assert_allclose(rotated.w, flow(model, X, Y, t=T).w, **SAME)


@models
def test_every_row_twice_is_half_the_time(model):
    twice = flow(model, np.vstack([X, X]), np.concatenate([Y, Y]), t=T / 2)
    assert twice.dual.shape == (len(T), 2 * N)
    assert_allclose(twice.w, flow(model, X, Y, t=T).w, **SAME)
    # With the mean over samples, not even the clock changes.
    mean = flow(model, np.vstack([X, X]), np.concatenate([Y, Y]), t=T, loss="mean")
    assert_allclose(mean.w, flow(model, X, Y, t=T, loss="mean").w, **SAME)


@models
def test_the_part_of_y_outside_the_range_does_not_matter(model):
    tall = np.vstack([X, X[:1]])
    contradiction = np.append(Y, Y[0])
    contradiction[[0, -1]] += [1.0, -1.0]
    plain, other = flow(model, tall, np.append(Y, Y[0]), t=T), flow(model, tall, contradiction, t=T)
    assert_allclose(other.w, plain.w, **SAME)
    assert_allclose(other.loss, plain.loss + 1.0, **SAME)  # (1/2) (1 + 1)
    assert_allclose(other.residual, plain.residual, **SAME)


@models
def test_a_feature_that_is_always_zero_stays(model):
    padded = flow(model, np.hstack([X, np.zeros((N, 1))]), Y, t=T)
    assert_allclose(padded.w[:, :-1], flow(model, X, Y, t=T).w, **SAME)
    assert_allclose(padded.w[:, -1], np.broadcast_to(model.initial, 1)[0], atol=1e-15)


@settings(max_examples=15)
@given(
    depth=st.sampled_from([2, 3, 4, 6]), log_factor=st.floats(-6.0, 6.0), seed=st.integers(0, 99)
)
def test_units(depth, log_factor, seed):
    # w -> c w, y -> c y, start -> c^(1/D) start: by homogeneity time runs c^(2/D - 2) as fast.
    rng = np.random.default_rng(seed)
    X, y, c = rng.standard_normal((2, 5)), rng.standard_normal(2), np.exp(log_factor)
    scale = 0.7
    plain = flow(DiagonalNet(depth, scale), X, y, t=T)
    scaled = flow(
        DiagonalNet(depth, scale * c ** (1 / depth)), X, c * y, t=T * c ** (2 / depth - 2)
    )
    assert_allclose(scaled.w / c, plain.w, **SAME)


@settings(max_examples=15)
@given(log_factor=st.floats(-8.0, 8.0))
def test_rescaled_data(log_factor):
    c = np.exp(log_factor)
    plain = flow(DiagonalNet(2, 0.4), X, Y, t=T)
    assert_allclose(flow(DiagonalNet(2, 0.4), c * X, c * Y, t=T / c**2).w, plain.w, **SAME)
