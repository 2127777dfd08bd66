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
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from flowbias.ground.arguments import InputError, as_array, as_float
from flowbias.ground.progress import shown
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import (
    kernel_alignment,
    label_alignment,
    relative_kernel_change,
    vary,
)
from flowbias.kernels.network import gradients
from flowbias.nets.settings import read_flag
from flowbias.regime.data import Labels, evenly_spread, loaded, read_practice, read_targets
from flowbias.regime.diagnosis import Diagnosis
from flowbias.regime.measures import StepEffect, gaps, layer_movements, most_beyond, step_effect
from flowbias.regime.points import (
    ModulePair,
    NetworkPoint,
    Points,
    model_points,
    module_pair,
)
from flowbias.regime.thresholds import THRESHOLDS


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
        spread, of x_new in the same share, and the report says so
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
    flags = _read_choice("functions", functions), _read_choice("lean", lean)
    own = declared_by(before)
    if own and by_layer:
        raise InputError(
            f"by_layer: must be False for a model of this library, got True for "
            f"{type(before).__name__}. It has no layers by name."
        )
    with nullcontext() if own else gradients():  # whatever the caller's mode
        if not own:
            (before, after), x, y = read_practice([before, loaded(before, after)], x, y)
        step = None if step_size is None else _step_effect(before, x, y, step_size, loss)
        wanted = Wanted(*flags, by_layer, step)
        if own:
            points = model_points(before, after, x, x_new)
            shape = points[0].values["x"].shape
        else:
            pair = module_pair(before, after, x, x_new, max_memory)
            shape = pair.shape
        labels = None if y is None else read_targets(y, shape)
        if not own and seconds is not None:
            return _within(began + seconds, pair, labels, wanted)
        return _diagnosed(points if own else pair.points(), labels, wanted)


def _read_choice(name: str, value: Any) -> bool | None:
    return None if value is None else read_flag(name, value)


def _step_effect(before: Any, x: Any, y: Any, step_size: float, loss: Any) -> StepEffect:
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
    #: samples * outputs up to which kernels are decomposed: beyond, the cube of it takes minutes
    largest: ClassVar[int] = 4000

    def compares(self, size: int) -> bool:
        """Whether functions are compared, where samples times outputs are so many."""
        return size <= self.largest if self.functions is None else self.functions


def _within(
    end: float, pair: ModulePair, labels: Labels | None, wanted: Wanted, fewest: int = 2
) -> Diagnosis:
    """The diagnosis on as many inputs as there is time for, until the clock shows `end`.

    On few of them first, then on up to four times as many, as long as the next one, whose cost
    grows with the square of their number at most, will be done in time: what has been found is
    there. New inputs come in the same share, as they cost as much. Functions are compared on all
    inputs only: the twin of some of them would be another one.
    """
    (samples, outputs), size, last, cost = pair.shape, fewest, fewest, 0.0
    few = replace(wanted, functions=False, lean=False)
    while size < samples:
        began, last = time.perf_counter(), size
        rows = {
            name: evenly_spread(count, max(fewest, count * size // samples))
            for name, count in pair.counts.items()
        }
        some = None if labels is None else labels.of(rows["x"])
        found = _diagnosed(pair.points(rows), some, few)
        now = time.perf_counter()
        cost, left = now - began, max(end - now, 0.0)
        size = int(min(4 * last, samples, last * np.sqrt(left / max(cost, 1e-9))))
        if size < samples and 2 * size < 3 * last:  # hardly more
            new = pair.counts["x_new"]
            return replace(found, given=samples, given_new=new, hurried=True)
    # All outputs of the kernel at the start beside the trace, and its eigenvectors.
    extra = cost * (samples / last) ** 2 + 2e-9 * (samples * outputs) ** 3
    hurried = wanted.compares(samples * outputs) and time.perf_counter() + 2.0 * extra > end
    return replace(_diagnosed(pair.points(), labels, few if hurried else wanted), hurried=hurried)


def _sensitivity(point: NetworkPoint, kernel: Any) -> float:
    """||theta|| ||J||_F, per sample: what rounding does to its outputs is about eps times this."""
    gradients = float(np.mean(np.diagonal(as_array(kernel)).astype(np.float64)))
    return float(np.linalg.norm(point.parameters()) * np.sqrt(gradients))


def _moved(points: Points) -> bool:
    """Whether any parameter did, although outputs may not show it."""
    first, second = (point.parameters() for point in points)
    return not np.array_equal(first, second)


def _diagnosed(points: Points, labels: Labels | None, wanted: Wanted) -> Diagnosis:
    first, second = points
    start, end = (point.values["x"] for point in points)
    if not (np.any(start != end) or first.settled or _moved(points)):
        raise InputError(
            "after: must differ from before in its outputs on x, got the same. Copy the module "
            "ahead of training (copy.deepcopy), not by reference."
        )
    weighted = first.weighted and second.weighted
    # Without weights to compare, functions are all there is.
    compare = wanted.compares(start.size) or not weighted
    with shown("diagnose", 5.0, counted=False) as show:
        show(0.0, "how far it moved")
        turned, moved = first.moved(second) if weighted else (None, None)
        show(1.0, "the kernel at the end")
        after, _ = second.kernels(full=False)
        show(2.0, "the kernel at the start")
        # The twin needs K_0 with all pairs of outputs; every measure is of the trace.
        before, full = first.kernels(full=compare)
        change = relative_kernel_change(before, after)
        # Centering leaves nothing of a single sample, or of labels that are all the same, and one
        # and the same direction of two samples, whatever the kernels.
        several, aligned = len(start) > 2, None
        alike = kernel_alignment(before, after) if several else None
        if several and labels is not None and vary(labels.numbers):
            aligned = (
                label_alignment(before, labels.numbers),
                label_alignment(after, labels.numbers),
            )
        show(3.0, "what was learned")
        linear = first.linear_change(second) if weighted else {}
        beyond = ((first.values[name], second.values[name], linear[name]) for name in linear)
        found = Diagnosis(
            samples=len(start),
            outputs=start.shape[1],
            beyond=most_beyond(beyond, _sensitivity(first, before)) if weighted else None,
            kernel_change=change,
            kernel_alignment=alike,
            grad_distance=turned,
            parameter_movement=None if moved is None else moved.overall,
            label_alignment=aligned,
            gaps=None,
            layers=layer_movements(points) if wanted.by_layer else None,
            given=len(start),
            samples_new=len(first.values["x_new"]),
            given_new=len(first.values["x_new"]),
            hurried=False,
            thresholds=THRESHOLDS,
            step=wanted.step,
        )
        if full is None:
            return found
        show(4.0, "its twin")
        return replace(found, gaps=gaps(points, full, labels, wanted.lean))
