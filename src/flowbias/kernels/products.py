"""The tangent kernel of two maps: products of features, tile by tile within a bound on memory.

K is (n1, n2, c, c), or a reduction of it: each knows how to multiply features of shape (samples,
outputs, size), and where the products go; `paired` ones need products of equal outputs only.

A parameter used at several positions leaves a choice: Gram matrices of all positions, or the
gradient of each sample first and its products after, or the Gram matrix of inputs applied to the
gradients of one side. All are exact; counted multiplications decide: the second wins for a
transformer on long sequences, the third on short ones, the first on shortest or for few outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from flowbias.ground import progress
from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.features import Features
from flowbias.kernels.gemm import by_onednn, empty, squared, times_transposed
from flowbias.kernels.memory import Blocks, opened
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


def _product(first: Tensor, second: Tensor) -> Tensor:
    """first second^T, of matrices; half of it is enough where both are one."""
    return squared(first) if first is second else times_transposed(first, second)


def _all_pairs(first: Tensor, second: Tensor) -> Tensor:
    (s1, q1, size), (s2, q2, _) = first.shape, second.shape
    one = first.reshape(s1 * q1, size)
    other = one if first is second else second.reshape(s2 * q2, size)
    return _product(one, other).view(s1, q1, s2, q2).permute(0, 2, 1, 3)


def _one_long_feature(first: Tensor, second: Tensor) -> Tensor:
    one = first.flatten(1)
    return _product(one, one if first is second else second.flatten(1))


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
        dot=_one_long_feature,
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
    # An array compares entry by entry.
    is_one = reduce is None or isinstance(reduce, str)
    names = [name for name in _REDUCTIONS if is_one and name == reduce]
    if not names:
        raise InputError(
            f"reduce: must be None, 'trace', 'diagonal' or 'sum', got {reduce!r}. "
            "None keeps all pairs of outputs, of shape (n1, n2, c, c)."
        )
    return _REDUCTIONS[names[0]]


def add_products(
    kernel: Tensor,
    first: Features,
    second: Features,
    reduction: Reduction,
    room: int,
    spent: bool = False,
) -> None:
    """Add the products of two cells' features to `kernel`, with at most `room` bytes beside it.

    With first = second only the part on and above the diagonal (of samples) is complete. What is
    `spent` is let go of layer by layer: nobody asks for it again.
    """
    same, rooms = first is second, _Rooms(room // 2)
    # In the order of the layers: that of a set of names, and with it the last bits of the sum,
    # changes from one process to the next.
    for names in list(first.factors):
        one, two = first.factors[names], second.factors[names]
        if spent:
            first.factors.pop(names)
            second.factors.pop(names, None)
        v1 = one.v()
        v2 = v1 if same else two.v()
        add = _add_lookup if one.lookup else partial(_add_layer, rooms=rooms)
        for group in range(len(v1)):
            g1 = one.g[group]
            pair = (g1, g1 if same else two.g[group])
            add(kernel, (v1[group], v2[group]), pair, reduction, room // 2, same)
    for ours, theirs in zip(first.gradients, second.gradients, strict=True):
        _add_dense(kernel, ours.values, theirs.values, reduction, room // 2, same)


def _add_layer(
    kernel: Tensor,
    v: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    reduction: Reduction,
    room: int,
    same: bool,
    rooms: _Rooms,
    enough: int = 2**23,
) -> None:
    """The cheapest of three ways; products of positions `enough` bytes at a time, not of all."""
    (s1, t1, inputs), (s2, t2, _) = v[0].shape, v[1].shape
    q1, q2, units = g[0].shape[2], g[1].shape[2], g[0].shape[3]
    pairs = reduction.pairs(q1, q2)
    work = q1 if reduction.paired else q1 * q2
    # An addition that waits for memory costs about 16 multiplications inside a matrix product.
    by_position = s1 * s2 * t1 * t2 * (inputs + work * units + 16 * (pairs + 1))
    by_sample = (s1 * q1 * t1 + s2 * q2 * t2 + s1 * s2 * work) * inputs * units
    # A multiplication in a product of two samples alone costs as much as 2 in a large one.
    by_pair = s1 * s2 * (t1 * t2 * inputs + 2 * (t1 * t2 * q2 + t1 * work) * units)
    size = v[0].element_size()
    positions, turned = t1 * t2 * (1 + 2 * pairs) * size, _bytes_by_pair(v, g)
    fits = t2 > 1 and reduction.dot is _all_pairs and turned <= room
    if fits and by_pair < min(by_position, by_sample):
        _add_by_pair(kernel, v, g, max(1, min(room, enough) // turned), same, rooms)
    elif by_position <= by_sample and positions <= room:
        _add_by_position(kernel, v, g, reduction, max(1, min(room, enough) // positions), same)
    else:
        _add_by_sample(kernel, v, g, reduction, room, same, rooms)


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
        itself = same and i == j
        rows_of_v, rows_of_g = v[0][i].flatten(0, 1), g[0][i].flatten(0, 1)
        weights = _product(rows_of_v, rows_of_v if itself else v[1][j].flatten(0, 1))
        products = reduction.dot(rows_of_g, rows_of_g if itself else g[1][j].flatten(0, 1))
        if t1 == t2 == 1:
            kernel[i, j].addcmul_(products, reduction.spread(weights))
        else:
            products.mul_(reduction.spread(weights))
            kernel[i, j] += products.unflatten(1, (-1, t2)).unflatten(0, (-1, t1)).sum((1, 3))


def _bytes_by_pair(v: tuple[Tensor, Tensor], g: tuple[Tensor, Tensor]) -> int:
    """What each sample of the second side takes in `_add_by_pair`."""
    (_, t1, q1, units), (_, t2, q2, _) = g[0].shape, g[1].shape
    numbers = t1 * t2 * (2 + q2) + (t1 + t2) * q2 * units + 2 * q1 * q2
    return int(numbers * v[0].element_size())


def _add_by_pair(
    kernel: Tensor,
    v: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    step: int,
    same: bool,
    rooms: _Rooms,
) -> None:
    """sum_p <g_{a,p}, sum_q <v_p, v'_q> g'_{b,q}>, of all pairs of outputs.

    The inner sum serves all a. A pair of samples takes multiplications by the positions of both
    sides and the outputs of one, where products of gradients take them by the inputs.
    """
    torch = require_torch()
    (s1, t1, outputs, units), (s2, t2, others, _) = g[0].shape, g[1].shape
    for first in range(0, s2, step):
        last = min(first + step, s2)
        theirs = g[1][first:last].transpose(1, 2).contiguous()
        for one in range(min(s1, last) if same else s1):
            begun = max(one, first) if same else first
            count = last - begun
            weights = times_transposed(v[0][one], v[1][begun:last].flatten(0, 1))
            weights = weights.view(t1, count, t2).transpose(0, 1)[:, None]
            # What the other side's positions add up to at each of ours.
            room = rooms(0, theirs, count * others * t1 * units).view(-1, t1, units)
            torch.bmm(
                weights.expand(-1, others, -1, -1).flatten(0, 1),
                theirs[begun - first :].flatten(0, 1),
                out=room,
            )
            mine = g[0][one].transpose(0, 1).flatten(1)
            products = times_transposed(mine, room.flatten(1))
            kernel[one, begun:last] += products.view(outputs, count, others).transpose(0, 1)


class _Rooms:
    """Memory for the contractions of one layer after the other, `most` bytes of it.

    To allocate it anew each time takes as long as they do.
    """

    def __init__(self, most: int) -> None:
        self.most = min(most, 2**26)
        self._held: dict[int, Tensor] = {}

    def __call__(self, side: int, like: Tensor, size: int) -> Tensor:
        if side not in self._held or len(self._held[side]) < size:
            self._held.pop(side, None)
            self._held[side] = empty(like, size)
        return self._held[side][:size]


def _add_by_sample(
    kernel: Tensor,
    v: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    reduction: Reduction,
    room: int,
    same: bool,
    rooms: _Rooms,
) -> None:
    """<sum_p g_{a,p} v_p^T, sum_q g'_{b,q} v'_q^T>, some units of the gradients at a time.

    Few large contractions are faster than many small ones.
    """
    sides = [(v[i].contiguous(), g[i]) for i in range(1 if same else 2)]
    per_unit = sum(len(v) * g.shape[2] * (v.shape[2] + v.shape[1]) for v, g in sides)
    units = g[0].shape[3]
    step = max(1, rooms.most // (per_unit * v[0].element_size()))
    step = -(-units // -(-units // step))  # all of about the same size
    by_calls = all(_worth_a_call_each(v, g, step) for v, g in sides)
    for start in range(0, units, step):
        found = []
        for side, (seen, made) in enumerate(sides):
            part = made[..., start : start + step]
            size = len(seen) * part.shape[2] * seen.shape[2] * part.shape[3]
            found.append(_contracted(seen, part, rooms(side, seen, size), by_calls))
        _add_dense(kernel, found[0], found[-1], reduction, room, same)


def _worth_a_call_each(v: Tensor, g: Tensor, units: int) -> bool:
    """Whether each sample has enough to multiply for a call of its own."""
    return by_onednn(v[0].T, g[0, :, :, :units].flatten(1).T)


def _contracted(v: Tensor, g: Tensor, room: Tensor, by_calls: bool) -> Tensor:
    """sum_p v_p g_p^T in that room: (samples, outputs, size), inputs first where `by_calls`."""
    samples, positions, outputs, units = g.shape
    if by_calls:
        shape = (samples, outputs, v.shape[2], units)
        for own, seen, made in zip(room.view(shape).transpose(1, 2), v, g, strict=True):
            product = times_transposed(seen.T, made.reshape(positions, -1).T)
            own.copy_(product.view(own.shape))
    else:
        rows = g.flatten(2).transpose(1, 2)
        require_torch().bmm(rows, v, out=room.view(samples, outputs * units, -1))
    return room.view(samples, outputs, -1)


def _add_lookup(
    kernel: Tensor,
    indices: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    reduction: Reduction,
    room: int,
    same: bool,
) -> None:
    """sum_{p,q} <g_{a,p}, g'_{b,q}> over positions that look up one and the same row of a table."""
    first = _TableRows.of(indices[0], g[0])
    second = first if same else _TableRows.of(indices[1], g[1])
    pairs = reduction.pairs(g[0].shape[2], g[1].shape[2]) * first.sums.element_size()
    for index in first.of_index.keys() & second.of_index.keys():
        ours, theirs = first.of_index[index], second.of_index[index]
        a, b = first.samples[ours], second.samples[theirs]
        for i, j in _pieces(len(a), len(b), max(1, room // pairs), False, 0):
            kernel[a[i][:, None], b[j][None]] += reduction.dot(
                first.sums[ours][i], second.sums[theirs][j]
            )


class _TableRows(NamedTuple):
    """Gradients of the rows of a table that samples look up, those of one sample added up."""

    #: (rows, outputs, size) in the order of rows of the table
    sums: Tensor
    #: whose they are
    samples: Tensor
    #: where those of one row of the table lie
    of_index: dict[int, slice]

    @classmethod
    def of(cls, indices: Tensor, g: Tensor) -> _TableRows:
        torch = require_torch()
        samples, _, outputs, size = g.shape
        keys = indices * samples + torch.arange(samples, device=indices.device)[:, None]
        found, place = torch.unique(keys.flatten(), return_inverse=True)
        sums = g.new_zeros(len(found), outputs, size).index_add_(0, place, g.flatten(0, 1))
        index, counts = torch.unique_consecutive(
            torch.div(found, samples, rounding_mode="floor"), return_counts=True
        )
        ends = counts.cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        slices = {
            row: slice(*ends) for row, *ends in zip(index.tolist(), starts, ends, strict=True)
        }
        return cls(sums, found % samples, slices)


def _add_dense(
    kernel: Tensor, first: Tensor, second: Tensor, reduction: Reduction, room: int, same: bool
) -> None:
    pairs = reduction.pairs(first.shape[1], second.shape[1]) * first.element_size()
    rows = len(first) * first.shape[1]
    for i, j in _pieces(len(first), len(second), max(1, room // pairs), same, rows):
        one = first[i]
        kernel[i, j] += reduction.dot(one, one if same and i == j else second[j])


def _pieces(
    rows: int, columns: int, most: int, same: bool, height_of_product: int
) -> list[tuple[slice, slice]]:
    """Blocks of at most `most` pairs of samples; on and above the diagonal where symmetric.

    A symmetric block that is too large for one symmetric product is cut into eight pieces, so that
    nearly half of it is never computed; not where its product has so few rows (256) that cutting
    it would cost more than it saves.
    """
    if rows * columns <= most and same:
        return [(slice(0, rows), slice(0, columns))]
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


class Cell(NamedTuple):
    """A block of samples and a block of outputs."""

    samples: slice
    outputs: slice


def cells(samples: int, outputs: int, blocks: Blocks) -> Iterator[Cell]:
    """All of them, those of the same outputs one after the other."""
    for start in range(0, outputs, blocks.outputs):
        for first in range(0, samples, blocks.samples):
            yield Cell(
                slice(first, min(first + blocks.samples, samples)),
                slice(start, min(start + blocks.outputs, outputs)),
            )


@dataclass(frozen=True)
class Tiles:
    """One kernel: the maps of both sides, one and the same for a symmetric one."""

    first: TangentMap
    second: TangentMap
    reduction: Reduction
    #: parameters of each kernel that is wanted, None for one of all
    layers: tuple[frozenset[str], ...] | None = None
    #: a file or an array for the kernel, None for memory of torch's
    out: Any = None

    def kernel(self, rows: Tensor, blocks: Blocks) -> Any:
        """One kernel, or one for each of the layers along the first dimension.

        From one cotangent per output, tile by tile.
        """
        torch = require_torch()
        shape = self.reduction.shape(self.first.samples, self.second.samples, len(rows))
        if self.out is None:
            array, kernels = None, rows.new_zeros(len(self.layers or (None,)), *shape)
        else:
            array = opened(self.out, shape, rows)
            kernels = torch.from_numpy(array)[None].zero_()
        with torch.no_grad():
            self._fill(kernels, rows, blocks)
        _check_finite(kernels)
        if array is not None:
            return array
        return kernels[0] if self.layers is None else kernels

    def _split(self, features: Features) -> list[Features]:
        return [features] if self.layers is None else [features.of(n) for n in self.layers]

    def _fill(self, kernels: Tensor, rows: Tensor, blocks: Blocks) -> None:
        symmetric = self.first is self.second
        ours = list(cells(self.first.samples, len(rows), blocks))
        theirs = list(cells(self.second.samples, len(rows), blocks))
        tiles = [
            (index, other)
            for index, part in enumerate(ours)
            for other, opposite in enumerate(theirs)
            if other >= index * symmetric
            and (part.outputs == opposite.outputs or not self.reduction.paired)
        ]
        at, found = -1, [Features({})]
        for index, other in shown(tiles, len(tiles), "tangent kernel"):
            part, opposite = ours[index], theirs[other]
            if index != at:
                # Let go of the old one first: two cells is what memory is planned for.
                del found
                at, found = index, self._split(self.first.cell(part.samples, rows[part.outputs]))
            itself = symmetric and index == other
            against = found
            if not itself:
                opposed = self.second.cell(opposite.samples, rows[opposite.outputs])
                against = self._split(opposed)
                del opposed
            for kernel, one, two in zip(kernels, found, against, strict=True):
                block = _tile(kernel, self.reduction, part, opposite)
                add_products(block, one, two, self.reduction, blocks.room, len(tiles) == 1)
            del against
        if symmetric:
            for kernel in kernels:
                self._complete(kernel, ours, tiles)

    def _complete(self, kernel: Tensor, parts: list[Cell], tiles: list[tuple[int, int]]) -> None:
        """Fill in the tiles that symmetry gives."""
        for index, other in tiles:
            part, opposite = parts[index], parts[other]
            if index != other:
                source = _tile(kernel, self.reduction, part, opposite)
                target = _tile(kernel, self.reduction, opposite, part)
                target.copy_(self.reduction.turned(source))
        for samples in {(part.samples.start, part.samples.stop) for part in parts}:
            for outputs in {(part.outputs.start, part.outputs.stop) for part in parts}:
                own = Cell(slice(*samples), slice(*outputs))
                mirror(_tile(kernel, self.reduction, own, own), self.reduction)


def _tile(kernel: Tensor, reduction: Reduction, first: Cell, second: Cell) -> Tensor:
    part = kernel[first.samples, second.samples]
    return reduction.block(part, first.outputs, second.outputs)


def _check_finite(kernels: Tensor) -> None:
    """Of all layers; row by row, as there may be no room for another kernel."""
    torch = require_torch()
    for row in range(kernels.shape[1]):
        values = kernels[:, row].sum(0)
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
