"""How much the features of a module are going to change, before it is trained.

Linearized, training moves the parameters by delta = J^T K^+ (y - f_0) (least norm). On the way the
features change by D^2 f[delta], relatively

    feature change = ||D^2 f[delta]||_F / ||D f||_F.

Chizat, Oyallon and Bach (2019) bound it by operator norms, whatever the residual's direction:

    kappa = ||f_0 - y|| ||D^2 f|| / ||D f||^2.

Small: the linearization holds until the data are fitted (kernel regime). For a D-homogeneous
module that starts at output 0 both go as scale^(-D). Neither sees units that switch on or off on
the way; what is lost of the function by linearizing it does,

    lazy gap = ||f(theta_0 + delta) - f_0 - J delta||, on inputs that are not trained on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import as_array
from flowbias.kernels.matrix_free import tangent_operator
from flowbias.kernels.network import (
    Network,
    Tensor,
    check_finite,
    copied_in_double,
    first_call,
    gradients,
)
from flowbias.problem import InputError
from flowbias.regime.curvature import Curvature
from flowbias.regime.labels import read_labels
from flowbias.regime.module_data import fresh_tensors

# Conjugate gradients on K nu = y - f_0 end at this share of the residual, or after so many
# products. Directions that are slower to learn than that are hardly learned in training either.
LEFT = 1e-2
MOST_PRODUCTS = 200


@dataclass(frozen=True)
class Outlook:
    """What is expected of a module at one scale of its parameters."""

    feature_change: float
    #: how far the network delta away is from its linearization there, relative as in `Gaps`
    lazy_gap: float
    #: ||delta|| / ||theta_0||
    parameter_movement: float
    #: ||f_0 - y||, and ||f_0|| beside it
    residual: float
    output: float


def outlook(module: Any, x: Any, y: Any, max_memory: int | str = "1GiB") -> Outlook:
    """The expected relative change of features of a module (in double precision)."""
    curvature = read_curvature(module, x)
    start = curvature.values()
    check_finite(start, "x", 0)
    missing = read_targets(y, start) - start
    if not float(missing.norm()) > 0.0:
        raise InputError(
            "y: must differ from the module's outputs at the start, got the same. "
            "Nothing would be trained."
        )
    network = curvature.network
    dual = _solve(tangent_operator(network.module, x, max_memory=max_memory), missing)
    delta = curvature.pull_back(dual)
    features = _frobenius(curvature)
    if not features > 0.0:
        raise InputError(
            "module: must have outputs that react to its parameters, got derivatives of zero on "
            "x. Start from other parameters than zero."
        )
    size = math.sqrt(sum(float(p.detach().norm()) ** 2 for p in curvature.parameters))
    moved = math.sqrt(sum(float(part.norm()) ** 2 for part in delta))
    return Outlook(
        feature_change=curvature.change_along(delta) / features,
        lazy_gap=_lazy_gap(curvature, delta),
        parameter_movement=moved / size if size > 0.0 else math.inf,
        residual=float(missing.norm()),
        output=float(start.norm()),
    )


def _lazy_gap(curvature: Curvature, delta: list[Tensor]) -> float:
    """||f(theta_0 + delta) - f_0 - J delta|| on new inputs: all orders, and units that switch."""
    new = fresh_tensors(curvature.inputs)
    here = Curvature(curvature.network, new)
    start, along = here.values(), here.push_forward(delta)
    moved = Network.read(copied_in_double(curvature.network.module))
    with gradients(on=False):
        for parameter, part in zip(moved.parameters.values(), delta, strict=True):
            parameter += part
        away = float((moved.outputs(new) - start - along).norm())
    sizes = [size for size in (float(along.norm()), float((start + along).norm())) if size > 0.0]
    return away / min(sizes) if sizes else 0.0


def read_curvature(module: Any, x: Any) -> Curvature:
    """The module in double precision on x; parameters of the caller's module stay as they are."""
    if declared_by(module):
        raise InputError(
            f"module: must be a torch.nn.Module, got {type(module).__name__}. For models of this "
            "library the limit itself is known: flowbias.limit, or flow and diagnose."
        )
    Network.read(module)
    network = Network.read(copied_in_double(module))
    parts = network.read_inputs("x", x)
    inputs = tuple(p.double() if p.is_floating_point() else p for p in parts)
    with gradients(on=False):
        first_call(network, "x", tuple(part[:1] for part in inputs))
    return Curvature(network, inputs)


def read_targets(y: Any, outputs: Tensor) -> Tensor:
    """Labels as a tensor of the shape of the outputs."""
    return require_torch().as_tensor(read_labels(y, tuple(outputs.shape))).to(outputs)


def _frobenius(curvature: Curvature, draws: int = 16) -> float:
    """||J||_F, by the same random combinations of outputs as the change of J."""
    torch = require_torch()
    generator = torch.Generator().manual_seed(0)
    shape = curvature.values().shape
    total = 0.0
    for _ in range(draws):
        z = torch.randn(shape, generator=generator, dtype=torch.float64)
        found = curvature.pull_back(z.to(curvature.parameters[0]))
        total += sum(float(part.norm()) ** 2 for part in found)
    return math.sqrt(total / draws)


def _solve(operator: Any, missing: Tensor) -> Tensor:
    """nu with K nu = missing, up to the share LEFT, by conjugate gradients from 0."""
    torch = require_torch()
    residual = as_array(missing).reshape(-1).copy()
    solution, goal = np.zeros_like(residual), LEFT * float(np.linalg.norm(residual))
    way, size = residual.copy(), float(residual @ residual)
    for _ in range(MOST_PRODUCTS):
        image = operator.matvec(way)
        along = float(way @ image)
        if math.sqrt(size) <= goal or not along > 0.0:
            break
        step = size / along
        solution += step * way
        residual -= step * image
        last, size = size, float(residual @ residual)
        way = residual + (size / last) * way
    return torch.as_tensor(solution).to(missing).reshape(missing.shape)
