"""The tangent map of a module on given inputs: products with J and with J^T, J itself never formed.

push forward:  J direction,  directions in parameter space to outputs (forward mode)
pull back:     J^T vector,   outputs to parameter space (reverse mode)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.memory import read_bytes, shown_bytes
from flowbias.kernels.module_input import Inputs, Network, Tensor, call_at, check_finite, gradients
from flowbias.kernels.trial import Trial
from flowbias.problem import InputError

# Graphs that a product keeps at once: that of the call, of its derivative, and what passes by.
_GRAPHS = 4


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


def value_and_change(
    module: Any, at: dict[str, Tensor], direction: dict[str, Tensor], inputs: Inputs
) -> tuple[Tensor, Tensor]:
    """f at the parameters `at`, and J direction, which can be differentiated by the direction."""
    func = require_torch().func
    try:
        with plain_attention():
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
            (change,) = torch.autograd.grad(product, w, create_graph=further)
        except RuntimeError as error:
            raise InputError(
                "module: must have derivatives in forward mode, or twice backward, to be "
                f"linearized, got {type(error).__name__}: {str(error).splitlines()[0]} "
                "tangent_kernel needs one derivative only."
            ) from error
    return outputs.detach(), change


@dataclass(frozen=True)
class TangentMap:
    """J at the module's parameters, on the given inputs, some samples at a time."""

    network: Network
    name: str
    inputs: Inputs
    outputs: int
    block: int

    @classmethod
    def of(cls, network: Network, name: str, x: Any, max_memory: Any) -> TangentMap:
        budget = read_bytes(max_memory)
        inputs = network.read_inputs(name, x)
        with network.undisturbed():
            trial = Trial.of(network, name, inputs)
            trial.misfits(())  # refuses modules whose samples are not independent
        sample = _GRAPHS * (trial.graph_bytes + trial.values[0].nbytes)
        if budget < sample:
            raise InputError(
                f"max_memory: must be at least what one row of the kernel needs, "
                f"{shown_bytes(sample)} for this module and these inputs, got "
                f"{shown_bytes(budget)}. Raise it to {sample} bytes or more."
            )
        return cls(network, name, inputs, trial.outputs, min(len(inputs[0]), budget // sample))

    @property
    def samples(self) -> int:
        return len(self.inputs[0])

    def values(self) -> Tensor:
        """f(x): (samples, outputs)."""
        torch = require_torch()
        # With derivatives on: a module may take some of its own on the way.
        with self.network.undisturbed():
            found = torch.cat([self.network.outputs(part).detach() for _, part in self._blocks()])
        check_finite(found, self.name, 0)
        return found

    def pull_back(self, vector: Tensor) -> dict[str, Tensor]:
        """J^T vector by name of the parameter; vector (samples, outputs)."""
        torch = require_torch()
        parameters = list(self.network.parameters.values())
        total = [torch.zeros_like(parameter) for parameter in parameters]
        with self.network.undisturbed():
            for rows, part in self._blocks():
                found = torch.autograd.grad(
                    self.network.outputs(part), parameters, vector[rows], allow_unused=True
                )
                for sum_of, gradient in zip(total, found, strict=True):
                    if gradient is not None:
                        sum_of += gradient
        return dict(zip(self.network.parameters, total, strict=True))

    def push_forward(self, direction: dict[str, Tensor]) -> Tensor:
        """J direction: (samples, outputs)."""
        torch = require_torch()
        at = {name: parameter.detach() for name, parameter in self.network.parameters.items()}
        parts = []
        with self.network.undisturbed(gradients_on=False):
            for _, part in self._blocks():
                _, moved = value_and_change(self.network.module, at, direction, part)
                parts.append(moved.detach().reshape(len(part[0]), -1))
        return torch.cat(parts)

    def _blocks(self) -> Iterator[tuple[slice, Inputs]]:
        for start in range(0, self.samples, self.block):
            rows = slice(start, start + self.block)
            yield rows, tuple(part[rows] for part in self.inputs)
