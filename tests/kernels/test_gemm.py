"""Products by the faster code are the products, whatever the shapes and strides."""

import pytest

from flowbias.kernels import gemm
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


def test_rows_that_lie_apart_are_left_to_torch():
    # oneDNN multiplies them a hundred times slower.
    plain = matrix(600, 400, 0)
    assert not gemm.by_onednn(plain[:, :300], plain[:, :300])
    assert gemm.by_onednn(plain, plain) == (gemm._onednn() is not None)
