"""Modules of many kinds with inputs for each, and the kernel by explicit Jacobians."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra `nets` is not installed")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def explicit_jacobian(module, x):
    """(n, c, P), one sample and one output at a time, by nothing but torch.autograd.grad."""
    inputs = x if isinstance(x, tuple) else (x,)
    parameters = [p for p in module.parameters() if p.requires_grad]
    rows = []
    for i in range(len(inputs[0])):
        outputs = module(*(part[i : i + 1] for part in inputs)).reshape(-1)
        for output in outputs:
            found = torch.autograd.grad(
                output, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            rows.append(torch.cat([gradient.to_dense().reshape(-1) for gradient in found]))
    return torch.stack(rows).reshape(len(inputs[0]), -1, len(rows[0]))


def explicit_kernel(module, x1, x2=None):
    """J J^T."""
    first = explicit_jacobian(module, x1)
    second = first if x2 is None else explicit_jacobian(module, x2)
    return torch.einsum("iap,jbp->ijab", first, second)


def _real(*shape):
    return lambda n: torch.randn(n, *shape, dtype=torch.float64)


def _tokens(length):
    return lambda n: torch.randint(0, 7, (n, length))


class Tied(nn.Module):
    """Two layers with one weight, one of them used three times."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        h = torch.tanh(self.second(torch.tanh(self.first(x))))
        return self.head(torch.tanh(self.second(torch.tanh(self.second(h)))))


class TiedBias(nn.Module):
    """One bias for two layers with weights of their own, one weight frozen."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.bias = self.first.bias
        self.second.weight.requires_grad_(False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.inner, self.leave = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        h = self.enter(x)
        h = h + functional.relu(self.inner(h), inplace=True)
        return self.leave(h + self.inner(torch.sin(h)))


class CustomParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.randn(3))
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x):
        return torch.exp(self.scale * torch.tanh(self.linear(x)))


class OneAndNone(nn.Module):
    """A temperature of no dimension behind an exponential, and a parameter without an entry."""

    def __init__(self):
        super().__init__()
        self.linear, self.temperature = nn.Linear(4, 2), nn.Parameter(torch.tensor(0.3))
        self.tokens = nn.Parameter(torch.zeros(0, 2))

    def forward(self, x):
        return self.linear(x) * self.temperature.exp()


class FunctionalUse(nn.Module):
    """A layer's weight that is also used outside of the layer."""

    def __init__(self):
        super().__init__()
        self.linear, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = torch.tanh(self.linear(x)) + functional.linear(x**2, self.linear.weight.T)
        return self.head(h) * self.linear.bias.sum()


class TiedEmbedding(nn.Module):
    """A language model whose last layer is its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.embedding(x)))).mean(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0]).sum(1)


class SequenceFirst(nn.Module):
    """Linear layers on (positions, samples, features), on rows of all samples, on no sample."""

    def __init__(self):
        super().__init__()
        self.across, self.flat, self.places = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(2, 3)
        self.register_buffer("grid", torch.randn(6, 2))
        self.turned = nn.Linear(3, 2)

    def forward(self, x):
        h = torch.relu(self.across(x.transpose(0, 1))).transpose(0, 1)
        h = torch.tanh(self.flat(h.reshape(-1, 3)).reshape(h.shape) + self.places(self.grid))
        rows = self.turned(h.transpose(0, 1).reshape(-1, 3))
        return rows.reshape(6, len(x), 2).prod(0)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.bilinear, self.side = nn.Bilinear(3, 2, 4), nn.Linear(2, 4)

    def forward(self, a, b):
        return torch.tanh(self.bilinear(a, b)) * self.side(b)


class Branching(nn.Module):
    """Which way a sample goes depends on it, so that torch.vmap cannot run it."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x):
        rows = [
            (self.a if float(row.sum().detach()) > 0 else self.b)(row) * self.scale for row in x
        ]
        return torch.stack(rows)


class Sorted(nn.Module):
    """Sorts the batch by one of its columns, and puts it back in order at the end."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        order = x[:, 0].argsort(stable=True)
        h = torch.tanh(self.inner(x[order]))
        return self.head(h[order.argsort()])


class Experts(nn.Module):
    """Each sample goes to one of two layers, which now and then leaves one without any."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(3, 2)
        self.experts = nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        chosen, total = shares.argmax(1), torch.zeros_like(shares)
        for place, expert in enumerate(self.experts):
            rows = (chosen == place).nonzero()[:, 0]
            total = total.index_add(0, rows, expert(x[rows]))
        return total * shares.amax(1, keepdim=True)


