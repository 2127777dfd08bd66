"""How far parameters have moved between two points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.kernels.closed_form import feature_route
from flowbias.kernels.layout import as_array
from flowbias.kernels.module_input import Network
from flowbias.kernels.tangent import declared_by
from flowbias.problem import InputError


@dataclass(frozen=True)
class ParameterMovement:
    """||theta' - theta|| / ||theta||: of all parameters together, and of each by name."""

    overall: float
    per_parameter: dict[str, float]


def parameter_movement(before: Any, after: Any) -> ParameterMovement:
    """||theta_after - theta_before|| / ||theta_before|| over trainable parameters.

    inf for a parameter that started at zero and moved, 0 for one that did not move.

    >>> import copy, torch
    >>> net = torch.nn.Linear(2, 1)
    >>> other = copy.deepcopy(net)
    >>> _ = [p.data.mul_(2.0) for p in other.parameters()]
    >>> round(parameter_movement(net, other).overall, 6)
    1.0
    """
    first, second = _parameters(before), _parameters(after)
    _check_shapes(
        {name: part.shape for name, part in first.items()},
        {name: part.shape for name, part in second.items()},
    )
    moved = {name: float(np.linalg.norm(second[name] - first[name])) for name in first}
    sizes = {name: float(np.linalg.norm(first[name])) for name in first}
    total = float(np.linalg.norm(list(moved.values()))), float(np.linalg.norm(list(sizes.values())))
    return ParameterMovement(
        _ratio(*total), {name: _ratio(moved[name], sizes[name]) for name in first}
    )


def require_same_parameters(before: Network, after: Network) -> None:
    """Refuse two modules whose trainable parameters differ in name, shape, dtype or device."""
    _check_shapes(
        *({n: tuple(p.shape) for n, p in net.parameters.items()} for net in (before, after))
    )
    for kind in ("dtype", "device"):
        ours, theirs = getattr(before, kind), getattr(after, kind)
        if ours != theirs:
            raise InputError(
                f"after: must have the {kind} of before, {ours}, got {theirs}. "
                "Convert one of them with module.to(...)."
            )


def _check_shapes(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name in (*before, *after):
        ours, theirs = before.get(name, "no such parameter"), after.get(name, "no such parameter")
        if ours != theirs:
            raise InputError(
                f"after: must have the trainable parameters of before, got {theirs} for {name!r} "
                f"where before has {ours}. Pass one architecture at two points, for instance "
                "before = copy.deepcopy(module) ahead of training."
            )


def _parameters(model: Any) -> dict[str, Any]:
    if declared_by(model):
        return feature_route(model).parameters(model)
    found = Network.read(model).parameters
    return {key: as_array(part).astype(np.float64) for key, part in found.items()}


def _ratio(moved: float, size: float) -> float:
    if moved == 0.0:
        return 0.0
    return moved / size if size > 0.0 else float("inf")
