"""Linear and Conv2d layers: their share of the kernel from inputs and gradients alone.

A layer h = A v + b that is used at positions p (a sequence, the patches of a convolution, several
calls) has df_a/dA = sum_p g_{a,p} v_p^T, g_a = df_a/dh, and so the share

    sum_{p,q} (<v_p, v'_q> + 1) <g_{a,p}, g'_{b,q}>

of K_ab(x, x'), where the 1 belongs to the bias. It is kept as v with a column of ones, and g.
A parameter used by several calls adds up its gradients, so their positions are simply joined.

Hooks take down the input of each call and the place of its output in the graph of derivatives; that
place, not the tensor, because an activation that works in place changes what the tensor stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from flowbias.ground.torch import require_torch
from flowbias.kernels.network import Inputs, Network, Tensor, half_the_digits


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer: its input, and where its output sits in the graph."""

    layer: Any
    input: Tensor
    output_shape: tuple[int, ...]
    edge: Any


@dataclass(frozen=True)
class Recording:
    """The outputs (samples, outputs) of a module, and the calls of its layers on the way."""

    outputs: Tensor
    calls: tuple[LayerCall, ...]

    def gradients(self, cotangent: Tensor) -> tuple[Tensor, ...]:
        """d <cotangent, outputs> / d (output of the layer), for each call."""
        torch = require_torch()
        if not self.calls:
            return ()
        found = torch.autograd.grad(
            self.outputs,
            [call.edge for call in self.calls],
            cotangent,
            retain_graph=True,
            allow_unused=True,
        )
        return tuple(
            cotangent.new_zeros(call.output_shape) if gradient is None else gradient
            for call, gradient in zip(self.calls, found, strict=True)
        )

    def uses(self) -> tuple[Counter[int], set[Any]]:
        """How often each parameter (by id) enters the graph of the outputs, and its nodes."""
        counts: Counter[int] = Counter()
        waiting = [self.outputs.grad_fn]
        seen = set(waiting)
        while waiting:
            for node, _ in waiting.pop().next_functions:
                if node is None:
                    continue
                if node.name() == "torch::autograd::AccumulateGrad":
                    counts[id(node.variable)] += 1
                elif node not in seen:
                    seen.add(node)
                    waiting.append(node)
        return counts, seen


def record(network: Network, inputs: Inputs, layers: Iterable[Any]) -> Recording:
    """Call the module with hooks on the given layers; gradients must be on."""
    calls: list[LayerCall] = []
    with _hooks(layers, calls):
        outputs = network.outputs(inputs)
    return Recording(outputs, tuple(calls))


