"""Few outputs of a module that has many: chosen ones, random combinations, or its loss.

A language model has vocabulary x length outputs a sample, and each costs a pass back. What is read
off them is a module again, on the same parameters, so that everything here takes it: kernels,
products, eigenpairs, twins, the regime.

Signs z at random have E[z z^T] = I, so that the kernel of the combination z^T f has the trace as
its expectation,

    E[z^T K(x, x') z] = sum_a K_aa(x, x'),

and a few draws estimate it, and how far off they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from flowbias.ground.arguments import InputError, read_size
from flowbias.ground.torch import require_torch
from flowbias.kernels.network import Network, Tensor, first_call, flat_outputs, gradients, unwrapped
from flowbias.kernels.tangent import tangent_kernel


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
    places = list(outputs)
    if not places or not all(type(place) is int for place in places):
        raise InputError(
            f"outputs: must be one integer or more, got {outputs!r}. Count through all dimensions "
            "but that of samples."
        )
    return _readout_class()(
        unwrapped(module), lambda found: flat_outputs(found, len(found))[:, places], 0
    )


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
    torch, network = require_torch(), Network.read(module)
    inputs = network.read_inputs("x1", x1)
    with network.undisturbed(), gradients(on=False):
        outputs = first_call(network, "x1", tuple(part[:1] for part in inputs)).shape[1]
    generator = torch.Generator().manual_seed(seed)
    signs = 2.0 * torch.randint(0, 2, (count, outputs), generator=generator) - 1.0
    signs = signs.to(network.like.detach())
    combined = _readout_class()(
        network.module, lambda found: flat_outputs(found, len(found)) @ signs.T, 0
    )
    kernels = tangent_kernel(combined, x1, x2, reduce="diagonal", max_memory=max_memory)
    return TraceEstimate(kernels.mean(2), kernels.std(2) / count**0.5)
