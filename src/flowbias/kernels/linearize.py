"""The linearized twin of a module, as a module that can be trained.

    f_lin(x; theta) = f(x; theta_0) + J(x; theta_0) (theta - theta_0)

By forward mode: one call costs about three of the module's own, and no Jacobian is formed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.maps import value_and_change
from flowbias.kernels.module_input import Network, copied


def linearize(module: Any) -> Any:
    """A trainable torch module that is `module` linearized at its present parameters.

    Its parameters start at the module's and have their names with dots as "__" (a dot cannot be in
    the name of a parameter); `named_point()` gives them by the original names. The module itself is
    copied and stays as it is. Frozen parameters stay frozen.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    >>> twin, x = linearize(net), torch.ones(3, 2)
    >>> bool(torch.equal(twin(x), net(x)))
    True
    """
    return _twin_class()(Network.read(module))


@cache
def _twin_class() -> Any:
    torch = require_torch()

    class LinearizedModule(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """f(x; theta_0) + J(x; theta_0) (theta - theta_0), theta the parameters of this module."""

        def __init__(self, network: Network) -> None:
            super().__init__()
            self.base = copied(network.module).requires_grad_(False)
            self.names = tuple(network.parameters)
            for name, parameter in network.parameters.items():
                start = torch.nn.Parameter(parameter.detach().clone())
                self.register_parameter(name.replace(".", "__"), start)

        def named_point(self) -> dict[str, Any]:
            """The parameters by the names that the module has for them."""
            return {name: getattr(self, name.replace(".", "__")) for name in self.names}

        def train(self, mode: bool = True) -> Any:
            """The base keeps its mode: its outputs must stay those at the start."""
            self.training = mode
            return self

        def forward(self, *inputs: Any) -> Any:
            own = dict(self.base.named_parameters())
            at = {name: own[name] for name in self.names}
            direction = {name: now - at[name] for name, now in self.named_point().items()}
            start, change = value_and_change(self.base, at, direction, inputs)
            return start + change

    LinearizedModule.__qualname__ = "LinearizedModule"
    return LinearizedModule


def __getattr__(name: str) -> Any:
    """Lets pickle, and with it torch.save, find the class that only exists where torch does."""
    if name == "LinearizedModule":
        return _twin_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
