"""Chizat's doubling: a network that is zero at the start, whatever the scale.

    F(x; theta_1, theta_2) = f(x; theta_1) - f(x; theta_2),    theta_1(0) = theta_2(0)

[woodworth2020, Section 2 and B.1, after Chizat, Oyallon and Bach 2019]. No factor is put in front,
as in the papers' w_+^D - w_-^D: the tangent kernel at the start is twice that of f, and each copy
moves as f would, in opposite directions. (With a factor 1/sqrt(2) the kernel would be that of f.)
"""

from __future__ import annotations

from functools import cache
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.network import copied, one_tensor
from flowbias.nets.settings import read_module


def unbiased(module: Any) -> Any:
    """A torch module that is the difference of two copies of `module`, equal at the start.

    Both copies are trained; the module itself is left alone. Frozen parameters stay frozen. Its
    output must be one tensor; dropout in training mode draws for each copy anew.

    >>> from flowbias.nets import mlp
    >>> import torch
    >>> net = unbiased(mlp((2, 5, 1), scale=100.0))
    >>> bool((net(torch.ones(3, 2)) == 0).all()), sum(p.numel() for p in net.parameters())
    (True, 30)
    """
    return doubled_class()(read_module(module))


@cache
def doubled_class() -> Any:
    """The class of what `unbiased` returns; made on first use, since it needs torch."""
    torch = require_torch()

    class Unbiased(torch.nn.Module):  # type: ignore[misc, name-defined]
        """f(x; plus) - f(x; minus)."""

        def __init__(self, module: Any) -> None:
            super().__init__()
            self.plus = copied(module)
            self.minus = copied(module)
            self.train(module.training)

        def forward(self, *inputs: Any, **named: Any) -> Any:
            plus, minus = (one_tensor(f(*inputs, **named)) for f in (self.plus, self.minus))
            return plus - minus

    Unbiased.__qualname__ = "Unbiased"
    return Unbiased


def __getattr__(name: str) -> Any:
    """Lets pickle, and with it torch.save, find the class that only exists where torch does."""
    if name == "Unbiased":
        return doubled_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
