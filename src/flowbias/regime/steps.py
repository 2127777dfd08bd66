"""How far steps are from the flow: what a step of length h adds to the loss that it lowers.

Steps of gradient descent follow, up to the second order of h, the flow of the modified loss

    L + (h/4) ||grad L||^2

[Barrett and Dherin, Implicit gradient regularization, 2021]. Where the second term is a small share
of the first, what is known of the flow holds for the run; for diagonal networks the whole effect
is known exactly (`fb.gradient_descent(...).effective_start`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.torch import require_torch
from flowbias.kernels.network import gradients
from flowbias.nets.losses import read_data, read_loss


@dataclass(frozen=True)
class StepEffect:
    """The loss at a point, and what steps of this length add to it.

    >>> effect = StepEffect(step_size=0.1, loss=2.0, added=0.02)
    >>> effect.share, str(effect)
    (0.01, 'Steps of 0.1 add 1.0% to the loss, (h/4) |grad L|^2: close to the flow.')
    """

    step_size: float
    loss: float
    added: float

    @property
    def share(self) -> float:
        """(h/4) ||grad L||^2 / L; 0 where the loss is."""
        return self.added / self.loss if self.loss > 0.0 else 0.0

    def __str__(self) -> str:
        near = "close to the flow" if self.share < 0.05 else "another path than the flow's"
        return (
            f"Steps of {self.step_size:g} add {self.share:.1%} to the loss, (h/4) |grad L|^2: "
            f"{near}."
        )


def step_effect(module: Any, x: Any, y: Any, *, step_size: float, loss: Any = "half") -> StepEffect:
    """What steps of this length add to the loss of a torch module at its present weights.

    At the start of training the share is largest, as a rule.

    Parameters
    ----------
    module : a torch module
    x, y : what it is trained on
    step_size : h
    loss : one of those of `nets.train`, or a function of outputs and targets

    Returns
    -------
    StepEffect with loss, added and share

    Raises
    ------
    InputError for modules or data that cannot be used

    >>> import torch
    >>> net = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(net.weight)
    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0]])
    >>> step_effect(net, x, y, step_size=0.1)
    StepEffect(step_size=0.1, loss=2.0, added=0.1)
    """
    size = as_float(step_size)
    if size is None or not 0.0 < size < float("inf"):
        raise InputError(f"step_size: must be > 0 and finite, got {shown(step_size)}. Try 1e-2.")
    torch = require_torch()
    lowered = read_loss(loss)
    data = read_data(module, x, y, lowered)
    with gradients():
        value = lowered.of(module(data.x), data.y)
        moving = [part for part in module.parameters() if part.requires_grad]
        slopes = torch.autograd.grad(value, moving, allow_unused=True)
    squared = sum(float(torch.sum(slope.double() ** 2)) for slope in slopes if slope is not None)
    return StepEffect(size, float(value.detach()), 0.25 * size * squared)
