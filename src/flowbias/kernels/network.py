"""A module and its inputs, checked once: what every kernel routine starts from."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor"
#: Tensors whose first dimension counts samples; the module is called with all of them.
Inputs: TypeAlias = "tuple[torch.Tensor, ...]"


@dataclass(frozen=True)
class Network:
    """A module as a function of its trainable parameters, at where they are now."""

    module: Any
    #: trainable parameters by name, each once even where modules share it
    parameters: dict[str, Any]

    @classmethod
    def read(cls, module: Any) -> Network:
        torch = require_torch()
        module = unwrapped(module)
        refuse_mixing_layers(module)
        # Lazy ones count: they have no size yet, and are refused below.
        trainable = {
            name: p
            for name, p in module.named_parameters()
            if p.requires_grad and (torch.nn.parameter.is_lazy(p) or p.numel())
        }
        if not trainable:
            frozen = sum(1 for _ in module.parameters())
            raise InputError(
                f"module: must have a trainable parameter, got {frozen} parameters and all of them "
                "frozen. Set requires_grad_(True) on those that training moves."
            )
        _check_kinds(torch, trainable)
        return cls(module, trainable)

    @property
    def like(self) -> Tensor:
        """A tensor of our dtype, on our device."""
        return next(iter(self.parameters.values()))

    @property
    def device(self) -> Any:
        return self.like.device

    @property
    def dtype(self) -> Any:
        return self.like.dtype

    @cached_property
    def size(self) -> int:
        """The number of trainable parameters."""
        return sum(p.numel() for p in self.parameters.values())

    @property
    def layers(self) -> dict[str, list[str]]:
        """Names of parameters, by the part of the module that holds them."""
        return self.layers_within("")

    def layers_within(self, prefix: str) -> dict[str, list[str]]:
        """The same, of parts whose names are told without that beginning."""
        found: dict[str, list[str]] = {}
        for name in self.parameters:
            own = name.removeprefix(prefix)
            found.setdefault(own.rpartition(".")[0] or own, []).append(name)
        return found

    @property
    def nearby(self) -> Network:
        """The same module at parameters nearby, to be put in the place of its own."""
        draw, parameters = normals(0), {}
        for name, parameter in self.parameters.items():
            # By about a percent: far above rounding, and to no other sign.
            value = parameter.detach() * (1.0 + 1e-2 * draw(parameter.shape, parameter))
            parameters[name] = value.requires_grad_(True)
        return Network(self.module, parameters)

    def outputs(self, inputs: Inputs) -> Tensor:
        """f(x) as (samples, outputs), differentiable where gradients are on."""
        return flat_outputs(self.module(*inputs), len(inputs[0]))

    def read_inputs(self, name: str, x: Any) -> Inputs:
        """x as a tuple of tensors with one and the same number of samples, on our device."""
        torch = require_torch()
        _refuse_batches(name, x)
        parts = tuple(x) if isinstance(x, tuple | list) else (x,)
        for part in parts:
            if not isinstance(part, torch.Tensor):
                raise InputError(
                    f"{name}: must be a tensor (or a tuple of tensors for a module of several "
                    f"arguments), got {type(part).__name__}. Convert it, for instance "
                    f"torch.as_tensor({name}, dtype={self.dtype})."
                )
            if part.is_meta:
                raise InputError(
                    f"{name}: must be on the module's device, {self.device}, got {part.device}. "
                    f"There are no values to move: pass {name} with some."
                )
        counts = {len(part) if part.ndim else 0 for part in parts}
        if len(counts) != 1 or 0 in counts:
            shapes = ", ".join(str(tuple(part.shape)) for part in parts) or "nothing"
            raise InputError(
                f"{name}: must have one sample or more along the first dimension, the same number "
                f"in each tensor, got {shapes}. For a single sample pass {name}[None]."
            )
        # A tensor made in inference mode cannot take part in differentiation; its copy can.
        with torch.inference_mode(False):
            return tuple(
                p.clone() if p.is_inference() else p.detach()
                for p in (part.to(self.device) for part in parts)
            )

    def cast_inputs(self, name: str, x: Any) -> Inputs:
        """Inputs with real numbers in our precision; indices as they are."""
        parts = self.read_inputs(name, x)
        return tuple(p.to(self.like.dtype) if p.is_floating_point() else p for p in parts)


def _refuse_batches(name: str, x: Any) -> None:
    """What `flowbias.regime` takes, and a kernel does not, with what to do."""
    if isinstance(x, Mapping):
        keys = ", ".join(map(str, x))
        raise InputError(
            f"{name}: must be a tensor, or a tuple of tensors in the order in which the module "
            f"takes them, got a {type(x).__name__} of {keys}. Pass tuple({name}.values()) where "
            "that is the order, or a module whose forward takes them so and passes them by name."
        )
    if isinstance(x, require_torch().utils.data.DataLoader):
        raise InputError(
            f"{name}: must be a tensor, or a tuple of tensors, got a {type(x).__name__}. Join the "
            f"inputs of its batches: torch.cat([batch[0] for batch in {name}]) where a batch is "
            f"(inputs, labels), torch.cat(list({name})) where it is the inputs."
        )


def unwrapped(module: Any) -> Any:
    """A module, without what compiles it or spreads it over devices: the same function of x."""
    nn = require_torch().nn
    if not isinstance(module, nn.Module):
        raise InputError(
            f"module: must be a torch.nn.Module or a model of this library, got "
            f"{type(module).__name__}. Wrap a function into a module whose forward calls it."
        )
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(module.module)
    return unwrapped(module._orig_mod) if _is_compiled(module) else module


def _is_compiled(module: Any) -> bool:
    """By name: to load torch.compile takes longer than most kernels."""
    return type(module).__name__ == "OptimizedModule"


@contextmanager
def left_alone(module: Any) -> Iterator[None]:
    """Put back what calls change of a module: its buffers, and tensors among its attributes.

    Pruning and the older weight and spectral norms write the weight that they compute into an
    attribute, where a tensor of torch.func would be dead once the call is over.
    """
    torch = require_torch()
    tensor = torch.Tensor
    held = [
        (
            table,
            dict(table),
            {k: (v.clone(), _version(v)) for k, v in table.items() if isinstance(v, tensor)},
        )
        for owner in module.modules()
        for table in (owner._buffers, vars(owner))
    ]
    try:
        yield
    finally:
        with torch.inference_mode(False), torch.no_grad():
            for table, former, values in held:
                for key in [k for k, v in table.items() if isinstance(v, tensor)]:
                    # A place that was kept for a tensor (a buffer of None) stays.
                    if key in former:
                        table[key] = former[key]
                    else:
                        del table[key]
                for key, (value, version) in values.items():
                    table[key] = former[key]
                    # Written only if need be: a graph of the caller's may hold on to it.
                    if _version(former[key]) != version:
                        former[key].copy_(value)


def _version(tensor: Tensor) -> int:
    """Counts the changes in place; a tensor made in inference mode has no count."""
    return 0 if tensor.is_inference() else tensor._version


def _check_kinds(torch: Any, parameters: dict[str, Any]) -> None:
    for name, parameter in parameters.items():
        if torch.nn.parameter.is_lazy(parameter) or parameter.is_meta:
            raise InputError(
                f"module: must have parameters with values, got {name!r} without. Call a module "
                "of lazy layers once, and move one on the device 'meta' by to_empty and fill it."
            )
        if parameter.is_inference():
            raise InputError(
                f"module: must have parameters that can be differentiated, got {name!r} made in "
                "inference mode. Build the module outside of torch.inference_mode."
            )
        if parameter.dtype not in (torch.float32, torch.float64):
            fix = (
                "Hold both parts in a real one, and join them by torch.view_as_complex."
                if parameter.is_complex()
                else "Convert a copy: copy.deepcopy(module).float()."
            )
            raise InputError(
                f"module: must have float32 or float64 parameters, got {parameter.dtype} in "
                f"{name!r}. {fix}"
            )
    for kind, values in (
        ("dtype", {p.dtype for p in parameters.values()}),
        ("device", {p.device for p in parameters.values()}),
    ):
        if len(values) > 1:
            raise InputError(
                f"module: must have all trainable parameters of one {kind}, got "
                f"{', '.join(sorted(map(str, values)))}. Convert it with module.to(...)."
            )


def refuse_mixing_layers(module: Any) -> None:
    """Refuse layers that are random or mix samples, most of them in training mode only.

    Decided before any call, since in training mode a call would change running statistics.
    """
    nn = require_torch().nn
    unfit: tuple[tuple[Any, Any, str], ...] = (
        (nn.modules.dropout._DropoutNd, lambda m: m.p > 0.0, "drops units at random"),
        (nn.modules.batchnorm._BatchNorm, lambda m: True, "uses the statistics of the batch"),
        (
            nn.modules.instancenorm._InstanceNorm,
            lambda m: m.track_running_stats,
            "updates its running statistics",
        ),
        (nn.RNNBase, lambda m: m.dropout > 0.0, "drops units at random"),
        (nn.MultiheadAttention, lambda m: m.dropout > 0.0, "drops units at random"),
        (nn.RReLU, lambda m: True, "draws its slopes at random"),
        (
            nn.utils.parametrizations._SpectralNorm,
            lambda m: True,
            "refines its estimate of the norm at each call",
        ),
    )
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            raise InputError(
                f"module: must have running statistics in {type(part).__name__} "
                f"({name or 'the module itself'}), got one without: it uses the statistics of the "
                "batch in eval mode too. Build it with track_running_stats=True."
            )
        for kind, applies, reason in unfit:
            if part.training and isinstance(part, kind) and applies(part):
                raise InputError(
                    f"module: must not be in training mode with {type(part).__name__} "
                    f"({name or 'the module itself'}), got one that {reason}: f(x) is then no "
                    "function of x and the parameters. Call module.eval() first."
                )


def one_tensor(outputs: Any) -> Tensor:
    """What a module returned, refused unless it is a tensor."""
    if not isinstance(outputs, require_torch().Tensor):
        raise InputError(
            f"module: must return one tensor, got {type(outputs).__name__}. Wrap it in a module "
            "whose forward picks the tensor to differentiate, for instance outputs[0]."
        )
    return outputs


def flat_outputs(outputs: Any, samples: int) -> Tensor:
    """The module's output as (samples, outputs), or an error that says what is wrong with it."""
    outputs = one_tensor(outputs)
    if outputs.ndim == 0 or len(outputs) != samples:
        raise InputError(
            f"module: must return one output per sample, of shape ({samples}, ...), got "
            f"{tuple(outputs.shape)}. Keep the samples along the first dimension, unreduced."
        )
    if outputs.numel() == 0:
        raise InputError(
            f"module: must return one number or more per sample, got {tuple(outputs.shape)}. "
            "There is nothing to differentiate."
        )
    if not outputs.is_floating_point():
        raise InputError(
            f"module: must return real numbers, got {outputs.dtype}. Differentiate what comes "
            "before rounding or argmax."
        )
    return outputs.reshape(samples, -1)


