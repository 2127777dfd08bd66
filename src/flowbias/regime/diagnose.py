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

from dataclasses import replace
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import (
    as_array,
    kernel_alignment,
    kernel_matrix,
    label_alignment,
    relative_kernel_change,
)
from flowbias.kernels.network import gradients
from flowbias.regime.data import read_labels, vary
from flowbias.regime.diagnosis import Diagnosis, Gaps
from flowbias.regime.leanest import leanest
from flowbias.regime.points import Points, model_points, module_points
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

    Running statistics (BatchNorm) are those of `after` at both points, with a warning where they
    differ: they settle while nothing is learned. Kernel change and alignments are those of the
    trace over outputs, sum_a K_aa.

    Parameters
    ----------
    before, after : a torch module at two points (copy.deepcopy ahead of training), or a module and
        a state dict; or two models of this library, or a model and the parameters where its flow
        ended
    x : the training inputs, all of them: the comparison of functions takes what they determine
    y : labels, which add how well the kernel is aligned with them, and the gap to a twin trained on
        them
    x_new : inputs to compare functions on; by default drawn feature by feature from the values in x
        (for models with a linear predictor: its coordinates)
    functions : False leaves these comparisons out, which otherwise need a kernel of samples times
        outputs squared; the verdict then rests on the change of the kernel
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    Diagnosis with verdict

    Raises
    ------
    InputError for modules or data that cannot be used

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
        return _diagnosed(model_points(before, after, x, x_new), y, functions)
    with gradients():  # whatever the caller's mode
        return _diagnosed(module_points(before, after, x, x_new, max_memory), y, functions)


def _diagnosed(points: Points, y: Any, functions: bool | None) -> Diagnosis:
    start, end = (point.values("x") for point in points)
    compare = start.size <= LARGEST if functions is None else functions
    targets = None if y is None else read_labels(y, start.shape)
    # Of labels that are all the same centering leaves nothing, and nothing of a single sample.
    labelled = targets is not None and vary(targets)
    # The twin needs K_0 with all pairs of outputs; every measure is of the trace, as a Monitor's.
    full = as_array(points[0].tangent_kernel(None)) if compare else None
    before = points[0].tangent_kernel("trace") if full is None else full.trace(axis1=2, axis2=3)
    after = points[1].tangent_kernel("trace")
    if not np.any(start != end):
        raise InputError(
            "after: must differ from before in its outputs on x, got the same. Copy the module "
            "ahead of training (copy.deepcopy), not by reference."
        )
    turned, moved = points[0].moved(points[1])
    found = Diagnosis(
        samples=len(start),
        outputs=start.shape[1],
        kernel_change=relative_kernel_change(before, after),
        kernel_alignment=kernel_alignment(before, after) if len(start) > 1 else None,
        grad_distance=turned,
        parameter_movement=moved,
        label_alignment=(label_alignment(before, targets), label_alignment(after, targets))
        if labelled
        else None,
        gaps=None,
        thresholds=THRESHOLDS,
    )
    if full is None:
        return found
    return replace(found, gaps=_gaps(points, kernel_matrix(full).astype(np.float64), targets))


def _gaps(points: Points, kernel: FloatArray, labels: FloatArray | None) -> Gaps:
    first, second = points
    cross = first.cross_kernel()
    (start, end), (start_new, end_new) = (
        [point.values(name).reshape(-1) for point in points] for name in ("x", "x_new")
    )
    sizes = [float(np.linalg.norm(part)) for part in (end_new - start_new, end_new)]
    # By the smaller of the two: a start may be far larger than what training makes of it.
    unit = min(size for size in sizes if size > 0.0)

    def to_twin(targets: FloatArray) -> float:
        """The distance to the linearized twin that is trained on these."""
        twin = start_new + kernel_machine(kernel, cross, targets - start)
        return float(np.linalg.norm(end_new - twin)) / unit

    lazy = to_twin(end)
    to_labels = None if labels is None else to_twin(labels.reshape(-1))
    lean = leanest(second)
    return Gaps(
        lazy=lazy,
        lean=float(np.linalg.norm(end_new - lean.elsewhere)) / unit,
        at_rest=lean.at_rest,
        norm=lean.norm,
        known=first.rich_is_lean,
        labels=to_labels,
    )


def kernel_machine(
    kernel: FloatArray, cross: FloatArray, targets: FloatArray, left: float = 1e-3
) -> FloatArray:
    """What gradient flow of a model linear in its parameters makes of targets r, from 0.

        g(x, t) = K(x, X) K^+ (I - exp(-K t)) r

    on the inputs of the rows of `cross` = K(x, X), with kernel = K(X, X). Followed until only the
    share `left` of r is left: gaps of functions are judged at a few percent, and stopping there,
    rather than at infinity, leaves alone the directions whose eigenvalue is rounding.

    >>> bool(np.allclose(kernel_machine(np.eye(2), np.eye(2), np.array([1.0, 2.0])), [1, 2], 1e-2))
    True
    """
    values, vectors = np.linalg.eigh(kernel)
    top = float(values[-1])
    if not top > 0.0:
        return np.zeros(len(cross))
    # Relative to the largest: kernels may be as small as 1e-30, or as large. What is rounding of
    # the matrix is no direction that can be learned.
    rounding = len(values) * float(np.finfo(np.float64).eps)
    rates = np.where(values > rounding * top, values / top, 0.0)
    parts = vectors.T @ targets
    time = _time_to_fit(rates, parts, rounding, left)
    moving = rates > 0.0
    response = np.where(moving, -np.expm1(-rates * time) / np.where(moving, rates, 1.0), 0.0)
    return np.asarray(cross @ (vectors @ (response * parts)) / top)


def _time_to_fit(rates: FloatArray, parts: FloatArray, slowest: float, share: float) -> float:
    """The time at which that share of the targets is left, or all that can be is fitted."""
    size = float(np.linalg.norm(parts))
    low, high = -1.0, float(np.log(10.0 / slowest))
    for _ in range(60):
        middle = 0.5 * (low + high)
        left = float(np.linalg.norm(np.exp(-rates * np.exp(middle)) * parts))
        low, high = (middle, high) if left > share * size else (low, middle)
    return float(np.exp(high))
