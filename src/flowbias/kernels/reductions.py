"""What becomes of the pairs of outputs: K (n1, n2, c, c), or a reduction of it.

Each reduction knows how to multiply features of shape (samples, outputs, size), and where the
products go. `paired` ones need products of equal outputs only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from flowbias._typing import FloatArray
from flowbias.problem import InputError

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor"
Reduce: TypeAlias = Literal["trace", "diagonal", "sum"] | None


class Reduction(Protocol):
    """One way to treat outputs."""

    @property
    def paired(self) -> bool: ...
    @property
    def collapsed(self) -> bool:
        """Whether the outputs are added up before anything else: one output remains."""

    def shape(self, rows: int, columns: int, outputs: int) -> tuple[int, ...]:
        """Of the whole kernel."""

    def pairs(self, first: int, second: int) -> int:
        """How many numbers per pair of samples a product has."""

    def dot(self, first: Tensor, second: Tensor) -> Tensor:
        """Products of features (s1, q1, f), (s2, q2, f): (s1, s2, ...)."""

    def spread(self, weights: Tensor) -> Tensor:
        """Weights (s1, s2), ready to multiply what `dot` returns."""

    def block(self, kernel: Tensor, first: slice, second: slice) -> Tensor:
        """The part of the kernel that belongs to two blocks of outputs."""

    def turned(self, kernel: Tensor) -> Tensor:
        """The kernel with its two sides exchanged."""

    def of_full(self, kernel: FloatArray) -> FloatArray:
        """The reduction of a kernel (n1, n2, c, c) that is there already."""


@dataclass(frozen=True)
class Full:
    """All pairs: K_ab(x, x')."""

    paired: bool = False
    collapsed: bool = False

    def shape(self, rows: int, columns: int, outputs: int) -> tuple[int, ...]:
        return rows, columns, outputs, outputs

    def pairs(self, first: int, second: int) -> int:
        return first * second

    def dot(self, first: Tensor, second: Tensor) -> Tensor:
        (s1, q1, size), (s2, q2, _) = first.shape, second.shape
        product = first.reshape(s1 * q1, size) @ second.reshape(s2 * q2, size).T
        return product.view(s1, q1, s2, q2).permute(0, 2, 1, 3)

    def spread(self, weights: Tensor) -> Tensor:
        return weights[..., None, None]

    def block(self, kernel: Tensor, first: slice, second: slice) -> Tensor:
        return kernel[:, :, first, second]

    def turned(self, kernel: Tensor) -> Tensor:
        return kernel.permute(1, 0, 3, 2)

    def of_full(self, kernel: FloatArray) -> FloatArray:
        return kernel


@dataclass(frozen=True)
class Trace:
    """sum_a K_aa(x, x'); with `collapsed`, sum_ab K_ab: the kernel of the sum of outputs."""

    paired: bool = True
    collapsed: bool = False

    def shape(self, rows: int, columns: int, outputs: int) -> tuple[int, ...]:
        return rows, columns

    def pairs(self, first: int, second: int) -> int:
        # All outputs are one long feature vector, so a product leaves a single number.
        return 1

    def dot(self, first: Tensor, second: Tensor) -> Tensor:
        return first.flatten(1) @ second.flatten(1).T

    def spread(self, weights: Tensor) -> Tensor:
        return weights

    def block(self, kernel: Tensor, first: slice, second: slice) -> Tensor:
        return kernel

    def turned(self, kernel: Tensor) -> Tensor:
        return kernel.T

    def of_full(self, kernel: FloatArray) -> FloatArray:
        if self.collapsed:
            return np.asarray(kernel.sum(axis=(2, 3)))
        return np.asarray(np.trace(kernel, axis1=2, axis2=3))


@dataclass(frozen=True)
class Diagonal:
    """K_aa(x, x') for each a."""

    paired: bool = True
    collapsed: bool = False

    def shape(self, rows: int, columns: int, outputs: int) -> tuple[int, ...]:
        return rows, columns, outputs

    def pairs(self, first: int, second: int) -> int:
        return first

    def dot(self, first: Tensor, second: Tensor) -> Tensor:
        return (first.transpose(0, 1) @ second.permute(1, 2, 0)).permute(1, 2, 0)

    def spread(self, weights: Tensor) -> Tensor:
        return weights[..., None]

    def block(self, kernel: Tensor, first: slice, second: slice) -> Tensor:
        return kernel[:, :, first]

    def turned(self, kernel: Tensor) -> Tensor:
        return kernel.transpose(0, 1)

    def of_full(self, kernel: FloatArray) -> FloatArray:
        return np.diagonal(kernel, axis1=2, axis2=3).copy()


REDUCTIONS: dict[Any, Reduction] = {
    None: Full(),
    "trace": Trace(),
    "diagonal": Diagonal(),
    "sum": Trace(collapsed=True),
}


def read_reduction(reduce: Any) -> Reduction:
    """The reduction of that name."""
    names = [name for name in REDUCTIONS if name == reduce]
    if not names:
        raise InputError(
            f"reduce: must be None, 'trace', 'diagonal' or 'sum', got {reduce!r}. "
            "None keeps all pairs of outputs, of shape (n1, n2, c, c)."
        )
    return REDUCTIONS[names[0]]
