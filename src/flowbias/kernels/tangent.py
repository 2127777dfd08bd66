"""The tangent kernel and the map behind it, of anybody's module and of the library's own models.

    K(x, x')_ab = <df_a(x)/dtheta, df_b(x')/dtheta> = (J(x) J(x')^T)_ab,    theta: all trainable

also called the empirical NTK. It is a sum over parameters, hence over layers, so that each layer
may be treated in its own way. Products with J (JVP, forward mode) and with J^T (VJP, reverse mode)
never form it.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

from flowbias.ground.arguments import InputError, depth_inside
from flowbias.ground.torch import require_torch
from flowbias.kernels.closed_form import closed_kernel, declared_by
from flowbias.kernels.features import Features, Gradients, features
from flowbias.kernels.graph import record
from flowbias.kernels.jacobian import (
    agree,
    batched_jacobian,
    gradient_at,
    one_by_one_jacobian,
    require_linearizable,
    takes_substitutes,
    value_and_change,
)
from flowbias.kernels.layers import Misfit
from flowbias.kernels.memory import Blocks, choose_blocks, read_bytes, shown_bytes
from flowbias.kernels.network import (
    Inputs,
    Network,
    Tensor,
    check_finite,
    gradients,
    left_alone,
)
from flowbias.kernels.products import Reduce, Tiles, read_reduction
from flowbias.kernels.trial import Plan, Trial

Answer = TypeVar("Answer")


def tangent_kernel(
    module: Any,
    x1: Any,
    x2: Any = None,
    *,
    reduce: Reduce = None,
    by_layer: bool = False,
    one_by_one: bool = False,
    out: Any = None,
    max_memory: int | str = "1GiB",
) -> Any:
    """K(x, x')_ab = <df_a(x)/dtheta, df_b(x')/dtheta> between samples of x1 and x2 (default x1).

    Exact up to rounding. What the graph of derivatives shows to be a product, a convolution, a
    table or a normalization goes without Jacobians, every other parameter by them, chosen and
    verified per parameter. Where the parameters move and x1 stays, a `TangentMap` verifies once for
    all kernels.

    | reduce | shape | what |
    |---|---|---|
    | None | (n1, n2, c, c) | all pairs of outputs |
    | "trace" | (n1, n2) | sum_a K_aa |
    | "diagonal" | (n1, n2, c) | K_aa |
    | "sum" | (n1, n2) | sum_ab K_ab, the kernel of the sum of outputs |

    Parameters
    ----------
    module : any torch.nn.Module in eval mode; only parameters that require gradients count. Or a
        model of this library (`DiagonalNet`, `LinearNet`, ...), which has its closed form
    x1, x2 : tensors of samples along the first dimension, or tuples of them for several arguments;
        for a model of the library NumPy arrays of samples x features
    reduce : what of the c outputs is wanted; those beyond the first dimension are flattened
    by_layer : whether one kernel is wanted for each part of the module that holds parameters
    one_by_one : whether the module is called with one sample at a time, as one must be whose
        samples share a step size (adaptive ODEs)
    out : where to write a kernel beyond memory, block by block: the path of a .npy file, or an
        array (a memory map) of the kernel's shape and dtype. What it held before is lost
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module, one gradient of it,
        and the result

    Returns
    -------
    a tensor of the module's dtype on its device; an array for a model of the library; with `out`
    the array, or the memory map of the file. By layer a dictionary of tensors, by the layer's name,
    which add up to the kernel

    Raises
    ------
    InputError for a module or inputs that cannot be used

    >>> import torch
    >>> net = torch.nn.Linear(2, 3)
    >>> kernel = tangent_kernel(net, torch.tensor([[1.0, 2.0]]))
    >>> kernel.shape, float(kernel[0, 0, 1, 1])  # <x, x> + 1 for each output
    (torch.Size([1, 1, 3, 3]), 6.0)
    """
    reduction = read_reduction(reduce)
    if declared_by(module):
        if by_layer:
            raise InputError(
                "by_layer: must be False for a model of this library, got True. Its closed form "
                "knows no layers."
            )
        if out is not None:
            raise InputError(
                f"out: must be None for a model of this library, got {out!r}. Its closed form is "
                "computed in memory: numpy.save writes it."
            )
        return reduction.of_full(closed_kernel(module, x1, x2))
    if by_layer and out is not None:
        raise InputError(
            f"out: must be None with by_layer=True, got {out!r}. It has room for one kernel."
        )
    options: Any = {"one_by_one": one_by_one, "max_memory": max_memory}
    first = TangentMap(module, x1, name="x1", **options)
    second = None if x2 is None else TangentMap(module, x2, name="x2", **options)
    if by_layer:
        return first.layer_kernels(second, reduce=reduce)
    return first.kernel(second, reduce=reduce, out=out)


class TangentMap:
    """J of a torch module on given inputs: its kernels, and products with J and J^T.

    How the module treats samples is proved by the first question and kept: hold on to the map where
    parameters move and inputs stay, as in training. Each answer is for the parameters of its
    moment.

    Parameters
    ----------
    module : any torch.nn.Module in eval mode
    x : inputs
    name : what errors call x
    one_by_one, max_memory : as for `tangent_kernel`

    >>> import torch
    >>> net, x = torch.nn.Linear(2, 1), torch.tensor([[1.0, 2.0]])
    >>> tangent = fb.kernels.TangentMap(net, x)
    >>> tangent.jvp(tangent.vjp(torch.ones(1, 1)))  # K = J J^T = <x, x> + 1
    tensor([[6.]])
    >>> float(tangent.kernel())
    6.0
    """

    def __init__(
        self,
        module: Any,
        x: Any,
        *,
        name: str = "x",
        one_by_one: bool = False,
        max_memory: int | str = "1GiB",
    ) -> None:
        require_torch()  # its absence is said before anything of the arguments
        self.budget = read_bytes(max_memory)
        self.network = Network.read(module)
        self.name, self.inputs = name, self.network.read_inputs(name, x)
        self.samples, self.one_by_one = len(self.inputs[0]), one_by_one
        self._excluded: frozenset[str] = frozenset()
        self._everywhere: frozenset[str] = frozenset()
        self._plan: Plan | None = None
        self._by_vmap: bool | None = None
        self._adjoint = False
        #: by block, what its samples gave alone when they were last asked
        self._own: dict[tuple[int, int], Tensor] = {}

    @property
    def outputs(self) -> int:
        """c, outputs per sample."""
        with self._at_work():
            return self.plan.trial.outputs

    def ready(self) -> TangentMap:
        """Itself, proved and found to fit into memory ahead of the first question."""
        with self._at_work():
            _ = self.block
        return self

    def kernel(
        self, other: TangentMap | None = None, *, reduce: Reduce = None, out: Any = None
    ) -> Any:
        """K between our samples and those of another map (default: our own), written to `out`."""
        return self._kernels(other, reduce, None, out)

    def layer_kernels(
        self, other: TangentMap | None = None, *, reduce: Reduce = None
    ) -> dict[str, Tensor]:
        """Shares of K by the part of the module that holds the parameters; they add up to it."""
        layers = self.network.layers
        found = self._kernels(other, reduce, tuple(map(frozenset, layers.values())))
        return dict(zip(layers, found, strict=True))

    def _kernels(
        self,
        other: TangentMap | None,
        reduce: Reduce,
        layers: tuple[frozenset[str], ...] | None,
        out: Any = None,
    ) -> Any:
        second = self if other is None else other
        reduction = read_reduction(reduce)
        tiles = Tiles(self, second, reduction, layers, out)
        paired, collapsed = reduction.paired, reduction.collapsed
        return planned_alike(self, second, tiles.kernel, paired=paired, collapsed=collapsed)

    def values(self) -> Tensor:
        """f(x): (samples, outputs)."""
        # With derivatives on: a module may take some of its own on the way.
        with self._at_work():
            found = [f.detach() for _, f in self._output_blocks()]
        values: Tensor = require_torch().cat(found)
        check_finite(values, self.name, 0)
        return values

    def vjp(self, vector: Tensor) -> dict[str, Tensor]:
        """J^T vector by name of the parameter; vector (samples, outputs)."""
        torch = require_torch()
        parameters = list(self.network.parameters.values())
        total = [torch.zeros_like(parameter) for parameter in parameters]
        with self._at_work():
            for rows, outputs in self._output_blocks():
                found = torch.autograd.grad(outputs, parameters, vector[rows], allow_unused=True)
                for sum_of, gradient in zip(total, found, strict=True):
                    if gradient is not None:
                        sum_of += gradient
        return dict(zip(self.network.parameters, total, strict=True))

    def jvp(self, direction: dict[str, Tensor]) -> Tensor:
        """J direction: (samples, outputs); direction by name of the parameter."""
        at = {name: parameter.detach() for name, parameter in self.network.parameters.items()}
        parts = []
        with self._at_work():
            blocks = list(self._blocks())
            self._require_adjoint()
            with gradients(on=False):
                for rows, part in blocks:
                    value, moved = value_and_change(self.network.module, at, direction, part)
                    self._require_own_outputs(part, rows.start, value.reshape(len(part[0]), -1))
                    parts.append(moved.detach().reshape(len(part[0]), -1))
        product: Tensor = require_torch().cat(parts)
        return product

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """The module as it is now, checked again; put back whatever calls do to it."""
        now = Network.read(self.network.module)
        if list(map(id, now.parameters.values())) != list(
            map(id, self.network.parameters.values())
        ):
            self.network, self._plan, self._by_vmap, self._own = now, None, None, {}
        with left_alone(self.network.module), gradients():
            yield

    @property
    def plan(self) -> Plan:
        """How to compute: found by a trial, once; gradients must be on."""
        if self._plan is None:
            tried = tuple(part[:1] for part in self.inputs) if self.one_by_one else self.inputs
            self._plan = Trial.of(self.network, self.name, tried).plan(
                self._excluded, self._everywhere
            )
        return self._plan

    def exclude(self, misfit: Misfit) -> None:
        """Plan anew, with Jacobians for these parameters (or with all of their positions)."""
        if misfit.positions:
            self._everywhere |= misfit.names
        else:
            self._excluded |= misfit.names
        self._plan = self._by_vmap = None

    @cached_property
    def block(self) -> int:
        """Samples of a product at once; gradients must be on."""
        trial = self.plan.trial
        # A product keeps the graphs of the call, of its derivative, and what passes by: four.
        sample = 4 * (trial.graph_bytes + trial.combination.nbytes)
        if self.budget < sample:
            raise InputError(
                f"max_memory: must be at least what one row of the kernel needs, "
                f"{shown_bytes(sample)} for this module and these inputs, got "
                f"{shown_bytes(self.budget)}. Raise it to {sample} bytes or more."
            )
        return 1 if self.one_by_one else int(min(self.samples, self.budget // sample))

    def _blocks(self) -> Iterator[tuple[slice, Inputs]]:
        for start in range(0, self.samples, self.block):
            rows = slice(start, start + self.block)
            yield rows, tuple(part[rows] for part in self.inputs)

    def _output_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        for rows, part in self._blocks():
            outputs = self.network.outputs(part)
            self._require_own_outputs(part, rows.start, outputs)
            yield rows, outputs

    def _require_own_outputs(self, part: Inputs, first: int, among: Tensor) -> None:
        """Refuse samples that give other outputs in this batch than alone.

        What they give alone is kept, and asked for again where parameters have moved them since.
        """
        trial, block = self.plan.trial, (first, len(among))
        if len(among) > 1 and not (block in self._own and trial.agree(self._own[block], among)):
            with gradients():
                self._own[block] = trial.require_own_outputs(part, first, among)

    def cell(self, samples: slice, cotangents: Tensor) -> Features:
        """Features of d <cotangent, f(x)> / d parameters for the given samples."""
        each = (
            [slice(i, i + 1) for i in range(samples.start, samples.stop)]
            if self.one_by_one
            else [samples]
        )
        with gradients():
            return Features.joined([self._cell(block, cotangents) for block in each])

    def _cell(self, samples: slice, cotangents: Tensor) -> Features:
        plan, part = self.plan, tuple(tensor[samples] for tensor in self.inputs)
        jacobian = self._jacobian(plan.rest, part, cotangents) if plan.rest else None
        recording = record(self.network, part)
        check_finite(recording.outputs.detach(), self.name, samples.start)
        self._require_own_outputs(part, samples.start, recording.outputs)
        plan.require_known(recording)
        parts = plan.alone if len(recording.outputs) == 1 else plan.parts
        found = features(recording, parts, cotangents)
        if jacobian is None:
            return found
        sizes = [self.network.parameters[name].numel() for name in plan.rest]
        ends = list(accumulate(sizes, initial=0))
        columns: dict[tuple[str, ...], slice] = {
            (name,): slice(*ends[i : i + 2]) for i, name in enumerate(plan.rest)
        }
        return replace(found, gradients=(*found.gradients, Gradients(jacobian, columns)))

    def _jacobian(self, names: Sequence[str], inputs: Inputs, cotangents: Tensor) -> Tensor:
        """Batched where that gives the gradient of a sample alone, one by one elsewhere."""
        if self._by_vmap is None:
            self._by_vmap = not self.one_by_one and self._vmap_is_right(names)
        if self._by_vmap:
            try:
                return batched_jacobian(self.network, names, inputs, cotangents)
            except RuntimeError as error:  # at these samples, though not at those tried
                self._by_vmap = _warned(names, str(error).splitlines()[0])
        return one_by_one_jacobian(self.network, names, inputs, cotangents)

    def _vmap_is_right(self, names: Sequence[str]) -> bool:
        trial = self.plan.trial
        nearby, cotangent = self.network.nearby, trial.combination[None]
        try:
            found = batched_jacobian(nearby, names, trial.inputs, cotangent)[0, 0]
        except RuntimeError as error:
            return _warned(names, str(error).splitlines()[0])
        sizes = [nearby.parameters[name].numel() for name in names]
        parts = dict(zip(names, found.split(sizes), strict=True))
        expected = gradient_at(nearby, trial.alone[0], cotangent)
        flat = {name: gradient.reshape(-1) for name, gradient in expected.items()}
        right = agree(parts, flat, trial.tolerance) and takes_substitutes(
            self.network, trial.alone[0]
        )
        return right or _warned(names, "it gives other numbers")

    def _require_adjoint(self) -> None:
        """<w, J u> = <J^T w, u> on the samples tried, once."""
        if not self._adjoint:
            require_linearizable(self.network, self.plan.trial.inputs)
            self._adjoint = True


def planned_alike(
    first: TangentMap,
    second: TangentMap,
    compute: Callable[[Tensor, Blocks], Answer],
    *,
    paired: bool,
    collapsed: bool = False,
) -> Answer:
    """What `compute` returns of one cotangent per output and blocks, with one plan on both sides.

    Planned anew as long as some samples use a parameter as those tried did not. `paired` and
    `collapsed` say of outputs what a `Reduction` does.
    """
    with first._at_work(), nullcontext() if second is first else second._at_work():
        while True:
            ours, theirs = first.plan, second.plan
            try:
                footprint = ours.footprint_beside(theirs)
                units = require_torch().eye(ours.trial.outputs).to(first.network.like.detach())
                rows = units.sum(dim=0, keepdim=True) if collapsed else units
                blocks = choose_blocks(
                    footprint,
                    (first.samples, second.samples),
                    len(rows),
                    paired=paired,
                    symmetric=first is second,
                    budget=first.budget,
                )
                return compute(rows, blocks)
            except Misfit as misfit:
                first.exclude(misfit)
                second.exclude(misfit)


def _warned(names: Sequence[str], reason: str) -> bool:
    """Says that Jacobians will be slow, in a line; False."""
    named = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    warnings.warn(
        f"torch.vmap cannot run this module ({textwrap.shorten(reason, 100)}): Jacobians of "
        f"{named} are taken one sample after the other, which is slower.",
        stacklevel=depth_inside(),
    )
    return False
