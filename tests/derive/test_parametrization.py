"""F as a torch function: its derivatives against formulas, and bad input named."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.derive import Verdict, implicit_bias
from flowbias.derive import parametrization as module
from flowbias.derive.parametrization import Parametrization, combination
from flowbias.ground.arguments import InputError

NEURON = np.array([1.2, 0.6, -0.3, 0.5])


def neuron(th):
    return th[0] * th[1:]


def squares(th):
    d = len(th) // 2
    return th[:d] ** 2 - th[d:] ** 2


# --- derivatives --------------------------------------------------------------------------------


@settings(max_examples=10)  # polynomial identities: one generic point decides
@given(theta=st.lists(st.floats(0.3, 2.0), min_size=4, max_size=4))
def test_derivatives_of_a_neuron_are_those_of_a_times_v(theta):
    model = Parametrization(neuron, theta)
    at, (a, *rest) = model.start, theta
    v = np.array(rest)
    J = np.column_stack([v, a * np.eye(3)])
    assert_allclose(model.predictor_at(at), a * v, rtol=1e-15)
    assert_allclose(model.jacobian(at), J, rtol=1e-15)
    assert_allclose(model.metric(at), a**2 * np.eye(3) + np.outer(v, v), rtol=1e-14)
    assert_allclose(model.pulled_back(at, v), J.T @ v, rtol=1e-14)
    hessians = np.zeros((3, 4, 4))
    for i in range(3):
        hessians[i, 0, i + 1] = hessians[i, i + 1, 0] = 1.0
    assert_allclose(model.hessians(at), hessians, atol=1e-15)
    brackets = np.einsum("jqp,ip->ijq", hessians, J) - np.einsum("iqp,jp->ijq", hessians, J)
    assert_allclose(model.brackets(at), brackets, atol=1e-14)
    assert np.abs(brackets[0, 1]).max() > 0.1  # the sign of a bracket is part of the claim


def test_jacobian_is_that_of_the_point_asked_for():
    model = Parametrization(torch.exp, [0.0, 1.0])
    for theta in (model.start, np.array([1.0, 2.0]), model.start):
        J = model.jacobian(theta)
        assert_allclose(J, np.diag(np.exp(theta)), rtol=1e-15)
        J[:] = np.nan  # the caller's own


def test_flow_along_fields_of_squares_is_exponential():
    model = Parametrization(squares, [0.5, 0.8, 0.4, 0.9])
    z = np.array([0.7, -1.1])
    growth = np.exp(2.0 * np.concatenate([z, -z]))
    assert_allclose(model.flow_along(model.start, z, 1.0), model.start * growth, rtol=1e-11)
    back = model.flow_along(model.flow_along(model.start, z, 1.0), z, -1.0)
    assert_allclose(back, model.start, rtol=1e-11)


def test_flow_that_blows_up_is_nan():
    cubes = Parametrization(lambda th: th**3, [1.0])  # theta' = 3 z theta^2: infinite at 1/(3 z)
    assert np.isfinite(cubes.flow_along(cubes.start, [1.0], 0.3)).all()
    assert np.isnan(cubes.flow_along(cubes.start, [1.0], 0.34)).all()


def test_flow_into_a_kink_ends_there_at_once():
    """theta' = -sign(theta) goes nowhere from 0 on; its steps get shorter until that shows."""
    calls = 0

    def absolute(theta):
        nonlocal calls
        calls += 1
        return theta.abs()

    model = Parametrization(absolute, [0.1, 1.0])
    assert_allclose(model.flow_along(model.start, [-1.0, 1.0], 0.05), [0.05, 1.05], rtol=1e-13)
    calls = 0
    assert np.isnan(model.flow_along(model.start, [-1.0, 1.0], 0.2)).all()
    # 600 steps of 12 calls would be all that any flow may take.
    assert calls < 7200
    assert implicit_bias(absolute, [0.1, 1.0]).verdict is Verdict.MIRROR_FLOW


