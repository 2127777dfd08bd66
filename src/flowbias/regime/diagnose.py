"""After training: was it a kernel method, or were features learned?

Distances between the network before and after, and on inputs that were not trained on two in
function space, to what the extremes would have made of the same outputs on the training inputs:

    lazy gap: to the linearized twin of the start, trained until it has these outputs. Whatever
              loss and time they came from, a lazy network is its twin.
    lean gap: to the network of least parameter norm nearby that has them (`leanest.py`), which is
              where a start of vanishing scale leads.

position = lazy gap / (lazy gap + lean gap) is the place between the two, and gives the verdict.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import (
    kernel_alignment,
    label_alignment,
    parameter_movement,
    relative_kernel_change,
)
from flowbias.kernels.feature_distance import GradDistance, grad_distance
from flowbias.kernels.network import gradients
from flowbias.kernels.tangent import tangent_kernel
from flowbias.potentials import Provides
from flowbias.problem import InputError
from flowbias.regime.diagnosis import Diagnosis, Gaps
from flowbias.regime.kernel_machine import kernel_machine
from flowbias.regime.labels import read_labels, vary
from flowbias.regime.leanest import leanest
from flowbias.regime.points import Point, model_points, module_points
from flowbias.regime.thresholds import THRESHOLDS

# samples * outputs up to which kernels are decomposed: beyond, the cube of it takes minutes.
LARGEST = 4000


def diagnose(
    before: Any,
    after: Any,
    x: Any,
    y: Any = None,
    *,
    x_new: Any = None,
    functions: bool | None = None,
    max_memory: int | str = "1GiB",
) -> Diagnosis:
    """How far training took a network from its tangent kernel, and the verdict.

    `before` and `after` are a torch module at two points (copy.deepcopy ahead of training), or a
    module and a state dict; or two models of this library, or a model and the parameters where its
    flow ended. `x` are the training inputs, all of them: the comparison of functions takes what
    they determine. Labels `y` add how well the kernel is aligned with them, and the gap to a twin
    trained on them. `x_new` are inputs to compare functions on; by default they are drawn feature
    by feature from the values in x (for models with a linear predictor: its coordinates).
    functions=False leaves these comparisons out, which otherwise needs kernels of samples times
    outputs squared; the verdict then rests on the change of the kernel.

    >>> import copy, torch
    >>> from flowbias.nets import mlp, train, unbiased
    >>> net = unbiased(mlp((2, 20, 1), scale=10.0, rng=0, dtype=torch.float64))
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    >>> y = torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.float64)
    >>> start = copy.deepcopy(net)
    >>> _ = train(net, x, y, step_size=1e-4, stop_at_loss=1e-8)
    >>> diagnose(start, net, x).verdict.name
    'KERNEL'
    """
    if declared_by(before):
        return _diagnosed(model_points(before, after, x), x, y, x_new, functions, max_memory)
    with gradients():  # whatever the caller's mode
        first, second = module_points(before, after)
        inputs = first.read("x", x)
        new = None if x_new is None else first.read("x_new", x_new)
        return _diagnosed((first, second), inputs, y, new, functions, max_memory)


def _diagnosed(
    points: tuple[Point, Point],
    inputs: Any,
    y: Any,
    new: Any,
    functions: bool | None,
    max_memory: int | str,
) -> Diagnosis:
    start, end = (point.outputs(inputs) for point in points)
    compare = start.size <= LARGEST if functions is None else functions
    targets = None if y is None else read_labels(y, start.shape)
    # Full kernels where they are needed anyway: all pairs of outputs then count in the change too.
    kernels = [
        tangent_kernel(
            point.subject, inputs, reduce=None if compare else "trace", max_memory=max_memory
        )
        for point in points
    ]
    if not np.any(start != end):
        raise InputError(
            "after: must differ from before in its outputs on x, got the same. Copy the module "
            "ahead of training (copy.deepcopy), not by reference."
        )
    gaps = None
    if compare:
        elsewhere = points[0].inputs_elsewhere(inputs) if new is None else new
        gaps = _gaps(points, inputs, elsewhere, targets, max_memory)
    turned, moved = _parameter_measures(points, inputs, max_memory)
    return Diagnosis(
        samples=len(start),
        outputs=start.shape[1],
        kernel_change=relative_kernel_change(*kernels),
        kernel_alignment=_aligned(kernels, len(start)),
        grad_distance=turned,
        parameter_movement=moved,
        label_alignment=_aligned_with_labels(kernels, targets),
        gaps=gaps,
        thresholds=THRESHOLDS,
    )


def _gaps(
    points: tuple[Point, Point], x: Any, new: Any, labels: FloatArray | None, max_memory: int | str
) -> Gaps:
    first, second = points
    (start, end), (start_new, end_new) = (
        [point.outputs(inputs, name).reshape(-1) for point in points]
        for name, inputs in (("x", x), ("x_new", new))
    )
    moved = float(np.linalg.norm(end_new - start_new))
    kernels = first.kernel(x, None, max_memory), first.kernel(new, x, max_memory)
    lazy = start_new + kernel_machine(*kernels, end - start)
    lean = leanest(second.adjustable(x, new, max_memory))
    # By the smaller of the two: a start may be far larger than what training makes of it.
    unit = min(size for size in (moved, float(np.linalg.norm(end_new))) if size > 0.0)

    def distance(other: FloatArray) -> float:
        return float(np.linalg.norm(end_new - other)) / unit

    labelled = None
    if labels is not None:
        labelled = distance(start_new + kernel_machine(*kernels, labels.reshape(-1) - start))
    return Gaps(
        lazy=distance(lazy),
        lean=distance(lean.elsewhere),
        at_rest=lean.at_rest,
        norm=lean.norm,
        known=first.rich_is_lean,
        labels=labelled,
    )


def _parameter_measures(
    points: tuple[Point, Point], x: Any, max_memory: int | str
) -> tuple[GradDistance | None, float | None]:
    """None where only the Gram matrix of the weights was drawn."""
    before, after = (point.subject for point in points)
    for subject in (before, after):
        declared = declared_by(subject)
        if declared and not declared & {Provides.PARAMETERS, Provides.FACTORS}:
            return None, None
    moved = parameter_movement(before, after).overall
    return grad_distance(before, after, x, max_memory=max_memory), moved


def _aligned(kernels: list[Any], samples: int) -> float | None:
    """None for a single sample, of which centering leaves nothing."""
    return kernel_alignment(kernels[0], kernels[1]) if samples > 1 else None


def _aligned_with_labels(kernels: list[Any], labels: FloatArray | None) -> Any:
    """Before and after; None without labels, or where they are the same for all samples."""
    if labels is None or not vary(labels):
        return None
    before, after = (label_alignment(kernel, labels) for kernel in kernels)
    return before, after
