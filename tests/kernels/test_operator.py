"""Products and eigenpairs without the matrix agree with the matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias import DiagonalNet
from flowbias.kernels import (
    kernel_matrix,
    tangent_kernel,
    tangent_operator,
    tangent_vector_product,
    top_eigenpairs,
)
from tests.kernels.architectures import ARCHITECTURES, build, explicit_kernel, torch

# A sum over all parameters, once as products of maps and once as a matrix: rounding only.
EXACT = 1e-10


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_product_is_that_of_the_matrix(name):
    module, x = build(name, 5)
    first = tuple(part[:3] for part in x) if isinstance(x, tuple) else x[:3]
    matrix = kernel_matrix(tangent_kernel(module, first, x))
    vector = torch.randn(matrix.shape[1], dtype=torch.float64)
    found = tangent_vector_product(module, first, vector, x)
    assert_allclose(found.reshape(-1), matrix @ vector.numpy(), atol=EXACT * abs(matrix).max())


def test_the_fast_path_of_attention_is_on_again_afterwards():
    module, x = build("attention", 3)
    for on in (True, False):
        torch.backends.mha.set_fastpath_enabled(on)
        try:
            tangent_vector_product(module, x, torch.ones(3, 2))
            assert torch.backends.mha.get_fastpath_enabled() is on
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


def test_attention_is_differentiated_in_forward_mode(monkeypatch):
    """Its fused kernels are not: with them every product would take two backward passes."""
    module, x = build("attention", 3)
    expected = kernel_matrix(tangent_kernel(module, x)).sum(1)

    def refuse(*_):
        raise AssertionError("twice backward")

    monkeypatch.setattr("flowbias.kernels.jacobian._twice_backward", refuse)
    found = tangent_vector_product(module.eval(), x, torch.ones(3, 2, dtype=torch.float64))
    assert_allclose(found.reshape(-1), expected, atol=EXACT * abs(expected).max())


def test_blocks_change_nothing():
    module, x = build("convolutions", 6)
    vector = torch.randn(6, 3, dtype=torch.float64)
    whole = tangent_vector_product(module, x, vector)
    assert_allclose(tangent_vector_product(module, x, vector, max_memory="60kB"), whole, rtol=1e-12)


def test_operator_has_both_products():
    module, x = build("mlp", 7)
    operator = tangent_operator(module, x[:2], x)
    matrix = kernel_matrix(tangent_kernel(module, x[:2], x))
    assert operator.shape == matrix.shape
    assert_allclose(operator @ np.eye(matrix.shape[1]), matrix, atol=EXACT)
    assert_allclose(operator.H @ np.eye(matrix.shape[0]), matrix.T, atol=EXACT)


def test_top_eigenpairs():
    module, x = build("convolutions", 8)
    kernel = tangent_kernel(module, x)
    pairs = top_eigenpairs(module, x, 4)
    assert_allclose(pairs.values, np.linalg.eigvalsh(kernel_matrix(kernel))[:-5:-1], rtol=1e-10)
    assert pairs.vectors.shape == (8, 3, 4)
    moved = np.einsum("ijab,jbk->iak", kernel, pairs.vectors)
    assert_allclose(moved, pairs.values * pairs.vectors, atol=1e-9 * pairs.values[0])


def test_single_precision():
    module, x = build("mlp", 8)
    pairs = top_eigenpairs(module.float(), x.float(), 2)
    expected = np.linalg.eigvalsh(kernel_matrix(tangent_kernel(module.double(), x)))[:-3:-1]
    assert pairs.values.dtype == np.float32
    assert_allclose(pairs.values, expected, rtol=1e-4)


def test_models_of_the_library():
    X = np.random.default_rng(0).standard_normal((5, 8))
    model = DiagonalNet(depth=3, scale=0.7)
    matrix = model.tangent_kernel(X)
    assert_allclose(tangent_vector_product(model, X, np.ones(5)), matrix.sum(1)[:, None])
    assert_allclose(top_eigenpairs(model, X, 2).values, np.linalg.eigvalsh(matrix)[:-3:-1])


def test_single_precision_inside_costs_the_product_its_digits_and_the_kernel_none():
    class Inside(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x).float()).double())

    torch.manual_seed(0)
    module, x = Inside().double(), torch.randn(5, 3).double()
    kernel, vector = explicit_kernel(module, x), torch.randn(5, 2).double()
    size = float(kernel.abs().max())
    assert float((tangent_kernel(module, x) - kernel).abs().max()) <= 1e-10 * size
    off = tangent_vector_product(module, x, vector) - torch.einsum("ijab,jb->ia", kernel, vector)
    # Ten entries of v, each beside a kernel that is rounded to single precision.
    assert float(off.abs().max()) <= 10 * 1.2e-7 * size * float(vector.abs().max())
