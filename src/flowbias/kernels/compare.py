"""How far two kernels, or a kernel and the labels, are from each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.kernels.layout import as_array
from flowbias.problem import InputError


def relative_kernel_change(before: Any, after: Any) -> float:
    """||K_after - K_before||_F / ||K_before||_F, for kernels of any one shape.

    >>> relative_kernel_change(np.eye(2), 3.0 * np.eye(2))
    2.0
    """
    first, second = _two_kernels("before", before, "after", after)
    size = float(np.linalg.norm(first))
    if size == 0.0:
        raise InputError(
            "before: must not vanish, got a kernel of zeros. No parameter moves any output there: "
            "start from other parameters."
        )
    return float(np.linalg.norm(second - first)) / size


def kernel_alignment(first: Any, second: Any, *, centered: bool = True) -> float:
    """<K, K'>_F / (||K||_F ||K'||_F), between -1 and 1; centered over samples by default.

    Centering subtracts the mean over samples from the tangent features (of each output).

    >>> round(kernel_alignment(np.diag([1.0, 2.0, 3.0]), np.diag([2.0, 4.0, 6.0])), 12)
    1.0
    """
    one, two = _two_kernels("first", first, "second", second)
    if centered:
        one, two = _centered("first", one), _centered("second", two)
    return _cosine(one, two, "first, second")


def label_alignment(kernel: Any, y: Any, *, centered: bool = True) -> float:
    """Alignment of a kernel with the labels' own, y y^T; y (n,) or (n, c).

    For a kernel (n, n, c, c) the labels' is y_ia y_jb, for a reduced one (n, n) it is <y_i, y_j>.

    >>> y = np.array([1.0, -1.0, 2.0, -2.0])
    >>> round(label_alignment(np.outer(y, y), y), 12)
    1.0
    """
    K = _kernel("kernel", kernel)
    labels = np.asarray(as_array(y), dtype=np.float64)
    if not np.isfinite(labels).all():
        raise InputError("y: must be finite, got NaN or infinity. Drop or impute such entries.")
    Y = labels.reshape(len(labels), -1) if labels.ndim else labels.reshape(1, 1)
    if K.ndim == 3 or K.shape[0] != K.shape[1]:
        raise InputError(
            f"kernel: must be (n, n) or (n, n, c, c), of inputs with themselves, got {K.shape}. "
            'Leave out x2, and use reduce=None, "trace" or "sum".'
        )
    if len(Y) != len(K) or (K.ndim == 4 and Y.shape[1] != K.shape[2]):
        wanted = (len(K),) if K.ndim == 2 else (len(K), K.shape[2])
        raise InputError(
            f"y: must have one row per sample of the kernel and one column per output, "
            f"{wanted}, got {labels.shape}. Pass classes one-hot."
        )
    target = Y @ Y.T if K.ndim == 2 else np.einsum("ia,jb->ijab", Y, Y)
    if centered:
        K, target = _centered("kernel", K), _centered("y", target)
    return _cosine(K, target, "kernel, y")


def _kernel(name: str, kernel: Any) -> NDArray[np.float64]:
    array = np.asarray(as_array(kernel), dtype=np.float64)
    if array.ndim not in (2, 3, 4):
        raise InputError(
            f"{name}: must be a kernel of shape (n1, n2), (n1, n2, c) or (n1, n2, c, c), got "
            f"{array.shape}. Pass what tangent_kernel returns."
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"{name}: must be finite, got NaN or infinity. Check the module that it comes from."
        )
    return array


def _two_kernels(
    first_name: str, first: Any, second_name: str, second: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    one, two = _kernel(first_name, first), _kernel(second_name, second)
    if one.shape != two.shape:
        raise InputError(
            f"{second_name}: must have the shape of {first_name}, {one.shape}, got {two.shape}. "
            "Compute both on the same inputs with the same reduce."
        )
    return one, two


def _centered(name: str, kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    if kernel.shape[0] != kernel.shape[1]:
        raise InputError(
            f"{name}: must be a kernel of inputs with themselves to be centered, got "
            f"{kernel.shape}. Leave out x2, or pass centered=False."
        )
    rows = kernel - kernel.mean(axis=0, keepdims=True)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def _cosine(first: NDArray[np.float64], second: NDArray[np.float64], names: str) -> float:
    sizes = float(np.linalg.norm(first)), float(np.linalg.norm(second))
    if 0.0 in sizes:
        raise InputError(
            f"{names}: must not vanish, got zeros (constant features or labels, once centered). "
            "Pass centered=False, or other samples."
        )
    return float(np.vdot(first / sizes[0], second / sizes[1]))
