"""Modules that change themselves when called: the process lives, the module is left as it was."""

import copy
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from torch.nn.utils import prune, spectral_norm, weight_norm

from flowbias.ground.arguments import InputError
from flowbias.kernels import (
    TangentMap,
    grad_distance,
    linearize,
    linearized_flow,
    tangent_kernel,
    tangent_vector_product,
    top_eigenpairs,
)
from flowbias.kernels.network import gradients
from flowbias.regime import diagnose, predict
from tests.kernels.architectures import build, explicit_kernel, torch
from tests.kernels.test_interacting_samples import OTHER_COMPANY
from tests.kernels.test_tangent import assert_kernel


def test_a_forward_that_converts_its_own_layer_does_not_end_the_process():
    """`self.head = self.head.to(...)` assigns the data of tensors that torch.func has wrapped."""
    program = """
import warnings
import torch
from flowbias.kernels import linearize, tangent_kernel, tangent_vector_product
from flowbias.regime import Every, Monitor

warnings.simplefilter("ignore")

class Converting(torch.nn.Module):
    def __init__(self, convert):
        super().__init__()
        self.convert, self.body = convert, torch.nn.Linear(3, 4)
        self.gain, self.head = torch.nn.Parameter(torch.ones(4)), torch.nn.Linear(4, 2)

    def forward(self, x):
        if self.convert:
            self.head = self.head.to(x.dtype)
        return self.head(torch.tanh(self.body(x)) * self.gain)

torch.manual_seed(0)
module, x = Converting(True).double(), torch.randn(5, 3, dtype=torch.float64)
plain = Converting(False).double()
plain.load_state_dict(module.state_dict())
expected = tangent_kernel(plain, x)
with Monitor(module, x, schedule=Every(1), budget=None) as monitor:
    for _ in range(20):
        assert torch.allclose(tangent_kernel(module, x), expected, rtol=1e-12)
        tangent_vector_product(module, x, torch.ones(5, 2))
        linearize(module)(x)
        monitor.step()
assert monitor.history.failure is None
print("alive")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "alive\n", (run.returncode, run.stderr)


class NumpySine(torch.autograd.Function):
    """Right once, but torch has no record of what the backward pass does."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(gradient.detach().numpy() * np.cos(x.detach().numpy()))


class DoubledForwardMode(torch.autograd.Function):
    """Right backward, wrong forward."""

    @staticmethod
    def forward(x):
        return 3.0 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return 3.0 * gradient

    @staticmethod
    def jvp(ctx, tangent):
        return 6.0 * tangent


class Through(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.function.apply(self.first(x)))


@pytest.mark.parametrize(
    ("function", "fault"),
    [(NumpySine, "no record of its own"), (DoubledForwardMode, "each other's transpose")],
)
def test_what_cannot_be_linearized_is_refused_and_its_kernel_right(function, fault):
    torch.manual_seed(0)
    module, x = Through(function).double(), torch.randn(5, 3, dtype=torch.float64)
    y = torch.ones(5, 2, dtype=torch.float64)
    assert_kernel(tangent_kernel(module, x), explicit_kernel(module, x))
    for use in (
        lambda: tangent_vector_product(module, x, y),
        lambda: top_eigenpairs(module, x, 1),
        lambda: linearized_flow(module, x, y).predict(x),
        # Refused ahead of the first step: its lower layer would never move.
        lambda: linearize(module)(x),
        lambda: predict(module, x, y),
    ):
        with pytest.raises(InputError, match=fault):
            use()


class CalledAgain(torch.autograd.Function):
    """tanh(A x), calling the layer A once more on the way back, as the adjoint of an ODE does.

    What torch.func had put in the place of its parameters is gone by then.
    """

    @staticmethod
    def forward(ctx, layer, x, *parameters):
        ctx.layer = layer
        ctx.save_for_backward(x, *parameters)
        return torch.tanh(layer(x))

    @staticmethod
    def backward(ctx, gradient):
        x, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            value = torch.tanh(ctx.layer(x.detach()))
        found = torch.autograd.grad(value, parameters, gradient, allow_unused=True)
        return None, None, *found


