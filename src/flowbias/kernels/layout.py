"""Kernels as arrays: tensors and arrays alike, as (n1, n2, c, c) or as one matrix."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.problem import InputError


def as_array(values: Any) -> NDArray[Any]:
    """A NumPy array of a tensor (also one on a GPU), an array or nested lists."""
    # A tensor can only be given where torch is loaded already.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        return np.asarray(values.detach().cpu())
    return np.asarray(values)


def kernel_matrix(kernel: Any) -> NDArray[Any]:
    """A kernel (n1, n2, c, c) as the matrix (n1 c, n2 c) it stands for; (n1, n2) as it is.

    >>> kernel_matrix(np.ones((2, 5, 3, 3))).shape
    (6, 15)
    """
    array = as_array(kernel)
    if array.ndim == 2:
        return array
    if array.ndim != 4 or array.shape[2] != array.shape[3]:
        raise InputError(
            f"kernel: must have shape (n1, n2, c, c) or (n1, n2), got {array.shape}. "
            'Compute it with reduce=None, "trace" or "sum".'
        )
    rows, columns, outputs, _ = array.shape
    return array.transpose(0, 2, 1, 3).reshape(rows * outputs, columns * outputs)
