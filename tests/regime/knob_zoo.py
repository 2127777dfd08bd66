"""Small networks of several kinds whose regime is set by a known knob, and their training.

    f(x) = multiplier (h(x; theta) - h(x; theta_0)),    laziness = multiplier sqrt(width)

in the parametrization of the neural tangent kernel, where features change by about 1 / laziness on
the way to labels of size one: a multiplier that stays is NTK, one of 1 / sqrt(width) is mean-field
(muP), one of alpha is the output scale of Chizat, Oyallon and Bach (2019).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from flowbias.kernels import TangentMap, kernel_matrix
from flowbias.regime import Verdict

#: How far a knob is from where features change by their own size: beyond, the regime is known.
LAZY, BETWEEN, RICH = (300.0, 3e4), (0.7, 5.0), (1e-3, 0.05)
OUTPUTS, SAMPLES = 3, 20


class Scaled(torch.nn.Module):
    """A layer whose weights start as standard normals, its outputs divided by sqrt(fan-in)."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer, self.factor = layer, 1.0 / math.sqrt(layer.weight[0].numel())
        with torch.no_grad():
            layer.weight.normal_()
            if layer.bias is not None:
                layer.bias.normal_()

    def forward(self, x: Any) -> Any:
        return self.factor * self.layer(x)


def dense(inputs: int, outputs: int) -> Scaled:
    return Scaled(torch.nn.Linear(inputs, outputs))


class Residual(torch.nn.Module):
    """x + block(x) / sqrt(depth)."""

    def __init__(self, block: Any, depth: int) -> None:
        super().__init__()
        self.block, self.factor = block, 1.0 / math.sqrt(depth)

    def forward(self, x: Any) -> Any:
        return x + self.factor * self.block(x)


class Attention(torch.nn.Module):
    """One head over positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (dense(width, width) for _ in range(3))

    def forward(self, x: Any) -> Any:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[2])
        return scores.softmax(dim=2) @ self.value(x)


class Mean(torch.nn.Module):
    """Over positions: dimension 1 of tokens, the last of signals."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Any) -> Any:
        return x.mean(dim=self.dim) * math.sqrt(x.shape[self.dim])


ACTIVATIONS = {
    "relu": torch.nn.ReLU,
    "tanh": torch.nn.Tanh,
    "gelu": torch.nn.GELU,
    "silu": torch.nn.SiLU,
}


def perceptron(width: int, depth: int, activation: Any, *, norm: bool) -> tuple[Any, tuple]:
    layers: list[Any] = []
    for inputs in (6, *[width] * (depth - 1)):
        layers += [dense(inputs, width)]
        layers += [torch.nn.LayerNorm(width)] if norm else []
        layers += [activation()]
    return torch.nn.Sequential(*layers, dense(width, OUTPUTS)), (6,)


def convolution(width: int, depth: int, activation: Any, *, norm: bool) -> tuple[Any, tuple]:
    layers: list[Any] = []
    for inputs in (1, *[width] * (depth - 1)):
        layers += [Scaled(torch.nn.Conv2d(inputs, width, 3, padding=1))]
        layers += [torch.nn.GroupNorm(1, width)] if norm else []
        layers += [activation()]
    head = [torch.nn.Flatten(2), Mean(2), dense(width, OUTPUTS)]
    return torch.nn.Sequential(*layers, *head), (1, 4, 4)


def residual(width: int, depth: int, activation: Any, *, norm: bool) -> tuple[Any, tuple]:
    first = [torch.nn.LayerNorm(width)] if norm else []
    blocks = [
        Residual(
            torch.nn.Sequential(*copy.deepcopy(first), activation(), dense(width, width)), depth
        )
        for _ in range(depth)
    ]
    head = [activation(), dense(width, OUTPUTS)]
    return torch.nn.Sequential(dense(6, width), *blocks, *head), (6,)


def attention(width: int, depth: int, activation: Any, *, norm: bool) -> tuple[Any, tuple]:
    layers: list[Any] = [dense(5, width)]
    for _ in range(max(1, depth - 1)):
        block = [Attention(width), *([torch.nn.LayerNorm(width)] if norm else [])]
        layers += [Residual(torch.nn.Sequential(*block), 1), dense(width, width), activation()]
    return torch.nn.Sequential(*layers, Mean(1), dense(width, OUTPUTS)), (4, 5)