def test_derivatives_that_torch_keeps_as_no_numbers_are_zeros():
    """Of one |theta| torch returns a second derivative that is a zero without storage."""
    assert implicit_bias(torch.abs, [1.0]).verdict is Verdict.MIRROR_FLOW


def test_start_of_another_shape_stays_in_that_shape():
    start = np.arange(1.0, 7.0).reshape(2, 3)
    model = Parametrization(lambda U: U[0] * U[1], start)
    assert (model.p, model.d) == (6, 3)
    assert_allclose(model.initial, start[0] * start[1])
    assert_allclose(model.jacobian(model.start), np.hstack([np.diag(start[1]), np.diag(start[0])]))


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_no_digit_of_the_start_is_lost(kind):
    values = kind([0.1, 0.7]) if kind is not torch.tensor else torch.tensor([0.1, 0.7]).double()
    expected = [0.1, 0.7] if kind is not torch.tensor else np.float32([0.1, 0.7]).astype(float)
    assert_allclose(Parametrization(torch.exp, values).start, expected, rtol=0)


def test_parameter_flow_follows_the_same_path_as_the_built_in_network():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 3)), rng.standard_normal(2)
    a = np.array([0.5, 0.8, 0.6])
    times = [0.05, 0.2, 1.0]
    net = fb.DiagonalNet(depth=3, scale=1.0, w0=a)
    ours = Parametrization(lambda th: th[:3] ** 3 - th[3:] ** 3, np.concatenate([a, a]))
    followed = fb.flow(ours, X, y, t=times)
    assert followed.route == "parameter"
    # Both integrators keep local errors of about 1e-10.
    assert_allclose(followed.w, fb.flow(net, X, y, t=times).w, atol=1e-8)


# --- bad input --------------------------------------------------------------------------------


def _grows(th):
    return th if th[0] <= 1.0 else torch.cat([th, th])


def _grows_later(th):
    return torch.cat([th**2, th[:1]]) if th[0] > 1.00001 else th**2


BAD_FUNCTIONS = {
    "scalar": (lambda th: (th**2).sum(), [1.0, 2.0], r"vector of predictors.*got shape \(\)"),
    "matrix": (lambda th: th[:, None] * th, [1.0, 2.0], r"got shape \(2, 2\)"),
    "changes shape": (_grows, [1.0, 2.0], "must return 2 numbers everywhere"),
    "changes shape later": (_grows_later, [1.0, 2.0], "must return 2 numbers everywhere"),
    "raises": (lambda th: {}["weights"] * th, [1.0, 2.0], "got KeyError: 'weights'"),
    "divides by 0": (lambda th: th * (1 / 0), [1.0, 2.0], "got ZeroDivisionError"),
    "second derivative jumps": (lambda th: th * th.abs(), [1.0, 0.0], "twice differentiable"),
    "NaN": (torch.log, [1.0, -1.0], "finite at theta0, got nan for w2"),
    "infinite slope": (lambda th: th.abs().sqrt(), [1.0, 0.0], "derivative of w. in th2 = 0"),
    "absolute value": (lambda th: th * th.abs().sum(), [1.0, 0.0], "-1 and 1 of w1 along th2 = 0"),
    "ReLU at 0": (lambda th: th + th.relu(), [1.0, 0.0], "derivatives 1 and 2 of w2 along th2"),
    "tie in a maximum": (lambda th: th * th.max(), [2.0, 2.0], "must be differentiable at theta0"),
    "jump": (lambda th: th.floor() + th, [1.0, 2.5], "along th1 = 1"),
    "second derivative": (lambda th: th + th.relu() ** 2, [1.0, 0.0], "twice differentiable"),
    "detached": (lambda th: th.detach() * th, [1.0, 2.0], "differentiated correctly by torch"),
    "constant": (lambda th: th.detach() ** 2, [1.0, 2.0], "must depend differentiably"),
    "NumPy result": (lambda th: th.detach().numpy() ** 2, [1.0, 2.0], "got ndarray"),
    "NumPy function": (np.square, [1.0, 2.0], "torch functions only"),
    "float32": (lambda th: th.float(), [1.0, 2.0], "must return float64, got torch.float32"),
    "too short": (lambda th: th[5:6] * th[7], [1.0, 2.0], "IndexError"),
    "not a function": (3.0, [1.0], "must be a function of a torch tensor, got float"),
}


