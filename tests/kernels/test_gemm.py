"""Products by the faster code are the products, whatever the shapes and strides."""

import copy

import pytest

from flowbias.kernels import gemm, products, tangent_kernel
from tests.kernels.architectures import torch

# Single precision, sums of up to 4096 terms of either sign: eps * sqrt(4096), with room.
ROUNDING = 64 * 1.2e-7


def matrix(rows, columns, seed):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def assert_product(found, first, second):
    expected = first.double() @ second.double().T
    size = first.double().norm(dim=1)[:, None] * second.double().norm(dim=1)
    assert found.dtype == first.dtype
    assert bool(((found - expected).abs() <= ROUNDING * size).all())


VIEWS = {
    "rows": lambda a: a,
    "columns": lambda a: a.T.contiguous().T,
    "apart": lambda a: torch.cat([a, a], dim=1)[:, : a.shape[1]],
}


@pytest.mark.parametrize("second", VIEWS)
@pytest.mark.parametrize("first", VIEWS)
@pytest.mark.parametrize("shape", [(3, 5, 7), (130, 257, 200)])
def test_times_transposed(shape, first, second):
    rows, columns, terms = shape
    one, other = VIEWS[first](matrix(rows, terms, 0)), VIEWS[second](matrix(columns, terms, 1))
    assert_product(gemm.times_transposed(one, other), one, other)


@pytest.mark.parametrize("rows", [1, 64, 65, 150])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_squared(rows, dtype):
    # 150 rows are enough for strips, the others are not.
    one = matrix(rows, 4096, 0).to(getattr(torch, dtype))
    assert_product(gemm.squared(one), one, one)


@pytest.mark.parametrize("sizes", [(3, 5, 7), (130, 257, 200)])
def test_each_times(sizes):
    # The second is enough for a call of each pair.
    terms, rows, columns = sizes
    first, second = (
        torch.stack([matrix(terms, width, seed) for seed in range(3)]) for width in (rows, columns)
    )
    for found, one, other in zip(gemm.each_times(first, second), first, second, strict=True):
        assert_product(found, one.T, other.T)


def test_rows_that_lie_apart_are_left_to_torch():
    # oneDNN multiplies them a hundred times slower.
    plain = matrix(600, 400, 0)
    assert not gemm.by_onednn(plain[:, :300], plain[:, :300])
    assert gemm.by_onednn(plain, plain) == (gemm._onednn() is not None)


class Slopes(torch.nn.Module):
    """Every function whose slopes are kept, twice of the same numbers in other ways."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 96), torch.nn.Linear(96, 20)

    def forward(self, x):
        hidden, functional = self.first(x), torch.nn.functional
        smooth = functional.gelu(hidden) * functional.gelu(hidden, approximate="tanh")
        return self.last(smooth + functional.silu(hidden) + functional.gelu(hidden.sin()))[:, :, 0]


def backward(outputs, cotangents, nodes):
    passes = [torch.autograd.grad(outputs, nodes, one, retain_graph=True) for one in cotangents]
    return [torch.stack(each) for each in zip(*passes, strict=True)]


def test_faster_passes_are_passes():
    torch.manual_seed(0)
    module, x = Slopes(), torch.randn(32, 40, 64, requires_grad=True)
    outputs = module(x)
    nodes, cotangents = [x, module.first.bias], torch.randn(3, *outputs.shape)
    plain = backward(outputs, cotangents, nodes)
    # The gradient by x is a product of 1280 rows: one for oneDNN.
    assert gemm.by_onednn(torch.empty(1280, 96), torch.empty(64, 96)) == (
        gemm._onednn() is not None
    )
    with gemm.faster_passes(x):
        faster = backward(outputs, cotangents, nodes)
    for one, other in zip(plain, faster, strict=True):
        assert float((one - other).abs().max()) <= ROUNDING * float(one.abs().max())


def test_slopes_are_of_the_graph_at_hand():
    # The memory of one graph's numbers is given to the next: slopes must not go with it.
    sizes, cotangent, found = (0.0, 1.0, 2.0), torch.ones(1000), []
    with gemm.faster_passes(cotangent):
        for size in sizes:
            x = torch.full((1000,), size, requires_grad=True)
            y = torch.nn.functional.gelu(x)
            found.append(float(torch.autograd.grad(y, x, cotangent)[0][0]))
            del x, y
    normal = torch.distributions.Normal(0.0, 1.0)
    expected = [float(normal.cdf(z) + z * normal.log_prob(z).exp()) for z in torch.tensor(sizes)]
    assert found == pytest.approx(expected, rel=ROUNDING)


def test_numbers_that_are_computed_anew_in_each_pass_are_not_gathered():
    cotangent = torch.ones(10)
    faster = gemm.faster_passes(cotangent)
    graphs = [torch.nn.functional.gelu(torch.ones(10, requires_grad=True)) for _ in range(3)]
    for y in graphs:
        with faster:
            y.backward(cotangent)
    assert gemm._onednn() is None or len(faster.slopes) == 1


@pytest.mark.parametrize("reduce", [None, "trace", "diagonal", "sum"])
@pytest.mark.parametrize("by_calls", [True, False])
def test_positions_contracted_by_calls_and_in_one_batch(by_calls, reduce, monkeypatch):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Linear(48, 48)]
    module = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(1440, 3)).eval()
    x, other = torch.randn(6, 30, 24), torch.randn(4, 30, 24)
    double = copy.deepcopy(module).double()
    expected = {
        others: tangent_kernel(double, x.double(), others and other.double(), reduce=reduce)
        for others in (None, True)
    }
    contracted = []

    def chosen(v, g, units):
        contracted.append(v.shape[1:])
        return by_calls

    monkeypatch.setattr(products, "_worth_a_call_each", chosen)
    for others, kernel in expected.items():
        found = tangent_kernel(module, x, others and other, reduce=reduce)
        assert float((found - kernel).abs().max()) <= ROUNDING * float(kernel.abs().max())
    assert contracted
