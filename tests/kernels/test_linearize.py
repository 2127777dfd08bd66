"""The linearized twin: a module that is linear in its parameters, and its training solved."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import expm

from flowbias.kernels import (
    kernel_matrix,
    lazy_gap,
    linearize,
    linearized_flow,
    tangent_kernel,
)
from tests.kernels.architectures import ARCHITECTURES, build, explicit_jacobian, torch

COPYABLE = [name for name in ARCHITECTURES if name != "patched layers"]


def call(module, x):
    return module(*x) if isinstance(x, tuple) else module(x)


def shift(twin, seed=1):
    """Move the twin's parameters at random; the move, in the order of the module's parameters."""
    generator = torch.Generator().manual_seed(seed)
    moves = []
    with torch.no_grad():
        for parameter in twin.named_point().values():
            move = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += move
            moves.append(move.reshape(-1))
    return torch.cat(moves)


@pytest.mark.parametrize("name", COPYABLE)
def test_twin_is_the_module_and_its_jacobian(name):
    module, x = build(name, 4)
    twin = linearize(module)
    start = call(module, x).detach()
    assert_allclose(call(twin, x).detach(), start, atol=1e-13 * float(start.abs().max()))
    jacobian = explicit_jacobian(module, x)
    expected = start.reshape(4, -1) + jacobian @ shift(twin)
    found = call(twin, x).reshape(4, -1)
    assert_allclose(found.detach(), expected, atol=1e-10 * float(expected.abs().max()))
    # Its own gradient is the Jacobian, wherever its parameters are.
    gradients = torch.autograd.grad(
        found[2].sum(), list(twin.named_point().values()), materialize_grads=True
    )
    joined = torch.cat([gradient.to_dense().reshape(-1) for gradient in gradients])
    assert_allclose(joined, jacobian[2].sum(0), atol=1e-10 * float(jacobian.abs().max()))


def test_twin_where_there_is_no_forward_mode():
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4)), torch.nn.Linear(4, 2)
    ).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    twin = linearize(module)
    move = shift(twin)
    expected = module(x) + explicit_jacobian(module, x) @ move
    found = twin(x)
    assert_allclose(found.detach(), expected.detach(), rtol=1e-10)
    gradient = torch.autograd.grad(found.sum(), twin.named_point()["1.bias"])[0]
    assert_allclose(gradient, 4.0 * np.ones(2))


def test_twin_is_a_module_like_any_other():
    module, x = build("batch norm", 3)
    twin = linearize(module)
    before = copy.deepcopy(module.state_dict())
    shift(twin)
    other = linearize(module)
    other.load_state_dict(twin.state_dict())
    assert torch.equal(twin(x), other(x))
    assert torch.equal(pickle.loads(pickle.dumps(twin))(x), twin(x))
    twin.train()
    assert torch.equal(other(x), twin(x))  # statistics stay those of the start
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    trainable = [
        name for name, p in linearize(build("frozen", 1)[0]).named_parameters() if p.requires_grad
    ]
    assert trainable == ["0__bias", "4__weight"]


def smooth_problem(n=6, seed=0):
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(3, 10), torch.nn.Tanh(), torch.nn.Linear(10, 2))
    module = module.double()
    x = torch.randn(n + 4, 3, dtype=torch.float64)
    return module, x[:n], torch.randn(n, 2, dtype=torch.float64), x[n:]


@pytest.mark.parametrize("t", [0.0, 0.01, 0.3, 5.0])
@pytest.mark.parametrize(("loss", "constant"), [("half", 1.0), ("mean", 2.0 / 6.0), (0.7, 0.7)])
def test_flow_is_the_matrix_exponential(t, loss, constant):
    module, x, y, x_test = smooth_problem()
    flow = linearized_flow(module, x, y, loss=loss)
    K = kernel_matrix(tangent_kernel(module, x))
    residual = (y - module(x)).detach().numpy().reshape(-1)
    decayed = expm(-constant * t * K) @ residual
    expected = y.numpy().reshape(-1) - decayed
    assert_allclose(flow.outputs(t).reshape(-1), expected, atol=1e-9)
    assert_allclose(flow.loss(t), 0.5 * constant * np.sum(decayed**2), rtol=1e-7)
    cross = kernel_matrix(tangent_kernel(module, x_test, x))
    moved = cross @ np.linalg.solve(K, residual - decayed)
    start = module(x_test).detach().numpy()
    assert_allclose(flow.predict(x_test, t), start + moved.reshape(start.shape), atol=1e-7)


def test_parameters_and_module_at_a_time():
    module, x, y, x_test = smooth_problem()
    flow = linearized_flow(module, x, y)
    twin = flow.module(0.3)
    assert_allclose(twin(x_test).detach(), flow.predict(x_test, 0.3), rtol=1e-9)
    assert_allclose(twin(x).detach(), flow.outputs(0.3), rtol=1e-9)
    assert flow.parameters(0.0)["0.weight"].equal(module[0].weight.detach())


def test_end_of_training_is_where_training_the_twin_arrives():
    """Gradient descent on the twin, to a loss of 1e-10; the figure asked for is 1e-5."""
    module, x, y, x_test = smooth_problem(n=3)
    flow = linearized_flow(module, x, y)
    twin = linearize(module)
    step = 1.0 / flow.eigenvalues[-1]
    optimizer = torch.optim.SGD(twin.parameters(), lr=step)
    for _ in range(5000):
        loss = 0.5 * ((twin(x) - y) ** 2).sum()
        if float(loss.detach()) < 1e-10:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 1e-10
    for inputs in (x, x_test):
        expected = twin(inputs).detach().numpy()
        error = np.linalg.norm(flow.predict(inputs) - expected) / np.linalg.norm(expected)
        assert error < 1e-5


def test_what_cannot_be_learned_stays_at_its_start():
    """The same input twice with two labels: their mean is fitted, the difference is not."""
    module, x, _, _ = smooth_problem(n=2)
    x = x[[0, 0, 1]]
    y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]])
    flow = linearized_flow(module, x, y)
    assert flow.learnable.sum() == 4
    assert_allclose(flow.outputs(), [[2.0, 0.0], [2.0, 0.0], [0.0, 5.0]], atol=1e-9)
    assert_allclose(flow.loss(), 1.0, rtol=1e-9)
    assert_allclose(flow.predict(x), flow.outputs(), atol=1e-7)


def test_more_samples_than_parameters_end_at_least_squares():
    """Sixteen eigenvalues of the kernel are zero up to rounding, of either sign."""
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 1).double()
    x, y = (torch.randn(20, size, dtype=torch.float64) for size in (3, 1))
    flow = linearized_flow(module, x, y)
    assert int(flow.learnable.sum()) == 4
    columns = np.column_stack([x.numpy(), np.ones(20)])
    expected = columns @ np.linalg.lstsq(columns, y.numpy(), rcond=None)[0]
    assert_allclose(flow.outputs(), expected, atol=1e-12)
    assert_allclose(flow.predict(x), expected, atol=1e-12)


def test_single_precision_modules_are_solved_in_double():
    module, x, y, x_test = smooth_problem()
    expected = linearized_flow(module, x, y).predict(x_test)
    found = linearized_flow(copy.deepcopy(module).float(), x.float(), y.float()).predict(x_test)
    assert_allclose(found, expected, rtol=1e-3)  # the inputs were rounded to 1e-7, K is ill-posed
    single = linearized_flow(copy.deepcopy(module).float(), x.float(), y, double=False)
    assert single.tangent.network.dtype == torch.float32


def test_lazy_gap():
    module, x, y, x_test = smooth_problem()
    flow = linearized_flow(module, x, y)
    assert flow.lazy_gap(flow.module()) < 1e-7
    assert_allclose(flow.lazy_gap(module), 1.0)  # an untrained network lags by all that moved
    assert_allclose(flow.lazy_gap(module, x_test, t=0.1), 1.0)
    expected = lazy_gap(2.0 * module(x_test).detach(), flow.predict(x_test), module(x_test))
    doubled = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in doubled[2].parameters():
            parameter *= 2.0
    assert_allclose(flow.lazy_gap(doubled, x_test), expected, rtol=1e-9)
