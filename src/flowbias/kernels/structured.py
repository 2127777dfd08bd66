"""Linear and Conv2d layers: their share of the kernel from inputs and gradients alone.

A layer h = A v + b that is used at positions p (a sequence, the patches of a convolution, several
calls) has df_a/dA = sum_p g_{a,p} v_p^T, g_a = df_a/dh, and so the share

    sum_{p,q} (<v_p, v'_q> + 1) <g_{a,p}, g'_{b,q}>

of K_ab(x, x'), where the 1 belongs to the bias. It is kept as v with a column of ones, and g.
A parameter used by several calls adds up its gradients, so their positions are simply joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.capture import Call
from flowbias.kernels.module_input import Network, Tensor


@dataclass(frozen=True)
class Shared:
    """A weight, a bias, or both where the same layers use the two."""

    weight: str | None
    bias: str | None
    layers: frozenset[Any]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.weight, self.bias) if name is not None)

    @property
    def is_uniform(self) -> bool:
        """Whether all layers split their units in the same way; positions can be joined then."""
        return len({KINDS[type(layer)].groups(layer) for layer in self.layers}) == 1

    def calls(self, calls: Sequence[Call]) -> list[int]:
        """Which of the calls are of our layers."""
        return [index for index, call in enumerate(calls) if call.layer in self.layers]

    def inputs(self, calls: Sequence[Call], samples: int) -> Tensor:
        """v: inputs at all positions, with a one where the bias belongs to us."""
        torch = require_torch()
        return torch.cat([self._inputs(call, samples) for call in calls], dim=2)

    def _inputs(self, call: Call, samples: int) -> Tensor:
        torch = require_torch()
        kind = KINDS[type(call.layer)]
        groups, positions = kind.groups(call.layer), positions_of(call, samples)
        parts = []
        if self.weight is not None:
            parts.append(
                kind.patches(call.layer, call.input).reshape(samples, positions, groups, -1)
            )
        if self.bias is not None:
            parts.append(call.input.new_ones(samples, positions, groups, 1))
        return torch.cat(parts, dim=3).permute(2, 0, 1, 3)

    def room_for(self, calls: Sequence[Call], samples: int, outputs: int) -> Tensor:
        """g, not filled in yet."""
        first = calls[0].layer
        kind = KINDS[type(first)]
        groups = kind.groups(first)
        positions = sum(positions_of(call, samples) for call in calls)
        shape = (groups, samples, positions, outputs, kind.units(first) // groups)
        return calls[0].input.new_empty(shape)

    def fill(self, g: Tensor, output: int, calls: Sequence[Call], found: Sequence[Tensor]) -> None:
        """Put the gradients of one output at each call into g."""
        groups, samples, _, _, units = g.shape
        start = 0
        for call, gradient in zip(calls, found, strict=True):
            last = KINDS[type(call.layer)].units_last(gradient)
            end = start + positions_of(call, samples)
            parts = last.reshape(samples, end - start, groups, units)
            g[:, :, start:end, output] = parts.permute(2, 0, 1, 3)
            start = end


def positions_of(call: Call, samples: int) -> int:
    """At how many positions a sample's share of the call uses the layer."""
    return prod(call.output_shape) // (int(KINDS[type(call.layer)].units(call.layer)) * samples)


@dataclass(frozen=True)
class _Linear:
    """Positions are all dimensions between the first and the last."""

    def groups(self, layer: Any) -> int:
        return 1

    def units(self, layer: Any) -> int:
        return int(layer.out_features)

    def patches(self, layer: Any, v: Tensor) -> Tensor:
        return v

    def units_last(self, gradient: Tensor) -> Tensor:
        return gradient


@dataclass(frozen=True)
class _Conv2d:
    """Positions are the pixels of the output; an input is the patch that a pixel sees."""

    def groups(self, layer: Any) -> int:
        return int(layer.groups)

    def units(self, layer: Any) -> int:
        return int(layer.out_channels)

    def patches(self, layer: Any, v: Tensor) -> Tensor:
        functional = require_torch().nn.functional
        modes = {"zeros": "constant"}
        padded = functional.pad(
            v if v.ndim == 4 else v[None],
            _padding(layer),
            mode=modes.get(layer.padding_mode, layer.padding_mode),
        )
        columns = functional.unfold(
            padded, layer.kernel_size, dilation=layer.dilation, stride=layer.stride
        )
        return columns.transpose(1, 2)

    def units_last(self, gradient: Tensor) -> Tensor:
        image = gradient if gradient.ndim == 4 else gradient[None]
        return image.flatten(2).transpose(1, 2)


def _padding(layer: Any) -> list[int]:
    """Left, right, top, bottom, as torch.nn.functional.pad wants them."""
    sides: list[int] = []
    for axis in (1, 0):
        if layer.padding == "same":
            total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
            sides += [total // 2, total - total // 2]
        else:
            amount = 0 if layer.padding == "valid" else int(layer.padding[axis])
            sides += [amount, amount]
    return sides


class _KindTable(dict[Any, Any]):
    """Kinds by the exact type of a layer: a subclass may compute something else."""

    def __missing__(self, layer: Any) -> Any:
        nn = require_torch().nn
        self.update({nn.Linear: _Linear(), nn.Conv2d: _Conv2d()})
        return self.get(layer)


KINDS = _KindTable()


def shared_parameters(network: Network, excluded: frozenset[str]) -> tuple[Shared, ...]:
    """The trainable weights and biases of Linear and Conv2d layers, with the layers of each."""
    names = {id(p): name for name, p in network.parameters.items() if name not in excluded}
    users: dict[tuple[str, str], set[Any]] = {}
    for layer in network.module.modules():
        # A forward of its own, set on the object, may compute anything.
        if KINDS[type(layer)] is None or "forward" in vars(layer):
            continue
        for role in ("weight", "bias"):
            name = names.get(id(getattr(layer, role)))
            if name is not None:
                users.setdefault((role, name), set()).add(layer)
    weights, biases = (
        {name: frozenset(layers) for (role, name), layers in users.items() if role == wanted}
        for wanted in ("weight", "bias")
    )
    joined = []
    for weight, layers in weights.items():
        bias = next((name for name, others in biases.items() if others == layers), None)
        if bias is not None:
            del biases[bias]
        joined.append(Shared(weight, bias, layers))
    found = (*joined, *(Shared(None, bias, layers) for bias, layers in biases.items()))
    return tuple(shared for shared in found if shared.is_uniform)
