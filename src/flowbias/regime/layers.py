"""Which layers of a torch module moved, and what their movement carries.

    moved      ||theta_T - theta_0|| / ||theta_0|| of the layer's own parameters
    carries    ||f_T - f_back|| / ||f_T - f_0||, f_back the trained module with this layer alone put
               back to its start: what would be lost of what was learned

Layers work together: what they carry need not add up to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.kernels.network import call_at, flat_outputs, gradients


@dataclass(frozen=True)
class LayerMovement:
    """How far a layer's parameters moved, relatively, and the share of f_T - f_0 they carry."""

    moved: float
    carries: float


def layer_movements(points: Any) -> dict[str, LayerMovement]:
    """By the name of the module that holds the parameters, of a torch module at two points."""
    (before, after), x = (point.network for point in points), points[0].x
    layers: dict[str, list[str]] = {}
    for name in before.parameters:
        layers.setdefault(name.rpartition(".")[0] or name, []).append(name)
    samples = len(x[0])

    def outputs(put_back: list[str]) -> Any:
        point = {name: before.parameters[name] for name in put_back}
        return flat_outputs(call_at(after.module, point, x), samples)

    with gradients(on=False):
        trained = outputs([])
        learned = float((trained - outputs(list(before.parameters))).norm())
        found = {}
        for layer, names in layers.items():
            sizes = [
                np.linalg.norm([float(part.norm()) for part in parts])
                for parts in (
                    [after.parameters[name] - before.parameters[name] for name in names],
                    [before.parameters[name] for name in names],
                )
            ]
            moved = float(sizes[0] / sizes[1]) if sizes[1] > 0.0 else float("inf")
            lost = float((trained - outputs(names)).norm())
            found[layer] = LayerMovement(moved if sizes[0] > 0.0 else 0.0, lost / learned)
    return found
