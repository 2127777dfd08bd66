"""The tangent kernel of a torch module, tile by tile within a bound on memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from flowbias._torch import require_torch
from flowbias.kernels.cells import Cell, make_cell
from flowbias.kernels.contraction import add_products, mirror
from flowbias.kernels.memory import Blocks, choose_blocks, read_bytes
from flowbias.kernels.module_input import Inputs, Network, Tensor
from flowbias.kernels.plan import Misfit, Plan, make_plan, require_same_plan
from flowbias.kernels.progress import shown
from flowbias.kernels.reductions import Reduction
from flowbias.problem import InputError


class Side(NamedTuple):
    """Inputs, and what the user calls them."""

    name: str
    inputs: Inputs

    @property
    def samples(self) -> int:
        return len(self.inputs[0])


class Part(NamedTuple):
    """A block of samples and a block of outputs."""

    samples: slice
    outputs: slice


def module_kernel(module: Any, x1: Any, x2: Any, reduction: Reduction, max_memory: Any) -> Tensor:
    """K(x1, x2) of the module; x2 = None stands for x1."""
    budget = read_bytes(max_memory)
    network = Network.read(module)
    first = Side("x1", network.read_inputs("x1", x1))
    second = first if x2 is None else Side("x2", network.read_inputs("x2", x2))
    excluded: frozenset[str] = frozenset()
    with network.undisturbed():
        while True:
            plan = make_plan(network, *first, excluded)
            other = plan if second is first else make_plan(network, *second, excluded)
            try:
                require_same_plan(plan, other)
                kernel = _Tiles(plan, other, first, second, reduction, budget).kernel()
            except Misfit as misfit:
                # Some samples use a parameter as those tried did not.
                excluded |= misfit.names
            else:
                break
    _check_finite(kernel)
    return kernel


@dataclass(frozen=True)
class _Tiles:
    """One computation: both sides with their plans, and the blocks they are cut into."""

    plan: Plan
    other: Plan
    first: Side
    second: Side
    reduction: Reduction
    budget: int

    @property
    def symmetric(self) -> bool:
        return self.first is self.second

    def kernel(self) -> Tensor:
        torch = require_torch()
        network = self.plan.network
        rows = torch.eye(self.plan.outputs, dtype=network.dtype, device=network.device)
        if self.reduction.collapsed:
            rows = rows.sum(dim=0, keepdim=True)
        blocks = choose_blocks(
            self.plan.footprint.joined(self.other.footprint),
            (self.first.samples, self.second.samples),
            len(rows),
            paired=self.reduction.paired,
            symmetric=self.symmetric,
            budget=self.budget,
        )
        shape = self.reduction.shape(self.first.samples, self.second.samples, len(rows))
        kernel = torch.zeros(shape, dtype=network.dtype, device=network.device)
        with torch.no_grad():
            self._fill(kernel, rows, blocks)
        return kernel

    def _fill(self, kernel: Tensor, rows: Tensor, blocks: Blocks) -> None:
        ours = list(_parts(self.first.samples, len(rows), blocks))
        theirs = list(_parts(self.second.samples, len(rows), blocks))
        tiles = [
            (index, other)
            for index, part in enumerate(ours)
            for other, opposite in enumerate(theirs)
            if other >= index * self.symmetric
            and (part.outputs == opposite.outputs or not self.reduction.paired)
        ]
        at, cell = -1, None
        for index, other in shown(tiles, len(tiles), "tangent kernel"):
            part, opposite = ours[index], theirs[other]
            if index != at:
                # Let go of the old one first: two cells is what memory is planned for.
                cell = None
                at, cell = index, self._cell(self.plan, self.first, part, rows)
            itself = self.symmetric and index == other
            against = cell if itself else self._cell(self.other, self.second, opposite, rows)
            if cell is None or against is None:
                continue
            block = _tile(kernel, self.reduction, part, opposite)
            add_products(block, cell, against, self.reduction, blocks.room)
            del against
        if self.symmetric:
            self._complete(kernel, ours, tiles)

    def _cell(self, plan: Plan, side: Side, part: Part, rows: Tensor) -> Cell:
        with require_torch().enable_grad():
            return make_cell(plan, *side, part.samples, rows[part.outputs])

    def _complete(self, kernel: Tensor, parts: list[Part], tiles: list[tuple[int, int]]) -> None:
        """Fill in the tiles that symmetry gives."""
        for index, other in tiles:
            part, opposite = parts[index], parts[other]
            if index != other:
                source = _tile(kernel, self.reduction, part, opposite)
                target = _tile(kernel, self.reduction, opposite, part)
                target.copy_(self.reduction.turned(source))
        for samples in {(part.samples.start, part.samples.stop) for part in parts}:
            for outputs in {(part.outputs.start, part.outputs.stop) for part in parts}:
                own = Part(slice(*samples), slice(*outputs))
                mirror(_tile(kernel, self.reduction, own, own), self.reduction)


def _parts(samples: int, outputs: int, blocks: Blocks) -> Iterator[Part]:
    for start in range(0, outputs, blocks.outputs):
        for first in range(0, samples, blocks.samples):
            yield Part(
                slice(first, min(first + blocks.samples, samples)),
                slice(start, min(start + blocks.outputs, outputs)),
            )


def _tile(kernel: Tensor, reduction: Reduction, first: Part, second: Part) -> Tensor:
    part = kernel[first.samples, second.samples]
    return reduction.block(part, first.outputs, second.outputs)


def _check_finite(kernel: Tensor) -> None:
    torch = require_torch()
    for row, values in enumerate(kernel):
        if not bool(torch.isfinite(values).all()):
            column = int((~torch.isfinite(values.reshape(len(values), -1)).all(1)).nonzero()[0, 0])
            raise InputError(
                f"module: must have finite gradients, got a kernel that is not finite at samples "
                f"({row}, {column}). Look for a square root or a logarithm at zero, or overflow."
            )
