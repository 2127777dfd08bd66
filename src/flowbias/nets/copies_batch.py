"""Many networks of one shape as one: every layer is one batched product, written out by hand.

Backpropagation without a graph: for tens of small networks the bookkeeping of automatic
differentiation would cost more than the arithmetic. Each network's step size multiplies its
residual, from where it reaches all its gradients, as backpropagation is linear in the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.nets.unbiased import doubled_class

_FIX = "Make them by flowbias.nets.mlp with the same widths, or train them one by one."


@dataclass(frozen=True)
class Shape:
    """What the copies have in common."""

    widths: tuple[int, ...]
    slope: float
    bias: bool
    #: 1, or 2 for the two halves of an unbiased network
    halves: int
    dtype: Any
    device: Any


@dataclass
class Batch:
    """Weights (copies * halves, n_in, n_out) and biases (copies * halves, n_out) per layer."""

    shape: Shape
    weights: list[Any]
    biases: list[Any]

    @classmethod
    def of(cls, modules: Sequence[Any]) -> Batch:
        """Stack the parameters of networks that have one and the same shape."""
        torch = require_torch()
        shapes = [shape_of(module) for module in modules]
        for i, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise InputError(
                    f"modules: must all have the same shape, got {shape} at index {i} after "
                    f"{shapes[0]}. {_FIX}"
                )
        stacks = [_linear(half) for m in modules for half in halves_of(m)]
        depth = len(shapes[0].widths) - 1
        weights = [
            torch.stack([layers[i].weight.detach().T for layers in stacks]).contiguous()
            for i in range(depth)
        ]
        biases = [
            torch.stack([layers[i].bias.detach() for layers in stacks])
            for i in range(depth if shapes[0].bias else 0)
        ]
        return cls(shapes[0], weights, biases)

    def forward(self, x: Any) -> tuple[Any, list[Any]]:
        """Outputs (copies, n, outputs) and each layer's input; x is (copies * halves, n, d)."""
        torch = require_torch()
        inputs, last = [x], len(self.weights) - 1
        for i, weight in enumerate(self.weights):
            if self.biases:
                h = torch.baddbmm(self.biases[i][:, None, :], inputs[i], weight)
            else:
                h = torch.bmm(inputs[i], weight)
            if i < last:
                h = _activate(torch, h, self.shape.slope)
            inputs.append(h)
        outputs = inputs.pop()
        if self.shape.halves == 2:
            outputs = outputs.unflatten(0, (-1, 2))
            outputs = outputs[:, 0] - outputs[:, 1]
        return outputs, inputs

    def descend(self, inputs: list[Any], change: Any, into: Batch | None = None) -> None:
        """Subtract J^T change, for a step of descent: step size times dL/df, (copies, n, outputs).

        J belongs to the weights here; what is changed may be another batch of the same copies.
        """
        torch = require_torch()
        moved, g = self if into is None else into, change
        if self.shape.halves == 2:
            g = torch.stack((change, -change), dim=1).flatten(0, 1)
        for i in reversed(range(len(self.weights))):
            below = torch.bmm(g, self.weights[i].transpose(1, 2)) if i else None
            moved.weights[i].baddbmm_(inputs[i].transpose(1, 2), g, alpha=-1)
            if self.biases:
                moved.biases[i].sub_(g.sum(1))
            if below is not None:
                g = _through_activation(torch, below, inputs[i], self.shape.slope)

    def held_inputs(self, x: Any, pattern: list[Any]) -> list[Any]:
        """Inputs of the layers if units that are on in `pattern` stay on, and the others off."""
        torch = require_torch()
        inputs = [x]
        for i, held in enumerate(pattern[1:]):
            h = torch.bmm(inputs[i], self.weights[i])
            if self.biases:
                h += self.biases[i][:, None, :]
            inputs.append(_through_activation(torch, h, held, self.shape.slope))
        return inputs

    def kernel(self, inputs: list[Any], pattern: list[Any] | None = None) -> Any:
        """Tangent kernels (copies, n, n) of networks with one output.

        A sum over layers of products of two Gram matrices, of inputs and of backward signals.
        `pattern` says by its signs which units are on, if not the inputs do.
        """
        torch = require_torch()
        g = torch.ones_like(inputs[0][:, :, :1])
        total: Any = 0.0
        for i in reversed(range(len(self.weights))):
            seen = torch.bmm(inputs[i], inputs[i].transpose(1, 2)) + float(self.shape.bias)
            total = total + seen * torch.bmm(g, g.transpose(1, 2))
            if i:
                below = torch.bmm(g, self.weights[i].transpose(1, 2))
                on = inputs if pattern is None else pattern
                g = _through_activation(torch, below, on[i], self.shape.slope)
        return total.unflatten(0, (-1, self.shape.halves)).sum(1)

    def copied(self) -> Batch:
        """The same weights, to be changed without changing these."""
        return Batch(
            self.shape, [w.clone() for w in self.weights], [b.clone() for b in self.biases]
        )

    def replace(self, other: Batch, chosen: Any) -> None:
        """Take the parameters of `other` for the copies where `chosen` is true."""
        rows = chosen.repeat_interleave(self.shape.halves)
        for mine, theirs in zip(
            self.weights + self.biases, other.weights + other.biases, strict=True
        ):
            mine[rows] = theirs[rows]

    def kept(self, rows: Any) -> Batch:
        """Only the given rows."""
        return Batch(self.shape, [w[rows] for w in self.weights], [b[rows] for b in self.biases])

    def write(self, copy: int, module: Any) -> None:
        """The parameters of one copy into a module of its shape."""
        torch = require_torch()
        with torch.no_grad():
            for half, target in enumerate(halves_of(module)):
                row = copy * self.shape.halves + half
                for i, layer in enumerate(_linear(target)):
                    layer.weight.copy_(self.weights[i][row].T)
                    if self.biases:
                        layer.bias.copy_(self.biases[i][row])

    def rows(self, keep: Any) -> Any:
        """Where the halves of the copies with the given indices are."""
        torch = require_torch()
        halves = torch.arange(self.shape.halves, device=keep.device)
        return (keep[:, None] * self.shape.halves + halves).flatten()


