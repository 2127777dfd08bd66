"""The tangent kernel is J J^T, whatever the module, the blocks and the reduction."""

import copy
import itertools
import subprocess
import sys
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.kernels import TangentMap, tangent_kernel
from flowbias.kernels.memory import row_bytes
from flowbias.kernels.network import gradients
from tests.kernels.architectures import (
    ARCHITECTURES,
    build,
    explicit_kernel,
    torch,
)

# Double precision: a few hundred roundings of sums of at most a thousand terms.
EXACT = 1e-10

REDUCED = {
    None: lambda K: K,
    "trace": lambda K: torch.einsum("ijaa->ij", K),
    "diagonal": lambda K: torch.einsum("ijaa->ija", K),
    "sum": lambda K: K.sum((2, 3)),
}


def split(x, first):
    if isinstance(x, tuple):
        return tuple(part[:first] for part in x), tuple(part[first:] for part in x)
    return x[:first], x[first:]


def assert_kernel(found, expected):
    assert found.shape == expected.shape
    assert not found.requires_grad
    assert float((found - expected).abs().max()) <= EXACT * float(expected.abs().max())


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_is_the_gram_matrix_of_the_jacobian(name):
    module, x = build(name, 7)
    first, second = split(x, 4)
    symmetric, cross = explicit_kernel(module, x), explicit_kernel(module, first, second)
    for reduce, of_full in REDUCED.items():
        assert_kernel(tangent_kernel(module, x, reduce=reduce), of_full(symmetric))
        found = tangent_kernel(module, first, second, reduce=reduce)
        assert_kernel(found, of_full(cross))
    assert_kernel(tangent_kernel(module, second, first), cross.permute(1, 0, 3, 2))


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
@pytest.mark.parametrize("name", [n for n, (*_, rest) in ARCHITECTURES.items() if rest is not None])
def test_structure_is_used_where_there_is_some_and_only_there(name):
    module, x = build(name, 7)
    with gradients():
        plan = TangentMap(module, x).plan
    assert set(plan.rest) == ARCHITECTURES[name][2]


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
@pytest.mark.parametrize("name", ["transformer", "embedding", "patched layers", "convolutions"])
def test_layers_have_kernels_of_their_own(name):
    """Each that of the module with all other layers frozen, and together the whole."""
    module, x = build(name, 5)
    first, second = split(x, 3)
    names = [n for n, _ in module.named_parameters()]
    for reduce, of_full in REDUCED.items():
        found = tangent_kernel(module, x, reduce=reduce, by_layer=True)
        assert_kernel(sum(found.values()), of_full(explicit_kernel(module, x)))
    cross = tangent_kernel(module, first, second, by_layer=True)
    assert set(cross) == {n.rpartition(".")[0] for n in names}
    for layer, kernel in cross.items():
        for n, parameter in module.named_parameters():
            parameter.requires_grad_(n.rpartition(".")[0] == layer)
        assert_kernel(kernel, explicit_kernel(module, first, second))


@pytest.mark.parametrize("name", ["mlp", "convolutions", "layer norm", "shared bias"])
@pytest.mark.parametrize("reduce", REDUCED)
def test_blocks_change_nothing(name, reduce):
    """From memory for everything at once down to one row at a time."""
    module, x = build(name, 4)
    expected = REDUCED[reduce](explicit_kernel(module, x))
    with gradients():
        footprint = TangentMap(module, x).plan.footprint
    for budget in (row_bytes(footprint), 5 * row_bytes(footprint)):
        assert_kernel(tangent_kernel(module, x, reduce=reduce, max_memory=budget), expected)
        cross = tangent_kernel(module, x[:3], x, reduce=reduce, max_memory=budget)
        assert_kernel(cross, expected[:3])


