"""Typed formulas with derivatives of their own: those of torch, at less cost, and within bounds."""

from threading import Thread

import numpy as np
import pytest
from hypothesis import example, given

from flowbias.apps.explorer.typed_parametrization import (
    TypedFunction,
    TypedParametrization,
    UnfinishedError,
    at_most,
)
from flowbias.derive.parametrization import Parametrization
from flowbias.ground.arguments import InputError
from tests.apps.explorer.test_formula import FORMULAS, parsed

torch = pytest.importorskip("torch")
Z = np.array([0.7, -1.3])


def typed(text, theta=None):
    function = TypedFunction.of(text, 2)
    p = len(function.parameter_names)
    return TypedParametrization(function, np.linspace(0.3, 0.9, p) if theta is None else theta)


@given(FORMULAS)
@example("u + v / (2 - p) - 3 / q")
@example("u + (1 - a) * b / c + 2 / u")
@example("u - 2 + v^0 + u / 3")
@example("sin(u) * cos(v) + tanh(p) * sigmoid(q)")
@example("exp(-u) + log(v) * sqrt(u)")
def test_derivatives_are_those_of_torch(text):
    if parsed(text) is None:
        return
    try:
        mine = typed(text)
    except InputError:
        # Not finite or not smooth at this start: refused alike, whoever differentiates.
        with pytest.raises(InputError):
            Parametrization(TypedFunction.of(text, 2), start_of(text))
        return
    theirs = Parametrization(TypedFunction.of(text, 2), mine.start)
    for theta in (mine.start, mine.start[::-1].copy()):
        J = theirs.jacobian(theta)
        if not np.isfinite(J).all():
            continue  # which entries an overflow reaches goes with the order of operations
        # Same operations in another order: rounding of terms that may cancel.
        slack = 1e-10 * (1.0 + np.abs(J).max())
        np.testing.assert_allclose(mine.jacobian(theta), J, rtol=1e-9, atol=slack)
        np.testing.assert_allclose(
            mine.pulled_back(theta, Z), theirs.pulled_back(theta, Z), rtol=1e-9, atol=2 * slack
        )
        np.testing.assert_allclose(
            mine.predictor_at(theta), theirs.predictor_at(theta), rtol=1e-9, atol=1e-12
        )


def start_of(text):
    return np.linspace(0.3, 0.9, len(TypedFunction.of(text, 2).parameter_names))


def test_what_leaves_the_domain_is_not_finite_and_says_nothing(recwarn):
    model = typed("sqrt(u) + log(v)")
    out = model.predictor_at(np.array([-1.0, 1.0, 1.0, 0.0]))
    assert np.isnan(out[0])
    assert out[1] == -np.inf
    assert not recwarn.list


def test_the_power_zero_is_flat_everywhere():
    model, at = typed("u + v^0"), np.array([0.5, 0.7, 0.0, 2.0])
    np.testing.assert_array_equal(model.predictor_at(at), [1.5, 1.7])
    np.testing.assert_array_equal(model.jacobian(at), [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])


def test_answers_may_be_written_to():
    model = typed("u^2")
    for get in (model.predictor_at, model.jacobian, lambda theta: model.flow_along(theta, Z)):
        first = get(model.start)
        kept = first.copy()
        first[...] = 99.0
        np.testing.assert_array_equal(get(model.start), kept)


def test_a_flow_is_followed_once(monkeypatch):
    model = typed("u^2 - v^2")
    first = model.flow_along(model.start, Z)
    again = typed("u^2 - v^2").flow_along(model.start, Z)
    np.testing.assert_array_equal(first, again)
    with at_most(0):
        np.testing.assert_array_equal(model.flow_along(model.start, Z), first)
        with pytest.raises(UnfinishedError):
            model.flow_along(model.start, 2.0 * Z)
        with pytest.raises(UnfinishedError):
            model.flow_along(model.start, Z, 0.5)


def test_no_more_flows_are_kept_than_memory_should_hold(monkeypatch):
    monkeypatch.setattr(TypedParametrization, "most_flows", 3)
    model = typed("u")
    for k in range(8):
        model.flow_along(model.start, (1.0 + k) * Z)
        assert len(model._flows) <= 3


def test_work_is_counted_in_nodes_and_by_thread():
    model = typed("u*v + 1")
    with at_most(10):
        model.predictor_at(model.start + 1.0)
        # The same point once more costs nothing.
        model.pulled_back(model.start + 1.0, Z)
        model.predictor_at(model.start + 2.0)
        found = []
        other = Thread(target=lambda: found.append(model.predictor_at(model.start + 9.0)))
        other.start()
        other.join()
        assert len(found) == 1
        with pytest.raises(UnfinishedError):
            model.predictor_at(model.start + 3.0)
    with at_most(40), pytest.raises(UnfinishedError):
        # Five nodes, ten times as dear in torch.
        model.torch_function(model.tensor(model.start))
    model.predictor_at(model.start + 4.0)
