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
    first_call,
    gradients,
    left_alone,
    statistics,
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


class Probe:
    """Holds a copy of a module, in eval mode, that is where the module started, or where it is now.

    Of each input `combinations` of its outputs are looked at: all of them, or one. It starts with
    no inputs: `grow` takes the gradients of the start. Memory that is new takes the system as long
    as the gradients it is for take to compute: there is one copy, and what is held is used again.
    """

    def __init__(
        self, module: Any, network: Network, x: Inputs, labels: FloatArray | None, combinations: int
    ) -> None:
        self.module, self.network = module, network
        self._x, self._labels, self.combinations = x, labels, combinations
        self._new = fresh_tensors(x, len(x[0]))
        self._signs: Tensor | None = None
        self._origin = _flat(network)
        self._size = float(self._origin.norm())
        self._own = {id(parameter) for parameter in network.parameters.values()}
        #: what else the copy holds, and what that was at the start, under the present statistics
        self._beside = [
            (part, part.detach().clone())
            for part in (*network.module.parameters(), *network.module.buffers())
            if id(part) not in self._own
        ]
        self._statistics = {id(getattr(*place)) for place in statistics(network.module)}
        #: room for gradients: of the start, of the start on new inputs, and now
        self._room: Tensor | None = None
        self.rows: _Rows | None = None
        self._elsewhere: _Rows | None = None
        #: whether running statistics move from look to look, so that the start is taken anew
        self.unsettled = bool(self._statistics)

    @property
    def inputs(self) -> int:
        """How many are looked at."""
        return 0 if self.rows is None else len(self.rows.outputs)

    def grow(self, inputs: int) -> None:
        """Look at so many inputs from now on."""
        self._go_back()
        part, room, found = slice(self.inputs, inputs), self._room_for(inputs), []
        with left_alone(self.network.module):
            for rows, own, given in (
                (self.rows, room[0], self._x),
                (self._elsewhere, room[1], self._new),
            ):
                more = self._gradients(tuple(p[part] for p in given), own[part])
                values = more if rows is None else require_torch().cat([rows.outputs, more])
                found.append(_Rows(own[:inputs], values))
        self.rows, self._elsewhere = found

    def _room_for(self, inputs: int) -> Tensor:
        """What there is, or more with what was there."""
        held = self._room
        if held is not None and held.shape[1] >= inputs:
            return held
        self._room = room = self._origin.new_empty(3, inputs, self.combinations, self.network.size)
        if held is not None:
            room[:2, : self.inputs] = held[:2, : self.inputs]
        return room

    def look(self, step: int, seconds: float, loss: float | None) -> Record:
        """Where the module is now; refused where it is no longer the one of the start."""
        self._catch_up()
        self.unsettled = self._statistics_moved()
        if self.unsettled:
            inputs = self.inputs
            self.rows = self._elsewhere = None
            self.grow(inputs)
            self._catch_up()
        start, other = self.rows, self._elsewhere
        if start is None or other is None:
            raise RuntimeError("a probe has no inputs before it has grown")
        count = self.inputs
        some, new = (tuple(p[:count] for p in parts) for parts in (self._x, self._new))
        room = self._room_for(count)[2, :count]
        with left_alone(self.network.module):
            with gradients(on=False):
                # In the room of the gradients, which come after.
                moved = _flat(self.network, room[0, 0]).sub_(self._origin)
                distance = float(moved.norm())
                linear = [rows.gradients @ moved for rows in (start, other)]
                elsewhere = self._combined(new)
            now = _Rows(room, self._gradients(some, room))
        with gradients(on=False):
            kernel = now.kernel
            # In the place of the gradients, which are many numbers: nothing needs them any more.
            change = room.sub_(start.gradients)
            products = start.own, _matched(start.gradients, change), _matched(change, change)
        values = [
            [as_array(part) for part in parts]
            for parts in zip(
                (start.outputs, other.outputs), (now.outputs, elsewhere), linear, strict=True
            )
        ]
        # Of one combination on both inputs and new ones, being so few.
        if self.combinations == 1:
            values = [[np.concatenate(parts) for parts in zip(*values, strict=True)]]
        turned = distance_from_products(*(as_array(part).astype(np.float64) for part in products))
        # What rounding does to outputs goes with these, not with outputs alone, which may cancel.
        beyond = most_beyond(values, self._size * float(start.own.mean()) ** 0.5)
        return Record(
            step=step,
            seconds=seconds,
            loss=loss,
            kernel_change=relative_kernel_change(start.kernel, kernel),
            grad_distance=turned.overall,
            parameter_movement=distance / self._size if self._size > 0.0 else float("inf"),
            label_alignment=self._aligned(kernel),
            beyond=beyond.share,
            beyond_error=beyond.error,
            inputs=count,
        )

    def _aligned(self, kernel: Tensor) -> float | None:
        """None without labels, where those of the inputs are all the same, or of two inputs."""
        if self._labels is None or len(kernel) < 3:
            return None
        labels = self._labels[: len(kernel)]
        return label_alignment(kernel, labels) if vary(labels) else None

    def _gradients(self, inputs: Inputs, rows: Tensor) -> Tensor:
        """Outputs of each input alone, where our copy is; their gradients into `rows`."""
        torch = require_torch()
        parameters, values = list(self.network.parameters.values()), []
        with gradients():
            for sample, row in enumerate(rows):
                outputs = self._combined(tuple(p[sample : sample + 1] for p in inputs))[0]
                for place, output in zip(row, outputs, strict=True):
                    found = torch.autograd.grad(
                        output,
                        parameters,
                        retain_graph=len(outputs) > 1,
                        allow_unused=True,
                        materialize_grads=True,
                    )
                    with torch.no_grad():
                        torch.cat([gradient.reshape(-1) for gradient in found], out=place)
                    del found  # ahead of the next ones, which take its memory
                values.append(outputs.detach())
        return torch.stack(values)

    def _combined(self, inputs: Inputs) -> Tensor:
        """(inputs, combinations) of the outputs, which must be finite."""
        flat = first_call(self.network, "x", inputs)
        if flat.shape[1] == self.combinations:
            return flat
        if self._signs is None:
            torch = require_torch()
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(0, 2, (flat.shape[1],), generator=generator)
            self._signs = drawn.to(flat.detach()) * 2.0 - 1.0
        return (flat @ self._signs)[:, None]

    def _go_back(self) -> None:
        """Our copy takes the values of the start, under the present statistics."""
        parameters = self.network.parameters.values()
        with gradients(on=False):
            parts = self._origin.split([parameter.numel() for parameter in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))
            for target, source in self._beside:
                target.copy_(source)

    def _catch_up(self) -> None:
        """Our copy takes the values of the module that is trained."""
        copy = self.network.module
        with gradients(on=False):
            ours = [*copy.parameters(), *copy.buffers()]
            pairs = list(zip_longest(ours, (*self.module.parameters(), *self.module.buffers())))
            if not self._own.issubset(map(id, ours)) or any(
                a is None or b is None or a.shape != b.shape for a, b in pairs
            ):
                raise InputError(
                    "module: must keep the parameters and buffers that it had at the start, "
                    "got others. Make a new Monitor where the module changes."
                )
            for target, source in pairs:
                target.copy_(source)

    def _statistics_moved(self) -> bool:
        """Whether running statistics are others than those of the start, which takes them over."""
        moved = [
            (present, kept)
            for present, kept in self._beside
            if id(present) in self._statistics and not bool((present == kept).all())
        ]
        for present, kept in moved:
            kept.copy_(present)
        return bool(moved)


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


def _flat(network: Network, out: Tensor | None = None) -> Tensor:
    parts = [parameter.detach().reshape(-1) for parameter in network.parameters.values()]
    return require_torch().cat(parts, out=out)
