"""The tangent kernel of two maps: products of features, tile by tile within a bound on memory.

K is (n1, n2, c, c), or a reduction of it: each knows how to multiply features of shape (samples,
outputs, size), and where the products go; `paired` ones need products of equal outputs only.

A parameter used at several positions leaves a choice: Gram matrices of all positions, or the
gradient of each sample first and its products after. Both are exact; counted multiplications
decide, as the second wins for a transformer on long sequences and the first on short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from flowbias.ground import progress
from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.features import Features, joined_features
from flowbias.kernels.gemm import by_onednn, squared, times_transposed
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


class Cell(NamedTuple):
    """Features of some samples and outputs: by the rules, and by Jacobians (or None)."""

    features: Features
    jacobian: Tensor | None
    #: whose gradients the Jacobian has
    columns: dict[tuple[str, ...], slice]

    @property
    def gradients(self) -> list[Tensor]:
        """Those (samples, outputs, size) that are kept as such."""
        return [part for part in (self.features.dense, self.jacobian) if part is not None]

    @classmethod
    def joined(cls, cells: list[Cell]) -> Cell:
        """Those of several blocks of samples, one after the other."""
        if len(cells) == 1:
            return cells[0]
        jacobians = [cell.jacobian for cell in cells if cell.jacobian is not None]
        return cls(
            joined_features([cell.features for cell in cells]),
            require_torch().cat(jacobians) if jacobians else None,
            cells[0].columns,
        )

    def of(self, names: frozenset[str]) -> Cell:
        """What belongs to some of the parameters, a joined bias to where its weight does."""
        ours = self.features
        return Cell(
            Features(
                {n: part for n, part in ours.factors.items() if n[0] in names},
                _columns_of(ours.dense, ours.columns, names),
            ),
            _columns_of(self.jacobian, self.columns, names),
            {},
        )


def _columns_of(
    gradients: Tensor | None, columns: dict[tuple[str, ...], slice], names: frozenset[str]
) -> Tensor | None:
    if gradients is None:
        return None
    wanted = [gradients[:, :, place] for owners, place in columns.items() if owners[0] in names]
    return require_torch().cat(wanted, dim=2) if wanted else None


def add_products(
    kernel: Tensor, first: Cell, second: Cell, reduction: Reduction, room: int
) -> None:
    """Add the products of two cells to `kernel`, with at most `room` bytes beside it.

    With first = second only the part on and above the diagonal (of samples) is complete.
    """
    same = first is second
    for names, one in first.features.factors.items():
        # In the order of the layers: that of a set of names, and with it the last bits of the sum,
        # changes from one process to the next.
        two = second.features.factors[names]
        v1 = one.v()
        v2 = v1 if same else two.v()
        add = _add_lookup if one.lookup else _add_layer
        for group in range(len(v1)):
            g1 = one.g[group]
            pair = (g1, g1 if same else two.g[group])
            add(kernel, (v1[group], v2[group]), pair, reduction, room, same)
    for ours, theirs in zip(first.gradients, second.gradients, strict=True):
        _add_dense(kernel, ours, theirs, reduction, room, same)


def _add_layer(
    kernel: Tensor,
    v: tuple[Tensor, Tensor],
    g: tuple[Tensor, Tensor],
    reduction: Reduction,
    room: int,
    same: bool,
    enough: int = 2**23,
) -> None:
    """The cheaper of two ways; products of positions `enough` bytes at a time, not all there is."""
    (s1, t1, inputs), (s2, t2, _) = v[0].shape, v[1].shape
    q1, q2, units = g[0].shape[2], g[1].shape[2], g[0].shape[3]
    pairs = reduction.pairs(q1, q2)
    work = q1 if reduction.paired else q1 * q2
    # An addition that waits for memory costs about 16 multiplications inside a matrix product.
    by_position = s1 * s2 * t1 * t2 * (inputs + work * units + 16 * (pairs + 1))
    by_sample = (s1 * q1 * t1 + s2 * q2 * t2 + s1 * s2 * work) * inputs * units
    needed = t1 * t2 * (1 + 2 * pairs) * v[0].element_size()
    if by_position <= by_sample and needed <= room:
        _add_by_position(kernel, v, g, reduction, max(1, min(room, enough) // needed), same)
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
        itself = same and i == j
        rows_of_v, rows_of_g = v[0][i].flatten(0, 1), g[0][i].flatten(0, 1)
        weights = _product(rows_of_v, rows_of_v if itself else v[1][j].flatten(0, 1))
        products = reduction.dot(rows_of_g, rows_of_g if itself else g[1][j].flatten(0, 1))
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
    most: int = 2**26,
    in_the_cache: int = 2**23,
) -> None:
    """<sum_p g_{a,p} v_p^T, sum_q g'_{b,q} v'_q^T>, some units of the gradients at a time.

    Few large contractions are faster than many small ones, and so are products of what stays `in
    the cache`: the gradients of a contraction are multiplied in pieces of so many bytes.
    """
    count = len(v[0]) * g[0].shape[2] + (0 if same else len(v[1]) * g[1].shape[2])
    positions = max(v[0].shape[1], v[1].shape[1])
    per_unit = count * (v[0].shape[2] + positions) * v[0].element_size()
    step = max(1, min(room // 2, most) // per_unit)
    piece = min(step, max(1, in_the_cache // per_unit))
    sides = [_Contraction(v[0], g[0], step, piece)]
    if not same:
        sides.append(_Contraction(v[1], g[1], step, piece))
    for start in range(0, g[0].shape[3], step):
        found = [side(slice(start, start + step)) for side in sides]
        for ours, theirs in zip(found[0], found[-1], strict=True):
            _add_dense(kernel, ours, theirs, reduction, room // 2, same)


class _Contraction:
    """sum_p g_p v_p^T for some units, in pieces (samples, outputs, units * inputs).

    In one and the same room: to allocate it anew each time takes as long as the product.
    """

    def __init__(self, v: Tensor, g: Tensor, units: int, piece: int) -> None:
        self.v, self.g, self.piece = v.contiguous(), g, piece
        samples, _, outputs, most = g.shape
        size = samples * outputs * piece * v.shape[2]
        self.rooms = [v.new_empty(size) for _ in range(0, min(units, most), piece)]

    def __call__(self, units: slice) -> list[Tensor]:
        g = self.g[..., units]
        samples, _, outputs, _ = g.shape
        pieces = g.split(self.piece, dim=3)
        found = []
        for room, part in zip(self.rooms, pieces, strict=False):
            shape = (samples, outputs, part.shape[3], self.v.shape[2])
            found.append(room[: prod(shape)].view(shape))
        rows = g.flatten(2).transpose(1, 2)
        if by_onednn(rows[0], self.v[0].T):
            for sample, (one, v) in enumerate(zip(rows, self.v, strict=True)):
                product = times_transposed(one, v.T).unflatten(0, (outputs, -1))
                for target, part in zip(found, product.split(self.piece, dim=1), strict=True):
                    target[sample] = part
        else:
            for target, part in zip(found, pieces, strict=True):
                of_piece = part.flatten(2).transpose(1, 2)
                require_torch().bmm(of_piece, self.v, out=target.flatten(1, 2))
        return [target.flatten(2) for target in found]


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


class CellRange(NamedTuple):
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
    #: parameters of each kernel that is wanted, None for one of all
    layers: tuple[frozenset[str], ...] | None = None
    #: a file or an array for the kernel, None for memory of torch's
    out: Any = None

    def kernel(self) -> Any:
        """One kernel, or one for each of the layers along the first dimension."""
        torch = require_torch()
        shape = self.reduction.shape(self.first.samples, self.second.samples, len(self.rows))
        if self.out is None:
            array, kernels = None, self.rows.new_zeros(len(self.layers or (None,)), *shape)
        else:
            array = opened(self.out, shape, self.rows)
            kernels = torch.from_numpy(array)[None].zero_()
        with torch.no_grad():
            self._fill(kernels)
        _check_finite(kernels)
        if array is not None:
            return array
        return kernels[0] if self.layers is None else kernels

    def _split(self, cell: Cell) -> list[Cell]:
        return [cell] if self.layers is None else [cell.of(names) for names in self.layers]

    def _fill(self, kernels: Tensor) -> None:
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
        at, cells = -1, [Cell(Features({}), None, {})]
        for index, other in shown(tiles, len(tiles), "tangent kernel"):
            part, opposite = ours[index], theirs[other]
            if index != at:
                # Let go of the old one first: two cells is what memory is planned for.
                del cells
                at, cells = index, self._split(self.first.cell(part.samples, rows[part.outputs]))
            itself = self.symmetric and index == other
            against = cells
            if not itself:
                opposed = self.second.cell(opposite.samples, rows[opposite.outputs])
                against = self._split(opposed)
                del opposed
            for kernel, one, two in zip(kernels, cells, against, strict=True):
                block = _tile(kernel, self.reduction, part, opposite)
                add_products(block, one, two, self.reduction, blocks.room)
            del against
        if self.symmetric:
            for kernel in kernels:
                self._complete(kernel, ours, tiles)

    def _complete(
        self, kernel: Tensor, parts: list[CellRange], tiles: list[tuple[int, int]]
    ) -> None:
        """Fill in the tiles that symmetry gives."""
        for index, other in tiles:
            part, opposite = parts[index], parts[other]
            if index != other:
                source = _tile(kernel, self.reduction, part, opposite)
                target = _tile(kernel, self.reduction, opposite, part)
                target.copy_(self.reduction.turned(source))
        for samples in {(part.samples.start, part.samples.stop) for part in parts}:
            for outputs in {(part.outputs.start, part.outputs.stop) for part in parts}:
                own = CellRange(slice(*samples), slice(*outputs))
                mirror(_tile(kernel, self.reduction, own, own), self.reduction)


def _parts(samples: int, outputs: int, blocks: Blocks) -> Iterator[CellRange]:
    for start in range(0, outputs, blocks.outputs):
        for first in range(0, samples, blocks.samples):
            yield CellRange(
                slice(first, min(first + blocks.samples, samples)),
                slice(start, min(start + blocks.outputs, outputs)),
            )


def _tile(kernel: Tensor, reduction: Reduction, first: CellRange, second: CellRange) -> Tensor:
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
