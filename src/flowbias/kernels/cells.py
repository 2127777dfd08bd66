"""The tangent features of a block of samples and outputs, in factored form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from flowbias._torch import require_torch
from flowbias.kernels.capture import Call, Recording, record
from flowbias.kernels.module_input import Inputs, Tensor, check_finite
from flowbias.kernels.plan import Misfit, Plan, require_use
from flowbias.kernels.structured import Shared
from flowbias.kernels.trial import half_the_digits


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
        check_finite(plan.network.outputs(part).detach(), name, samples.start)
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
    if count > 1:
        _require_own_rows(recording, stores, cotangents)
    return Cell(
        {
            shared.names: Factors(g, lambda s=shared, c=calls: s.inputs(c, count))  # type: ignore[misc]
            for shared, (_, calls, g) in stores.items()
        },
        jacobian,
    )


def _require_own_rows(
    recording: Recording,
    stores: dict[Shared, tuple[list[int], list[Call], Tensor]],
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
