"""The largest stable step of descent, from the tangent kernel.

Squared loss (c/2) ||f - y||^2 in the kernel regime contracts each eigenvector of the kernel by
1 - step * c * lambda per step: stable as long as step < 2 / (c lambda_max).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.kernels.compare import kernel_matrix
from flowbias.kernels.tangent import tangent_kernel
from flowbias.nets.losses import SquaredLoss, read_loss
from flowbias.nets.settings import read_module, read_positive
from flowbias.nets.training_data import read_samples
from flowbias.problem import InputError


def stable_step_size(
    module: Any, x: Any, *, loss: str | float = "squared", fraction: float = 0.5
) -> float:
    """`fraction` of 2 / (c lambda_max), for full-batch descent from where the module is now.

    The kernel of a rich start grows while it learns: take the smaller of this and a step that is
    stable at the end. The n c x n c kernel is formed.

    >>> import torch
    >>> line = torch.nn.Linear(1, 1, bias=False)
    >>> stable_step_size(line, [[2.0]], fraction=1.0)  # 2 / 2^2
    0.5
    """
    cost = read_loss(loss)
    if not isinstance(cost, SquaredLoss):
        raise InputError(
            f"loss: must be squared loss, got {cost.name}. For other losses try a few step sizes."
        )
    part = read_positive("fraction", fraction, "Below 1 the step is stable.")
    samples = read_samples("x", x, next(read_module(module).parameters()))
    kernel = np.asarray(kernel_matrix(tangent_kernel(module, samples)), dtype=float)
    largest = float(np.linalg.eigvalsh(kernel)[-1])
    if not largest > 0.0:
        raise InputError(
            f"module: must have a tangent kernel above zero on x, got {largest}. No step moves it; "
            "start it at another point."
        )
    return 2.0 * part / (cost.constant(len(samples)) * largest)
