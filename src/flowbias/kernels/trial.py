"""The first samples of the inputs, tried together and each alone, before anything is computed.

They show whether the module treats samples independently at all, for which parameters the share
of `structured.py` is right, and how much memory a sample takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.capture import Recording, record
from flowbias.kernels.memory import Footprint
from flowbias.kernels.module_input import Inputs, Network, Tensor, check_finite, first_call
from flowbias.kernels.nearby import agree, derivatives, gradient_at, moved
from flowbias.kernels.structured import Shared, positions_of
from flowbias.problem import InputError


@dataclass(frozen=True)
class Trial:
    """A few samples of `name`, and a random combination of outputs: one derivative for all."""

    network: Network
    name: str
    inputs: Inputs
    #: where they are among all samples
    places: tuple[int, ...]
    combination: Tensor
    #: outputs of each sample alone
    values: tuple[Tensor, ...]
    #: what the graph of one sample keeps
    graph_bytes: int

    @classmethod
    def of(cls, network: Network, name: str, inputs: Inputs) -> Trial:
        torch = require_torch()
        places = _two_that_differ(inputs)
        tried = tuple(part[list(places)] for part in inputs)
        with _Saved(network, inputs) as saved:
            first = first_call(network, name, tuple(part[:1] for part in tried))
        if not first.requires_grad:
            raise InputError(
                f"module: its outputs must depend on a trainable parameter, got outputs on "
                f"{name} that do not. Look for detach() or no_grad() in its forward."
            )
        # On the CPU, so that the numbers are the same on every device.
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(first.shape[1], generator=generator, dtype=torch.float64)
        values = [first.detach()[0]]
        others = (tuple(part[i : i + 1] for part in tried) for i in range(1, len(places)))
        values += [network.outputs(sample).detach()[0] for sample in others]
        for place, value in zip(places, values, strict=True):
            check_finite(value[None], name, place)
        return cls(network, name, tried, places, weights.to(first), tuple(values), saved.bytes)

    @property
    def outputs(self) -> int:
        return len(self.combination)

    @cached_property
    def tolerance(self) -> float:
        return half_the_digits(self.combination)

    @cached_property
    def sizes(self) -> dict[str, float]:
        """||parameter|| by name."""
        return {name: float(p.detach().norm()) for name, p in self.network.parameters.items()}

    def alone(self, sample: int) -> Inputs:
        return tuple(part[sample : sample + 1] for part in self.inputs)

    def gradient(self, sample: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Outputs of that sample alone, and the gradient of their combination as torch gives it."""
        value = self.network.outputs(self.alone(sample))
        return value.detach()[0], derivatives(
            value, self.network.parameters, self.combination[None]
        )

    @cached_property
    def nearby(self) -> Network:
        return moved(self.network)

    def _on_a_kink(self, sample: int, cotangent: Tensor) -> bool:
        """Whether nearby the gradient of that sample is the same alone and among others."""
        alone = gradient_at(self.nearby, self.alone(sample), self.combination[None])
        among = gradient_at(self.nearby, self.inputs, cotangent)
        return agree(among, alone, self.tolerance)

    def misfits(self, shared: tuple[Shared, ...]) -> frozenset[str]:
        """Parameters whose structured gradient is not that of each sample alone.

        Refuses a module whose outputs depend on chance or on the other samples.
        """
        layers = frozenset().union(*(part.layers for part in shared))
        together = record(self.network, self.inputs, layers)
        wrong = wrongly_used(together, shared, self.network)
        for i in range(len(self.values)):
            again, expected = self.gradient(i)
            self._check_own(i, again, together.outputs.detach()[i], expected)
            alone = record(self.network, self.alone(i), layers)
            wrong |= wrongly_used(alone, shared, self.network)
            wrong |= _of_other_lengths(together, alone, shared, len(self.values))
            cotangent = self.combination.new_zeros(len(self.values), self.outputs)
            cotangent[i] = self.combination
            found = together.gradients(cotangent)
            for part in shared:
                if not wrong.isdisjoint(part.names):
                    continue
                unlike = self._wrong_gradients(part, together, found, i, expected)
                if unlike and self._on_a_kink(i, cotangent):
                    among = derivatives(together.outputs, self.network.parameters, cotangent)
                    unlike = self._wrong_gradients(part, together, found, i, among)
                wrong |= unlike
        return wrong

    def _check_own(
        self, sample: int, again: Tensor, together: Tensor, gradient: dict[str, Tensor]
    ) -> None:
        value = self.values[sample]
        # What rounding does to f: about eps times its sensitivity to relative changes of the
        # parameters. Beside it, f itself may cancel to nothing (an unbiased start).
        allowed = float((value * self.combination).abs().sum()) + sum(
            self.sizes[name] * float(part.norm()) for name, part in gradient.items()
        )
        if not math.isfinite(allowed):
            raise InputError(
                f"module: must have finite gradients, got NaN or infinity at sample "
                f"{self.places[sample]} of {self.name}. Look for a square root or a logarithm at "
                "zero, or overflow."
            )
        for other, reason in (
            (again, "gives another output for the same input at each call"),
            (together, "gives a sample another output alone than among others"),
        ):
            change = abs(float(((other - value) * self.combination).sum()))
            if not change <= self.tolerance * allowed:
                raise InputError(
                    f"module: must map each sample to outputs of its own, got one that {reason} "
                    f"(sample {self.places[sample]} of {self.name}, change {change:.3g}). Look for "
                    "dropout or statistics of the batch, and call module.eval()."
                )

    def _wrong_gradients(
        self,
        part: Shared,
        recording: Recording,
        found: tuple[Tensor, ...],
        sample: int,
        expected: dict[str, Tensor],
    ) -> frozenset[str]:
        """Compared along a random direction of inputs, which spares products of full size."""
        torch = require_torch()
        indices = part.calls(recording.calls)
        if not indices:
            return frozenset()
        calls, count = [recording.calls[j] for j in indices], len(self.values)
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
            if not float((own @ (seen @ way) - along).abs().max()) <= self.tolerance * float(
                size.max()
            ):
                wrong.add(name)
        return frozenset(wrong)

    def footprint(
        self, shared: tuple[Shared, ...], rest: tuple[str, ...]
    ) -> tuple[Footprint, dict[Shared, tuple[int, ...]]]:
        """Bytes per sample, measured on the first; rows per sample of each call on the way."""
        recording = record(self.network, self.alone(0), {x for p in shared for x in p.layers})
        number = self.combination.element_size()
        gradients = widest = patches = probed = 0
        rows = {}
        for part in shared:
            calls = [recording.calls[j] for j in part.calls(recording.calls)]
            rows[part] = tuple(call.output_shape[0] for call in calls)
            if calls:
                v = part.inputs(calls, 1)
                own = sum(math.prod(call.output_shape) for call in calls)
                gradients, probed = gradients + own, max(probed, own)
                patches = max(patches, v.numel())
                # Positions make it worth while to contract a sample first: see contraction.py.
                widest = max(widest, v.shape[3] * (sum(positions_of(c, 1) for c in calls) > 1))
        inputs = sum(call.input.numel() for call in recording.calls)
        jacobian = sum(self.network.parameters[name].numel() for name in rest)
        graph = self.graph_bytes
        footprint = Footprint(
            # Gradients once more, and three of a layer, for the proof that rows are in order.
            per_sample=2 * graph
            + number * (inputs + max(3 * patches, gradients + 3 * probed) + self.outputs),
            per_output=number * (gradients + 2 * widest + 2 * jacobian) + graph * bool(rest),
        )
        return footprint, rows


