"""The graph of derivatives: where each parameter comes into it, and gradients at its nodes.

Every operation of a module leaves a node there, with the inputs that its derivative needs. How a
parameter is used is read off the graph, not off the classes of layers: a `Linear`, a layer of
somebody's own that calls `torch.addmm`, a packed projection of attention and each step of an LSTM
are the same node.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flowbias.ground.torch import require_torch
from flowbias.kernels.network import Inputs, Network, Tensor


@dataclass(frozen=True)
class Path:
    """A parameter's way into the graph: operations on it alone (transposed, sliced), then others.

    `nodes[0]` takes the parameter itself, each further one what the node before it made of it;
    `places` says at which of its inputs.
    """

    leaf: Any
    nodes: tuple[Any, ...]
    places: tuple[int, ...]

    @property
    def words(self) -> tuple[tuple[str, int], ...]:
        """What two graphs of one module have in common."""
        return tuple(
            (node.name(), place) for node, place in zip(self.nodes, self.places, strict=True)
        )

    def shape(self, step: int) -> tuple[int, ...]:
        """Of what the node makes."""
        return output_shape(self.nodes[step])

    def taken(self, step: int) -> Any:
        """The node whose output `nodes[step]` takes: the parameter's own, or the one before."""
        return self.nodes[step - 1] if step else self.leaf


def output_shape(node: Any) -> tuple[int, ...]:
    return tuple(node._input_metadata[0].shape)


def at_output(node: Any) -> Any:
    """Where the gradient of what the node made arrives."""
    return require_torch().autograd.graph.GradientEdge(node, 0)


@dataclass(frozen=True)
class Recording:
    """The outputs (samples, outputs) of a module with their graph."""

    network: Network
    outputs: Tensor
    #: what `Part.uses` found in it
    uses: dict[Any, list[Any]] = field(default_factory=dict, compare=False)

    def gradients(self, nodes: Sequence[Any], cotangent: Tensor) -> list[Tensor | None]:
        """d <cotangent, outputs> / d (what the node made); None where that does not matter."""
        if not nodes:
            return []
        return list(
            require_torch().autograd.grad(
                self.outputs,
                [at_output(node) for node in nodes],
                cotangent,
                retain_graph=True,
                allow_unused=True,
            )
        )

    @cached_property
    def paths(self) -> dict[str, tuple[Path, ...]]:
        """All ways into the graph, by the name of the parameter."""
        names = {id(p): name for name, p in self.network.parameters.items()}
        takers, leaves = self._takers()
        return {
            names[key]: tuple(
                Path(leaf, tuple(n for n, _ in steps), tuple(place for _, place in steps))
                for steps in _climbs(leaf, takers)
            )
            for key, leaf in leaves.items()
            if key in names
        }

    def _takers(self) -> tuple[dict[Any, list[tuple[Any, int]]], dict[int, Any]]:
        """For each node who takes its output, and the nodes of the leaves by id of the tensor."""
        takers: dict[Any, list[tuple[Any, int]]] = {}
        leaves: dict[int, Any] = {}
        waiting = [self.outputs.grad_fn]
        while waiting:
            taker = waiting.pop()
            for place, (node, output) in enumerate(taker.next_functions):
                if node is None:
                    continue
                if node not in takers:
                    takers[node] = []
                    if node.name() == "torch::autograd::AccumulateGrad":
                        leaves[id(node.variable)] = node
                    waiting.append(node)
                # One of several outputs is a part of no rule: nobody climbs on from there.
                takers[node].append((taker, -1 if output else place))
        return takers, leaves


def _climbs(
    node: Any, takers: dict[Any, list[tuple[Any, int]]], deepest: int = 8
) -> Iterator[tuple[tuple[Any, int], ...]]:
    """From a node up through operations on one thing alone, to the first that takes more."""
    for taker, place in takers[node]:
        step = ((taker, place),)
        one = sum(below is not None for below, _ in taker.next_functions) == 1
        if one and deepest and takers.get(taker):
            for rest in _climbs(taker, takers, deepest - 1):
                yield step + rest
        else:
            yield step


def backward_to(recording: Recording, nodes: Sequence[Any], cotangent: Tensor) -> dict[Any, Tensor]:
    """Gradients by what the nodes made, zero where it does not matter."""
    each = list(dict.fromkeys(nodes))
    found = recording.gradients(each, cotangent)
    return {
        node: cotangent.new_zeros(output_shape(node)) if gradient is None else gradient
        for node, gradient in zip(each, found, strict=True)
    }


def record(network: Network, inputs: Inputs) -> Recording:
    """Call the module; gradients must be on."""
    with _steps_of_recurrent_layers(network):
        return Recording(network, network.outputs(inputs))


@contextmanager
def _steps_of_recurrent_layers(network: Network) -> Iterator[None]:
    """An LSTM as its single steps: oneDNN has one node for all of them, which says nothing."""
    torch = require_torch()
    if not any(isinstance(part, torch.nn.RNNBase) for part in network.module.modules()):
        yield
        return
    with warnings.catch_warnings():
        # About graphics cards, in the words of torch itself.
        warnings.filterwarnings("ignore", message="TF32 acceleration")
        with torch.backends.mkldnn.flags(enabled=False):
            yield
