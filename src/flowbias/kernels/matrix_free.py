"""Where the kernel is too large: as an operator, or of few outputs.

As an operator it has products and top eigenpairs without the matrix; a product costs one pass back
and one forward over the inputs. Vectors have one entry per sample and output, outputs fastest: the
order of `kernel_matrix`.

A language model has vocabulary x length outputs a sample, and each costs a pass back. What is read
off them (chosen ones, random combinations, the loss) is a module again, on the same parameters, so
that everything here takes it: kernels, products, eigenpairs, twins, the regime.

Signs z at random have E[z z^T] = I, so that the kernel of the combination z^T f has the trace as
its expectation,

    E[z^T K(x, x') z] = sum_a K_aa(x, x'),

and a few draws estimate it, and how far off they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from flowbias.ground.arguments import (
    InputError,
    as_array,
    as_float,
    read_count,
    read_size,
    shown,
)
from flowbias.ground.torch import require_torch
from flowbias.kernels.closed_form import closed_kernel, declared_by
from flowbias.kernels.compare import as_doubles, kernel_matrix
from flowbias.kernels.network import (
    Network,
    Tensor,
    first_call,
    flat_outputs,
    gradients,
    left_alone,
    unwrapped,
)
from flowbias.kernels.tangent import TangentMap, tangent_kernel


class Eigenpairs(NamedTuple):
    """Eigenvalues, largest first, and eigenvectors of shape (samples, outputs, how many)."""

    values: NDArray[Any]
    vectors: NDArray[Any]


def tangent_vector_product(
    module: Any,
    x1: Any,
    vector: Any,
    x2: Any = None,
    *,
    one_by_one: bool = False,
    max_memory: int | str = "1GiB",
) -> Any:
    """K(x1, x2) vector, at the cost of two passes over the inputs.

    Whatever the number of parameters or samples.

    Parameters
    ----------
    module, x1, x2, one_by_one : as for `tangent_kernel`
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
        given = as_doubles("vector", vector, "Pass one number per sample and output.")
        _check_size(given, shape, "x1" if x2 is None else "x2")
        return np.einsum("ijab,jb->ia", kernel, given.reshape(shape))
    first, second = _sides(module, x1, x2, one_by_one, max_memory)
    return first.jvp(second.vjp(_read_vector(second, vector)))


def tangent_operator(
    module: Any,
    x1: Any,
    x2: Any = None,
    *,
    one_by_one: bool = False,
    max_memory: int | str = "1GiB",
) -> Any:
    """K(x1, x2) as a scipy LinearOperator of shape (n1 c, n2 c), for any iterative method.

    Parameters
    ----------
    module, x1, x2, one_by_one : as for `tangent_kernel`
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
    first, second = _sides(module, x1, x2, one_by_one, max_memory)
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
    module: Any,
    x: Any,
    count: int = 6,
    *,
    tol: float = 0.0,
    one_by_one: bool = False,
    max_memory: int | str = "1GiB",
) -> Eigenpairs:
    """The largest eigenvalues of K(x, x) and their eigenvectors, by Lanczos' method (ARPACK).

    Parameters
    ----------
    module, x, one_by_one : as for `tangent_kernel`
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
    operator = tangent_operator(module, x, one_by_one=one_by_one, max_memory=max_memory)
    size = operator.shape[0]
    _check_count(count, size)
    within = as_float(tol)
    if within is None or not 0.0 <= within < np.inf:
        raise InputError(
            f"tol: must be a finite number >= 0, got {shown(tol)}. 0 asks for all digits."
        )
    # A fixed start, so that the same call gives the same last digits.
    start = np.random.default_rng(0).standard_normal(size).astype(operator.dtype)
    if not np.any(operator @ start):
        raise InputError(
            "module: must have a tangent kernel above zero on x, got one of zeros. No parameter "
            "moves any output there: start from other parameters."
        )
    values, vectors = scipy.sparse.linalg.eigsh(operator, k=count, which="LM", v0=start, tol=within)
    order = np.argsort(values)[::-1]
    return Eigenpairs(values[order], vectors[:, order].reshape(_samples(x), -1, count))


def _sides(
    module: Any, x1: Any, x2: Any, one_by_one: bool, max_memory: int | str
) -> tuple[TangentMap, TangentMap]:
    """Proved, and found to fit into memory, before any product is asked for."""
    options: Any = {"one_by_one": one_by_one, "max_memory": max_memory}
    first = TangentMap(module, x1, name="x1", **options).ready()
    return first, first if x2 is None else TangentMap(module, x2, name="x2", **options).ready()


def _check_count(count: Any, size: int) -> None:
    whole = isinstance(count, Integral) and not isinstance(count, bool)
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
    if not isinstance(vector, torch.Tensor):
        vector = as_doubles("vector", vector, "Pass one number per sample and output.")
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


