"""How the kernel of a module at hand is computed, decided by a trial on a few samples.

A parameter gets the structured share of `structured.py` only where this is proved on the module:
the graph of derivatives must use it in calls of Linear or Conv2d layers and nowhere else, and the
gradient put together from a batch must be that of each sample alone. Everything else (a weight
that an embedding shares, a layer applied to something that is no batch, a parameter used directly)
goes by Jacobians.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flowbias.kernels.capture import Recording
from flowbias.kernels.jacobian import batched_jacobian, one_by_one_jacobian
from flowbias.kernels.memory import Footprint
from flowbias.kernels.module_input import Inputs, Network, Tensor
from flowbias.kernels.nearby import agree, gradient_at
from flowbias.kernels.structured import Shared, shared_parameters
from flowbias.kernels.trial import Trial, wrongly_used
from flowbias.problem import InputError

Jacobian = Callable[[Network, Sequence[str], Inputs, Tensor], Tensor]


class Misfit(Exception):  # noqa: N818 - a signal to plan again, never seen by a caller
    """Parameters that turned out to be used in ways that their structure does not cover."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


@dataclass(frozen=True)
class Plan:
    """Parameters with structure, the rest by Jacobians, and what one sample takes."""

    network: Network
    outputs: int
    shared: tuple[Shared, ...]
    rest: tuple[str, ...]
    jacobian: Jacobian
    footprint: Footprint
    #: for each of `shared`, how many rows per sample its calls had where the structure was proved
    rows: dict[Shared, tuple[int, ...]]

    @property
    def layers(self) -> frozenset[Any]:
        return frozenset().union(*(shared.layers for shared in self.shared))


def make_plan(
    network: Network, name: str, inputs: Inputs, excluded: frozenset[str] = frozenset()
) -> Plan:
    """Try the module on the first samples of `inputs`; gradients must be on."""
    trial = Trial.of(network, name, inputs)
    excluded |= trial.misfits(shared_parameters(network, excluded))
    shared = shared_parameters(network, excluded)
    covered = {name for part in shared for name in part.names}
    rest = tuple(name for name in network.parameters if name not in covered)
    footprint, rows = trial.footprint(shared, rest)
    jacobian = _choose_jacobian(trial, rest)
    return Plan(network, trial.outputs, shared, rest, jacobian, footprint, rows)


def require_same_plan(first: Plan, second: Plan) -> None:
    """Raise `Misfit` where only one of two sides has a structure, refuse where outputs differ."""
    if first.outputs != second.outputs:
        raise InputError(
            f"x2: must give as many outputs per sample as x1 ({first.outputs}), got "
            f"{second.outputs}. Pass inputs of one shape, or a module that pools over positions."
        )
    missed = frozenset(first.rest) ^ frozenset(second.rest)
    if missed:
        raise Misfit(missed)


def require_use(plan: Plan, recording: Recording) -> None:
    """Raise `Misfit` where a parameter is used otherwise than in the calls that were tried."""
    wrong = wrongly_used(recording, plan.shared, plan.network)
    count = len(recording.outputs)
    for part in plan.shared:
        rows = [recording.calls[j].output_shape[0] for j in part.calls(recording.calls)]
        if rows != [count * each for each in plan.rows[part]]:
            wrong |= frozenset(part.names)
    if wrong:
        raise Misfit(wrong)


def _choose_jacobian(trial: Trial, rest: tuple[str, ...]) -> Jacobian:
    """Batched where that gives the gradient of a sample alone, one by one elsewhere."""
    if not rest:
        return batched_jacobian
    nearby, cotangent = trial.nearby, trial.combination[None]
    reason = "it gives other numbers"
    try:
        found = batched_jacobian(nearby, rest, trial.inputs, cotangent)[0, 0]
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
    else:
        sizes = [nearby.parameters[name].numel() for name in rest]
        parts = dict(zip(rest, found.split(sizes), strict=True))
        expected = gradient_at(nearby, trial.alone(0), cotangent)
        if agree(parts, {n: g.reshape(-1) for n, g in expected.items()}, trial.tolerance):
            return batched_jacobian
    warnings.warn(
        f"torch.vmap cannot run this module ({reason}): Jacobians of {', '.join(rest)} are taken "
        "one sample after the other, which is slower.",
        stacklevel=2,
    )
    return one_by_one_jacobian
