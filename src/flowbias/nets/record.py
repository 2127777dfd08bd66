"""The effective start of your own training: what torch's steps have made of a diagonal layer.

The gradients of the weights of w = F(theta), coordinate by coordinate, are multiples of that in
w: grad theta = J^T g with J J^T diagonal, so that g = (J J^T)^-1 J grad theta. Their sum, as the
optimizer carries it, is how far the flow has to be taken back (docs/theory/descent.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.flows.effective import EffectiveStart, taken_back
from flowbias.ground.arguments import InputError, shown
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.models._base import MirrorModel, Parameters
from flowbias.potentials import Provides

if TYPE_CHECKING:
    import torch


class DescentRecorder:
    """Watches an optimizer's steps on the weights of one diagonal layer.

    `steps` taken so far and `pull`, the sum of minus steps times gradients in w.
    """

    def __init__(
        self,
        model: MirrorModel,
        optimizer: torch.optim.Optimizer,
        weights: Sequence[torch.Tensor | None],
    ) -> None:
        self.model, self.weights = model, list(weights)
        self.steps = 0
        given = [weight for weight in self.weights if weight is not None]
        self._group = _group_of(optimizer, given)
        d = given[0].numel()
        if any(weight.numel() != d for weight in given):
            raise InputError(
                "weights: must have one entry per feature in every tensor, got "
                f"{[weight.numel() for weight in given]} entries. Pass those of one layer."
            )
        self.pull, self._velocity = np.zeros(d), np.zeros(d)
        self._check_start(d)
        # Weights before a step, gradients after it: a closure has them computed in between.
        self._before: Parameters = ()
        self._handles = (
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        )

    def _check_start(self, d: int) -> None:
        for now, first in zip(self._parameters(), self.model.initial_parameters(), strict=True):
            start = np.broadcast_to(first, (d,))
            # The weights may be of single precision.
            if not np.allclose(now, start, rtol=1e-6, atol=1e-30):
                raise InputError(
                    "model: must start where the weights are, got weights up to "
                    f"{np.abs(now - start).max():.1e} away. Call record_descent before training."
                )

    def _parameters(self) -> Parameters:
        numbers = [
            0.0 if weight is None else weight.detach().cpu().double().numpy().ravel().copy()
            for weight in self.weights
        ]
        return tuple(np.broadcast_arrays(*numbers))

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._before = self._parameters()

    # The last steps of a training that diverges.
    @np.errstate(over="ignore", invalid="ignore")
    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """One more step: its gradient in w, as the momentum carries it."""
        group, g = self._group, self._gradient(self._before)
        self._velocity = group["momentum"] * self._velocity + g
        moved = g + group["momentum"] * self._velocity if group["nesterov"] else self._velocity
        self.pull = self.pull - float(group["lr"]) * moved
        self.steps += 1

    def _gradient(self, parameters: Parameters) -> FloatArray:
        ones = np.ones_like(self.pull)
        slopes = self.model.parameter_gradient(parameters, ones)
        seen = np.zeros_like(self.pull)
        size = np.zeros_like(self.pull)
        for weight, slope in zip(self.weights, slopes, strict=True):
            if weight is not None and weight.grad is not None:
                seen += slope * weight.grad.detach().cpu().double().numpy().ravel()
                size += np.square(slope)
        return np.divide(seen, size, out=seen, where=size > 0.0)

    @property
    def start(self) -> EffectiveStart:
        """The effective start with its gain, and whether it is an identity."""
        parameters = self._parameters()
        if not np.isfinite([self.pull, *parameters]).all():
            raise InputError(
                f"weights: must be finite, got others after {self.steps} steps. The training has "
                "diverged: lower lr."
            )
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return taken_back(self.model, parameters, self.pull)

    def effective_start(self) -> Any:
        """The model from whose start gradient flow passes where the weights are now."""
        return self.start.model

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()


def record_descent(
    model: Any, optimizer: torch.optim.Optimizer, weights: Sequence[torch.Tensor | None]
) -> DescentRecorder:
    """Watch an optimizer train the weights of one diagonal layer.

    Batches, momentum, weight decay and any loss are fine: once the layer fits the data,
    `fb.limit(recorder.effective_start(), X, y)` is where it is.

    Parameters
    ----------
    model : the layer at its start
    optimizer : a torch.optim.SGD of its weights
    weights : its tensors in the order of `model.initial_parameters()`, None for those that are zero
        for good: [w_plus, w_minus] of a `DiagonalNet`, [u, None, v, None] of w = u v

    Returns
    -------
    DescentRecorder with steps, pull and effective_start()

    Raises
    ------
    InputError for other optimizers, and for weights that are not where the model starts

    >>> import torch
    >>> w = [torch.full((2,), 0.1, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    >>> optimizer = torch.optim.SGD(w, lr=0.05)
    >>> recorder = fb.nets.record_descent(fb.DiagonalNet(depth=2, scale=0.1), optimizer, w)
    >>> for _ in range(400):
    ...     optimizer.zero_grad()
    ...     predictor = w[0] ** 2 - w[1] ** 2
    ...     (0.5 * (predictor[0] + 2 * predictor[1] - 1) ** 2).backward()
    ...     optimizer.step()
    >>> limit = fb.limit(recorder.effective_start(), [[1.0, 2.0]], [1.0]).w
    >>> ended = (w[0] ** 2 - w[1] ** 2).detach().numpy()
    >>> bool(np.abs(limit - ended).max() < 1e-9)
    True
    """
    if Provides.RESTART not in provided_by(model):
        raise unfitting(model, "be a diagonal network for its descent to be a flow", "")
    torch, count = require_torch(), len(model.initial_parameters())
    kinds = torch.Tensor | None
    listed = isinstance(weights, list | tuple) and all(isinstance(w, kinds) for w in weights)
    if not listed or len(weights) != count or all(weight is None for weight in weights):
        got = f"{len(weights)} entries" if isinstance(weights, list | tuple) else shown(weights)
        raise InputError(
            f"weights: must be {count} tensors in the order of model.initial_parameters(), got "
            f"{got}. Pass None for those that are zero for good."
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(
            f"optimizer: must be a torch.optim.SGD of the weights, got {shown(optimizer)}. Pass "
            "the one that trains them."
        )
    return DescentRecorder(model, optimizer, weights)


def _group_of(optimizer: Any, weights: Sequence[Any]) -> dict[str, Any]:
    """The options that all these weights are stepped with."""
    groups = [
        group
        for group in optimizer.param_groups
        if any(any(each is weight for weight in weights) for each in group["params"])
    ]
    if len(groups) != 1 or not {"momentum", "nesterov", "dampening"} <= groups[0].keys():
        raise InputError(
            f"optimizer: must be a torch.optim.SGD with all weights in one group, got "
            f"{type(optimizer).__name__} with them in {len(groups)}. Adaptive steps differ from "
            "weight to weight, and their sum is in no span of the samples."
        )
    if groups[0]["dampening"] or groups[0].get("maximize"):
        raise InputError(
            "optimizer: must have dampening=0 and maximize=False, got "
            f"{groups[0]['dampening']} and {groups[0].get('maximize')}. Leave them out."
        )
    found: dict[str, Any] = groups[0]
    return found
