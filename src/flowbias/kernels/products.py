"""The tangent kernel of two maps: products of features, tile by tile within a bound on memory.

K is (n1, n2, c, c), or a reduction of it: each knows how to multiply features of shape (samples,
outputs, size), and where the products go; `paired` ones need products of equal outputs only.

A parameter used at several positions leaves a choice: Gram matrices of all positions, or the
gradient of each sample first and its products after. Both are exact; counted multiplications
decide, as the second wins for the early layers of a convolutional network (many positions, few
weights) and the first for its late ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from flowbias.ground import progress
from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.layers import LayerFactors
from flowbias.kernels.memory import Blocks
from flowbias.kernels.network import Tensor

if TYPE_CHECKING:
    from flowbias.kernels.tangent import TangentMap

T = TypeVar("T")
Reduce: TypeAlias = Literal["trace", "diagonal", "sum"] | None


@dataclass(frozen=True)
class Reduction:
    """One way to treat outputs."""

    #: of the whole kernel, from n1, n2 and c
    shape: Callable[[int, int, int], tuple[int, ...]]
    #: how many numbers per pair of samples a product of q1 and q2 outputs has
    pairs: Callable[[int, int], int]
    #: products of features (s1, q1, f), (s2, q2, f): (s1, s2, ...)
    dot: Callable[[Tensor, Tensor], Tensor]
    #: weights (s1, s2), ready to multiply what `dot` returns
    spread: Callable[[Tensor], Tensor]
    #: the part of the kernel that belongs to two blocks of outputs
    block: Callable[[Tensor, slice, slice], Tensor]
    #: the kernel with its two sides exchanged
    turned: Callable[[Tensor], Tensor]
    #: the reduction of a kernel (n1, n2, c, c) that is there already
    of_full: Callable[[FloatArray], FloatArray]
    #: whether products of equal outputs are all that is needed
    paired: bool = True
    #: whether the outputs are added up before anything else: one output remains
    collapsed: bool = False


def _all_pairs(first: Tensor, second: Tensor) -> Tensor:
    (s1, q1, size), (s2, q2, _) = first.shape, second.shape
    product = first.reshape(s1 * q1, size) @ second.reshape(s2 * q2, size).T
    return product.view(s1, q1, s2, q2).permute(0, 2, 1, 3)


_REDUCTIONS: dict[Any, Reduction] = {
    # All pairs: K_ab(x, x').
    None: Reduction(
        shape=lambda rows, columns, outputs: (rows, columns, outputs, outputs),
        pairs=lambda first, second: first * second,
        dot=_all_pairs,
        spread=lambda weights: weights[..., None, None],
        block=lambda kernel, first, second: kernel[:, :, first, second],
        turned=lambda kernel: kernel.permute(1, 0, 3, 2),
        of_full=lambda kernel: kernel,
        paired=False,
    ),
    # sum_a K_aa(x, x'). All outputs are one long feature vector: a product leaves one number.
    "trace": Reduction(
        shape=lambda rows, columns, outputs: (rows, columns),
        pairs=lambda first, second: 1,
        dot=lambda first, second: first.flatten(1) @ second.flatten(1).T,
        spread=lambda weights: weights,
        block=lambda kernel, first, second: kernel,
        turned=lambda kernel: kernel.T,
        of_full=lambda kernel: np.asarray(np.trace(kernel, axis1=2, axis2=3)),
    ),
    # K_aa(x, x') for each a.
    "diagonal": Reduction(
        shape=lambda rows, columns, outputs: (rows, columns, outputs),
        pairs=lambda first, second: first,
        dot=lambda one, two: (one.transpose(0, 1) @ two.permute(1, 2, 0)).permute(1, 2, 0),
        spread=lambda weights: weights[..., None],
        block=lambda kernel, first, second: kernel[:, :, first],
        turned=lambda kernel: kernel.transpose(0, 1),
        of_full=lambda kernel: np.diagonal(kernel, axis1=2, axis2=3).copy(),
    ),
}
# sum_ab K_ab(x, x'): the kernel of the sum of outputs.
_REDUCTIONS["sum"] = replace(
    _REDUCTIONS["trace"],
    collapsed=True,
    of_full=lambda kernel: np.asarray(kernel.sum(axis=(2, 3))),
)


def read_reduction(reduce: Any) -> Reduction:
    """The reduction of that name."""
    names = [name for name in _REDUCTIONS if name == reduce]
    if not names:
        raise InputError(
            f"reduce: must be None, 'trace', 'diagonal' or 'sum', got {reduce!r}. "
            "None keeps all pairs of outputs, of shape (n1, n2, c, c)."
        )
    return _REDUCTIONS[names[0]]


@dataclass(frozen=True)
class Cell:
    """Features of some samples and outputs: factors by the names they belong to, and the rest."""

    factors: dict[tuple[str, ...], LayerFactors]
    jacobian: Tensor | None


def add_products(
    kernel: Tensor, first: Cell, second: Cell, reduction: Reduction, room: int
) -> None:
    """Add the products of two cells to `kernel`, with at most `room` bytes beside it.

    With first = second only the part on and above the diagonal (of samples) is complete.
    """
    same = first is second
    for names, one in first.factors.items():
        # In the order of the layers: that of a set of names, and with it the last bits of the sum,
        # changes from one process to the next.
        if (two := second.factors.get(names)) is None:
            continue
        v1 = one.v()
        v2 = v1 if same else two.v()
        for group in range(len(v1)):
            pair = (one.g[group], two.g[group])
            _add_layer(kernel, (v1[group], v2[group]), pair, reduction, room, same)
    if first.jacobian is not None and second.jacobian is not None:
        _add_dense(kernel, first.jacobian, second.jacobian, reduction, room, same)


def _add_layer(
    kernel: Tensor,
    v: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    reduction: Reduction,
    room: int,
    same: bool,
) -> None:
    (s1, t1, inputs), (s2, t2, _) = v[0].shape, v[1].shape
    q1, q2, units = g[0].shape[2], g[1].shape[2], g[0].shape[3]
    pairs = reduction.pairs(q1, q2)
    work = q1 if reduction.paired else q1 * q2
    # An addition that waits for memory costs about 16 multiplications inside a matrix product.
    by_position = s1 * s2 * t1 * t2 * (inputs + work * units + 16 * (pairs + 1))
    by_sample = (s1 * q1 * t1 + s2 * q2 * t2 + s1 * s2 * work) * inputs * units
    needed = t1 * t2 * (1 + 2 * pairs) * g[0].element_size()
    if by_position <= by_sample and needed <= room:
        _add_by_position(kernel, v, g, reduction, room // needed, same)
    else:
        _add_by_sample(kernel, v, g, reduction, room, same)


def _add_by_position(
    kernel: Tensor,
    v: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    reduction: Reduction,
    pairs_of_samples: int,
    same: bool,
) -> None:
    """sum_{p,q} <v_p, v'_q> <g_{a,p}, g'_{b,q}>."""
    t1, t2 = v[0].shape[1], v[1].shape[1]
    rows = g[0].shape[1] * g[0].shape[2] * len(g[0])
    for i, j in _pieces(len(v[0]), len(v[1]), pairs_of_samples, same, rows):
        weights = v[0][i].flatten(0, 1) @ v[1][j].flatten(0, 1).T
        products = reduction.dot(g[0][i].flatten(0, 1), g[1][j].flatten(0, 1))
        if t1 == t2 == 1:
            kernel[i, j].addcmul_(products, reduction.spread(weights))
        else:
            products.mul_(reduction.spread(weights))
            kernel[i, j] += products.unflatten(1, (-1, t2)).unflatten(0, (-1, t1)).sum((1, 3))


def _add_by_sample(
    kernel: Tensor,
    v: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    reduction: Reduction,
    room: int,
    same: bool,
) -> None:
    """<sum_p g_{a,p} v_p^T, sum_q g'_{b,q} v'_q^T>, some rows of the gradients at a time."""
    count = len(v[0]) * g[0].shape[2] + (0 if same else len(v[1]) * g[1].shape[2])
    positions = max(v[0].shape[1], v[1].shape[1])
    per_unit = count * (v[0].shape[2] + positions) * g[0].element_size()
    step = max(1, (room // 2) // per_unit)
    for start in range(0, g[0].shape[3], step):
        units = slice(start, start + step)
        one = _gradients(v[0], g[0][..., units])
        two = one if same else _gradients(v[1], g[1][..., units])
        _add_dense(kernel, one, two, reduction, room // 2, same)


def _gradients(v: Tensor, g: Tensor) -> Tensor:
    """(samples, outputs, units * inputs)."""
    samples, positions, outputs, units = g.shape
    flat = g.reshape(samples, positions, outputs * units)
    return (flat.transpose(1, 2) @ v).view(samples, outputs, units * v.shape[2])


def _add_dense(
    kernel: Tensor, first: Tensor, second: Tensor, reduction: Reduction, room: int, same: bool
) -> None:
    pairs = reduction.pairs(first.shape[1], second.shape[1]) * first.element_size()
    rows = len(first) * first.shape[1]
    for i, j in _pieces(len(first), len(second), max(1, room // pairs), same, rows):
        kernel[i, j] += reduction.dot(first[i], second[j])


def _pieces(
    rows: int, columns: int, most: int, same: bool, height_of_product: int
) -> list[tuple[slice, slice]]:
    """Blocks of at most `most` pairs of samples; on and above the diagonal where symmetric.

    A symmetric block is cut into eight pieces, so that nearly half of it is never computed; not
    where its product has so few rows (256) that cutting it would cost more than it saves.
    """
    height = min(rows, max(1, isqrt(most)))
    width = min(columns, max(1, most // height))
    symmetric = same and height_of_product > 256
    if symmetric:
        height = width = min(height, width, -(-rows // 8))
    return [
        (slice(i, min(i + height, rows)), slice(j, min(j + width, columns)))
        for i in range(0, rows, height)
        for j in range(i if symmetric else 0, columns, width)
    ]


def mirror(kernel: Tensor, reduction: Reduction) -> None:
    """Copy what is above the diagonal of a symmetric kernel to below it."""
    torch = require_torch()
    turned = reduction.turned(kernel)
    each = torch.arange(len(kernel), device=kernel.device)
    # A sample with itself, where rounding may tell K_ab from K_ba.
    kernel[each, each] = 0.5 * (kernel[each, each] + turned[each, each])
    size = 64
    for start in range(0, len(kernel), size):
        own, below = slice(start, start + size), slice(start + size, None)
        kernel[below, own] = turned[below, own]
        block, other = kernel[own, own], turned[own, own].clone()
        rows, columns = torch.tril_indices(len(block), len(block), -1, device=kernel.device)
        block[rows, columns] = other[rows, columns]


class Part(NamedTuple):
    """A block of samples and a block of outputs."""

    samples: slice
    outputs: slice


@dataclass(frozen=True)
class Tiles:
    """One kernel: the maps of both sides, one and the same for a symmetric one."""

    first: TangentMap
    second: TangentMap
    reduction: Reduction
    #: one cotangent per output
    rows: Tensor
    blocks: Blocks
    symmetric: bool

    def kernel(self) -> Tensor:
        torch = require_torch()
        shape = self.reduction.shape(self.first.samples, self.second.samples, len(self.rows))
        kernel = self.rows.new_zeros(shape)
        with torch.no_grad():
            self._fill(kernel)
        _check_finite(kernel)
        return kernel

    def _fill(self, kernel: Tensor) -> None:
        rows, blocks = self.rows, self.blocks
        ours = list(_parts(self.first.samples, len(rows), blocks))
        theirs = list(_parts(self.second.samples, len(rows), blocks))
        tiles = [
            (index, other)
            for index, part in enumerate(ours)
            for other, opposite in enumerate(theirs)
            if other >= index * self.symmetric
            and (part.outputs == opposite.outputs or not self.reduction.paired)
        ]
        at, cell = -1, Cell({}, None)
        for index, other in shown(tiles, len(tiles), "tangent kernel"):
            part, opposite = ours[index], theirs[other]
            if index != at:
                # Let go of the old one first: two cells is what memory is planned for.
                del cell
                at, cell = index, self.first.cell(part.samples, rows[part.outputs])
            itself = self.symmetric and index == other
            against = cell if itself else self.second.cell(opposite.samples, rows[opposite.outputs])
            block = _tile(kernel, self.reduction, part, opposite)
            add_products(block, cell, against, self.reduction, blocks.room)
            del against
        if self.symmetric:
            self._complete(kernel, ours, tiles)

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
    if bool(torch.isfinite(kernel.sum())):
        return
    for row, values in enumerate(kernel):
        if not bool(torch.isfinite(values).all()):
            column = int((~torch.isfinite(values.reshape(len(values), -1)).all(1)).nonzero()[0, 0])
            raise InputError(
                f"module: must have finite gradients, got a kernel that is not finite at samples "
                f"({row}, {column}). Look for a square root or a logarithm at zero, or overflow."
            )


def shown(steps: Iterable[T], total: int, label: str) -> Iterator[T]:
    """The steps, with a bar on standard error once they take long; one step needs none."""
    if total <= 1:
        yield from steps
        return
    with progress.shown(label, total) as show:
        for done, step in enumerate(steps, start=1):
            yield step
            show(done)
