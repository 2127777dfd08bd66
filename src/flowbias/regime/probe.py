"""A module at its start and now, looked at through a few inputs: what a `Monitor` measures.

Each look takes the gradients of the present module, one input after the other by plain
differentiation, and compares them with those that were kept of the start: kernel, tangent features
and what was learned beyond the kernel all follow from these rows. Of many outputs (a language
model's) one random combination stands for all,

    f_z(x) = <z, f(x)>,  z random signs, the same for all inputs,

whose kernel is in expectation the trace over outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError, as_array
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.compare import label_alignment, relative_kernel_change, vary
from flowbias.kernels.movement import distance_from_products
from flowbias.kernels.network import (
    Inputs,
    Network,
    Tensor,
    copied,
    first_call,
    gradients,
    left_alone,
    share_statistics,
)
from flowbias.regime.data import fresh_tensors
from flowbias.regime.history import Record
from flowbias.regime.measures import most_beyond


@dataclass(frozen=True)
class _Rows:
    """Gradients (inputs, combinations, parameters) and outputs (inputs, combinations)."""

    gradients: Tensor
    outputs: Tensor

    @cached_property
    def own(self) -> Tensor:
        return _matched(self.gradients, self.gradients)

    @cached_property
    def kernel(self) -> Tensor:
        return _kernel(self)

    def joined(self, more: _Rows) -> _Rows:
        torch = require_torch()
        return _Rows(
            torch.cat([self.gradients, more.gradients]), torch.cat([self.outputs, more.outputs])
        )


class Probe:
    """Holds a copy of a module as it was, in eval mode, and one that follows it.

    `all_outputs` of each input are looked at, or one combination of them. It starts with no inputs:
    `grow` takes the gradients of the start.
    """

    def __init__(
        self, module: Any, start: Any, x: Inputs, labels: FloatArray | None, *, all_outputs: bool
    ) -> None:
        self.module, self.start = module, start
        self.now = copied(start)
        self._x, self._labels, self.all_outputs = x, labels, all_outputs
        self._new = fresh_tensors(x, len(x[0]))
        self._signs: Tensor | None = None
        self._origin = _flat(Network.read(self.start))
        self._buffer: Tensor | None = None
        self.rows: _Rows | None = None
        self._elsewhere: _Rows | None = None
        #: whether running statistics moved since the last look, so that the start was taken anew
        self.unsettled = False

    @property
    def inputs(self) -> int:
        """How many are looked at."""
        return 0 if self.rows is None else len(self.rows.outputs)

    def grow(self, inputs: int) -> None:
        """Look at so many inputs from now on."""
        network, part = Network.read(self.start), slice(self.inputs, inputs)
        kept = self.rows, self._elsewhere
        x, new = (tuple(p[part] for p in parts) for parts in (self._x, self._new))
        found = self._gradients(network, x), self._gradients(network, new)
        self.rows, self._elsewhere = (
            more if rows is None else rows.joined(more)
            for rows, more in zip(kept, found, strict=True)
        )

    def look(self, step: int, seconds: float, loss: float | None) -> Record:
        """Where the module is now; refused where it is no longer the one of the start."""
        self._catch_up()
        if self.unsettled:
            inputs = self.inputs
            self.rows = self._elsewhere = None
            self.grow(inputs)
        start, other = self.rows, self._elsewhere
        if start is None or other is None:
            raise RuntimeError("a probe has no inputs before it has grown")
        network = Network.read(self.now)
        some, new = (tuple(p[: self.inputs] for p in parts) for parts in (self._x, self._new))
        now = self._gradients(network, some, self._buffer)
        with gradients(on=False):
            moved = _flat(network).sub_(self._origin)
            linear = [rows.gradients @ moved for rows in (start, other)]
            outputs = now.outputs, self._combined(network, new)
            kernel = _kernel(now)
            # In the place of the gradients, which are many numbers: nothing needs them any more.
            change = now.gradients.sub_(start.gradients)
            products = start.own, _matched(start.gradients, change), _matched(change, change)
        values = [
            [as_array(part) for part in parts]
            for parts in zip((start.outputs, other.outputs), outputs, linear, strict=True)
        ]
        # Of one combination on both inputs and new ones, being so few.
        if not self.all_outputs:
            values = [[np.concatenate(parts) for parts in zip(*values, strict=True)]]
        turned = distance_from_products(*(as_array(part).astype(np.float64) for part in products))
        size = float(self._origin.norm())
        self._buffer = now.gradients
        beyond = most_beyond(values)
        return Record(
            step=step,
            seconds=seconds,
            loss=loss,
            kernel_change=relative_kernel_change(start.kernel, kernel),
            grad_distance=turned.overall,
            parameter_movement=float(moved.norm()) / size if size > 0.0 else float("inf"),
            label_alignment=self._aligned(kernel),
            beyond=beyond.share,
            beyond_error=beyond.error,
            inputs=self.inputs,
        )

    def _aligned(self, kernel: Tensor) -> float | None:
        """None without labels, where those of the inputs are all the same, or of two inputs."""
        if self._labels is None or len(kernel) < 3:
            return None
        labels = self._labels[: len(kernel)]
        return label_alignment(kernel, labels) if vary(labels) else None

    def _gradients(self, network: Network, inputs: Inputs, buffer: Tensor | None = None) -> _Rows:
        """Of each input alone; into a buffer of their shape, if there is one."""
        torch = require_torch()
        parameters = list(network.parameters.values())
        rows, values, samples = buffer, [], len(inputs[0])
        with left_alone(network.module), gradients():
            for sample in range(samples):
                alone = tuple(part[sample : sample + 1] for part in inputs)
                outputs = self._combined(network, alone)[0]
                if rows is None or len(rows) != samples:
                    rows = parameters[0].new_empty(samples, len(outputs), network.size)
                for place, output in zip(rows[sample], outputs, strict=True):
                    found = torch.autograd.grad(
                        output,
                        parameters,
                        retain_graph=len(outputs) > 1,
                        allow_unused=True,
                        materialize_grads=True,
                    )
                    with gradients(on=False):
                        torch.cat([gradient.reshape(-1) for gradient in found], out=place)
                values.append(outputs.detach())
        return _Rows(rows, torch.stack(values))

    def _combined(self, network: Network, inputs: Inputs) -> Tensor:
        """(inputs, combinations) of the outputs, which must be finite."""
        flat = first_call(network, "x", inputs)
        if self.all_outputs:
            return flat
        if self._signs is None:
            torch = require_torch()
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(0, 2, (flat.shape[1],), generator=generator)
            self._signs = drawn.to(flat.detach()) * 2.0 - 1.0
        return (flat @ self._signs)[:, None]

    def _catch_up(self) -> None:
        """Our copy takes the values of the module that is trained."""
        with gradients(on=False):
            for ours, theirs in (
                (self.now.parameters(), self.module.parameters()),
                (self.now.buffers(), self.module.buffers()),
            ):
                pairs = list(zip_longest(ours, theirs))
                if any(a is None or b is None or a.shape != b.shape for a, b in pairs):
                    raise InputError(
                        "module: must keep the parameters and buffers that it had at the start, "
                        "got others. Make a new Monitor where the module changes."
                    )
                for target, source in pairs:
                    target.copy_(source)
        self.unsettled = share_statistics(self.start, self.now)


def _matched(first: Tensor, second: Tensor) -> Tensor:
    """<a, b> of each input with itself."""
    torch = require_torch()
    # One by one: a batched product of rows this long takes eight times as long.
    pairs = zip(first.flatten(1), second.flatten(1), strict=True)
    found: Tensor = torch.stack([torch.dot(a, b) for a, b in pairs])
    return found


def _kernel(rows: _Rows) -> Tensor:
    """K of the sum over combinations: (inputs, inputs)."""
    flat = rows.gradients.flatten(1)
    return flat @ flat.T


def _flat(network: Network) -> Tensor:
    return require_torch().cat([p.detach().reshape(-1) for p in network.parameters.values()])
