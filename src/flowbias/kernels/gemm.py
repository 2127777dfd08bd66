"""Matrix products on the CPU by the fastest code that torch comes with.

torch has no symmetric product there, and its BLAS leaves the wide instructions of some processors
alone. oneDNN, which is part of torch, uses them: twice the speed in single precision, where there
is enough to multiply. It has no double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from flowbias.ground.torch import require_torch
from flowbias.kernels.network import Tensor


@cache
def _onednn() -> Callable[[Tensor, Tensor], Tensor] | None:
    """first second^T of float32 matrices; None where this torch has no such operation.

    That of its compiler: the public way, `linear` of tensors in oneDNN's own layout, copies them.
    """
    torch = require_torch()
    if not torch.backends.mkldnn.is_available():
        return None
    one, other = torch.arange(12.0).view(3, 4), torch.arange(20.0).view(5, 4)

    def product(first: Tensor, second: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(first, second, None, "none", [], "")
        return found

    try:
        right = bool((product(one, other) == one @ other.T).all())  # integers: exact
    except (AttributeError, RuntimeError, TypeError):  # the compiler's own, and may change
        return None
    return product if right else None


def by_onednn(first: Tensor, second: Tensor, times: int = 1, worth_while: int = 2**22) -> bool:
    """Whether first second^T is one for it, cut into so many products.

    `worth_while`: multiplications from which on it is faster, as it arranges one side anew for each
    product.
    """
    torch = require_torch()
    return (
        first.dtype == second.dtype == torch.float32
        and _plain(first)
        and _plain(second)
        and first.device.type == second.device.type == "cpu"
        and len(first) * len(second) * first.shape[1] >= times * worth_while
        and _onednn() is not None
    )


def _plain(matrix: Tensor) -> bool:
    """With rows, or columns, one after the other: where they lie apart oneDNN is slow."""
    return bool(matrix.is_contiguous() or matrix.T.is_contiguous())


def times_transposed(first: Tensor, second: Tensor) -> Tensor:
    """first second^T, of matrices."""
    onednn = _onednn() if by_onednn(first, second) else None
    return first @ second.T if onednn is None else onednn(first, second)


def squared(rows: Tensor, height: int = 64) -> Tensor:
    """rows rows^T, without most of what lies below the diagonal, as far as that pays."""
    torch = require_torch()
    if rows.device.type != "cpu" or rows.dtype not in (torch.float32, torch.float64):
        return rows @ rows.T
    if not by_onednn(rows, rows, times=16):
        array = rows.numpy()
        return torch.from_numpy(array @ array.T)  # BLAS's syrk
    product = rows.new_empty(len(rows), len(rows))
    for start in range(0, len(rows), height):
        strip = times_transposed(rows[start : start + height], rows[start:])
        product[start : start + height, start:] = strip
        product[start + height :, start : start + height] = strip[:, height:].T
    return product