def test_many_rows_are_cut_along_the_diagonal():
    """Enough samples and outputs that a symmetric block is computed in pieces."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5), torch.nn.PReLU()
    ).double()
    x = torch.randn(101, 3, dtype=torch.float64)
    kernel = tangent_kernel(module, x)
    assert_kernel(kernel, explicit_kernel(module, x))
    assert torch.equal(kernel, kernel.permute(1, 0, 3, 2))


@given(
    widths=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    samples=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    positions=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15)
def test_any_sizes(widths, samples, positions, seed):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    module = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.Tanh())))
    module = module.double()
    x1, x2 = (torch.randn(n, positions, widths[0], dtype=torch.float64) for n in samples)
    assert_kernel(tangent_kernel(module, x1, x2), explicit_kernel(module, x1, x2))


def test_permuting_and_repeating_samples_does_the_same_to_the_kernel():
    module, x = build("convolutions", 5)
    order = torch.tensor([3, 1, 1, 4, 0])
    expected = tangent_kernel(module, x)[order][:, order]
    assert_kernel(tangent_kernel(module, x[order]), expected)


@pytest.mark.parametrize("depth", [2, 3])
def test_scaling_a_homogeneous_network_by_alpha_scales_its_kernel(depth):
    """By alpha^(2 (D - 1))."""
    torch.manual_seed(0)
    sizes = [4, *([7] * (depth - 1)), 2]
    layers = [torch.nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(sizes)]
    module = torch.nn.Sequential(*(p for layer in layers for p in (layer, torch.nn.ReLU())))[:-1]
    module = module.double()
    x = torch.randn(5, 4, dtype=torch.float64)
    before = tangent_kernel(module, x)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= 3.0
    assert_kernel(tangent_kernel(module, x), 3.0 ** (2 * (depth - 1)) * before)


def test_single_precision_is_kept():
    module, x = build("mlp", 5)
    kernel = tangent_kernel(module.float(), x.float())
    expected = explicit_kernel(module.double(), x)
    assert kernel.dtype == torch.float32
    # Some hundred roundings of 6e-8.
    assert float((kernel - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_the_module_is_left_as_it_was():
    module, x = build("batch norm", 4)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    x.requires_grad_(True)
    with torch.no_grad():
        tangent_kernel(module, x)
    with torch.inference_mode():
        kernel = tangent_kernel(module, x.detach().clone())
    assert not kernel.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert all(not part._forward_hooks for part in module.modules())
    assert x.grad is None
    assert [part.training for part in module.modules()] == [False] * 6


def test_an_unbiased_start_is_not_taken_for_a_mixing_of_samples():
    """Its outputs are zero up to rounding, which differs between a sample alone and in a batch."""
    torch.manual_seed(0)
    half = torch.nn.Sequential(torch.nn.Linear(50, 300), torch.nn.ReLU(), torch.nn.Linear(300, 4))

    class Doubled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.plus, self.minus = half, copy.deepcopy(half)
            self.minus[0].weight.data = half[0].weight.data.flip(1)

        def forward(self, x):
            # Another order of summation than that of `plus`.
            return self.plus(x) - self.minus(x.flip(1))

    x = torch.randn(9, 50)
    output = Doubled()(x)
    assert 0.0 < output.abs().max() < 1e-5
    kernel = tangent_kernel(Doubled(), x)
    assert_allclose(kernel, 2.0 * tangent_kernel(half, x), rtol=1e-4, atol=1e-3)


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
def test_samples_that_go_another_way_than_those_tried():
    """The structure proved on the first samples does not hold for a later one."""

    class Surprise(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            h = self.linear(x)
            if bool((x > 10.0).any()):
                return torch.where(x > 10.0, h @ self.linear.weight, h)
            return h

    torch.manual_seed(0)
    module = Surprise().double()
    x = torch.randn(5, 3, dtype=torch.float64)
    x[4, 1] = 11.0
    assert_kernel(tangent_kernel(module, x), explicit_kernel(module, x))


def test_samples_whose_gradients_vanish_prove_nothing():
    """Rows of positions first, samples second, behind a ReLU that the samples tried do not pass."""

    class Turned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)

        def forward(self, x):
            rows = self.linear(x.transpose(0, 1).reshape(-1, 2)).reshape(3, len(x))
            return torch.relu(rows.sum(0) + x.sum((1, 2)) * 100.0)

    torch.manual_seed(0)
    module = Turned().double()
    x = torch.rand(5, 3, 2, dtype=torch.float64)
    x[:2] *= -1.0
    expected = explicit_kernel(module, x)
    assert float(expected.abs().max()) > 0.0
    assert_kernel(tangent_kernel(module, x), expected)


def test_the_names_of_layers_do_not_change_a_bit():
    """Nor does the process, whose sets of names have an order of their own."""
    widths = (3, 7, 7, 7, 7, 7, 1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(*pair, dtype=torch.float64) for pair in itertools.pairwise(widths)]
    x = torch.randn(5, 3, dtype=torch.float64)
    expected = tangent_kernel(torch.nn.Sequential(*layers), x)
    for number in range(20):
        named = {f"layer {number} {i}": layer for i, layer in enumerate(layers)}
        renamed = torch.nn.Sequential(OrderedDict(named))
        assert torch.equal(tangent_kernel(renamed, x), expected)


def test_warns_where_jacobians_are_slow():
    module, x = build("branches", 4)
    with pytest.warns(UserWarning, match=r"torch.vmap cannot run .* one sample after the other"):
        tangent_kernel(module, x)


def test_the_warning_is_a_line_however_many_parameters_are_slow():
    class Branching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slopes = torch.nn.ModuleList(torch.nn.PReLU(3) for _ in range(40))

        def forward(self, x):
            for slope in self.slopes:
                x = slope(x) if x.abs().sum() > 0 else -x
            return x

    with pytest.warns(UserWarning, match="torch.vmap cannot run") as seen:
        tangent_kernel(Branching(), torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))
    (message,) = {str(entry.message) for entry in seen if "torch.vmap" in str(entry.message)}
    assert "slopes.0.weight, slopes.1.weight, slopes.2.weight and 37 more" in message
    assert len(message) < 320


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_within_its_bound():
    """The peak beyond the result, in a process of its own."""
    program = """
import torch
from pathlib import Path
from flowbias.kernels import TangentMap, tangent_kernel

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(50, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 20))
tangent_kernel(net, torch.randn(4, 50))  # everything that is loaded once
x = torch.randn(150, 50)
for budget in (5 * 10**6, 10**9):
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before = resident("VmRSS")
    kernel = tangent_kernel(net, x, reduce="trace", max_memory=budget)
    print(resident("VmHWM") - before - kernel.nbytes)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    bounded, free = map(int, run.stdout.split())
    # 2 MB for the allocator, which does not give back all at once.
    assert bounded < 7e6
    assert free > 10e6  # or the measurement would show nothing: 150 x 20 x 1020 numbers of 4 bytes
