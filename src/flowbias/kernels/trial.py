"""The first samples of the inputs, tried together and each alone: how a kernel is to be computed.

They show whether the module treats samples independently at all, for which parameters the share
of `layers.py` is right, and how much memory a sample takes. A parameter gets that share only where
this is proved on the module: the graph of derivatives must use it in calls of Linear or Conv2d
layers and nowhere else, and the gradient put together from a batch must be that of each sample
alone. Everything else (a weight that an embedding shares, a layer applied to something that is no
batch, a parameter used directly) goes by Jacobians.

Trained ReLU networks have units whose kink lies on a sample. Rounding picks one of two derivatives
there, and not the same for a sample alone as among others. Code that is right agrees at parameters
nearby, where no sample sits on a kink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.layers import (
    Misfit,
    Recording,
    Shared,
    misused,
    positions_of,
    record,
    rows_per_call,
    shared_parameters,
    unlike,
)
from flowbias.kernels.memory import Footprint
from flowbias.kernels.network import (
    Inputs,
    Network,
    Saved,
    Tensor,
    derivatives,
    first_call,
    gradient_at,
    half_the_digits,
)


@dataclass(frozen=True)
class Plan:
    """Parameters with structure, the rest by Jacobians, and what one sample takes."""

    trial: Trial
    shared: tuple[Shared, ...]
    rest: tuple[str, ...]
    footprint: Footprint
    #: for each of `shared`, how many rows per sample its calls had where the structure was proved
    rows: dict[Shared, tuple[int, ...]]
    layers: frozenset[Any]

    def require_use(self, recording: Recording) -> None:
        """Raise `Misfit` where a parameter is used otherwise than in the calls that were tried."""
        wrong = misused([recording], self.shared, self.trial.network, self.rows)
        if wrong:
            raise Misfit(wrong)


@dataclass(frozen=True)
class Trial:
    """A few samples of `name`, and a random combination of outputs: one derivative for all."""

    network: Network
    name: str
    inputs: Inputs
    #: each of them by itself
    alone: list[Inputs]
    #: where they are among all samples
    places: tuple[int, ...]
    combination: Tensor
    tolerance: float
    #: what the graph of one sample keeps
    graph_bytes: int

    @classmethod
    def of(cls, network: Network, name: str, inputs: Inputs) -> Trial:
        """Call the module with its first sample; gradients must be on."""
        torch = require_torch()
        places = _two_that_differ(inputs)
        tried = tuple(part[list(places)] for part in inputs)
        alone = [tuple(part[i : i + 1] for part in tried) for i in range(len(places))]
        with Saved(network, inputs) as saved:
            first = first_call(network, name, alone[0])
        if not first.requires_grad:
            raise InputError(
                f"module: its outputs must depend on a trainable parameter, got outputs on "
                f"{name} that do not. Look for detach() or no_grad() in its forward."
            )
        # On the CPU, so that the numbers are the same on every device.
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(first.shape[1], generator=generator, dtype=torch.float64)
        tolerance = half_the_digits(first)
        return cls(network, name, tried, alone, places, weights.to(first), tolerance, saved.bytes)

    @property
    def outputs(self) -> int:
        return len(self.combination)

    @property
    def nearby(self) -> Network:
        """The same module at parameters nearby; to be called by `gradient_at` only."""
        torch = require_torch()
        generator = torch.Generator().manual_seed(0)
        parameters = {}
        for name, parameter in self.network.parameters.items():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            # By about a percent: far above rounding, and to no other sign.
            value = parameter.detach() * (1.0 + 1e-2 * noise).to(parameter)
            parameters[name] = value.requires_grad_(True)
        return Network(self.network.module, parameters)

    def _on_a_kink(self, sample: int, cotangent: Tensor) -> bool:
        """Whether nearby the gradient of that sample is the same alone and among others."""
        nearby = self.nearby
        alone = gradient_at(nearby, self.alone[sample], self.combination[None])
        return agree(gradient_at(nearby, self.inputs, cotangent), alone, self.tolerance)

    def plan(self, excluded: frozenset[str]) -> Plan:
        """What has a structure; refuses a module whose outputs depend on chance or other samples.

        A parameter has none if its structured gradient is not that of each sample alone.
        """
        tried = shared_parameters(self.network, excluded)
        layers = frozenset().union(*(part.layers for part in tried))
        together = record(self.network, self.inputs, layers)
        recordings = [record(self.network, sample, layers) for sample in self.alone]
        rows = rows_per_call(recordings[0], tried)
        wrong = excluded | misused([together, *recordings], tried, self.network, rows)
        for i, (place, alone) in enumerate(zip(self.places, recordings, strict=True)):
            value, expected = self.network.gradient(
                self.alone[i], self.combination, self.name, place
            )
            size = self._sensitivity(value, expected, place)
            for other, reason in (
                (alone.outputs[0], "gives another output for the same input at each call"),
                (together.outputs[i], "gives a sample another output alone than among others"),
            ):
                self._require_equal(value, other.detach(), size, place, reason)
            wrong |= self._wrong_gradients(tried, wrong, together, i, expected)
        shared = shared_parameters(self.network, wrong)
        covered = {name for part in shared for name in part.names}
        rest = tuple(name for name in self.network.parameters if name not in covered)
        used = frozenset().union(*(part.layers for part in shared))
        footprint = self._footprint(recordings[0], shared, used, rest)
        rows = rows_per_call(recordings[0], shared)
        return Plan(self, shared, rest, footprint, rows, used)

    def require_own_outputs(self, inputs: Inputs, first: int, among: Tensor) -> None:
        """Refuse a module whose samples have other outputs in a batch of this size than alone.

        By one in the middle: where samples see those before them, or those after, it sees some.
        """
        middle = len(among) // 2
        place = first + middle
        alone = tuple(part[middle : middle + 1] for part in inputs)
        if self._agree(self.network.outputs(alone).detach()[0], among[middle].detach()):
            return
        value, gradient = self.network.gradient(alone, self.combination, self.name, place)
        size = self._sensitivity(value, gradient, place)
        reason = "gives a sample another output alone than among others"
        self._require_equal(value, among[middle].detach(), size, place, reason)

    def _agree(self, value: Tensor, other: Tensor) -> bool:
        """Outputs that are equal beside their own size need no derivative to be told so."""
        change = ((other - value) * self.combination).sum().abs()
        return bool(change <= self.tolerance * (value * self.combination).abs().sum())

    def _sensitivity(self, value: Tensor, gradient: dict[str, Tensor], place: int) -> float:
        """What rounding does to f is about eps times this.

        f and its sensitivity to relative changes of the parameters: beside them f itself may
        cancel to nothing (an unbiased start).
        """
        size = float((value * self.combination).abs().sum()) + sum(
            float(self.network.parameters[name].detach().norm()) * float(part.norm())
            for name, part in gradient.items()
        )
        if not math.isfinite(size):
            raise InputError(
                f"module: must have finite gradients, got NaN or infinity at sample "
                f"{place} of {self.name}. Look for a square root or a logarithm at "
                "zero, or overflow."
            )
        return size

    def _require_equal(
        self, value: Tensor, other: Tensor, size: float, place: int, reason: str
    ) -> None:
        change = abs(float(((other - value) * self.combination).sum()))
        if not change <= self.tolerance * size:
            raise InputError(
                f"module: must map each sample to outputs of its own, got one that {reason} "
                f"(sample {place} of {self.name}, change {change:.3g}). Look for "
                "dropout or statistics of the batch, and call module.eval()."
            )

    def _wrong_gradients(
        self,
        shared: tuple[Shared, ...],
        known: frozenset[str],
        together: Recording,
        sample: int,
        expected: dict[str, Tensor],
    ) -> frozenset[str]:
        """Those whose gradient is not `expected`, of parameters not yet `known` to be wrong."""
        cotangent = self.combination.new_zeros(len(self.places), self.outputs)
        cotangent[sample] = self.combination
        found = together.gradients(cotangent)
        wrong: set[str] = set()
        for part in shared:
            if not known.isdisjoint(part.names):
                continue
            found_wrong = unlike(part, together, found, sample, expected)
            if found_wrong and self._on_a_kink(sample, cotangent):
                among = derivatives(together.outputs, self.network.parameters, cotangent)
                found_wrong = unlike(part, together, found, sample, among)
            wrong |= found_wrong
        return frozenset(wrong)

    def _footprint(
        self,
        recording: Recording,
        shared: tuple[Shared, ...],
        layers: frozenset[Any],
        rest: tuple[str, ...],
    ) -> Footprint:
        """Bytes per sample, measured on one."""
        number = self.combination.element_size()
        gradients = widest = patches = probed = 0
        for part in shared:
            calls = [recording.calls[j] for j in part.calls(recording.calls)]
            if calls:
                v = part.inputs(calls, 1)
                own = sum(math.prod(call.output_shape) for call in calls)
                gradients, probed = gradients + own, max(probed, own)
                patches = max(patches, v.numel())
                # Positions make it worth while to contract a sample first: see products.py.
                widest = max(widest, v.shape[3] * (sum(positions_of(c, 1) for c in calls) > 1))
        inputs = sum(call.input.numel() for call in recording.calls if call.layer in layers)
        jacobian = sum(self.network.parameters[name].numel() for name in rest)
        graph = self.graph_bytes
        return Footprint(
            # Gradients once more, and three of a layer, for the proof that rows are in order.
            per_sample=2 * graph
            + number * (inputs + max(3 * patches, gradients + 3 * probed) + self.outputs),
            per_output=number * (gradients + 2 * widest + 2 * jacobian) + graph * bool(rest),
        )


def _two_that_differ(inputs: Inputs) -> tuple[int, ...]:
    """The first sample and one unlike it: two are enough for a wrong order of rows to show."""
    count = len(inputs[0])
    for i in range(1, count):
        if any(not bool((part[i] == part[0]).all()) for part in inputs):
            return 0, i
    return tuple(range(min(2, count)))


def agree(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> bool:
    """Whether gradients are equal, up to that share of the largest entry of all parameters.

    Of all: that of a shift before a softmax, say, is zero but for rounding.
    """
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    return all(
        float((found[name] - expected[name]).abs().max()) <= tolerance * largest for name in found
    )
