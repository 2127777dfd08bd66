"""Derivatives of a module by its parameters through torch.func: Jacobians, and products with J.

All samples at once by `torch.vmap` where the module allows it, one sample after the other where it
does not (data-dependent branches, operations without a batching rule); J u in forward mode, or by
differentiating backward twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.network import (
    Inputs,
    Network,
    Tensor,
    call_at,
    derivatives,
    flat_outputs,
    gradients,
    half_the_digits,
    normals,
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

    with _no_new_data()():
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