class OwnDerivative(nn.Module):
    """The gradient of an energy, taken on the way."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            (force,) = torch.autograd.grad(self.energy(at).sum(), at, create_graph=True)
        return force / self.temperature


class ScaledLinear(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, x):
        return 3.0 * super().forward(x)


def _patched():
    """A layer with another forward, one with a parametrized weight, and a user's hook."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    plain = module[0].forward
    module[0].forward = lambda x: plain(x) ** 2
    nn.utils.parametrizations.weight_norm(module[1])
    module[3].register_forward_hook(lambda layer, args, output: 2.0 * output.tanh_())
    return module


def _used_twice():
    """Modules that a Sequential holds under two names each."""
    linear, activation = nn.Linear(4, 4), nn.PReLU()
    return nn.Sequential(linear, activation, linear, activation, nn.Linear(4, 2))


def _frozen():
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    module[0].weight.requires_grad_(False)
    module[2].requires_grad_(False)
    module[4].bias.requires_grad_(False)
    return module


def _batch_norm():
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 2)
    )
    module[1].running_mean.normal_()
    module[1].running_var.uniform_(0.5, 2.0)
    return module.eval()


def _convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, (2, 3), padding="same", dilation=(1, 2), groups=2),
        nn.GELU(),
        nn.Conv2d(6, 6, 2, groups=6, padding_mode="circular", padding=1, bias=False),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 4, (1, 2), padding="valid"),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


def _sequential(*layers):
    return lambda: nn.Sequential(*layers)


#: name: (module, inputs for n samples, parameters that must go by Jacobians)
ARCHITECTURES = {
    "mlp": (
        lambda: nn.Sequential(
            nn.Linear(5, 16),
            nn.ReLU(inplace=True),
            nn.Linear(16, 8, bias=False),
            nn.Tanh(),
            nn.Linear(8, 3),
        ),
        _real(5),
        set(),
    ),
    "one output, no axis": (
        lambda: nn.Sequential(nn.Linear(3, 9), nn.Tanh(), nn.Linear(9, 1), nn.Flatten(0)),
        _real(3),
        set(),
    ),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)),
        _real(5, 3),
        set(),
    ),
    "shared weights, a module used twice": (Tied, _real(5), set()),
    "shared bias": (TiedBias, _real(4), set()),
    "residual": (Residual, _real(4), set()),
    "frozen": (_frozen, _real(4), set()),
    "convolutions": (_convolutions, _real(2, 6, 5), set()),
    "batch norm": (_batch_norm, _real(2, 6, 6), set()),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2)),
        _real(4),
        set(),
    ),
    "embedding": (
        lambda: nn.Sequential(
            nn.Embedding(7, 4), nn.Linear(4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(15, 2)
        ),
        _tokens(3),
        set(),
    ),
    "embedding shared with the last layer": (TiedEmbedding, _tokens(3), {"embedding.weight"}),
    "custom parameter": (CustomParameter, _real(4), set()),
    "a scalar and nothing": (OneAndNone, _real(4), {"temperature"}),
    "weight used outside of its layer": (FunctionalUse, _real(4), {"linear.weight", "linear.bias"}),
    "attention": (Attention, _real(3, 4), set()),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(),
            nn.Flatten(),
            nn.Linear(12, 2),
        ),
        _real(3, 4),
        set(),
    ),
    "other orders of samples": (SequenceFirst, _real(6, 3), {"places.weight", "places.bias"}),
    "two inputs": (
        TwoInputs,
        lambda n: (_real(3)(n), _real(2)(n)),
        {"bilinear.weight"},
    ),
    "transposed and one-dimensional convolutions": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 3, 2),
            nn.Unflatten(1, (3, 1)),
            nn.ConvTranspose2d(3, 2, 2),
            nn.Flatten(),
            nn.Linear(20, 2),
            nn.PReLU(),
        ),
        _real(2, 5),
        {"2.weight", "2.bias", "5.weight"},
    ),
    "modules under two names": (_used_twice, _real(4), {"1.weight"}),
    "a batch that is sorted": (Sorted, _real(3), None),
    "experts": (Experts, _real(3), None),
    "derivatives inside": (OwnDerivative, _real(3), None),
    "a sparse embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2)),
        _tokens(3),
        set(),
    ),
    "branches": (Branching, _real(3), None),
    "a subclass of Linear": (
        lambda: nn.Sequential(ScaledLinear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        _real(3),
        set(),
    ),
    "patched layers": (
        _patched,
        _real(3),
        {f"1.parametrizations.weight.original{i}" for i in (0, 1)},
    ),
}


def build(name, n, seed=0):
    """The module in double precision, and n samples for it."""
    torch.manual_seed(seed)
    make, inputs, _ = ARCHITECTURES[name]
    module = make().double()
    x = inputs(n)
    with torch.no_grad():
        module(*(x if isinstance(x, tuple) else (x,)))  # lazy layers take their size
    return module, x
