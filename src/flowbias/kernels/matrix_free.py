"""The tangent kernel as an operator: products and top eigenpairs without the matrix.

A product costs one pass back and one forward over the inputs. Vectors have one entry per sample
and output, outputs fastest: the order of `kernel_matrix`.
"""

from __future__ import annotations

from math import prod
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.closed_form import closed_kernel, declared_by
from flowbias.kernels.compare import as_array, kernel_matrix
from flowbias.kernels.network import Tensor
from flowbias.kernels.tangent import TangentMap


class Eigenpairs(NamedTuple):
    """Eigenvalues, largest first, and eigenvectors of shape (samples, outputs, how many)."""

    values: NDArray[Any]
    vectors: NDArray[Any]


def tangent_vector_product(
    module: Any, x1: Any, vector: Any, x2: Any = None, *, max_memory: int | str = "1GiB"
) -> Any:
    """K(x1, x2) vector, at the cost of two passes over the inputs.

    Whatever the number of parameters or samples.

    Parameters
    ----------
    module, x1, x2 : as for `tangent_kernel`
    vector : (n2, c)
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    (n1, c)

    Raises
    ------
    InputError for a module or inputs that cannot be used

    >>> import torch
    >>> net, x = torch.nn.Linear(2, 1), torch.tensor([[1.0, 2.0]])
    >>> tangent_vector_product(net, x, torch.ones(1, 1))  # <x, x> + 1
    tensor([[6.]])
    """
    if declared_by(module):
        kernel = closed_kernel(module, x1, x2)
        shape = kernel.shape[1], kernel.shape[3]
        given = np.asarray(as_array(vector), dtype=np.float64)
        _check_size(given, shape, "x1" if x2 is None else "x2")
        return np.einsum("ijab,jb->ia", kernel, given.reshape(shape))
    first, second = _sides(module, x1, x2, max_memory)
    return first.jvp(second.vjp(_read_vector(second, vector)))


def tangent_operator(
    module: Any, x1: Any, x2: Any = None, *, max_memory: int | str = "1GiB"
) -> Any:
    """K(x1, x2) as a scipy LinearOperator of shape (n1 c, n2 c), for any iterative method.

    Parameters
    ----------
    module, x1, x2 : as for `tangent_kernel`
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    scipy.sparse.linalg.LinearOperator

    Raises
    ------
    InputError for a module or inputs that cannot be used

    >>> import torch
    >>> operator = fb.kernels.tangent_operator(torch.nn.Linear(2, 3), torch.eye(2))
    >>> operator.shape
    (6, 6)
    """
    if declared_by(module):
        kernel = closed_kernel(module, x1, x2)
        return scipy.sparse.linalg.aslinearoperator(kernel_matrix(kernel))
    torch = require_torch()
    first, second = _sides(module, x1, x2, max_memory)
    network = first.network

    def product(left: TangentMap, right: TangentMap, vector: NDArray[Any]) -> NDArray[Any]:
        given = torch.as_tensor(np.ascontiguousarray(vector).reshape(right.samples, -1))
        moved = left.jvp(right.vjp(given.to(network.device, network.dtype)))
        return as_array(moved).reshape(-1)

    return scipy.sparse.linalg.LinearOperator(
        shape=(first.samples * first.outputs, second.samples * second.outputs),
        matvec=lambda vector: product(first, second, vector),
        rmatvec=lambda vector: product(second, first, vector),
        dtype=as_array(torch.zeros((), dtype=network.dtype)).dtype,
    )


def top_eigenpairs(
    module: Any, x: Any, count: int = 6, *, tol: float = 0.0, max_memory: int | str = "1GiB"
) -> Eigenpairs:
    """The largest eigenvalues of K(x, x) and their eigenvectors, by Lanczos' method (ARPACK).

    Parameters
    ----------
    module, x : as for `tangent_kernel`
    count : how many
    tol : ARPACK's relative accuracy, 0 for that of the module's dtype
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    Eigenpairs, values and vectors

    Raises
    ------
    InputError for a module or inputs that cannot be used

    >>> import torch
    >>> pairs = top_eigenpairs(torch.nn.Linear(3, 1), torch.eye(3), count=1)
    >>> round(float(pairs.values[0]), 5)  # I + 1 1^T
    4.0
    """
    operator = tangent_operator(module, x, max_memory=max_memory)
    size = operator.shape[0]
    _check_count(count, size)
    # A fixed start, so that the same call gives the same last digits.
    start = np.random.default_rng(0).standard_normal(size).astype(operator.dtype)
    if not np.any(operator @ start):
        raise InputError(
            "module: must have a tangent kernel above zero on x, got one of zeros. No parameter "
            "moves any output there: start from other parameters."
        )
    values, vectors = scipy.sparse.linalg.eigsh(operator, k=count, which="LM", v0=start, tol=tol)
    order = np.argsort(values)[::-1]
    return Eigenpairs(values[order], vectors[:, order].reshape(_samples(x), -1, count))


def _sides(module: Any, x1: Any, x2: Any, max_memory: int | str) -> tuple[TangentMap, TangentMap]:
    """Proved, and found to fit into memory, before any product is asked for."""
    first = TangentMap(module, x1, name="x1", max_memory=max_memory).ready()
    if x2 is None:
        return first, first
    return first, TangentMap(module, x2, name="x2", max_memory=max_memory).ready()


def _check_count(count: Any, size: int) -> None:
    whole = isinstance(count, Integral)
    if not whole or not 1 <= count < size:
        raise InputError(
            f"count: must be an integer, at least 1 and below samples * outputs = {size}, got "
            f"{count!r}. For all of them use "
            "numpy.linalg.eigh(kernel_matrix(tangent_kernel(module, x)))."
        )


def _samples(x: Any) -> int:
    return len(x[0]) if isinstance(x, tuple | list) else len(x)


def _read_vector(target: TangentMap, vector: Any) -> Tensor:
    torch = require_torch()
    given = torch.as_tensor(vector, dtype=target.network.dtype, device=target.network.device)
    shape = target.samples, target.outputs
    _check_size(given, shape, target.name)
    return given.reshape(shape)


def _check_size(vector: Any, shape: tuple[int, int], name: str) -> None:
    if prod(vector.shape) != prod(shape):
        raise InputError(
            f"vector: must have one entry per sample and output, shape {shape}, got "
            f"{tuple(vector.shape)}. Its samples are those of {name}."
        )