def half_the_digits(like: Tensor) -> float:
    """Rounding stays far below it, a wrong formula far above."""
    return math.sqrt(require_torch().finfo(like.dtype).eps)


def _two_that_differ(inputs: Inputs) -> tuple[int, ...]:
    """The first sample and one unlike it: two are enough for a wrong order of rows to show."""
    count = len(inputs[0])
    for i in range(1, count):
        if any(not bool((part[i] == part[0]).all()) for part in inputs):
            return 0, i
    return tuple(range(min(2, count)))


def wrongly_used(
    recording: Recording, shared: Sequence[Shared], network: Network
) -> frozenset[str]:
    """Parameters that the graph uses more often than in calls of their layers."""
    uses, nodes = recording.uses()
    wrong = set()
    for part in shared:
        calls = [recording.calls[index] for index in part.calls(recording.calls)]
        expected = sum(call.edge.node in nodes for call in calls)
        wrong |= {n for n in part.names if uses[id(network.parameters[n])] != expected}
    return frozenset(wrong)


def _of_other_lengths(
    together: Recording, alone: Recording, shared: Sequence[Shared], count: int
) -> frozenset[str]:
    """Parameters of layers whose calls do not have `count` times the rows for `count` samples."""
    return frozenset(
        name
        for part in shared
        for name in part.names
        if [together.calls[j].output_shape[0] for j in part.calls(together.calls)]
        != [count * alone.calls[j].output_shape[0] for j in part.calls(alone.calls)]
    )


class _Saved:
    """Bytes that the graph of a call keeps, beyond parameters, buffers and the inputs."""

    def __init__(self, network: Network, inputs: Inputs) -> None:
        self.bytes = 0
        own = (*network.module.parameters(), *network.module.buffers(), *inputs)
        self._seen = {tensor.untyped_storage().data_ptr() for tensor in own}

    def __enter__(self) -> _Saved:
        graph = require_torch().autograd.graph
        self._hooks = graph.saved_tensors_hooks(self._note, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _note(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor
