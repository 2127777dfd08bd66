"""Derivatives of a module by parameters that are put in the place of its own.

Gradients, Jacobians and products with J, through torch.func.

All samples at once by `torch.vmap` where the module allows it, one sample after the other where it
does not (data-dependent branches, operations without a batching rule); J u in forward mode, or by
differentiating backward twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.graph import derivatives
from flowbias.kernels.network import (
    Inputs,
    Network,
    Tensor,
    flat_outputs,
    gradients,
    half_the_digits,
    normals,
    one_tensor,
)


def call_at(module: Any, point: Mapping[str, Tensor], inputs: Inputs) -> Any:
    """The module's output with some of its parameters replaced, by their names.

    Names each place that holds a parameter once. Left to torch, a module that is registered under
    two names would be swapped twice, and keep the substitutes for its parameters.
    """
    names = {id(p): name for name, p in module.named_parameters() if name in point}
    places = {
        f"{prefix}.{key}" if prefix else key: point[names[id(parameter)]]
        for prefix, owner in module.named_modules()
        for key, parameter in owner.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) in names
    }
    return require_torch().func.functional_call(module, places, inputs, tie_weights=False)


def gradient_at(network: Network, inputs: Inputs, cotangent: Tensor) -> dict[str, Tensor]:
    """d <cotangent, f(inputs)> / d parameters, at the network's parameters, not its module's."""
    found = call_at(network.module, network.parameters, inputs)
    return derivatives(flat_outputs(found, len(inputs[0])), network.parameters, cotangent)


def agree(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> bool:
    """Whether gradients are equal, up to that share of the largest entry of all parameters.

    Of all: that of a shift before a softmax, say, is zero but for rounding.
    """
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    return all(
        float((found[name] - expected[name]).abs().max()) <= tolerance * largest for name in found
    )


def takes_substitutes(network: Network, inputs: Inputs) -> bool:
    """Whether derivatives by parameters that are put in the place of the module's are its own.

    A backward pass that calls the module again (the adjoint of an ODE, checkpoints) finds the
    module's own parameters back in their place.
    """
    value = one_tensor(network.module(*inputs))
    # Any weights that single out no output.
    weights = require_torch().linspace(1.0, 2.0, value.numel()).to(value.detach())
    cotangent = weights.view_as(value)
    substitutes = {
        name: parameter.detach().clone().requires_grad_(True)
        for name, parameter in network.parameters.items()
    }
    again = call_at(network.module, substitutes, inputs)
    found = derivatives(again, substitutes, cotangent)
    return agree(
        found, derivatives(value, network.parameters, cotangent), half_the_digits(cotangent)
    )


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention by its formula: the fused kernels have no forward mode and no batching rule."""
    torch = require_torch()
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        yield


@cache
def _no_new_data() -> Any:
    """A mode for calls inside of torch.func, in which assigning the data of a tensor is an error.

    A forward that converts a layer of its own (`self.head = self.head.to(dtype)`) does that, and to
    a tensor that torch.func has wrapped, which ends the process sooner or later.
    """
    torch = require_torch()

    class NoNewData(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined, unused-ignore]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func == torch.Tensor.data.__set__:
                raise RuntimeError("its forward assigns the data of a parameter")
            return func(*args, **(kwargs or {}))

    return NoNewData


def batched_jacobian(
    network: Network, names: Sequence[str], inputs: Inputs, cotangents: Tensor
) -> Tensor:
    """(samples, rows of cotangents, parameters): d <cotangent, f(x)> / d parameters."""
    torch = require_torch()
    # Detached, all of them: no graph of the others is wanted.
    at = {name: parameter.detach() for name, parameter in network.parameters.items()}
    moving = {name: at.pop(name) for name in names}

    def one_sample(*sample: Tensor) -> Any:
        def outputs(parameters: dict[str, Tensor]) -> Tensor:
            alone = tuple(part[None] for part in sample)
            return flat_outputs(call_at(network.module, {**at, **parameters}, alone), 1)[0]

        _, pull_back = torch.func.vjp(outputs, moving)
        return torch.func.vmap(lambda cotangent: pull_back(cotangent)[0])(cotangents)

    with plain_attention(), _no_new_data()(), warnings.catch_warnings():
        # One sample after the other inside of torch, and of our making: nothing for the user to do.
        warnings.filterwarnings("ignore", message="There is a performance drop because we have not")
        found = torch.func.vmap(one_sample)(*inputs)
    jacobian: Tensor = torch.cat(
        [found[name].reshape(*found[name].shape[:2], -1) for name in names], dim=2
    )
    return jacobian


def one_by_one_jacobian(
    network: Network, names: Sequence[str], inputs: Inputs, cotangents: Tensor
) -> Tensor:
    """The same, by plain differentiation of one sample after the other."""
    torch = require_torch()
    parameters = {name: network.parameters[name] for name in names}
    samples = []
    for sample in range(len(inputs[0])):
        f = network.outputs(tuple(part[sample : sample + 1] for part in inputs))
        rows = (derivatives(f, parameters, cotangent[None]) for cotangent in cotangents)
        samples.append(torch.stack([torch.cat([g.flatten() for g in r.values()]) for r in rows]))
    jacobian: Tensor = torch.stack(samples)
    return jacobian


def value_and_change(
    module: Any, at: dict[str, Tensor], direction: dict[str, Tensor], inputs: Inputs
) -> tuple[Tensor, Tensor]:
    """f at the parameters `at`, and J direction, which can be differentiated by the direction."""
    func = require_torch().func
    try:
        with plain_attention(), _no_new_data()():
            value, change = func.jvp(
                lambda point: call_at(module, point, inputs), (at,), (direction,)
            )
    except RuntimeError:  # NotImplementedError is one
        # Some operation has no forward mode: weight norm, for one, or a function of the user's own.
        return _twice_backward(module, at, direction, inputs)
    return value, change


def _twice_backward(
    module: Any, at: dict[str, Tensor], direction: dict[str, Tensor], inputs: Inputs
) -> tuple[Tensor, Tensor]:
    """J u = d/dw <J^T w, u>, at any w: the inner product is linear in it."""
    torch = require_torch()
    further = torch.is_grad_enabled()
    with gradients(), plain_attention():
        point = {name: value.detach().requires_grad_(True) for name, value in at.items()}
        outputs = call_at(module, point, inputs)
        w = torch.zeros_like(outputs, requires_grad=True)
        try:
            pulled = torch.autograd.grad(
                outputs,
                list(point.values()),
                w,
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            product = sum((p * direction[n]).sum() for n, p in zip(point, pulled, strict=True))
            (change,) = torch.autograd.grad(
                product, w, create_graph=further, retain_graph=True, materialize_grads=True
            )
        except RuntimeError as error:
            raise not_linearizable(
                f"{type(error).__name__}: {str(error).splitlines()[0]}"
            ) from error
        # A backward that leaves no record of its own (through NumPy, say) makes this zero or less.
        probe = normals(1)(outputs.shape, outputs)
        if not is_adjoint(probe, change.detach(), derivatives(outputs, point, probe), direction):
            raise not_linearizable("a backward pass that leaves no record of its own.")
    return outputs.detach(), change


def require_linearizable(network: Network, inputs: Inputs) -> None:
    """Refuse a module whose J u is not what its J^T w says; nearby where a kink parts the two."""
    if _is_linearizable(network, inputs):
        return
    if not (takes_substitutes(network, inputs) and _is_linearizable(network.nearby, inputs)):
        raise not_linearizable("products with J and with J^T that are not each other's transpose.")


def _is_linearizable(network: Network, inputs: Inputs) -> bool:
    """<w, J u> = <J^T w, u> for random w and u: a u of zeros somewhere would ask nothing there."""
    at = {name: parameter.detach() for name, parameter in network.parameters.items()}
    draw = normals(1)
    u = {name: draw(part.shape, part) for name, part in at.items()}
    _, moved = value_and_change(network.module, at, u, inputs)
    outputs = one_tensor(call_at(network.module, network.parameters, inputs))
    w = draw(outputs.shape, outputs)
    return is_adjoint(w, moved.detach(), derivatives(outputs, network.parameters, w), u)


def not_linearizable(reason: str) -> InputError:
    return InputError(
        "module: must have derivatives in forward mode, or twice backward, to be "
        f"linearized, got {reason} tangent_kernel needs one derivative only."
    )


def is_adjoint(w: Tensor, moved: Tensor, pulled: dict[str, Tensor], u: dict[str, Tensor]) -> bool:
    """Whether <w, J u> = <J^T w, u>, up to half of the digits."""
    products = [float((part * u[name].detach()).sum()) for name, part in pulled.items()]
    size = sum(float(part.norm()) * float(u[name].detach().norm()) for name, part in pulled.items())
    size += float(w.norm()) * float(moved.norm())
    return abs(float((w * moved).sum()) - sum(products)) <= half_the_digits(moved) * size
