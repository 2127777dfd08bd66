"""Matrix products on the CPU by the fastest code that torch comes with.

torch has no symmetric product there, and its BLAS leaves the wide instructions of some processors
alone. oneDNN, which is part of torch, uses them: twice the speed in single precision, where there
is enough to multiply. It has no double precision. And memory for what they make, in large pages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

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


def each_times(first: Tensor, second: Tensor) -> Tensor:
    """first^T second of each pair of matrices of a batch."""
    if not len(first) or not by_onednn(first[0].T, second[0].T):
        return first.transpose(1, 2) @ second
    products = first.new_empty(len(first), first.shape[2], second.shape[2])
    for own, one, other in zip(products, first, second, strict=True):
        own.copy_(times_transposed(one.T, other.T))
    return products


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
        # Strips of columns: oneDNN arranges its second side anew, which is the small one here.
        strip = times_transposed(rows[start:], rows[start : start + height])
        product[start:, start : start + height] = strip
        product[start : start + height, start + height :] = strip[height:].T
    return product


def faster_passes(like: Tensor) -> AbstractContextManager[Any]:
    """Passes back through one graph, again and again: large products, and slopes, at less cost."""
    torch = require_torch()
    onednn = like.dtype == torch.float32 and like.device.type == "cpu" and _onednn() is not None
    return _faster_passes()() if onednn else nullcontext()


@cache
def _faster_passes() -> Any:
    """A mode for operations below autograd.

    Large products by oneDNN, which torch leaves to its BLAS. And a function of single numbers has
    the same slopes in each pass: those that take an exponential are computed once.
    """
    torch = require_torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    product, dear = aten.mm.default, {aten.gelu_backward.default, aten.silu_backward.default}

    class FasterPasses(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        #: flex attention and its like are passed on as they are
        supports_higher_order_operators = True

        def __init__(self) -> None:
            super().__init__()
            self.slopes: dict[Any, tuple[Tensor, Tensor]] = {}
            self.first_pass = True

        def __exit__(self, *error: Any) -> None:
            # A module that computes its numbers anew in each pass has others each time.
            self.first_pass = False
            super().__exit__(*error)

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            options = kwargs or {}
            if func is product and by_onednn(args[0], args[1].T):
                return times_transposed(args[0], args[1].T)
            # Those of a module's own half precision would be rounded once more.
            if func in dear and args[1].dtype == args[0].dtype == torch.float32:
                gradient, x = args
                # x stays alive here, so that no other tensor takes its place.
                key = (func, x.data_ptr(), x.shape, x.stride(), *options.values())
                if key not in self.slopes and self.first_pass:
                    self.slopes[key] = x, func(torch.ones_like(x), x, **options)
                if key in self.slopes:
                    return gradient * self.slopes[key][1]
            return func(*args, **options)

    return FasterPasses


def empty(like: Any, *shape: int) -> Any:
    """A tensor of the dtype and on the device of `like`; large ones in large pages.

    NumPy asks the system for them, torch does not: what is written once and read once would spend
    as long on its pages as on its numbers.
    """
    if like.device.type != "cpu":
        return like.new_empty(shape)
    return require_torch().from_numpy(np.empty(shape, np_dtype(like)))


def np_dtype(like: Any) -> np.dtype[Any]:
    """NumPy's name of a tensor's dtype."""
    return np.dtype(str(like.dtype).removeprefix("torch."))
