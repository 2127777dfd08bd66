"""The tangent features of a block of samples and outputs, in factored form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from flowbias._torch import require_torch
from flowbias.kernels.capture import record
from flowbias.kernels.module_input import Inputs, Tensor, check_finite
from flowbias.kernels.plan import Plan, require_use


@dataclass(frozen=True)
class Factors:
    """v (groups, samples, positions, inputs) and g (groups, samples, positions, outputs, units).

    v is computed when asked for: patches of a convolution take many times the room of its input.
    """

    g: Tensor
    v: Callable[[], Tensor]


@dataclass(frozen=True)
class Cell:
    """Features of some samples and outputs: factors by the names they belong to, and the rest."""

    factors: dict[tuple[str, ...], Factors]
    jacobian: Tensor | None


def make_cell(plan: Plan, name: str, inputs: Inputs, samples: slice, cotangents: Tensor) -> Cell:
    """Features of d <cotangent, f(x)> / d parameters for the given samples; gradients on."""
    part = tuple(tensor[samples] for tensor in inputs)
    jacobian = None
    if plan.rest:
        jacobian = plan.jacobian(plan.network, plan.rest, part, cotangents)
    if not plan.shared:
        with require_torch().no_grad():
            check_finite(plan.network.outputs(part), name, samples.start)
        return Cell({}, jacobian)
    recording = record(plan.network, part, plan.layers)
    check_finite(recording.outputs.detach(), name, samples.start)
    require_use(plan, recording)
    count = len(part[0])
    stores = {}
    for shared in plan.shared:
        indices = shared.calls(recording.calls)
        # Without its place in the graph, a call keeps nothing alive but the input of its layer.
        calls = [replace(recording.calls[index], edge=None) for index in indices]
        if calls:
            stores[shared] = (indices, calls, shared.room_for(calls, count, len(cotangents)))
    for output, cotangent in enumerate(cotangents):
        found = recording.gradients(cotangent.expand(count, -1))
        for shared, (indices, calls, g) in stores.items():
            shared.fill(g, output, calls, [found[index] for index in indices])
    return Cell(
        {
            shared.names: Factors(g, lambda s=shared, c=calls: s.inputs(c, count))  # type: ignore[misc]
            for shared, (_, calls, g) in stores.items()
        },
        jacobian,
    )