#: (builder, activation, with normalization); the even ones calibrate, the odd ones are held out.
ARCHITECTURES = (
    (perceptron, "tanh", False),
    (perceptron, "relu", False),
    (perceptron, "relu", True),
    (perceptron, "gelu", True),
    (convolution, "gelu", False),
    (convolution, "tanh", False),
    (attention, "tanh", False),
    (residual, "relu", False),
    (residual, "silu", True),
    (attention, "gelu", True),
    (perceptron, "silu", False),
    (perceptron, "gelu", False),
    (convolution, "relu", True),
    (convolution, "silu", True),
)


class Centred(torch.nn.Module):
    """multiplier (h(x; theta) - h(x; theta_0))."""

    def __init__(self, body: Any, multiplier: float) -> None:
        super().__init__()
        self.body, self.multiplier = body, multiplier
        self.start = copy.deepcopy(body).requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.multiplier * (self.body(x) - self.start(x))


@dataclass(frozen=True)
class Run:
    """A network at its start, its data and loss, and the regime that its knob sets."""

    label: str
    module: Any
    x: Any
    y: Any
    #: "squared" or "cross-entropy"
    loss: str
    #: share of the largest stable step
    step: float
    laziness: float
    truth: Verdict

    @property
    def targets(self) -> Any:
        """Labels as numbers: of classes one-hot."""
        return self.y if self.loss == "squared" else torch.nn.functional.one_hot(self.y, OUTPUTS)


def drawn(index: int, *, held_out: bool) -> Run:
    """The run of that number; the same at each call."""
    rng = np.random.default_rng([index, held_out, 22])
    torch.manual_seed(int(rng.integers(2**31)))
    half = ARCHITECTURES[held_out::2]
    build, activation, norm = half[index % len(half)]
    width, depth = (
        int(2 ** rng.integers(4, 7 if build is convolution else 8)),
        int(rng.integers(1, 4)),
    )
    truth, (low, high) = [
        (Verdict.KERNEL, LAZY),
        (Verdict.RICH, RICH),
        (Verdict.IN_BETWEEN, BETWEEN),
    ][int(rng.choice(3, p=[0.4, 0.4, 0.2]))]
    laziness = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    body, shape = build(width, depth, ACTIVATIONS[activation], norm=norm)
    x = torch.randn(SAMPLES, *shape)
    teacher = torch.randn(math.prod(shape), OUTPUTS) / math.sqrt(math.prod(shape))
    signal = torch.sin(2.0 * x.reshape(SAMPLES, -1) @ teacher)
    loss = str(rng.choice(["squared", "cross-entropy"]))
    y = signal / signal.std() if loss == "squared" else signal.argmax(dim=1)
    label = (
        f"{build.__name__} {activation}{' norm' * norm}, {depth} x {width}, {loss}, "
        f"laziness {laziness:.2g}"
    )
    module = Centred(body, laziness / math.sqrt(width))
    step = float(rng.choice([0.1, 0.3, 0.6]))
    return Run(label, module, x, y, loss, step, laziness, truth)


def trained(run: Run, most_steps: int = 1500, again: int = 25) -> tuple[Any, float]:
    """A trained copy by full-batch descent, and what is left of the loss at the start."""
    module = copy.deepcopy(run.module)
    parameters = [p for p in module.parameters() if p.requires_grad]
    tangent = TangentMap(module, run.x)

    def loss() -> Any:
        outputs = module(run.x)
        if run.loss == "squared":
            return 0.5 * ((outputs - run.y) ** 2).sum()
        return torch.nn.functional.cross_entropy(outputs, run.y, reduction="sum")

    # Cross-entropy has no end: a tenth of it is left where all is classified with some margin.
    goal = 1e-2 if run.loss == "squared" else 0.1
    value = loss()
    first, step = value.item(), 0.0
    for count in range(most_steps):
        if count % again == 0:
            top = np.linalg.eigvalsh(kernel_matrix(tangent.kernel()))[-1]
            step = run.step * 2.0 / max(float(top), 1e-30)
        found = torch.autograd.grad(value, parameters)
        last = value.item()
        while True:
            with torch.no_grad():
                for p, g in zip(parameters, found, strict=True):
                    p -= step * g
            value = loss()
            if value.item() <= last or step < 1e-30:
                break
            # The kernel grew since it was measured: back, and half as far.
            with torch.no_grad():
                for p, g in zip(parameters, found, strict=True):
                    p += step * g
            step /= 2.0
        if value.item() <= goal * first:
            break
    return module, value.item() / first
