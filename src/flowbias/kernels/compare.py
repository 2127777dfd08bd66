"""How far two kernels, or a kernel and the labels, are apart.

Kernels are tensors or arrays alike, (n1, n2, c, c) or a reduction of it, or one matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError, as_reals
from flowbias.ground.typing import FloatArray


def as_doubles(name: str, values: Any, fix: str) -> FloatArray:
    """Real numbers in double precision, of a tensor, an array or nested lists."""
    return as_reals(name, values, fix).astype(np.float64, copy=False)


def kernel_matrix(kernel: Any) -> NDArray[Any]:
    """A kernel (n1, n2, c, c) as the matrix (n1 c, n2 c) it stands for; (n1, n2) as it is.

    Parameters
    ----------
    kernel : (n1, n2, c, c) or (n1, n2)

    Returns
    -------
    array of two dimensions

    Raises
    ------
    InputError for another shape

    >>> kernel_matrix(np.ones((2, 5, 3, 3))).shape
    (6, 15)
    """
    array = as_reals("kernel", kernel, "Pass what tangent_kernel returns.")
    if array.ndim == 2:
        return array
    if array.ndim != 4 or array.shape[2] != array.shape[3]:
        raise InputError(
            f"kernel: must have shape (n1, n2, c, c) or (n1, n2), got {array.shape}. "
            'Compute it with reduce=None, "trace" or "sum".'
        )
    rows, columns, outputs, _ = array.shape
    return array.transpose(0, 2, 1, 3).reshape(rows * outputs, columns * outputs)


def relative_kernel_change(before: Any, after: Any) -> float:
    """||K_after - K_before||_F / ||K_before||_F, for kernels of any one shape.

    Parameters
    ----------
    before, after : kernels

    Returns
    -------
    float

    Raises
    ------
    InputError for kernels of two shapes

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

    Parameters
    ----------
    first, second : kernels of one shape, (n, n) or (n, n, c, c)
    centered : whether the mean over samples is subtracted from the tangent features (of each
        output)

    Returns
    -------
    float

    Raises
    ------
    InputError for arrays that are no kernels of one shape

    >>> round(kernel_alignment(np.diag([1.0, 2.0, 3.0]), np.diag([2.0, 4.0, 6.0])), 12)
    1.0
    """
    one, two = _two_kernels("first", first, "second", second)
    if centered:
        one, two = _centered("first", one), _centered("second", two)
    return _cosine(one, two, "first, second")


def label_alignment(kernel: Any, y: Any, *, centered: bool = True) -> float:
    """Alignment of a kernel with the labels' own, y y^T.

    Parameters
    ----------
    kernel : (n, n, c, c), beside which the labels' is y_ia y_jb, or (n, n), for which it is <y_i,
        y_j>
    y : (n,) or (n, c)
    centered : as for `kernel_alignment`

    Returns
    -------
    float

    Raises
    ------
    InputError for arrays that do not fit together

    >>> y = np.array([1.0, -1.0, 2.0, -2.0])
    >>> round(label_alignment(np.outer(y, y), y), 12)
    1.0
    """
    K = _kernel("kernel", kernel)
    labels = as_doubles("y", y, "Pass classes one-hot.")
    if not labels.size:
        raise InputError("y: must have one row per sample, got none. Pass the labels.")
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


def vary(labels: NDArray[Any]) -> bool:
    """Whether samples differ in their labels: otherwise centering leaves nothing of them."""
    return bool(np.any(labels != labels[:1]))


def _kernel(name: str, kernel: Any) -> NDArray[np.float64]:
    array = as_doubles(name, kernel, "Pass what tangent_kernel returns.")
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
