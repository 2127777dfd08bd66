"""Brackets against difference quotients and against the flows that they are about."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowbias.derive import EXAMPLES, Parametrization, commuting
from flowbias.derive.commuting import moved_gradients
from flowbias.derive.parametrization import random_field, reachable_points
from flowbias.ground.arguments import InputError
from tests.derive.zoo import ALL, KNOWN, disguised, example, neuron
from tests.test_layering import SOURCE, read

SEEDS = st.integers(0, 10**6)


def test_every_example_has_a_known_verdict():
    assert {e.key for e in ALL} == set(KNOWN)
    assert len(EXAMPLES) >= 15


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.key)
def test_verdict(e):
    found = commuting(e.parametrization(), points=1)
    assert found.holds == KNOWN[e.key].commuting
    # Nothing near the decision: either rounding, or a bracket as large as its terms.
    assert found.defect < 1e-12 or found.defect > 0.1


@pytest.mark.parametrize("key", ["squares", "cubes", "two-neurons", "circular-convolution"])
def test_verdict_agrees_with_the_flows_themselves(key):
    """Fields commute exactly if their flows do: forth along one, along the other, and compare."""
    model = example(key).parametrization()
    rng = np.random.default_rng(1)
    z, other = 0.3 * random_field(model, model.start, rng), random_field(model, model.start, rng)
    one = model.flow_along(model.flow_along(model.start, z), other)
    two = model.flow_along(model.flow_along(model.start, other), z)
    apart = np.linalg.norm(one - two) / np.linalg.norm(one)
    assert (apart < 1e-11) == commuting(model).holds
    assert apart < 1e-11 or apart > 1e-4


@pytest.mark.parametrize("key", ["two-neurons", "weight-normalization", "circular-convolution"])
def test_terms_are_derivatives_of_the_gradients(key):
    """Hess F_j grad F_i by a central difference of J: error h^2 + eps/h, about 1e-10 at 1e-5."""
    model = example(key).parametrization()
    J, moved, _ = moved_gradients(model, model.start)
    h = 1e-5
    for i in range(model.d):
        ahead, behind = (
            model.jacobian(model.start + h * J[i]),
            model.jacobian(model.start - h * J[i]),
        )
        np.testing.assert_allclose(moved[i], (ahead - behind) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(
        moved - np.swapaxes(moved, 0, 1), model.brackets(model.start), atol=1e-13
    )


@settings(max_examples=6)
@given(seed=SEEDS)
def test_other_coordinates_change_no_verdict(seed):
    keys = ("squares", "cubes", "neuron-positive", "polar")
    key = keys[seed % len(keys)]
    found = commuting(disguised(example(key), seed), points=1)
    assert found.holds == KNOWN[key].commuting


def test_rounding_against_rounding_is_no_bracket():
    """w = (Q theta)^2: both terms of each bracket vanish, but in the last digit."""
    import torch

    Q = torch.tensor(np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0])
    model = Parametrization(lambda th: (Q @ th) ** 2, [0.5, 0.8, 0.3, 0.6])
    assert np.abs(model.brackets(model.start)).max() > 0.0
    assert commuting(model).holds


@pytest.mark.parametrize("size", [1e-10, 1e-6, 1e-2])
def test_a_small_disturbance_is_seen(size):
    """(u1^2, u2^2 + size u1 u2): both terms of the bracket are small, and so it is not."""

    def disturbed(th):
        return th**2 + size * th.prod() * th.new_tensor([0.0, 1.0])

    found = commuting(disturbed, [0.7, 0.6])
    assert not found.holds
    assert found.pair in {(1, 2), (2, 1)}
    assert found.defect > min(0.5, 1e4 * size)


def test_one_special_point_does_not_decide():
    """[grad F_i, grad F_j] = v_i e_j - v_j e_i for w = a v: zero at v = 0, only there."""
    found = commuting(lambda th: th[0] * th[1:], [1.0, 0.0, 0.0, 0.0])
    assert found.start_defect == 0.0
    assert not found.holds
    alone = commuting(lambda th: th[0] * th[1:], [1.0, 0.0, 0.0, 0.0], points=0)
    assert alone.holds


def test_scale_does_not_matter():
    for scale in (1e-60, 1e60):
        start = scale * np.array([0.9, 0.6, -0.3, 0.5])
        assert commuting(lambda th: th[0] * th[1:], start).defect == pytest.approx(
            commuting(lambda th: th[0] * th[1:], start / scale).defect, rel=1e-6
        )


def test_reachable_points_are_on_the_orbit():
    model = neuron(3, 0.4)
    kept = [
        point[0] ** 2 - point[1:] @ point[1:]
        for point in reachable_points(model, 3, np.random.default_rng(0))
    ]
    np.testing.assert_allclose(kept, kept[0], atol=1e-12)


def test_another_start_of_the_same_parametrization():
    model = neuron(3, 0.4)
    moved = commuting(model, np.array([1.0, 0.0, 0.0, 0.0]))
    assert moved.start_defect == 0.0
    assert commuting(model).start_defect > 0.1


def test_readable():
    model = example("two-neurons").parametrization()
    assert repr(commuting(model)).startswith("Commuting(no: [grad F_")
    assert "tolerance 1e-09" in repr(commuting(example("squares").parametrization()))


def test_function_without_start():
    with pytest.raises(InputError, match="theta: must be given with a function F, got None"):
        commuting(lambda th: th)


def test_negative_points():
    with pytest.raises(InputError, match="points: must be an integer >= 0, got -1"):
        commuting(neuron(3, 0.4), points=-1)


def test_too_many_parameters_say_the_price():
    with pytest.raises(InputError, match=r"300\^2 pairs x 600 parameters = 5.4e\+07 numbers"):
        commuting(lambda th: th[:300] * th[300:], np.ones(600))


@pytest.mark.parametrize("path", sorted((SOURCE / "derive").glob("*.py")), ids=lambda p: p.stem)
def test_importing_loads_no_torch(path):
    loaded = {i.target.split(".")[0] for i in read(path)[1] if i.at_module_level}
    assert "torch" not in loaded


def test_missing_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"flowbias\[nets\]"):
        Parametrization(lambda th: th, [1.0])
