"""The graph of derivatives: where each parameter comes into it, by which rule, and gradients there.

Every operation of a module leaves a node there, with the inputs that its derivative needs. How a
parameter is used is read off the graph, not off the classes of layers: a `Linear`, a layer of
somebody's own that calls `torch.addmm`, a packed projection of attention and each step of an LSTM
are the same node.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.layers import RULES, OwnGradient, Part, Use, row_dimensions
from flowbias.kernels.network import Inputs, Network, Tensor, check_finite


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
        """Of what the node makes; of the parameter itself ahead of the first."""
        node = self.nodes[step] if step >= 0 else self.leaf
        return tuple(node._input_metadata[0].shape)

    def use(self, step: int) -> Use:
        """What the node does with what it takes: the parameter, or what became of it before."""
        taken = self.nodes[step - 1] if step else self.leaf
        return Use(self.nodes[step], taken, self.shape(step), self.shape(step - 1))


@dataclass(frozen=True)
class Recording:
    """The outputs (samples, outputs) of a module with their graph."""

    network: Network
    outputs: Tensor
    #: what `Part.uses` found in it
    uses: dict[Any, list[Any]] = field(default_factory=dict, compare=False)

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


def parts_of(
    few: Recording,
    more: Recording,
    excluded: frozenset[str],
    like: Mapping[str, Part] | None = None,
    alike: Sequence[Recording] = (),
) -> dict[str, Part]:
    """What has a rule that keeps products, by graphs of some samples and of more; not proved.

    One sample is not a batch: torch drops its dimension here and there, and takes other ways. Its
    graph stands beside itself: where the way is that of a part `like` it, its rule is taken, and
    what is not in `like` is left out. The graphs `alike` must use it as that of few samples does.
    """
    found = {}
    for name in few.network.parameters:
        if name in excluded or name not in few.paths or (like is not None and name not in like):
            continue
        part = _part_of(name, few, more, None if like is None else like[name])
        if part is not None and part.is_used_by(alike) and part.keeps_products(few):
            found[name] = part
    return found


def _part_of(name: str, few: Recording, more: Recording, like: Part | None) -> Part | None:
    ways, counts = few.paths[name], (len(few.outputs), len(more.outputs))
    others = more.paths.get(name, ())
    if [path.words for path in ways] != [path.words for path in others]:
        return None
    pairs = list(zip(ways, others, strict=True))
    lengths = {_own_length(*paths, counts, like) for paths in pairs}
    length = lengths.pop()
    if lengths or not length:
        return None
    nodes = {
        (path.nodes[length - 1], path.places[length - 1]): (path, other) for path, other in pairs
    }
    words = tuple(path.words[:length] for path, _ in nodes.values())
    rules = [RULES[one[-1]] for one in words]
    if len({id(rule) for rule in rules}) > 1:
        return None
    shapes = []
    for path, other in nodes.values():
        use = path.use(length - 1)
        shape = use.makes
        dim = _growing(shape, other.shape(length - 1), counts)
        if (
            dim is None
            or dim >= row_dimensions(rules[0], use)
            or use.node._input_metadata[0].dtype != few.network.parameters[name].dtype
        ):
            return None
        shapes.append(((*shape[:dim], shape[dim] // counts[0], *shape[dim + 1 :]), dim))
    return Part((name,), rules[0], words, tuple(shapes))


def _own_length(few: Path, more: Path, counts: tuple[int, int], like: Part | None) -> int:
    """Steps up to the first node that has a rule and makes something per sample; 0 for none."""
    if like is not None and few.words[: len(like.words[0])] in like.words:
        return len(like.words[0])
    for step, word in enumerate(few.words):
        dim = _growing(few.shape(step), more.shape(step), counts)
        if word in RULES and dim is not None:
            return step + 1
        if few.shape(step) != more.shape(step):
            return 0
    return 0


def _growing(few: tuple[int, ...], more: tuple[int, ...], counts: tuple[int, int]) -> int | None:
    """The one dimension that grows with the samples; with one sample all is its own."""
    if len(few) != len(more) or not few or 0 in few:
        return None
    if counts == (1, 1):
        return 0
    grown = [dim for dim, sizes in enumerate(zip(few, more, strict=True)) if sizes[0] != sizes[1]]
    if len(grown) != 1 or few[grown[0]] * counts[1] != more[grown[0]] * counts[0]:
        return None
    return grown[0]


def gradient_alone(
    network: Network, sample: Inputs, combination: Tensor, name: str, place: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs of one sample by itself, and the gradient of their combination as torch gives it.

    `name` and `place` are what errors call the inputs, and where the sample is among them.
    """
    value = network.outputs(sample)
    check_finite(value.detach(), name, place)
    try:
        return value.detach()[0], derivatives(value, network.parameters, combination[None])
    except RuntimeError as error:
        raise InputError(
            f"module: must be differentiable, got {type(error).__name__} at sample {place} of "
            f"{name}: {str(error).splitlines()[0]} Train it for a step to see the same."
        ) from error


def derivatives(
    outputs: Tensor, parameters: dict[str, Any], cotangent: Tensor
) -> dict[str, Tensor]:
    """d <cotangent, outputs> / d parameters, by name; the graph is kept."""
    found = require_torch().autograd.grad(
        outputs,
        list(parameters.values()),
        cotangent,
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    dense = (gradient.to_dense() for gradient in found)
    return dict(zip(parameters, dense, strict=True))


def backward_to(recording: Recording, nodes: Sequence[Any], cotangent: Tensor) -> dict[Any, Tensor]:
    """d <cotangent, outputs> / d (what the nodes made), zero where it does not matter."""
    each = list(dict.fromkeys(nodes))
    if not each:
        return {}
    autograd = require_torch().autograd
    found = autograd.grad(
        recording.outputs,
        [autograd.graph.GradientEdge(node, 0) for node in each],
        cotangent,
        retain_graph=True,
        allow_unused=True,
    )
    return {
        node: cotangent.new_zeros(tuple(node._input_metadata[0].shape))
        if gradient is None
        else gradient
        for node, gradient in zip(each, found, strict=True)
    }


def backward_to_parts(
    recording: Recording, parts: Collection[Part], cotangent: Tensor
) -> dict[Any, Tensor]:
    """Gradients by what the nodes of these parts made."""
    nodes = [use.node for part in parts for use in part.uses(recording)]
    return backward_to(recording, nodes, cotangent)


def with_own_gradients(
    parts: dict[str, Part], alone: Recording, cotangent: Tensor, expected: OwnGradient
) -> dict[str, Part]:
    """Those by whose rule a sample alone has the expected gradient."""
    found = backward_to_parts(alone, parts.values(), cotangent)
    return {n: part for n, part in parts.items() if part.is_like(alone, found, 0, expected)}
