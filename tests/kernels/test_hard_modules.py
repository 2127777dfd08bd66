"""Modules that sort, mix or count, and what is left of a module after a kernel was taken."""

import contextlib
import copy
import warnings

import pytest
from numpy.testing import assert_allclose

from flowbias.ground.arguments import InputError
from flowbias.kernels import (
    TangentMap,
    grad_distance,
    linearized_flow,
    tangent_kernel,
    tangent_vector_product,
    top_eigenpairs,
)
from flowbias.kernels.jacobian import agree
from flowbias.kernels.network import gradients
from tests.kernels.architectures import build, explicit_jacobian, explicit_kernel, torch
from tests.kernels.test_tangent import REDUCED, assert_kernel


class Tied(torch.nn.Module):
    """Reads out by its embedding, as language models do: a parameter that goes by Jacobians."""

    def __init__(self):
        super().__init__()
        self.tokens, self.mix = torch.nn.Embedding(7, 8), torch.nn.Linear(8, 24)

    def forward(self, x):
        heads = self.mix(self.tokens(x)).unflatten(2, (3, 2, 4))
        q, k, v = (heads[:, :, part].transpose(1, 2) for part in range(3))
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (found.transpose(1, 2).flatten(2) @ self.tokens.weight.T)[:, -1]


def test_jacobians_through_attention_are_batched_without_a_word():
    # torch's fused attention has no batching rule: it would loop over samples, and say so.
    torch.manual_seed(0)
    module, x = Tied().double(), torch.arange(12).view(3, 4) % 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tangent_kernel(module, x)
    assert_allclose(found, explicit_kernel(module, x), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("normed", ["weight_norm", "orthogonal"])
def test_torch_is_not_heard_on_what_it_cannot_batch(normed):
    torch.manual_seed(0)
    layer = getattr(torch.nn.utils.parametrizations, normed)(torch.nn.Linear(3, 4))
    module = torch.nn.Sequential(layer, torch.nn.Linear(4, 2)).double()
    x = torch.randn(3, 3, dtype=torch.float64)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = tangent_kernel(module, x)
    assert not [w for w in heard if "performance drop" in str(w.message)]
    assert_allclose(found, explicit_kernel(module, x), rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
def test_modules_under_two_names_keep_their_parameters():
    """torch.func would swap them twice and leave them with the substitutes."""
    module, x = build("modules under two names", 4)
    before = list(module.parameters())
    tangent_kernel(module, x)
    tangent_vector_product(module, x, torch.ones(4, 2))
    linearized_flow(module, x, torch.ones(4, 2)).predict(x)
    assert all(a is b for a, b in zip(module.parameters(), before, strict=True))
    assert all(isinstance(p, torch.nn.Parameter) and p.requires_grad for p in before)


class Counting(torch.nn.Module):
    """Notes in its buffers that it was called: in place, and by another tensor."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        self.seen = x.detach().mean(0)
        if self.calls == 40:
            raise KeyboardInterrupt
        return self.linear(x) * 2.0


def test_buffers_are_left_as_they_were():
    module = Counting()
    held = module.seen
    x = torch.randn(5, 3)
    for use in (
        lambda: tangent_kernel(module, x),
        lambda: grad_distance(module, module, x),
        lambda: top_eigenpairs(module, x, 1),
    ):
        module.calls.zero_()
        with contextlib.suppress(KeyboardInterrupt):  # of the last, after some products
            use()
        assert module.calls == 0
        assert module.seen is held
        assert not held.any()
        assert all(not part._forward_hooks for part in module.modules())
    # A graph of the user's that holds a buffer can still be differentiated.
    norm = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
    loss = norm(x).sum()
    tangent_kernel(norm, x)
    loss.backward()


def test_a_batch_in_order_by_chance_proves_nothing():
    """The samples that are tried are sorted already, those of a later block are not."""
    module, x = build("a batch that is sorted", 9)
    x[:4] = torch.arange(12, dtype=torch.float64).reshape(4, 3) / 10.0
    expected = explicit_kernel(module, x)
    for reduce, of_full in REDUCED.items():
        assert_kernel(tangent_kernel(module, x, reduce=reduce), of_full(expected))
        assert_kernel(tangent_kernel(module, x[:3], x, reduce=reduce), of_full(expected[:3]))
    moved = copy.deepcopy(module)
    with torch.no_grad():
        moved.inner.weight += 0.3
    first, second = explicit_jacobian(module, x).flatten(1), explicit_jacobian(moved, x).flatten(1)
    cosine = torch.nn.functional.cosine_similarity(first, second)
    assert_allclose(grad_distance(module, moved, x).per_sample, 1.0 - cosine, atol=1e-12)


def test_equal_samples_do_not_hide_a_mixing_of_samples():
    class Mixing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(x - x[:1])

    x = torch.ones(5, 3)
    x[3] = 2.0
    with pytest.raises(InputError, match=r"alone than among others \(sample 3 of x1"):
        tangent_kernel(Mixing(), x)


def on_kinks(dtype, seed, *after):
    """Each unit has its kink on a sample, up to rounding, which differs with the size of a batch.

    So trained ReLU networks are: the bend of a unit stays on a sample once it is there.
    """
    torch.manual_seed(seed)
    x = torch.randn(6, 9, dtype=dtype)
    first = torch.nn.Linear(9, 16).to(dtype)
    module = torch.nn.Sequential(first, *after, torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(dtype)
    with torch.no_grad():
        for unit in range(16):
            module[-3].bias[unit] -= module[:-2](x[unit % 6][None])[0, unit]
    return module, x


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_unit_with_its_kink_on_a_sample_is_no_misfit(dtype):
    """Structured as any other, and torch.vmap not blamed for what rounding does."""
    alone_differ = 0
    for seed in range(6):
        module, x = on_kinks(dtype, seed)
        with gradients():
            assert TangentMap(module, x).plan.rest == ()
        # One batch throughout: one side of each kink.
        outputs, parameters = module(x).reshape(-1), list(module.parameters())
        rows = [torch.autograd.grad(f, parameters, retain_graph=True) for f in outputs]
        J = torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows])
        expected = (J @ J.T).reshape(6, 2, 6, 2).permute(0, 2, 1, 3)
        found = tangent_kernel(module, x)
        scale = float(expected.max())
        assert_allclose(found, expected, atol=100 * torch.finfo(dtype).eps * scale)
        of_each = torch.cat([explicit_jacobian(module, x[i : i + 1]) for i in range(6)])
        alone_differ += float((of_each.reshape(12, -1) - J).abs().max()) > 0.01
        tangent_kernel(*on_kinks(dtype, seed, torch.nn.LayerNorm(16)))
    assert alone_differ > 0


@pytest.mark.filterwarnings("ignore:torch.vmap cannot run")
def test_derivatives_that_depend_on_the_size_of_the_batch():
    """The same outputs alone and among others, half the derivative: that of a sample alone counts.

    No kink explains it, since it is so at other parameters as well.
    """

    class Halving(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            h = self.linear(x)
            return h if len(x) == 1 else (h + h.detach()) / 2.0

    torch.manual_seed(0)
    module, x = Halving().double(), torch.randn(5, 3, dtype=torch.float64)
    assert_kernel(tangent_kernel(module, x), explicit_kernel(module.linear, x))


def test_gradients_that_are_rounding_agree():
    """As that of a shift before a softmax; an entry that counts must be right."""
    expected = {"shift": torch.tensor([-1e-17]), "weight": torch.tensor([1.0, 0.5])}
    assert agree({"shift": torch.tensor([3e-17])}, expected, 1e-8)
    assert not agree({"shift": torch.tensor([1e-7])}, expected, 1e-8)
    assert not agree({"shift": torch.tensor([float("nan")])}, expected, 1e-8)


def test_each_side_has_a_size_of_its_own():
    """Pictures of two sizes: what the larger ones need counts, and both must have c outputs."""
    torch.manual_seed(0)
    pooled = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 2), torch.nn.Tanh(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).double()
    small, large = (torch.randn(n, 1, s, s, dtype=torch.float64) for n, s in ((5, 3), (2, 9)))
    expected = explicit_kernel(pooled, small, large)
    assert_kernel(tangent_kernel(pooled, small, large), expected)
    needs = []
    for x1, x2 in ((small, None), (large, None), (small, large), (large, small)):
        with pytest.raises(InputError, match="max_memory") as caught:
            tangent_kernel(pooled, x1, x2, max_memory=1)
        needs.append(int(str(caught.value).split("Raise it to ")[1].split(" ")[0]))
    assert needs[0] < needs[1] == needs[2] == needs[3]
    assert_kernel(tangent_kernel(pooled, small, large, max_memory=needs[2]), expected)
    with pytest.raises(InputError, match=r"x2: must give as many outputs per sample as x1 \(12\)"):
        tangent_kernel(pooled[:1], small, large)


def test_autocast_inside_of_the_module():
    class Reduced(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
            )

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.layers(x)

    torch.manual_seed(0)
    module, x = Reduced(), torch.randn(4, 3)
    expected = explicit_kernel(module.layers, x)
    # Eight bits of mantissa.
    assert_allclose(tangent_kernel(module, x), expected.detach(), atol=0.03 * expected.max().item())
