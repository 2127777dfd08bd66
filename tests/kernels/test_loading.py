"""Torch is loaded by the first call that needs it, and its absence is explained."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias import DiagonalNet, LinearNet, MatrixFactorization
from flowbias.ground.arguments import InputError
from flowbias.kernels import tangent_kernel
from flowbias.kernels.memory import Footprint, choose_blocks, read_bytes, row_bytes, shown_bytes
from flowbias.models import Model, SymmetricFactorization, UntiedDiagonalNet


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_importing_loads_no_torch_and_models_need_none():
    done = run(
        "import sys, numpy as np, flowbias as fb, flowbias.kernels as k; "
        "k.tangent_kernel(fb.DiagonalNet(2, 0.1), np.eye(3)); print('torch' in sys.modules)"
    )
    assert done.stdout.strip() == "False", done.stderr


def test_missing_torch_names_the_extra():
    done = run(
        """
import sys
import numpy as np
class NoTorch:
    def find_spec(self, name, *rest):
        if name == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, NoTorch())
import flowbias.kernels as k
k.tangent_kernel(object(), np.eye(3))
"""
    )
    assert "Install the extra `nets`: pip install 'flowbias[nets]'" in done.stderr


class Cubes(Model):
    """A user's model that says no more than it must."""

    def initial_parameters(self):
        return (np.array([1.0, 2.0, -1.0]),)

    def predictor(self, parameters):
        return parameters[0] ** 3

    def parameter_gradient(self, parameters, g):
        return (3.0 * parameters[0] ** 2 * g,)


@pytest.mark.parametrize(
    "model",
    [
        DiagonalNet(depth=2, scale=0.3),
        DiagonalNet.from_weights([1.0, 2.0, 0.5], [0.3, 1.0, 1.0], depth=3),
        UntiedDiagonalNet(scale=0.4, shape=0.5),
        Cubes(),
    ],
)
def test_models_with_weights(model):
    """Against finite differences of the predictor."""
    rng = np.random.default_rng(0)
    X1, X2 = rng.standard_normal((4, 3)), rng.standard_normal((2, 3))
    start = [np.broadcast_to(part, 3) * 1.0 for part in model.initial_parameters()]
    columns = []
    for index in np.ndindex(len(start), 3):
        ends = []
        for sign in (1.0, -1.0):
            moved = [part.copy() for part in start]
            moved[index[0]][index[1]] += sign * 1e-6
            ends.append(model.predictor(tuple(moved)))
        columns.append((ends[0] - ends[1]) / 2e-6)
    J = np.array(columns).T
    kernel = tangent_kernel(model, X1, X2)
    assert kernel.shape == (4, 2, 1, 1)
    assert_allclose(kernel[:, :, 0, 0], X1 @ J @ J.T @ X2.T, rtol=1e-7)
    for reduce in ("trace", "sum"):
        assert_allclose(tangent_kernel(model, X1, X2, reduce=reduce), kernel[:, :, 0, 0])
    assert tangent_kernel(model, X1, reduce="diagonal").shape == (4, 4, 1)


def jacobian(measure, start):
    """Central differences, exact for what is quadratic in each entry."""
    columns = []
    for index in np.ndindex(start.shape):
        step = np.zeros(start.shape)
        step[index] = 0.5
        columns.append((measure(start + step) - measure(start - step)).reshape(-1))
    return np.array(columns).T


def test_products_of_matrices():
    rng = np.random.default_rng(0)
    Z, X, A = (
        rng.standard_normal((7, 5)),
        rng.standard_normal((4, 3)),
        rng.standard_normal((6, 3, 4)),
    )
    net, product = LinearNet(Z[:3], Z[3:]), MatrixFactorization(Z[:3], Z[3:])
    J = jacobian(lambda Z: X @ Z[:3] @ Z[3:].T, Z)
    expected = (J @ J.T).reshape(4, 4, 4, 4).transpose(0, 2, 1, 3)
    assert_allclose(tangent_kernel(net, X), expected, atol=1e-11)
    assert_allclose(
        tangent_kernel(net, X, reduce="trace"), np.einsum("ijaa->ij", expected), atol=1e-11
    )
    J = jacobian(lambda Z: np.einsum("nij,ij->n", A, Z[:3] @ Z[3:].T), Z)
    assert_allclose(tangent_kernel(product, A)[:, :, 0, 0], J @ J.T, atol=1e-10)
    B = rng.standard_normal((6, 7, 7))
    J = jacobian(lambda W: np.einsum("nij,ij->n", B, W @ W.T), Z)
    symmetric = tangent_kernel(SymmetricFactorization(Z), B)[:, :, 0, 0]
    assert_allclose(symmetric, J @ J.T, atol=1e-10)


@pytest.mark.filterwarnings("ignore::flowbias.models.NarrowWarning")
def test_any_width_costs_the_same():
    wide = LinearNet.gaussian(4, 2, width=10**9, scale=1e-3, rng=0)
    kernel = tangent_kernel(wide, np.eye(4), reduce="trace")
    # The law of large numbers: d + m diagonal terms of size width scale^2 each.
    assert_allclose(kernel, 2 * 2 * 1e3 * np.eye(4), atol=1.0)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 2**30), ("500MB", 5 * 10**8), (12345, 12345), ("1.5 KiB", 1536), ("7", 7), ("8B", 8)],
)
def test_sizes(text, size):
    assert read_bytes(text) == size


def test_sizes_in_words():
    assert [shown_bytes(n) for n in (5, 2048, 3 * 2**20, 2**31)] == [
        *("5 bytes", "2 KiB", "3 MiB", "2 GiB"),
    ]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("counts", [(1, 1), (100, 3), (1000, 1000)])
@pytest.mark.parametrize("outputs", [1, 7, 1000])
def test_blocks_fit(paired, counts, outputs):
    footprint = Footprint(per_sample=1000, per_output=50)
    for budget in (row_bytes(footprint), 10**5, 10**9):
        blocks = choose_blocks(
            footprint, counts, outputs, paired=paired, symmetric=False, budget=budget
        )
        assert 1 <= blocks.samples <= max(counts)
        assert 1 <= blocks.outputs <= outputs
        assert 2 * footprint.cell(blocks.samples, blocks.outputs) + blocks.room <= budget
    with pytest.raises(InputError, match="one row"):
        choose_blocks(
            footprint,
            counts,
            outputs,
            paired=paired,
            symmetric=True,
            budget=row_bytes(footprint) - 1,
        )
