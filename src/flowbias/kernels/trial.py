"""The first samples of the inputs, tried together and each alone: how a kernel is to be computed.

They show whether the module treats samples independently at all, which rule of `layers.py` each
parameter has, and how much memory a sample takes. A parameter gets its rule only where that is
proved on the module: all operations that take it must have the rule, and the gradient put together
from a batch must be that of each sample alone. Everything else (a weight that an embedding shares,
a layer applied to something that is no batch, a weight that is normalized first) goes by Jacobians.

Trained ReLU networks have units whose kink lies on a sample. Rounding picks one of two derivatives
there, and not the same for a sample alone as among others. Code that is right agrees at parameters
nearby, where no sample sits on a kink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.graph import (
    Recording,
    backward_to_parts,
    derivatives,
    gradient_alone,
    parts_of,
    record,
    with_own_gradients,
)
from flowbias.kernels.jacobian import agree, gradient_at
from flowbias.kernels.layers import Lookup, Misfit, OwnGradient, Part, Product, Term
from flowbias.kernels.memory import Footprint
from flowbias.kernels.network import (
    Inputs,
    Network,
    Saved,
    Tensor,
    first_call,
    gradients,
    half_the_digits,
    normals,
)


@dataclass(frozen=True)
class Plan:
    """Parameters with a rule, the rest by Jacobians, and what one sample takes."""

    trial: Trial
    #: in a batch
    parts: tuple[Part, ...]
    #: the same for a sample alone
    alone: tuple[Part, ...]
    rest: tuple[str, ...]
    footprint: Footprint

    def require_known(self, recording: Recording) -> None:
        """Raise `Misfit` where a parameter is used that no output depended on in the trial."""
        known = {name for part in self.parts for name in part.names} | set(self.rest)
        if not known.issuperset(recording.paths):
            raise Misfit(frozenset(recording.paths) - known)

    def footprint_beside(self, other: Plan) -> Footprint:
        """What a sample of either side takes; `Misfit` where a parameter has another form there."""
        if self.trial.outputs != other.trial.outputs:
            raise InputError(
                f"x2: must give as many outputs per sample as x1 ({self.trial.outputs}), got "
                f"{other.trial.outputs}. Pass inputs of one shape, or a module that pools over "
                "positions."
            )
        ours, theirs = (
            {name: part.dense for part in plan.parts for name in part.names}
            | dict.fromkeys(plan.rest, None)
            for plan in (self, other)
        )
        missed = {n for n in ours | theirs if ours.get(n, 2) != theirs.get(n, 2)}
        if missed:
            raise Misfit(frozenset(missed))
        places = {part.names: part.active for part in other.parts}
        moved = [n for part in self.parts if places[part.names] != part.active for n in part.names]
        if moved:
            raise Misfit(frozenset(moved), positions=True)
        return self.footprint.joined(other.footprint)


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
        weights, tolerance = normals(0)(first.shape[1], first), half_the_digits(first)
        return cls(network, name, tried, alone, places, weights, tolerance, saved.bytes)

    @property
    def outputs(self) -> int:
        return len(self.combination)

    def _on_a_kink(self, sample: int, cotangent: Tensor) -> bool:
        """Whether nearby the gradient of that sample is the same alone and among others."""
        nearby = self.network.nearby
        with gradients():
            alone = gradient_at(nearby, self.alone[sample], self.combination[None])
            return agree(gradient_at(nearby, self.inputs, cotangent), alone, self.tolerance)

    def plan(self, excluded: frozenset[str], everywhere: frozenset[str]) -> Plan:
        """What has a rule; refuses a module whose outputs depend on chance or other samples.

        A parameter has none if its gradient by the rule is not that of each sample alone, or if it
        is `excluded`; `everywhere` has those with gradients at all positions.
        """
        together = record(self.network, self.inputs)
        recordings = [record(self.network, sample) for sample in self.alone]
        expected = []
        for i, (place, alone) in enumerate(zip(self.places, recordings, strict=True)):
            value, gradient = gradient_alone(
                self.network, self.alone[i], self.combination, self.name, place
            )
            size = self._sensitivity(value, gradient, place)
            for other, reason in (
                (alone.outputs[0], "gives another output for the same input at each call"),
                (together.outputs[i], "gives a sample another output alone than among others"),
            ):
                self._require_equal(value, other.detach(), size, place, reason)
            expected.append(OwnGradient(gradient))
        with require_torch().no_grad():
            parts, singles = self._proved(together, recordings, expected, excluded)
            made = self._made(singles, recordings)
            forms = {
                name: _form(part, made.get(name), recordings[0], self.outputs, name in everywhere)
                for name, part in singles.items()
            }
            batched, alone_parts = _joined(
                {n: replace(parts[n], **forms[n]) for n in forms},
                {n: replace(singles[n], **forms[n]) for n in forms},
                together,
                recordings[0],
            )
            # One that no output depends on has no share.
            used = excluded.union(*(recording.paths for recording in (together, *recordings)))
            rest = tuple(n for n in self.network.parameters if n in used and n not in forms)
            footprint = self._footprint(recordings[0], alone_parts, rest)
        return Plan(self, batched, alone_parts, rest, footprint)

    def _made(
        self, parts: dict[str, Part], recordings: list[Recording]
    ) -> dict[str, tuple[Tensor, ...]]:
        """g of the combination of outputs, of each sample alone, for what is a product."""
        found = [
            backward_to_parts(alone, parts.values(), self.combination[None]) for alone in recordings
        ]
        made = {}
        for name, part in parts.items():
            if not isinstance(part.rule, Term):
                uses = [part.uses(alone) for alone in recordings]
                made[name] = tuple(
                    part.made(used, [gradients[use.node] for use in used], 1)
                    for used, gradients in zip(uses, found, strict=True)
                )
        return made

    def _proved(
        self,
        together: Recording,
        recordings: list[Recording],
        expected: list[OwnGradient],
        excluded: frozenset[str],
    ) -> tuple[dict[str, Part], dict[str, Part]]:
        """By name, what has one and the same rule in a batch and alone, and the right gradient."""
        first = recordings[0]
        batched = parts_of(together, self._twice(), excluded) if len(self.alone) > 1 else None
        singles = parts_of(first, first, excluded, batched, recordings)
        for alone, gradient in zip(recordings, expected, strict=True):
            singles = with_own_gradients(singles, alone, self.combination[None], gradient)
        if batched is None:
            return singles, singles
        alike = {
            name: part
            for name, part in batched.items()
            if name in singles and _takes_the_same(part, together, singles[name], first)
        }
        proved = self._in_order(alike, together, expected)
        return proved, {name: singles[name] for name in proved}

    def _twice(self) -> Recording:
        """All samples once more: what grows with their number is seen by comparison."""
        repeated = tuple(part.repeat(2, *(1,) * (part.ndim - 1)) for part in self.inputs)
        with gradients():
            return record(self.network, repeated)

    def require_own_outputs(self, inputs: Inputs, first: int, among: Tensor) -> Tensor:
        """What samples give alone; refuses those that give another output in this batch.

        Outputs that are equal beside their own size need no derivative to be told so. Where they
        cancel, the sample that changes most is asked what rounding does to it: once per batch.
        """
        own = self._alone(inputs)
        if not self.agree(own, among):
            sample = int(((among.detach() - own) @ self.combination).abs().argmax())
            alone, place = tuple(part[sample : sample + 1] for part in inputs), first + sample
            _, gradient = gradient_alone(self.network, alone, self.combination, self.name, place)
            size = self._sensitivity(own[sample], gradient, place)
            reason = "gives a sample another output alone than among others"
            self._require_equal(own[sample], among[sample].detach(), size, place, reason)
        return own

    def _alone(self, inputs: Inputs) -> Tensor:
        """Outputs of the samples one by one: what each is, whatever stands beside it."""
        with gradients(on=False):
            parts = [
                self.network.outputs(tuple(part[place : place + 1] for part in inputs))
                for place in range(len(inputs[0]))
            ]
        return require_torch().cat(parts)

    def agree(self, values: Tensor, others: Tensor) -> bool:
        """Whether samples have these outputs or those, up to half of the digits."""
        change = ((others.detach() - values) @ self.combination).abs()
        return bool((change <= self.tolerance * (values * self.combination).abs().sum(1)).all())

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
                "dropout or statistics of the batch, and call module.eval(). Where samples share "
                "room or a step size, tangent_kernel has one_by_one=True."
            )

    def _in_order(
        self, parts: dict[str, Part], together: Recording, expected: list[OwnGradient]
    ) -> dict[str, Part]:
        """Those whose gradients are the expected ones, rows by sample or by position."""
        for i, alone in enumerate(expected):
            cotangent = self.combination.new_zeros(len(self.places), self.outputs)
            cotangent[i] = self.combination
            found = backward_to_parts(together, parts.values(), cotangent)

            def way(
                part: Part, gradient: OwnGradient, i: int = i, found: Any = found
            ) -> Part | None:
                ways = (part, replace(part, samples_first=not part.samples_first))
                return next((w for w in ways if w.is_like(together, found, i, gradient)), None)

            right = {name: way(part, alone) for name, part in parts.items()}
            if None in right.values() and self._on_a_kink(i, cotangent):
                among = OwnGradient(
                    derivatives(together.outputs, self.network.parameters, cotangent)
                )
                right = {n: part or way(parts[n], among) for n, part in right.items()}
            parts = {name: part for name, part in right.items() if part is not None}
        return parts

    def _footprint(
        self, recording: Recording, parts: tuple[Part, ...], rest: tuple[str, ...]
    ) -> Footprint:
        """Bytes per sample, measured on one."""
        number = self.combination.element_size()
        kept = held = widest = patches = 0
        made = {}
        for part in parts:
            uses = part.uses(recording)
            made.update({use.node: math.prod(use.makes) for use in uses})
            if part.dense:
                kept += math.prod(uses[0].takes)
            else:
                # Of each row of what its nodes made, where gradients arrive.
                own = sum(made[use.node] for use in uses)
                kept += own * len(part.active or (0,)) // (part.positions if part.active else 1)
            if isinstance(part.rule, Product):
                v = part.seen(uses, 1)()
                patches = max(patches, v.numel())
                held += v.numel()
                # Positions make it worth while to contract a sample first: see products.py.
                widest = max(widest, v.shape[3] * (v.shape[2] > 1))
        passing, most = sum(made.values()), max(made.values(), default=0)
        jacobian = sum(self.network.parameters[name].numel() for name in rest)
        return Footprint(
            # Gradients at all nodes, and three at one for the proof that rows are in order.
            per_sample=2 * self.graph_bytes
            + number * (held + max(2 * patches, passing + 3 * most) + self.outputs),
            per_output=number * (kept + 2 * widest + 2 * jacobian) + self.graph_bytes * bool(rest),
        )


def _form(
    part: Part,
    made: tuple[Tensor, ...] | None,
    recording: Recording,
    outputs: int,
    everywhere: bool,
) -> dict[str, Any]:
    """The positions at which gradients arrive, and which of two forms is smaller."""
    if made is None:
        return {}
    used = require_torch().stack([g.ne(0).any(3).any(0)[0] for g in made]).any(0)
    alive, positions = used.nonzero().flatten().tolist(), len(used)
    active = None
    if 0 < 2 * len(alive) <= positions and not everywhere:
        active, positions = tuple(alive), len(alive)
    uses = part.uses(recording)
    table = isinstance(part.rule, Lookup)
    inputs = uses[0].takes[0] if table else part.seen(uses, 1)().shape[3]
    # The gradients of all outputs, or theirs at all positions and what each position sees.
    made_of_one = outputs * made[0].shape[3]
    factors = positions * (made_of_one + (1 if table else inputs))
    return {"active": active, "dense": inputs * made_of_one <= factors}


def _takes_the_same(part: Part, together: Recording, single: Part, alone: Recording) -> bool:
    """Whether features of the two have one layout."""
    shapes = (p.uses(r)[0].takes for p, r in ((part, together), (single, alone)))
    return type(part.rule) is type(single.rule) and len(set(shapes)) == 1


def _joined(
    parts: dict[str, Part], singles: dict[str, Part], together: Recording, alone: Recording
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """A bias with the weight of the same nodes, where that is kept as factors."""

    def nodes(part: Part, recording: Recording) -> frozenset[Any]:
        return frozenset(use.node for use in part.uses(recording))

    def at(name: str) -> tuple[frozenset[Any], ...]:
        return nodes(parts[name], together), nodes(singles[name], alone)

    # Added to each row of a product, by the node of the product.
    added = ((("AddmmBackward0", 0),), (("ConvolutionBackward0", 2),))
    biases = {at(n): n for n in parts if {*parts[n].words, *singles[n].words}.issubset(added)}
    pairs = {
        name: (name, biases[at(name)])
        for name, part in parts.items()
        if isinstance(part.rule, Product) and not part.dense and at(name) in biases
    }
    taken = {bias for _, bias in pairs.values()}
    batched, single = (
        tuple(
            replace(part, names=pairs.get(name, (name,)))
            for name, part in kind.items()
            if name not in taken
        )
        for kind in (parts, singles)
    )
    return batched, single


def _two_that_differ(inputs: Inputs) -> tuple[int, ...]:
    """The first sample and one unlike it: two are enough for a wrong order of rows to show."""
    count = len(inputs[0])
    for i in range(1, count):
        if any(not bool((part[i] == part[0]).all()) for part in inputs):
            return 0, i
    return tuple(range(min(2, count)))
