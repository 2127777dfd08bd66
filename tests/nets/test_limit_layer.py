"""The limit as a layer: gradients against finite differences, and what it refuses."""

import numpy as np
import pytest
import torch

import flowbias as fb
from flowbias.nets.limit_layer import limit_layer

MODELS = [
    fb.L2(),
    fb.DiagonalNet(depth=2, scale=0.1),
    fb.DiagonalNet(depth=2, scale=1e-3),
    fb.DiagonalNet(depth=3, scale=0.3),
    fb.UntiedDiagonalNet(scale=0.3, shape=0.5),
    fb.DiagonalNet.from_weights([0.1, 0.2, 0.3, 0.1, 0.1, 0.4], [0.2, 0.1, 0.1, 0.3, 0.1, 0.2]),
]
RESCALABLE = MODELS[1:]


def tensors(n=3, d=6, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=dtype)
    return X.requires_grad_(), torch.randn(n, generator=generator, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_gradients_in_the_data(model):
    assert torch.autograd.gradcheck(lambda X, y: limit_layer(model, X, y), tensors())


@pytest.mark.parametrize("model", RESCALABLE, ids=repr)
def test_gradients_in_the_scale(model):
    log_scale = torch.tensor(-1.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda X, y, s: limit_layer(model, X, y, s), (*tensors(), log_scale)
    )


@pytest.mark.parametrize("log_scale", [-20.0, -40.0])
def test_gradients_where_fewer_coordinates_than_samples_carry_the_fit(log_scale):
    # X w = y at every scale, whatever X and y: w -> <g, X w> has gradients g and g w^T - g w^T.
    X, _ = tensors()
    y = X.detach()[:, 0].clone().requires_grad_()
    s = torch.tensor(log_scale, dtype=torch.float64, requires_grad=True)
    fitted = X @ limit_layer(fb.DiagonalNet(depth=2, scale=1.0), X, y, s)
    for i in range(3):
        in_X, in_y, in_s = torch.autograd.grad(fitted[i], (X, y, s), retain_graph=True)
        np.testing.assert_allclose(in_y, np.eye(3)[i], atol=1e-12)
        np.testing.assert_allclose(in_X, 0.0, atol=1e-10)
        np.testing.assert_allclose(in_s, 0.0, atol=1e-10)


def test_gradients_that_doubles_do_not_show_are_refused():
    X, _ = tensors()
    y = X.detach()[:, 0].clone().requires_grad_()
    w = limit_layer(fb.DiagonalNet(depth=2, log_scale=-1000.0), X, y)
    with pytest.raises(fb.SolveError, match="not resolved"):
        w.sum().backward()


def test_nearly_dependent_rows():
    X, y = tensors()
    with torch.no_grad():
        X[2] = X[1] + 1e-6 * X[2]
        y[2] = y[1]
    w = limit_layer(MODELS[1], X, y)
    found = torch.autograd.grad(w[0], y)[0].numpy()
    expected = fb.limit(MODELS[1], X.detach().numpy(), y.detach().numpy()).sensitivity().dw_dy[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_value_is_the_limit_in_the_type_of_x():
    X, y = tensors(dtype=torch.float32)
    w = limit_layer(MODELS[1], X, y)
    assert w.dtype == torch.float32
    assert w.device == X.device
    expected = fb.limit(MODELS[1], X.detach().double().numpy(), y.detach().double().numpy()).w
    np.testing.assert_array_equal(w.detach().numpy(), expected.astype(np.float32))
    w.sum().backward()
    assert X.grad.dtype == torch.float32
    assert y.grad.shape == y.shape


def test_a_layer_among_others():
    # Features from a network, the limit on top: gradients reach the network's weights.
    net = torch.nn.Linear(4, 10).double()
    inputs, y = torch.ones(3, 4).double() + torch.eye(3, 4), torch.tensor([1.0, -1.0, 0.5]).double()

    def loss():
        return limit_layer(MODELS[1], torch.tanh(net(inputs)), y).square().sum()

    before = loss()
    before.backward()
    with torch.no_grad():
        size = sum(p.grad.square().sum() for p in net.parameters())
        for parameter in net.parameters():
            parameter -= 1e-5 * parameter.grad
    assert float((before - loss()).detach()) == pytest.approx(1e-5 * float(size), rel=1e-2)


@pytest.mark.parametrize("loss", [torch.sum, lambda w: w.square().sum()], ids=["linear", "square"])
def test_no_second_derivatives(loss):
    """Not even where the gradient that comes in is constant, and a second one might pass as 0."""
    X, y = tensors()
    w = limit_layer(MODELS[1], X, y)
    with pytest.raises(fb.InputError, match="create_graph: must be False"):
        torch.autograd.grad(loss(w), y, create_graph=True)


def test_changes_in_place_leave_the_gradients_alone():
    X, y = tensors()
    (expected,) = torch.autograd.grad(limit_layer(MODELS[1], X, y).sum(), X)
    w = limit_layer(MODELS[1], X, y)
    w.mul_(2.0)
    (found,) = torch.autograd.grad(w.sum(), X)
    # Up to rounding: the order in which a product is summed goes with where its factors lie.
    np.testing.assert_allclose(found, 2.0 * expected, rtol=1e-12)


def refusals():
    X, y = tensors()
    one = torch.zeros(1).double()
    one_signed = fb.DiagonalNet.from_weights(np.ones(6), np.zeros(6))
    yield "X: must have independent rows", (fb.L2(), X.T, torch.ones(6).double())
    yield "X: must be a tensor", (fb.L2(), X.detach().numpy(), y)
    yield "y: must be a tensor of real .* got torch.int64", (fb.L2(), X, torch.ones(3).long())
    yield "log_scale: must hold one number", (MODELS[1], X, y, torch.zeros(2))
    yield "provide SCALE", (fb.L2(), X, y, one)
    yield "X: must be dense, got layout torch.sparse_coo", (fb.L2(), X.detach().to_sparse(), y)
    yield "provide POTENTIAL", (fb.L1(), X, y)
    yield "y: must be within reach", (one_signed, X[:2].abs(), -torch.ones(2).double())


@pytest.mark.parametrize(("message", "arguments"), [*refusals()], ids=[m for m, _ in refusals()])
def test_refusals(message, arguments):
    with pytest.raises(fb.InputError, match=message):
        limit_layer(*arguments)