@cache
def _readout_class() -> Any:
    torch = require_torch()

    class ReadOut(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """of(module(*inputs), *more): the last `more` inputs are for the read-out alone."""

        def __init__(self, module: Any, of: Callable[..., Any], more: int) -> None:
            super().__init__()
            self.module, self.of, self.more = module, of, more
            self.training = module.training

        def forward(self, *inputs: Any) -> Any:
            own = inputs[: len(inputs) - self.more]
            return self.of(self.module(*own), *inputs[len(own) :])

    return ReadOut


def chosen_outputs(module: Any, outputs: Sequence[int]) -> Any:
    """A module of the same parameters with some of the outputs, each sample's flattened.

    Parameters
    ----------
    module : a torch.nn.Module
    outputs : which of them, counted through all dimensions but that of samples

    Returns
    -------
    a torch.nn.Module, which holds the module itself, not a copy

    Raises
    ------
    InputError for no outputs, or others than integers

    >>> import torch
    >>> net = torch.nn.Linear(2, 1000)
    >>> tangent_kernel(chosen_outputs(net, [3, 999]), torch.ones(5, 2)).shape
    torch.Size([5, 5, 2, 2])
    """
    places = _listed(outputs)
    if not places or not all(type(place) is int for place in places):
        raise InputError(
            f"outputs: must be one integer or more, got {outputs!r}. Count through all dimensions "
            "but that of samples."
        )

    def of(found: Any) -> Any:
        flat = flat_outputs(found, len(found))
        count = flat.shape[1]
        beyond = [place for place in places if not -count <= place < count]
        if beyond:
            raise InputError(
                f"outputs: must be below the {count} outputs that the module has, got {beyond[0]}. "
                "Count from 0, through all dimensions but that of samples."
            )
        return flat[:, places]

    return _readout_class()(unwrapped(module), of, 0)


def _listed(given: Any) -> list[Any]:
    try:
        return list(given)
    except TypeError:  # a number, or an array that is one
        return []


def loss_outputs(module: Any, loss: Callable[[Any, Any], Any]) -> Any:
    """A module of (x, y) whose one output is each sample's loss: kernels of its gradients.

    Parameters
    ----------
    module : a torch.nn.Module of x
    loss : from the outputs and y to one number per sample, or to several that are added up, as
        torch.nn.functional.cross_entropy with reduction="none" does

    Returns
    -------
    a torch.nn.Module, which holds the module itself, to be called with the inputs and y

    Raises
    ------
    InputError for a module that is none

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> losses = loss_outputs(net, lambda f, y: 0.5 * (f - y) ** 2)
    >>> tangent_kernel(losses, (torch.ones(3, 2), torch.zeros(3, 1))).shape
    torch.Size([3, 3, 1, 1])
    """

    def of(found: Any, targets: Any) -> Any:
        return flat_outputs(loss(found, targets), len(targets)).sum(1)

    return _readout_class()(unwrapped(module), of, 1)


class TraceEstimate(NamedTuple):
    """The kernel's trace over outputs (n1, n2) from random combinations, and its standard error."""

    kernel: Tensor
    error: Tensor


def estimated_trace(
    module: Any,
    x1: Any,
    x2: Any = None,
    *,
    draws: int = 8,
    seed: int = 0,
    max_memory: int | str = "1GiB",
) -> TraceEstimate:
    """tangent_kernel(module, x1, x2, reduce="trace") at the cost of `draws` outputs.

    Parameters
    ----------
    module, x1, x2, max_memory : as for `tangent_kernel`
    draws : random combinations, two or more; the error falls with their square root
    seed : of the signs

    Returns
    -------
    TraceEstimate: the mean over draws, and the standard error of the mean in each entry

    Raises
    ------
    InputError for a module or inputs that cannot be used

    >>> import torch
    >>> net, x = torch.nn.Linear(2, 1000), torch.eye(2)
    >>> estimate = estimated_trace(net, x)
    >>> [float(entry) for entry in estimate.kernel[0]]  # exact here: outputs share no parameter
    [2000.0, 1000.0]
    """
    count = read_size("draws", draws, "two or more, as their spread is the error")
    if count < 2:
        raise InputError(f"draws: must be at least 2, got {draws}. Their spread is the error.")
    start = read_count("seed", seed, "Try 0.", at_least=0)
    if start >= 2**64:
        raise InputError(f"seed: must be < 2**64, got {shown(seed)}. Try 0.")
    torch, network = require_torch(), Network.read(module)
    inputs = network.read_inputs("x1", x1)
    with left_alone(network.module), gradients(on=False):
        outputs = first_call(network, "x1", tuple(part[:1] for part in inputs)).shape[1]
    generator = torch.Generator().manual_seed(start)
    signs = 2.0 * torch.randint(0, 2, (count, outputs), generator=generator) - 1.0
    signs = signs.to(network.like.detach())
    combined = _readout_class()(
        network.module, lambda found: flat_outputs(found, len(found)) @ signs.T, 0
    )
    kernels = tangent_kernel(combined, x1, x2, reduce="diagonal", max_memory=max_memory)
    return TraceEstimate(kernels.mean(2), kernels.std(2) / count**0.5)
