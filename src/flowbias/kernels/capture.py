"""What each call of a Linear or Conv2d layer saw, and the gradients at its outputs.

Hooks take down the input and the place of the output in the graph of derivatives; that place, not
the tensor, because an activation that works in place changes what the tensor stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.module_input import Inputs, Network, Tensor


@dataclass(frozen=True)
class Call:
    """One call of a layer: its input, and where its output sits in the graph."""

    layer: Any
    input: Tensor
    output_shape: tuple[int, ...]
    edge: Any


@dataclass(frozen=True)
class Recording:
    """The outputs (samples, outputs) of a module, and the calls of its layers on the way."""

    outputs: Tensor
    calls: tuple[Call, ...]

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
    calls: list[Call] = []
    with _hooks(layers, calls):
        outputs = network.outputs(inputs)
    return Recording(outputs, tuple(calls))


@contextmanager
def _hooks(layers: Iterable[Any], calls: list[Call]) -> Iterator[None]:
    torch = require_torch()

    def note(layer: Any, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        # An expert without a sample, or a layer under autocast: not for products of factors.
        if not output.requires_grad or not output.numel() or output.dtype != layer.weight.dtype:
            return None
        # An in-place activation after a view would rewrite the history that the edge points into.
        kept = output.clone() if output._is_view() else output
        seen = args[0] if args else kwargs["input"]
        edge = torch.autograd.graph.get_gradient_edge(kept)
        calls.append(Call(layer, seen.detach(), tuple(kept.shape), edge))
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
