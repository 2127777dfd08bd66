"""After training: was it a kernel method, or were features learned?

Measures of the network before and after it (`thresholds.py` says what they add up to), first the
share of what was learned that is beyond the kernel of the start (`measures.py`). On inputs that
were not trained on there are two distances in function space, to what the extremes would have made
of the same outputs on the training inputs:

    lazy gap: to the linearized twin of the start, trained until it has these outputs. Whatever
              loss and time they came from, a lazy network is its twin.
    lean gap: to the network of least parameter norm nearby that has them (`leanest.py`), which is
              where a start of vanishing scale leads.

The work is that of a few kernels: one at each point, their difference, and single products with J
for everything else. Only the search for the leanest network takes a kernel per step; models of this
library, for which it is known what it finds, are small.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError, as_float
from flowbias.ground.progress import Show, shown
from flowbias.ground.typing import FloatArray
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import kernel_alignment, label_alignment, relative_kernel_change
from flowbias.kernels.network import gradients
from flowbias.regime.data import Labels, evenly_spread, read_practice, read_targets, vary
from flowbias.regime.diagnosis import Diagnosis, Gaps
from flowbias.regime.leanest import leanest
from flowbias.regime.measures import (
    Beyond,
    StepEffect,
    beyond_kernel,
    cross_entropy,
    cross_entropy_dual,
    layer_movements,
    squared_loss_dual,
    step_effect,
)
from flowbias.regime.points import Points, loaded, model_points, module_points
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
    lean: bool | None = None,
    by_layer: bool = False,
    step_size: float | None = None,
    loss: Any = "half",
    budget: float | None = None,
    max_memory: int | str = "1GiB",
) -> Diagnosis:
    """How far training took a network from its tangent kernel, and the verdict.

    Running statistics (BatchNorm) are those of `after` at both points, with a warning where they
    differ: they settle while nothing is learned. Kernel change and alignments are of the trace over
    outputs.

    Parameters
    ----------
    before, after : a torch module at two points (copy.deepcopy ahead of training), or a module and
        a state dict; or two models of this library, or a model and the parameters where its flow
        ended
    x : the training inputs, all of them: the comparison of functions takes what they determine;
        tensors, a dict of them for a module that takes them by name, or a DataLoader, whose batches
        may bring the labels. The module may return an object with `logits`
    y : labels, numbers or integer classes, which add how well the kernel is aligned with them, and
        the gap to a twin trained on them, on classes by cross-entropy down to the network's own
    x_new : inputs to compare functions on; by default drawn feature by feature from the values in x
        (for models with a linear predictor: its coordinates)
    functions : False leaves these comparisons out, which otherwise need a kernel of samples times
        outputs squared
    lean : whether to search for the leanest network of a torch module too, which takes the time of
        some fifty kernels and does not decide
    by_layer : whether to tell which layers moved
    step_size : of the training, with labels y: adds how far such steps are from gradient flow at
        the start
    loss : that the training lowered, as `nets.train` takes it; for step_size alone
    budget : bound of the seconds that it all takes: fewer inputs are used where needed, evenly
        spread, and the report says so
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
    began = time.perf_counter()
    seconds = None if budget is None else as_float(budget)
    if budget is not None and (seconds is None or not seconds > 0.0):
        raise InputError(f"budget: must be > 0, in seconds, got {budget!r}. None is no bound.")
    if declared_by(before):
        wanted = Wanted(functions, lean, by_layer, _step_effect(before, x, y, step_size, loss))
        if by_layer:
            raise InputError(
                f"by_layer: must be False for a model of this library, got True for "
                f"{type(before).__name__}. It has no layers by name."
            )
        points = model_points(before, after, x, x_new)
        return _diagnosed(points, _read(y, points), wanted)
    with gradients():  # whatever the caller's mode
        (before, after), x, y = read_practice([before, loaded(before, after)], x, y)
        wanted = Wanted(functions, lean, by_layer, _step_effect(before, x, y, step_size, loss))
        points = module_points(before, after, x, x_new, max_memory)
        if seconds is None:
            return _diagnosed(points, _read(y, points), wanted)
        return _within(began + seconds, points, _read(y, points), wanted)


def _step_effect(
    before: Any, x: Any, y: Any, step_size: float | None, loss: Any
) -> StepEffect | None:
    if step_size is None:
        return None
    if y is None or declared_by(before):
        raise InputError(
            f"step_size: must come with labels y and a torch module, got {step_size!r} without. "
            "For a model of this library fb.gradient_descent tells the effect of its steps."
        )
    return step_effect(before, x, y, step_size=step_size, loss=loss)


@dataclass(frozen=True)
class Wanted:
    """What of a diagnosis was asked for."""

    functions: bool | None
    lean: bool | None
    by_layer: bool
    step: StepEffect | None

    def compares(self, size: int) -> bool:
        """Whether functions are compared, where samples times outputs are so many."""
        return size <= LARGEST if self.functions is None else self.functions


def _read(y: Any, points: Points) -> Labels | None:
    samples, outputs = points[0].values("x").shape
    return None if y is None else read_targets(y, (samples, outputs))