@pytest.mark.parametrize("name", BAD_FUNCTIONS)
def test_bad_function(name):
    F, theta0, message = BAD_FUNCTIONS[name]
    with pytest.raises(InputError, match=message) as refusal:
        Parametrization(F, theta0)
    assert str(refusal.value).startswith("F: must")


@pytest.mark.parametrize("ask", ["predictor_at", "jacobian", "hessians"])
def test_shape_is_checked_wherever_the_function_is_called(ask):
    model = Parametrization(
        lambda th: torch.cat([th**2, th[:1]]) if th[0] > 1.05 else th**2, [1.0, 2.0]
    )
    with pytest.raises(InputError, match=r"F: must return 2 numbers everywhere.*got shape \(3,\)"):
        getattr(model, ask)(np.array([1.1, 2.0]))
    with pytest.raises(InputError, match=r"F: must return 2 numbers everywhere"):
        model.pulled_back(np.array([1.1, 2.0]), np.ones(2))


def test_price_is_said_before_anything_is_differentiated():
    calls = []

    def squares_counted(th):
        calls.append(1)
        return th**2

    with pytest.raises(InputError, match=r"2000\^2 pairs x 2000 parameters = 8\.0e\+09 numbers"):
        implicit_bias(squares_counted, np.ones(2000))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("theta0", "message"),
    [
        (["a"], "real numbers"),
        (None, "real numbers"),
        ([1j, 2.0], "complex ones as real"),
        ([[1.0], [1.0, 2.0]], "regular array"),
        ([], "must not be empty"),
        ([1.0, np.inf], "must be finite, got inf at position 1"),
    ],
)
def test_bad_start(theta0, message):
    with pytest.raises(InputError, match=message):
        Parametrization(torch.exp, theta0)


def test_bad_names():
    with pytest.raises(InputError, match="must be 2 different names"):
        Parametrization(torch.exp, [1.0, 2.0], names=["u", "u"])


@pytest.mark.parametrize(
    ("F", "theta0", "message"),
    [
        (torch.square, [1.0, 0.0, 2.0], r"rank 3, got rank 2.*nothing moves along w2\."),
        (lambda th: torch.stack([th[0], th[1], th[0] - th[1]]), [1.0, 2.0], "2 parameters cannot"),
        (lambda th: torch.stack([th.sum(), 2 * th.sum()]), [1.0, 2.0], r"along .*0\.5\*w2"),
        (torch.sin, [np.pi / 2, 1.0], "nothing moves along w1"),
    ],
)
def test_singular_start_names_what_stands_still(F, theta0, message):
    model = Parametrization(F, theta0)
    with pytest.raises(InputError, match=message):
        model.require_regular()


def test_predictors_of_very_different_size_are_no_deficiency():
    scales = np.array([1e-30, 1.0, 1e30])
    Parametrization(lambda th: th * th.new_tensor(scales), [1.0, 2.0, 3.0]).require_regular()


def test_curvature_and_rounding_are_not_taken_for_kinks():
    steep = Parametrization(lambda th: torch.exp(60.0 * th), [1.0, 0.1])
    assert steep.d == 2
    cancelling = Parametrization(squares, np.full(6, 0.7))
    assert_allclose(cancelling.initial, 0.0)


def test_cost_of_second_derivatives_is_stated_before_it_is_paid(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_HESSIANS", 10)
    model = Parametrization(neuron, NEURON)
    with pytest.raises(InputError, match=r"3 predictors x 4\^2 = 4\.8e\+01 numbers"):
        model.brackets(model.start)


def test_combinations_in_words():
    assert combination(np.array([0.6, 0.0, -0.3]), ["w1", "w2", "w3"]) == "w1 - 0.5*w3"
