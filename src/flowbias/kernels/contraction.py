"""Products of the features of two cells.

A parameter used at several positions leaves a choice: Gram matrices of all positions, or the
gradient of each sample first and its products after. Both are exact; counted multiplications
decide, as the second wins for the early layers of a convolutional network (many positions, few
weights) and the first for its late ones.
"""

from __future__ import annotations

from math import isqrt

from flowbias._torch import require_torch
from flowbias.kernels.cells import Cell
from flowbias.kernels.module_input import Tensor
from flowbias.kernels.reductions import Reduction

# What an addition that waits for memory costs, in multiplications inside a matrix product.
_TRAFFIC = 16
# A symmetric block is cut into this many pieces, so that nearly half of it is never computed.
_PIECES = 8
# Rows of a product below which cutting it would cost more than it saves.
_SMALL = 256


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
    by_position = s1 * s2 * t1 * t2 * (inputs + work * units + _TRAFFIC * (pairs + 1))
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
    for i, j in _pieces(len(v[0]), len(v[1]), pairs_of_samples, same and rows > _SMALL):
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
    cut = same and len(first) * first.shape[1] > _SMALL
    for i, j in _pieces(len(first), len(second), max(1, room // pairs), cut):
        kernel[i, j] += reduction.dot(first[i], second[j])


def _pieces(rows: int, columns: int, most: int, symmetric: bool) -> list[tuple[slice, slice]]:
    """Blocks of at most `most` pairs of samples; on and above the diagonal where symmetric."""
    height = min(rows, max(1, isqrt(most)))
    width = min(columns, max(1, most // height))
    if symmetric:
        height = width = min(height, width, -(-rows // _PIECES))
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
