"""Tangent features of a block of samples: what the rules of `layers.py` make of one recording.

Either factors v and g, whose products need no gradient of full size, or the gradients themselves.
Every block is held to what the trial proved, whatever its samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from flowbias.ground.torch import require_torch
from flowbias.kernels.gemm import empty, faster_passes
from flowbias.kernels.graph import Recording, backward_to
from flowbias.kernels.layers import Lookup, Misfit, Part, Use
from flowbias.kernels.network import Tensor, half_the_digits


@dataclass(frozen=True)
class LayerFactors:
    """v (groups, samples, positions, inputs) and g (groups, samples, positions, outputs, units).

    v is computed when asked for: patches of a convolution take many times the room of its input.
    That of a table are indices, (1, samples, positions).
    """

    g: Tensor
    v: Callable[[], Tensor]
    lookup: bool = False


class Gradients(NamedTuple):
    """Those (samples, outputs, size) that are kept as such, and in which columns whose are."""

    values: Tensor
    columns: dict[tuple[str, ...], slice]


@dataclass(frozen=True)
class Features:
    """Factors by the names that they belong to, and gradients of others: by rules, by Jacobians."""

    factors: dict[tuple[str, ...], LayerFactors]
    gradients: tuple[Gradients, ...] = ()

    @classmethod
    def joined(cls, blocks: Sequence[Features]) -> Features:
        """Those of several blocks of samples, one after the other."""
        first, cat = blocks[0], require_torch().cat
        if len(blocks) == 1:
            return first

        def joined(names: tuple[str, ...]) -> LayerFactors:
            parts = [block.factors[names] for block in blocks]
            return LayerFactors(
                cat([part.g for part in parts], dim=1),
                lambda: cat([part.v() for part in parts], dim=1),
                parts[0].lookup,
            )

        return cls(
            {names: joined(names) for names in first.factors},
            tuple(
                Gradients(cat([part.values for part in parts]), parts[0].columns)
                for parts in zip(*(block.gradients for block in blocks), strict=True)
            ),
        )

    def of(self, names: frozenset[str]) -> Features:
        """What belongs to some of the parameters, a joined bias to where its weight does."""
        wanted = [
            [
                part.values[:, :, place]
                for owners, place in part.columns.items()
                if owners[0] in names
            ]
            for part in self.gradients
        ]
        return Features(
            {n: part for n, part in self.factors.items() if n[0] in names},
            tuple(Gradients(require_torch().cat(some, dim=2), {}) for some in wanted if some),
        )


def features(recording: Recording, parts: Sequence[Part], cotangents: Tensor) -> Features:
    """Of all samples of a recording, for each row of cotangents; `Misfit` where rules fail."""
    with require_torch().no_grad():
        return _features(recording, parts, cotangents)


def _features(recording: Recording, parts: Sequence[Part], cotangents: Tensor) -> Features:
    count, outputs = len(recording.outputs), len(cotangents)
    uses = {part: part.uses(recording) for part in parts}
    nodes = [use.node for used in uses.values() for use in used]
    # Patches once for all outputs; those of factors only where they are multiplied.
    held = {part: part.held(used, count) for part, used in uses.items() if part.dense}
    columns, end = {}, 0
    for part in parts:
        if part.dense:
            start, end = end, end + prod(uses[part][0].takes)
            columns[part.names] = slice(start, end)
    dense = empty(cotangents, count, outputs, end)
    stores: dict[Part, Tensor] = {}
    faster = faster_passes(cotangents)
    for output, cotangent in enumerate(cotangents):
        with faster:
            found = backward_to(recording, nodes, cotangent.expand(count, -1))
        left = Counter(nodes)
        for part, used in uses.items():
            mine = [found[use.node] for use in used]
            # Let go of what nobody else needs: gradients at all nodes are many.
            left.subtract(use.node for use in used)
            for use in used:
                if not left[use.node]:
                    found.pop(use.node, None)
            if part.dense:
                dense[:, output, columns[part.names]] = part.shares(
                    used, mine, count, held.get(part)
                )
                continue
            g = part.made(used, mine, count)
            if part not in stores:
                stores[part] = empty(g, *g.shape[:3], outputs, g.shape[3])
            stores[part][:, :, :, output] = g
    if count > 1:
        kept = Gradients(dense, columns)
        _require_own_rows(recording, uses, held, stores, kept, cotangents, faster)
    return Features(
        {
            part.names: LayerFactors(g, part.seen(uses[part], count), isinstance(part.rule, Lookup))
            for part, g in stores.items()
        },
        (Gradients(dense, columns),) if end else (),
    )


def _require_own_rows(
    recording: Recording,
    uses: dict[Part, list[Use]],
    held: dict[Part, list[Any]],
    stores: dict[Part, Tensor],
    dense: Gradients,
    cotangents: Tensor,
    faster: AbstractContextManager[Any],
) -> None:
    """Raise `Misfit` unless the rows that are a sample's depend on that sample alone.

    With a weight of its own on each sample, what belongs to it must take that weight. A batch that
    the module sorts, or whose samples it mixes, fails here whatever the trial saw.
    """
    torch = require_torch()
    count, generator = len(recording.outputs), torch.Generator().manual_seed(0)
    weights = (1.0 + torch.rand(count, generator=generator, dtype=torch.float64)).to(cotangents)
    mixture = torch.randn(len(cotangents), generator=generator, dtype=torch.float64).to(cotangents)
    nodes = [use.node for used in uses.values() for use in used]
    with faster:
        found = backward_to(recording, nodes, weights[:, None] * (mixture @ cotangents))
    smallest = torch.finfo(cotangents.dtype).tiny
    wrong: set[str] = set()
    for part, used in uses.items():
        mine = [found[use.node] for use in used]
        if part.dense:
            weighted = part.shares(used, mine, count, held.get(part))
            total = mixture @ dense.values[:, :, dense.columns[part.names]]
            size = total.abs().amax(1)
        else:
            # Each row by a random combination of its units: one pass over what is kept, no copies.
            rows, kept = part.made(used, mine, count), stores[part]
            units = torch.randn(rows.shape[3], generator=generator, dtype=torch.float64).to(rows)
            weighted = (rows @ units).transpose(0, 1).flatten(1)
            total = kept.flatten(3) @ torch.outer(mixture, units).flatten()
            total = total.transpose(0, 1).flatten(1)
            size = rows.norm(dim=3).amax((0, 2)) / weights
        change = (total * weights[:, None]).sub_(weighted).abs_().amax(1)
        # Numbers too small for the dtype have lost digits for no fault of the order.
        if not bool((change <= half_the_digits(total) * size + smallest).all()):
            wrong.update(part.names)
    if wrong:
        raise Misfit(frozenset(wrong))