class Adjoint(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.second(CalledAgain.apply(self.first, x, *self.first.parameters()))


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
def test_a_backward_pass_that_calls_the_module_again_is_refused_and_its_kernel_right():
    torch.manual_seed(0)
    module, x = Adjoint().double(), torch.randn(5, 3, dtype=torch.float64)
    y = torch.ones(5, 2, dtype=torch.float64)
    assert_kernel(tangent_kernel(module, x), explicit_kernel(module, x))
    for use in (
        lambda: tangent_vector_product(module, x, y),
        lambda: linearized_flow(module, x, y).predict(x),
        lambda: linearize(module)(x),
    ):
        with pytest.raises(InputError, match="twice backward"):
            use()


class MixingInLargeBatches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.gain = torch.nn.Linear(3, 2), torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        h = self.linear(x) * self.gain
        return h if len(x) < 3 else h - h.mean(0)


@pytest.mark.parametrize("samples", [3, 8])
def test_samples_that_mix_in_batches_above_two_are_noticed(samples):
    torch.manual_seed(0)
    module = MixingInLargeBatches().double()
    x = torch.randn(samples, 3, dtype=torch.float64)
    moved = copy.deepcopy(module)
    with torch.no_grad():
        moved.linear.weight += 0.1
    for use in (
        lambda: tangent_kernel(module, x),
        lambda: tangent_kernel(module, x[:2], x),
        lambda: tangent_vector_product(module, x, torch.ones(samples, 2)),
        lambda: grad_distance(module, moved, x),
        lambda: diagnose(module, moved, x),
    ):
        with pytest.raises(InputError, match=OTHER_COMPANY):
            use()
    module.linear.requires_grad_(False)  # Jacobians alone, each of a sample alone
    with pytest.raises(InputError, match=OTHER_COMPANY):
        tangent_kernel(module, x)


class RoomForFive(torch.nn.Module):
    """An expert that takes five samples of a batch and no more: the others pass it by."""

    def __init__(self):
        super().__init__()
        self.expert, self.head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)

    def forward(self, x):
        wanted = x[:, 0] > 0
        taken = (wanted & (wanted.cumsum(0) <= 5))[:, None].to(x)
        return self.head(x + taken * torch.tanh(self.expert(x)))


def test_each_block_is_held_to_independent_samples():
    """Blocks of one size: none of the first has to pass, some at the end of the second have."""
    torch.manual_seed(0)
    module, x = RoomForFive().double(), torch.randn(16, 3, dtype=torch.float64)
    x[:, 0] = torch.tensor([1.0, -1.0, -1.0, 1.0] * 2 + [1.0] * 8)
    assert tangent_kernel(module, x[:8]).shape == (8, 8, 2, 2)
    with gradients():
        footprint = TangentMap(module, x).plan.footprint
    blocks_of_eight = int(2.2 * footprint.cell(8, 2) / footprint.share_of_cells)
    for budget in (blocks_of_eight, "1GiB"):
        with pytest.raises(InputError, match=r"alone than among others .sample (9|1\d) of"):
            tangent_kernel(module, x, max_memory=budget)