@contextmanager
def _hooks(layers: Iterable[Any], calls: list[LayerCall]) -> Iterator[None]:
    torch = require_torch()

    def note(layer: Any, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        # An expert without a sample, or a layer under autocast: not for products of factors.
        if not output.requires_grad or not output.numel() or output.dtype != layer.weight.dtype:
            return None
        # An in-place activation after a view would rewrite the history that the edge points into.
        kept = output.clone() if output._is_view() else output
        seen = args[0] if args else kwargs["input"]
        edge = torch.autograd.graph.get_gradient_edge(kept)
        calls.append(LayerCall(layer, seen.detach(), tuple(kept.shape), edge))
        return kept

    # First in line: a user's own hook may replace the output.
    handles = [
        layer.register_forward_hook(note, prepend=True, with_kwargs=True) for layer in layers
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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

    def calls(self, calls: Sequence[LayerCall]) -> list[int]:
        """Which of the calls are of our layers."""
        return [index for index, call in enumerate(calls) if call.layer in self.layers]

    def rows(self, calls: Sequence[LayerCall]) -> tuple[int, ...]:
        """The length of each of our calls along the first dimension."""
        return tuple(calls[index].output_shape[0] for index in self.calls(calls))

    def inputs(self, calls: Sequence[LayerCall], samples: int) -> Tensor:
        """v: inputs at all positions, with a one where the bias belongs to us."""
        torch = require_torch()
        return torch.cat([self._inputs(call, samples) for call in calls], dim=2)

    def _inputs(self, call: LayerCall, samples: int) -> Tensor:
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

    def room_for(self, calls: Sequence[LayerCall], samples: int, outputs: int) -> Tensor:
        """g, not filled in yet."""
        first = calls[0].layer
        kind = KINDS[type(first)]
        groups = kind.groups(first)
        positions = sum(positions_of(call, samples) for call in calls)
        shape = (groups, samples, positions, outputs, kind.units(first) // groups)
        return calls[0].input.new_empty(shape)

    def fill(
        self, g: Tensor, output: int, calls: Sequence[LayerCall], found: Sequence[Tensor]
    ) -> None:
        """Put the gradients of one output at each call into g."""
        groups, samples, _, _, units = g.shape
        start = 0
        for call, gradient in zip(calls, found, strict=True):
            last = KINDS[type(call.layer)].units_last(gradient)
            end = start + positions_of(call, samples)
            parts = last.reshape(samples, end - start, groups, units)
            g[:, :, start:end, output] = parts.permute(2, 0, 1, 3)
            start = end


def positions_of(call: LayerCall, samples: int) -> int:
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


def rows_per_call(recording: Recording, shared: Sequence[Shared]) -> dict[Shared, tuple[int, ...]]:
    """The length of each of their calls along the first dimension."""
    return {part: part.rows(recording.calls) for part in shared}


def misused(
    recordings: Sequence[Recording],
    shared: Sequence[Shared],
    network: Network,
    rows: dict[Shared, tuple[int, ...]],
) -> frozenset[str]:
    """Parameters that a graph uses more often than in calls of their layers, or in other calls.

    `rows` is how many each call has per sample.
    """
    wrong: set[str] = set()
    for recording in recordings:
        (uses, nodes), count = recording.uses(), len(recording.outputs)
        for part in shared:
            calls = part.calls(recording.calls)
            if part.rows(recording.calls) != tuple(count * each for each in rows[part]):
                wrong.update(part.names)
            expected = sum(recording.calls[j].edge.node in nodes for j in calls)
            wrong |= {n for n in part.names if uses[id(network.parameters[n])] != expected}
    return frozenset(wrong)


def unlike(
    part: Shared,
    recording: Recording,
    found: tuple[Tensor, ...],
    sample: int,
    expected: dict[str, Tensor],
) -> frozenset[str]:
    """Parameters whose gradient, put together from `found` for one sample, is not `expected`.

    Compared along a random direction of inputs, which spares products of full size.
    """
    torch = require_torch()
    indices = part.calls(recording.calls)
    if not indices:
        return frozenset()
    calls, count = [recording.calls[j] for j in indices], len(recording.outputs)
    g = part.room_for(calls, count, 1)
    part.fill(g, 0, calls, [found[j] for j in indices])
    v = part.inputs(calls, count)[:, sample]
    own = g[:, sample, :, 0].transpose(1, 2)
    if not bool(own.any()) and any(call.output_shape[0] != count for call in calls):
        # Nothing to compare, and rows of several positions may come in another order.
        return frozenset(part.names)
    generator = torch.Generator().manual_seed(0)
    wrong = set()
    for name in part.names:
        weights = v.shape[2] - (part.bias is not None)
        seen = v[:, :, -1:] if name == part.bias else v[:, :, :weights]
        way = torch.randn(seen.shape[2], 1, generator=generator, dtype=torch.float64).to(v)
        along = expected[name].reshape(*own.shape[:2], -1) @ way
        size = own.abs() @ (seen.norm(dim=2, keepdim=True) * way.norm())
        change = float((own @ (seen @ way) - along).abs().max())
        if not change <= half_the_digits(v) * float(size.max()):
            wrong.add(name)
    return frozenset(wrong)


class Misfit(Exception):  # noqa: N818 - a signal to plan again, never seen by a caller
    """Parameters that turned out to be used in ways that their structure does not cover."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


@dataclass(frozen=True)
class LayerFactors:
    """v (groups, samples, positions, inputs) and g (groups, samples, positions, outputs, units).

    v is computed when asked for: patches of a convolution take many times the room of its input.
    """

    g: Tensor
    v: Callable[[], Tensor]


def layer_factors(
    recording: Recording, shared: Sequence[Shared], cotangents: Tensor
) -> dict[tuple[str, ...], LayerFactors]:
    """The features of all samples of a recording, by the names that they belong to."""
    count = len(recording.outputs)
    stores = {}
    for part in shared:
        indices = part.calls(recording.calls)
        # Without its place in the graph, a call keeps nothing alive but the input of its layer.
        calls = [replace(recording.calls[index], edge=None) for index in indices]
        if calls:
            stores[part] = (indices, calls, part.room_for(calls, count, len(cotangents)))
    for output, cotangent in enumerate(cotangents):
        found = recording.gradients(cotangent.expand(count, -1))
        for part, (indices, calls, g) in stores.items():
            part.fill(g, output, calls, [found[index] for index in indices])
    if count > 1:
        _require_own_rows(recording, stores, cotangents)
    return {
        part.names: LayerFactors(g, partial(part.inputs, calls, count))
        for part, (_, calls, g) in stores.items()
    }


def _require_own_rows(
    recording: Recording,
    stores: dict[Shared, tuple[list[int], list[LayerCall], Tensor]],
    cotangents: Tensor,
) -> None:
    """Raise `Misfit` unless the rows that a call has for a sample depend on that sample alone.

    With a weight of its own on each sample, each row of gradients must take that of its sample. A
    batch that the module sorts, or whose samples it mixes, fails here whatever the trial saw.
    """
    torch = require_torch()
    count, generator = len(recording.outputs), torch.Generator().manual_seed(0)
    weights = (1.0 + torch.rand(count, generator=generator, dtype=torch.float64)).to(cotangents)
    mixture = torch.randn(len(cotangents), generator=generator, dtype=torch.float64).to(cotangents)
    found = recording.gradients(weights[:, None] * (mixture @ cotangents))
    smallest = torch.finfo(cotangents.dtype).tiny
    wrong: set[str] = set()
    for shared, (indices, calls, g) in stores.items():
        weighted = shared.room_for(calls, count, 1)
        shared.fill(weighted, 0, calls, [found[index] for index in indices])
        total = torch.zeros_like(weighted[:, :, :, 0])
        for output, factor in enumerate(mixture.tolist()):
            total.add_(g[:, :, :, output], alpha=factor)
        size = total.abs().amax((0, 2, 3))
        total.mul_(weights[None, :, None, None])
        change = total.sub_(weighted[:, :, :, 0]).abs_().amax((0, 2, 3))
        # Numbers too small for the dtype have lost digits for no fault of the order.
        if not bool((change <= half_the_digits(g) * size + smallest).all()):
            wrong.update(shared.names)
    if wrong:
        raise Misfit(frozenset(wrong))