def check_finite(outputs: Tensor, name: str, first: int) -> None:
    """Refuse NaN and infinity, naming the sample (`first` is the index of the first one)."""
    torch = require_torch()
    finite = torch.isfinite(outputs).all(dim=1)
    if not bool(finite.all()):
        bad = int((~finite).nonzero()[0, 0])
        values = outputs[bad]
        value = float(values[~torch.isfinite(values)][0])
        raise InputError(
            f"{name}: the module's outputs must be finite, got {value} at sample {first + bad}. "
            "Check the inputs and the parameters for overflow or NaN."
        )


class Saved:
    """Bytes that the graph of a call keeps, beyond parameters, buffers and the inputs."""

    def __init__(self, network: Network, inputs: Inputs) -> None:
        self.bytes = 0
        own = (*network.module.parameters(), *network.module.buffers(), *inputs)
        self._seen = {tensor.untyped_storage().data_ptr() for tensor in own}

    def __enter__(self) -> Saved:
        graph = require_torch().autograd.graph
        self._hooks = graph.saved_tensors_hooks(self._note, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _note(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


@contextmanager
def gradients(on: bool = True) -> Iterator[None]:
    """Graphs of derivatives on (or off), whatever the caller's mode, of modules as written."""
    with as_written():
        torch = require_torch()
        with torch.inference_mode(False), torch.set_grad_enabled(on):
            yield


@contextmanager
def as_written() -> Iterator[None]:
    """What is compiled inside of a module runs as it was written.

    A compiled pass back overwrites what it was left by the call: there is one, where a kernel takes
    one for each output.
    """
    torch = require_torch()
    # To load the compiler takes seconds; where it is not loaded, nothing is compiled. And while it
    # reads our caller's code, how that runs is for the caller to say.
    compiled = "torch._dynamo" in sys.modules and not torch.compiler.is_compiling()
    with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
        yield


def half_the_digits(like: Tensor) -> float:
    """Rounding stays far below it, a wrong formula far above."""
    return math.sqrt(require_torch().finfo(like.dtype).eps)


def normals(seed: int) -> Callable[[Any, Tensor], Tensor]:
    """Draws normal numbers of a shape, like a tensor: on the CPU, the same on every device."""
    torch = require_torch()
    generator = torch.Generator().manual_seed(seed)

    def draw(shape: Any, like: Tensor) -> Tensor:
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        return numbers.to(like.detach())

    return draw


def first_call(network: Network, name: str, inputs: Inputs) -> Tensor:
    """Outputs on the first samples; where the module refuses them, say so in our words."""
    try:
        outputs = network.outputs(inputs)
    except (RuntimeError, TypeError, IndexError) as error:
        foreign = [part.dtype for part in inputs if part.dtype != network.dtype]
        reason = str(error).splitlines()[0].rstrip(". ") if str(error) else type(error).__name__
        if foreign:
            raise InputError(
                f"{name}: must have the dtype that the module wants (its parameters are "
                f"{network.dtype}), got {foreign[0]}: {reason}. "
                f"Pass {name}.to({network.dtype}), or to an embedding integers in its range."
            ) from error
        shapes = ", ".join(str(tuple(part.shape[1:])) for part in inputs)
        raise InputError(
            f"{name}: must be what the module takes, got samples of shape {shapes} and "
            f"{inputs[0].dtype}: {reason}. Pass samples along the first dimension, floats to "
            "dense and convolutional layers, integers to embeddings."
        ) from error
    check_finite(outputs.detach(), name, 0)
    return outputs


def outputs_of_each(network: Network, name: str, inputs: Inputs) -> int:
    """How many numbers the module returns for a sample, by a call with the first one."""
    with gradients(on=False), left_alone(network.module):
        outputs = first_call(network, name, tuple(part[:1] for part in inputs))
    return len(outputs[0])


def statistics(module: Any) -> Iterator[tuple[Any, str]]:
    """Where a module keeps running statistics: the layer, and the name of the buffer."""
    kind = require_torch().nn.modules.batchnorm._NormBase
    for part in module.modules():
        if isinstance(part, kind):
            for name in ("running_mean", "running_var"):
                if getattr(part, name) is not None:
                    yield part, name


def share_statistics(module: Any, other: Any) -> bool:
    """Give a module the running statistics of another; whether they were different ones.

    They settle while nothing is learned, so that two points of one network are compared under the
    statistics of one of them. Buffers of other layers are part of a point.
    """
    torch = require_torch()
    changed = False
    with gradients(on=False):
        for (ours, name), (theirs, _) in zip(statistics(module), statistics(other), strict=False):
            mine, found = getattr(ours, name), getattr(theirs, name)
            if mine.shape == found.shape and not torch.equal(mine, found.to(mine)):
                mine.copy_(found)
                changed = True
    return changed


def copied(module: Any) -> Any:
    """A deep copy; refused where it would not be a module of its own."""
    module = unwrapped(module)
    for name, part in module.named_modules():
        # The copy of a compiled part has a forward of its own, of what it is a copy of.
        if isinstance(vars(part).get("forward"), FunctionType) and not _is_compiled(part):
            raise InputError(
                f"module: must be copyable, got a function in the place of forward of "
                f"{name or 'the module itself'}, which would go on using the original. Define it "
                "in a subclass."
            )
    # Pruning and the older weight norms compute a weight ahead of each call and leave it in an
    # attribute: the copy's own hook will compute it anew, whatever it holds until then.
    computed = {
        id(value): value.detach().clone()
        for part in module.modules()
        if part._forward_pre_hooks
        for value in vars(part).values()
        if isinstance(value, require_torch().Tensor) and not value.is_leaf
    }
    try:
        return copy.deepcopy(module, computed)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"module: must be copyable by copy.deepcopy, got {type(error).__name__}: "
            f"{str(error).splitlines()[0]} Use torch.nn.utils.parametrizations for weight norms."
        ) from error


def copied_in_double(module: Any) -> Any:
    """A copy in double precision that can be differentiated, whatever the caller's mode."""
    with gradients():
        return copied(module).to(require_torch().float64)