@pytest.mark.parametrize(
    "normed",
    [weight_norm, lambda layer: prune.l1_unstructured(layer, "weight", 0.3), spectral_norm],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_the_weight_that_older_hooks_compute_is_left_as_it_was(normed):
    """They set it as an attribute, where a tensor of torch.func would be dead afterwards."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(normed(torch.nn.Linear(3, 4)), torch.nn.Tanh()).double().eval()
    x = torch.randn(5, 3, dtype=torch.float64)
    with torch.no_grad():
        expected = module(x)  # a weight without a graph: such a module can be copied
    weight = module[0].weight
    values = weight.clone()
    for use in (
        lambda: tangent_kernel(module, x),
        lambda: tangent_vector_product(module, x, torch.ones(5, 4)),
        lambda: grad_distance(module, module, x),
    ):
        use()
        assert module[0].weight is weight
        assert torch.equal(weight, values)
        with torch.no_grad():
            assert_allclose(copy.deepcopy(module)(x), expected, rtol=1e-15)
        # That call has set another.
        weight = module[0].weight
    twin = linearize(module)
    twin(x)
    copy.deepcopy(twin)
    assert_kernel(tangent_kernel(module, x), explicit_kernel(module, x))


@pytest.mark.parametrize(
    "normed",
    [weight_norm, lambda layer: prune.l1_unstructured(layer, "weight", 0.3), spectral_norm],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_weight_with_a_graph_does_not_keep_a_module_from_being_copied(normed):
    """Older hooks leave one behind after a call that records derivatives; torch copies none."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(normed(torch.nn.Linear(3, 4)), torch.nn.Tanh()).double().eval()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.ones(5, 4, dtype=torch.float64)
    with torch.no_grad():
        module(x)
    expected = predict(module, x, y)
    module(x)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(module)
    assert predict(module, x, y).document() == expected.document()
    assert_allclose(linearize(module)(x).detach(), module(x).detach(), rtol=1e-15)


@pytest.mark.parametrize(
    "wrapped", [torch.nn.DataParallel, lambda net: torch.compile(net, backend="eager")]
)
def test_what_compiles_or_spreads_a_module_is_looked_through(wrapped):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x, y = torch.randn(5, 3), torch.ones(5, 2)
    for use in (
        lambda module: tangent_kernel(module, x),
        lambda module: tangent_vector_product(module, x, y),
        lambda module: linearize(module)(x).detach(),
    ):
        assert torch.equal(use(wrapped(net)), use(net))
    assert predict(wrapped(net), x, y).document() == predict(net, x, y).document()


def test_a_part_that_is_compiled_runs_as_written_and_stays_compiled():
    """A compiled pass back overwrites what the call left it: torch has it run once at most."""

    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.last(torch.tanh(self.first(x)))

    def moved(module):
        other = copy.deepcopy(module)
        with torch.no_grad():
            other[1].first.weight.mul_(1.1)
        return other

    torch.manual_seed(0)
    inner = Inner()
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), inner, torch.nn.Linear(4, 2)).double()
    compiled = torch.compile(inner, backend="aot_eager")
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.ones(5, 2, dtype=torch.float64)
    for use in (
        lambda: tangent_kernel(net, x),
        lambda: tangent_vector_product(net, x, y),
        lambda: linearize(net)(x).detach(),
        lambda: torch.as_tensor(linearized_flow(net, x, y).outputs(t=1.0)),
        lambda: torch.as_tensor(predict(net, x, y).lazy_gap),
        lambda: torch.as_tensor(diagnose(net, moved(net), x, y).kernel_change),
    ):
        net[1] = inner
        expected = use()
        net[1] = compiled
        assert torch.equal(use(), expected)
        # Called by its owner it is compiled, as before.
        assert type(compiled(torch.ones(1, 4).to(x)).grad_fn).__name__.startswith("Compiled")


def test_tensors_among_the_attributes_are_as_before():
    class Remembering(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.calls = torch.nn.Linear(3, 2), torch.zeros(())
            self.cached = None
            self.register_buffer("mask", None)

        def forward(self, x):
            self.calls += 1
            if self.mask is None:
                self.cached = self.mask = torch.ones(2)
            self.hidden = self.linear(x)
            return torch.tanh(self.hidden)

    module, x = Remembering(), torch.randn(4, 3)
    tangent_kernel(module, x)
    tangent_vector_product(module, x, torch.ones(4, 2))
    assert float(module.calls) == 0.0
    assert not hasattr(module, "hidden")
    # Places that are filled by the first call are empty again, not gone.
    assert module.cached is None
    assert module.mask is None
    module(x)
    assert float(module.calls) == 1.0


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
@pytest.mark.parametrize("name", ["mlp", "layer norm", "experts", "branches"])
def test_a_map_is_held_while_parameters_move(name):
    """One proof, and each answer for the parameters of its moment."""
    module, x = build(name, 6)
    held, calls = TangentMap(module, x), []
    module.register_forward_hook(lambda *_: calls.append(1))
    counts = []
    for step in range(3):
        calls.clear()
        found = held.kernel()
        counts.append(len(calls))
        assert_kernel(found, explicit_kernel(module, x))
        assert_allclose(held.values(), module(x).detach(), atol=1e-14)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.1 * (step + 1)
    if name in ("mlp", "layer norm"):
        assert counts[2] <= counts[1] <= counts[0] / 2


def test_a_map_sees_other_parameters_and_another_mode():
    module, x = build("mlp", 5)
    held = TangentMap(module, x)
    held.kernel()
    module[0].weight = torch.nn.Parameter(2.0 * module[0].weight.detach())
    assert_kernel(held.kernel(), explicit_kernel(module, x))
    module.append(torch.nn.Dropout(0.5))
    with pytest.raises(InputError, match="must not be in training mode with Dropout"):
        held.kernel()
