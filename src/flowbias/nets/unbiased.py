"""Other starts of a given network: zero at the start, of another scale, of another shape.

`unbiased` is Chizat's doubling, zero at the start whatever the scale:

    F(x; theta_1, theta_2) = f(x; theta_1) - f(x; theta_2),    theta_1(0) = theta_2(0)

[woodworth2020, Section 2 and B.1, after Chizat, Oyallon and Bach 2019]. No factor is put in front,
as in the papers' w_+^D - w_-^D: the tangent kernel at the start is twice that of f, and each copy
moves as f would, in opposite directions. (With a factor 1/sqrt(2) the kernel would be that of f.)

`scaled` changes the scale: all parameters times alpha, w(0) = alpha w_0.  `relative_layer_scales`
changes the "shape" alone: layer l times c_l with c_1 ... c_D = 1 leaves a network of ReLU layers
the same function, but not its tangent kernel.  [woodworth2020, B.1 and Figure 7 (b, c)]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from flowbias.ground.arguments import InputError, read_positive
from flowbias.ground.torch import require_torch
from flowbias.kernels.network import copied, one_tensor
from flowbias.nets.settings import read_module


def unbiased(module: Any) -> Any:
    """A torch module that is the difference of two copies of `module`, equal at the start.

    Both copies are trained. Frozen parameters stay frozen; dropout in training mode draws for each
    copy anew.

    Parameters
    ----------
    module : whose output is one tensor; it is left alone

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    InputError for what is no module

    >>> from flowbias.nets import mlp
    >>> import torch
    >>> net = unbiased(mlp((2, 5, 1), scale=100.0))
    >>> bool((net(torch.ones(3, 2)) == 0).all()), sum(p.numel() for p in net.parameters())
    (True, 30)
    """
    return doubled_class()(read_module(module))


@cache
def doubled_class() -> Any:
    """The class of what `unbiased` returns; made on first use, since it needs torch."""
    torch = require_torch()

    class Unbiased(torch.nn.Module):  # type: ignore[misc, name-defined]
        """f(x; plus) - f(x; minus)."""

        def __init__(self, module: Any) -> None:
            super().__init__()
            self.plus = copied(module)
            self.minus = copied(module)
            self.train(module.training)

        def forward(self, *inputs: Any, **named: Any) -> Any:
            plus, minus = (one_tensor(f(*inputs, **named)) for f in (self.plus, self.minus))
            return plus - minus

    Unbiased.__qualname__ = "Unbiased"
    return Unbiased


def __getattr__(name: str) -> Any:
    """Lets pickle, and with it torch.save, find the class that only exists where torch does."""
    if name == "Unbiased":
        return doubled_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def scaled(module: Any, scale: float) -> Any:
    """A copy of `module` with all parameters, biases too, times `scale`.

    Parameters
    ----------
    module : any torch.nn.Module
    scale : the factor

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    InputError for what is no module, or a factor that is no positive number

    >>> from flowbias.nets import mlp
    >>> import torch
    >>> x, net = torch.ones(1, 2), mlp((2, 5, 5, 1))
    >>> float(scaled(net, 2.0)(x) / net(x))  # three layers: 2^3
    8.0
    """
    torch = require_torch()
    factor = read_positive("scale", scale, "It multiplies all parameters.")
    result = copied(read_module(module))
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.mul_(factor)
    return result


def relative_layer_scales(module: Any, factors: Sequence[float]) -> Any:
    """A copy of `module` with the weights of layer l times factors[l], the same function as before.

    Double it afterwards, if at all: unbiased(relative_layer_scales(net, factors)).

    Parameters
    ----------
    module : a `Sequential` of Linear and Conv2d layers with positively homogeneous ones between
        them (ReLU, LeakyReLU, pooling, Flatten)
    factors : one per layer, their product 1; the bias of layer l takes factors[0] ... factors[l],
        since what it is added to was multiplied by that

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    InputError for another module, or factors that change the function

    >>> import torch
    >>> net, x = fb.nets.mlp((1, 4, 1), rng=0), torch.ones(1, 1)
    >>> other = fb.nets.relative_layer_scales(net, [2.0, 0.5])
    >>> bool(torch.allclose(net(x), other(x)))
    True
    """
    torch = require_torch()
    result = copied(read_module(module))
    layers = list(_weighted_layers(result))
    sizes = _read_factors(factors, len(layers))
    so_far = 1.0
    with torch.no_grad():
        for layer, factor in zip(layers, sizes, strict=True):
            so_far *= factor
            layer.weight.mul_(factor)
            if layer.bias is not None:
                layer.bias.mul_(so_far)
    return result


def _weighted_layers(module: Any) -> Iterator[Any]:
    """Linear and Conv2d layers in the order of their use; anything not homogeneous is refused."""
    nn = require_torch().nn
    # Exactly these: a subclass may compute something else, a norm may undo the factor.
    weighted = (nn.Linear, nn.Conv2d)
    homogeneous = (
        *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Identity, nn.Flatten),
        *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
    )
    seen: set[int] = set()
    for _, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, nn.Sequential):
            continue
        if type(part) in weighted:
            own = {id(parameter) for parameter in part.parameters()}
            if seen & own:
                raise InputError(
                    "module: must use each layer and parameter once, got one that is used twice "
                    "and cannot take two factors. Give the second use parameters of its own."
                )
            seen |= own
            yield part
        elif not isinstance(part, homogeneous):
            raise InputError(
                f"module: must be a Sequential of Linear or Conv2d layers and positively "
                f"homogeneous ones, got {type(part).__name__}. Scale its parameters by hand, or "
                "call this on the network inside: unbiased(relative_layer_scales(net, factors))."
            )


def _read_factors(factors: Any, layers: int) -> tuple[float, ...]:
    if isinstance(factors, str) or not isinstance(factors, Sequence) or len(factors) != layers:
        raise InputError(
            f"factors: must list one number per layer with weights ({layers}), got {factors!r}. "
            "Pass for instance (10.0, 0.1) for two layers."
        )
    meaning = "It multiplies the weights of one layer."
    sizes = tuple(read_positive("factors", factor, meaning) for factor in factors)
    product = math.prod(sizes)
    # Rounding of a product of a few factors such as 10 and 0.1.
    if not abs(product - 1.0) <= 1e-12 * layers:
        raise InputError(
            f"factors: must have the product 1, got {product!r}. Divide the last factor by it; "
            "to change the scale as well call scaled(module, scale)."
        )
    return sizes
