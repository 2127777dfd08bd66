"""Orbit dimensions: known ones, and against pushing the fields along flows."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from flowbias.derive import Parametrization, orbit_dimension
from flowbias.derive.orbit import random_brackets
from flowbias.ground.arguments import InputError
from tests.derive.zoo import ALL, KNOWN, disguised, example


def _stack(*parts):
    import torch

    return torch.stack(parts)


def late(th):
    """[g1, g2] = (2z, 0, 2x) vanishes at the origin, [g1, [g1, g2]] = (0, 0, 2) does not."""
    x, y, z = th
    return _stack(x, y + x**2 * z)


def deep(th):
    """Brackets of length 2 add one direction and those of length 3 another, everywhere."""
    x, y, s, t = th
    return _stack(x, y + x * s + x**2 * t / 2)


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.key)
def test_known_dimension(e):
    known, found = KNOWN[e.key], orbit_dimension(e.parametrization(), points=1)
    assert found.decided
    assert found.dimension == known.orbit
    assert found.conservation_laws == known.laws
    assert found.metric_from_predictor == known.metric_from_predictor
    assert found.metric_change < 1e-12 or found.metric_change > 1e-2
    assert found.holds == (known.orbit == found.predictors)
    assert set(found.at_points) == {known.orbit}


def pushed_dimension(model: Parametrization) -> int:
    """Rank of the fields carried back along random flows: the orbit theorem, without brackets.

    For F homogeneous of degree 2 the field of z is the linear map A(z) = sum z_i Hess F_i, its flow
    expm(A(z)), so that nothing is integrated.
    """
    hessians, rng = model.hessians(model.start), np.random.default_rng(3)
    carried = []
    for _ in range(2 * model.p):
        flow = np.eye(model.p)
        for _ in range(3):
            A = np.tensordot(0.5 * rng.standard_normal(model.d), hessians, axes=1)
            flow = scipy.linalg.expm(A) @ flow
        fields = model.jacobian(flow @ model.start)
        carried.append(np.linalg.solve(flow, fields.T).T)
    rows = np.vstack(carried)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return int(np.linalg.matrix_rank(rows, tol=1e-8))


QUADRATIC = (
    "squares",
    "neuron-balanced",
    "two-neurons",
    "balanced-neurons",
    "matrix-factorization",
    "symmetric-factorization",
    "circular-convolution",
    "linear-net",
)


@pytest.mark.parametrize("key", QUADRATIC)
def test_agrees_with_fields_carried_along_flows(key):
    model = example(key).parametrization()
    assert pushed_dimension(model) == orbit_dimension(model, points=0).dimension


def test_special_start_lies_on_a_smaller_orbit():
    found = orbit_dimension(example("balanced-neurons").parametrization())
    assert (found.dimension, found.generic_dimension) == (3, 5)
    assert "from a generic start 5" in repr(found)


def test_point_where_short_brackets_vanish():
    """At the origin the search stops too early; on the orbit it does not."""
    found = orbit_dimension(late, np.zeros(3))
    assert found.at_points[0] == 2
    assert found.dimension == 3


def test_brackets_of_length_three():
    found = orbit_dimension(deep, [0.3, 0.2, -0.5, 0.7])
    assert (found.dimension, found.longest) == (4, 3)


def test_words_of_length_three_by_hand():
    """In `deep` every word of length 3 is a multiple of e_t, plus e_x if it starts with g2."""
    model = Parametrization(deep, [0.3, 0.2, -0.5, 0.7])
    words = random_brackets(model, model.start, 3, 6, np.random.default_rng(0))
    assert np.abs(words[:, [1]]).max() < 1e-15
    assert np.linalg.norm(words, axis=1).min() > 1e-3


def test_a_bracket_by_hand():
    """[g(y), g(z)] for w = a v is (y_i z_j - z_i y_j) (v_i e_j - v_j e_i), summed over i < j."""
    v = np.array([0.6, -0.3, 0.5])
    model = Parametrization(lambda th: th[0] * th[1:], np.append(0.8, v))
    rng, again = np.random.default_rng(5), np.random.default_rng(5)
    (word,) = random_brackets(model, model.start, 2, 1, rng)
    first, second = again.standard_normal((1, 2, 3))[0]
    by_hand = np.append(0.0, (v @ second) * first - (v @ first) * second)
    np.testing.assert_allclose(
        word / np.linalg.norm(word), by_hand / np.linalg.norm(by_hand), atol=1e-14
    )


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_other_coordinates_change_nothing(seed):
    keys = ("two-neurons", "balanced-neurons", "symmetric-factorization", "circular-convolution")
    key = keys[seed % len(keys)]
    found = orbit_dimension(disguised(example(key), seed), points=1)
    assert found.dimension == KNOWN[key].orbit
    assert found.metric_from_predictor == KNOWN[key].metric_from_predictor


@pytest.mark.parametrize("size", [1e-13, 1e-9, 1e-6])
def test_nearly_special_start_is_never_called_clear_cut_by_mistake(size):
    """Neurons balanced up to `size`: 3 if that is rounding, 5 if it is visible, else undecided."""
    e = example("balanced-neurons")
    found = orbit_dimension(e.F, np.array(e.theta0) + size * np.arange(8.0), points=1)
    right = {1e-13: 3, 1e-6: 5}.get(size)
    assert found.decided == (right is not None)
    assert right is None or found.dimension == right


def test_singular_metric_is_reported():
    found = orbit_dimension(lambda th: th[0] * th[1:], np.zeros(4))
    assert (found.dimension, found.generic_dimension) == (0, 3)
    assert np.isnan(found.metric_change)
    assert not found.metric_from_predictor


def test_price_is_named_before_any_bracket():
    with pytest.raises(InputError, match=r"got 3000: 3000 brackets at 5 points take about .* GB"):
        orbit_dimension(lambda th: th[:1500] * th[1500:], np.ones(3000))


def test_stopped_early_is_a_lower_bound_and_says_so():
    # Enough for brackets of length 2 (3 times the price), not of length 3 (9 times).
    found = orbit_dimension(deep, [0.3, 0.2, -0.5, 0.7], max_cost=2e5)
    assert found.dimension == 3
    assert not found.complete
    assert not found.holds
    assert "at least 3" in repr(found)