def _activate(torch: Any, h: Any, slope: float) -> Any:
    return h.relu_() if slope == 0.0 else torch.nn.functional.leaky_relu_(h, slope)


def _through_activation(torch: Any, g: Any, activated: Any, slope: float) -> Any:
    # torch's own derivatives, given the result: 0 at the kink for ReLU, the slope if leaky.
    if slope == 0.0:
        return torch.ops.aten.threshold_backward(g, activated, 0.0)
    return torch.ops.aten.leaky_relu_backward(g, activated, slope, True)


def halves_of(module: Any) -> tuple[Any, ...]:
    """The two networks of an unbiased one, else the network itself."""
    return (module.plus, module.minus) if isinstance(module, doubled_class()) else (module,)


def shape_of(module: Any) -> Shape:
    """The shape of an MLP, doubled or not; anything else is refused with the reason."""
    torch = require_torch()
    halves = halves_of(module)
    parts = list(halves[0]) if isinstance(halves[0], torch.nn.Sequential) else [halves[0]]
    layers, between = parts[::2], parts[1::2]
    for part in layers:
        if type(part) is not torch.nn.Linear or len(parts) % 2 == 0:
            raise InputError(
                "modules: must be networks of Linear layers with ReLU or LeakyReLU between them, "
                f"got {type(module).__name__} with {type(part).__name__} among "
                f"{len(parts)} parts. {_FIX}"
            )
    slopes = {_slope(torch, part) for part in between}
    biased = {layer.bias is not None for layer in layers}
    frozen = any(not p.requires_grad for p in module.parameters())
    every = [id(p) for half in halves for layer in _linear(half) for p in layer.parameters()]
    if len(set(every)) < len(every):
        raise InputError(
            f"modules: must have parameters of their own in each layer, got a shared one. {_FIX}"
        )
    if len(slopes) > 1 or len(biased) > 1 or frozen:
        raise InputError(
            "modules: must have one activation, biases in all layers or in none, and no frozen "
            f"parameter, got slopes {sorted(slopes)}, biases {sorted(biased)}, "
            f"frozen: {frozen}. {_FIX}"
        )
    return Shape(
        widths=(layers[0].in_features, *(layer.out_features for layer in layers)),
        slope=slopes.pop() if slopes else 0.0,
        bias=biased.pop(),
        halves=len(halves),
        dtype=layers[0].weight.dtype,
        device=layers[0].weight.device,
    )


def _slope(torch: Any, part: Any) -> float:
    if type(part) is torch.nn.ReLU:
        return 0.0
    if type(part) is torch.nn.LeakyReLU:
        return float(part.negative_slope)
    raise InputError(
        "modules: must have ReLU or LeakyReLU between the layers, got "
        f"{type(part).__name__}. {_FIX}"
    )


def _linear(network: Any) -> list[Any]:
    torch = require_torch()
    return list(network)[::2] if isinstance(network, torch.nn.Sequential) else [network]
