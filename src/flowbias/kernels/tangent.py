"""The tangent kernel, of anybody's module and of the library's own models alike.

    K(x, x')_ab = <df_a(x)/dtheta, df_b(x')/dtheta>,    theta: all trainable parameters

A sum over parameters, hence over layers, so that each layer may be treated in its own way.
"""

from __future__ import annotations

from typing import Any

from flowbias.kernels.closed_form import CLOSED_FORMS
from flowbias.kernels.module_kernel import module_kernel
from flowbias.kernels.reductions import Reduce, read_reduction
from flowbias.potentials import Provides
from flowbias.routing import first_fitting


def tangent_kernel(
    module: Any,
    x1: Any,
    x2: Any = None,
    *,
    reduce: Reduce = None,
    max_memory: int | str = "1GiB",
) -> Any:
    """K(x, x')_ab = <df_a(x)/dtheta, df_b(x')/dtheta> between samples of x1 and x2 (default x1).

    `module`: any torch.nn.Module in eval mode, called with a tensor of samples along the first
    dimension (or a tuple of them for several arguments). Only parameters that require gradients
    count. Outputs beyond the first dimension are flattened: c of them. The result is a tensor of
    the module's dtype on its device:

    | reduce | shape | what |
    |---|---|---|
    | None | (n1, n2, c, c) | all pairs of outputs |
    | "trace" | (n1, n2) | sum_a K_aa |
    | "diagonal" | (n1, n2, c) | K_aa |
    | "sum" | (n1, n2) | sum_ab K_ab, the kernel of the sum of outputs |

    Exact up to rounding. Linear and Conv2d layers go by products of Gram matrices, every other
    parameter by Jacobians, chosen and verified per parameter. `max_memory` (bytes, "1GiB",
    "500MB") bounds what is held beyond the module, one gradient of it, and the result.

    A model of this library (`DiagonalNet`, `LinearNet`, ...) has its closed form: x1 and x2 are
    NumPy arrays of samples x features, and the result is one, of the same shapes.

    >>> import torch
    >>> net = torch.nn.Linear(2, 3)
    >>> kernel = tangent_kernel(net, torch.tensor([[1.0, 2.0]]))
    >>> kernel.shape, float(kernel[0, 0, 1, 1])  # <x, x> + 1 for each output
    (torch.Size([1, 1, 3, 3]), 6.0)
    """
    reduction = read_reduction(reduce)
    declared = declared_by(module)
    if declared:
        route = first_fitting(module, CLOSED_FORMS)
        return reduction.of_full(route.kernel(module, x1, x2))
    return module_kernel(module, x1, x2, reduction, max_memory)


def declared_by(module: Any) -> frozenset[Provides]:
    """What a model of the library declares; nothing for a torch module, which declares nothing."""
    declared: frozenset[Provides] = getattr(module, "provides", frozenset())
    return declared