def _within(
    end: float, points: Any, labels: Labels | None, wanted: Wanted, fewest: int = 2
) -> Diagnosis:
    """The diagnosis on as many inputs as there is time for, until the clock shows `end`.

    On few of them first, then on four times as many as long as the next one, whose cost grows with
    the square of their number at most, will be done in time: what has been found is there.
    """
    given, size, cost, found = points[0].values("x"), fewest, 0.0, None
    samples, outputs = given.shape
    few = replace(wanted, functions=False, lean=False)
    while size < samples:
        rows, began = evenly_spread(samples, size), time.perf_counter()
        some = points[0].on(rows), points[1].on(rows)
        found = _diagnosed(some, None if labels is None else labels.of(rows), few)
        now = time.perf_counter()
        cost, left = now - began, end - now
        following = min(4 * size, samples)
        if cost * (following / size) ** 2 > left:
            return replace(found, given=samples, hurried=True)
        size = following
    # All outputs of the kernel at the start beside the trace, and its eigenvectors.
    extra = cost * (samples / max(size // 4, fewest)) ** 2 + 2e-9 * (samples * outputs) ** 3
    hurried = wanted.compares(samples * outputs) and time.perf_counter() + 2.0 * extra > end
    return replace(_diagnosed(points, labels, few if hurried else wanted), hurried=hurried)


def _diagnosed(points: Points, labels: Labels | None, wanted: Wanted) -> Diagnosis:
    with shown("diagnose", 5.0, counted=False) as show:
        return _measured(points, labels, wanted, show)


def _measured(points: Points, labels: Labels | None, wanted: Wanted, show: Show) -> Diagnosis:
    first, second = points
    start, end = (point.values("x") for point in points)
    if not np.any(start != end):
        raise InputError(
            "after: must differ from before in its outputs on x, got the same. Copy the module "
            "ahead of training (copy.deepcopy), not by reference."
        )
    weighted = first.weighted and second.weighted
    # Without weights to compare, functions are all there is.
    compare = wanted.compares(start.size) or not weighted
    turned, moved = first.moved(second) if weighted else (None, None)
    show(1.0, "the kernel at the start")
    # The twin needs K_0 with all pairs of outputs; every measure is of the trace, as a Monitor's.
    before, full = first.kernels() if compare else (first.tangent_kernel("trace"), None)
    show(2.0, "the kernel at the end")
    after = second.tangent_kernel("trace")
    show(3.0, "what was learned")
    # Of labels that are all the same centering leaves nothing, and nothing of a single sample.
    labelled = labels is not None and vary(labels.numbers)
    found = Diagnosis(
        samples=len(start),
        outputs=start.shape[1],
        beyond=_beyond(points) if weighted else None,
        kernel_change=relative_kernel_change(before, after),
        kernel_alignment=kernel_alignment(before, after) if len(start) > 1 else None,
        grad_distance=turned,
        parameter_movement=None if moved is None else moved.overall,
        label_alignment=(
            label_alignment(before, labels.numbers),
            label_alignment(after, labels.numbers),
        )
        if labels is not None and labelled
        else None,
        gaps=None,
        layers=layer_movements(points) if wanted.by_layer else None,
        given=len(start),
        hurried=False,
        thresholds=THRESHOLDS,
        step=wanted.step,
    )
    if full is None:
        return found
    show(4.0, "its twin")
    return replace(found, gaps=_gaps(points, full, labels, wanted))


def _beyond(points: Points) -> Beyond:
    """On the training inputs or on new ones, where it is more: units may switch between them."""
    first, second = points
    shares = (
        beyond_kernel(first.values(name), second.values(name), first.linear_change(second, name))
        for name in ("x", "x_new")
    )
    return max(shares, key=lambda beyond: beyond.share)


def _gaps(points: Points, kernel: FloatArray, labels: Labels | None, wanted: Wanted) -> Gaps:
    first, second = points
    (start, end), (start_new, end_new) = (
        [point.values(name).reshape(-1) for point in points] for name in ("x", "x_new")
    )
    sizes = [float(np.linalg.norm(part)) for part in (end_new - start_new, end_new)]
    # By the smaller of the two: a start may be far larger than what training makes of it.
    unit = min(size for size in sizes if size > 0.0)

    def to_twin(dual: FloatArray) -> float:
        """The distance to the linearized twin that this dual makes."""
        twin = start_new + first.push_forward_elsewhere(first.pull_back(dual))
        return float(np.linalg.norm(end_new - twin)) / unit

    lazy = to_twin(squared_loss_dual(kernel, end - start))
    to_labels = None if labels is None else to_twin(_dual_of_labels(kernel, start, end, labels))
    lean = None
    if first.rich_is_lean if wanted.lean is None else wanted.lean:
        lean = leanest(second)
    return Gaps(
        lazy=lazy,
        lean=None if lean is None else float(np.linalg.norm(end_new - lean.elsewhere)) / unit,
        at_rest=lean is not None and lean.at_rest,
        norm=None if lean is None else lean.norm,
        known=first.rich_is_lean,
        labels=to_labels,
    )


def _dual_of_labels(
    kernel: FloatArray, start: FloatArray, end: FloatArray, labels: Labels
) -> FloatArray:
    """Of the twin that is trained on the labels: on numbers for ever, on classes as far."""
    if labels.one_hot is None:
        return squared_loss_dual(kernel, labels.numbers.reshape(-1) - start)
    rows = labels.one_hot.shape
    until = cross_entropy(end.reshape(rows), labels.one_hot)
    return cross_entropy_dual(kernel, start.reshape(rows), labels.one_hot, until)
