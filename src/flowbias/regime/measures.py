"""What tells one regime from another, measured between a network's start and its end.

**Beyond the kernel.** f_T - f_0 = J_0 (theta_T - theta_0) + rest. The first part is what the
tangent features of the start can express, whatever loss, optimizer and time led there; the rest
takes features that the start did not have. Of what was learned,

    share = ||rest|| / ||f_T - f_0||

is beyond the kernel of the start: 0 for a network that is linear in its parameters or as good as
that (lazy), about 1 where its features are new. One product with J, whatever the size.

**Layers.** How far the parameters of each moved, ||theta_T - theta_0|| / ||theta_0||, and what that
carries, ||f_T - f_back|| / ||f_T - f_0||, f_back the trained module with this layer alone put back
to its start. Layers work together: what they carry need not add up to one.

**The linearized twin**, trained without ever forming it:

    f_lin(x, t) = f_0(x) + K(x, X) nu(t),    nu' = -grad loss(f_lin(X, t))

The n c numbers nu are all that training moves; what the twin says elsewhere is one product with
J^T and one with J. The squared loss has nu in closed form, cross-entropy is integrated.

**Steps.** Those of gradient descent, of length h, follow up to the second order of h the flow of
the modified loss L + (h/4) ||grad L||^2 [Barrett and Dherin, Implicit gradient regularization,
2021]. Where the second term is a small share of the first, what is known of the flow holds for the
run; for diagonal networks the whole effect is known exactly
(`fb.gradient_descent(...).effective_start`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.special import logsumexp, softmax

from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.jacobian import call_at
from flowbias.kernels.network import flat_outputs, gradients
from flowbias.nets.losses import read_data, read_loss
from flowbias.regime.data import Labels, layers_of
from flowbias.regime.leanest import leanest
from flowbias.regime.points import Points


@dataclass(frozen=True)
class Beyond:
    """The share, and its standard error over the inputs that it was measured on.

    >>> Beyond(share=0.123, error=0.012).in_words
    '12% (± 1%) of what was learned is beyond the kernel of the start'
    """

    share: float
    error: float
    #: whether outputs changed by more than rounding
    learned: bool = True

    @property
    def in_words(self) -> str:
        """The share in percent; above one the linearization went another way altogether."""
        if not self.learned:
            return "nothing was learned: outputs changed by no more than rounding"
        many = "all" if self.share >= 1.0 else f"{_percent(self.share)} (± {_percent(self.error)})"
        return f"{many} of what was learned is beyond the kernel of the start"


def _percent(share: float) -> str:
    """Two digits below one percent, none above."""
    return f"{share:.0%}" if share >= 0.01 or share == 0.0 else f"{100 * share:.2g}%"


def beyond_kernel(
    start: FloatArray, end: FloatArray, linear: FloatArray, sensitivity: float = 0.0
) -> Beyond:
    """From outputs (samples, outputs) at both points, and J_0 (theta_T - theta_0) between them.

    The error is that of a ratio of sums over independent inputs, to first order; for one input
    nothing is known of it. What rounding makes of outputs that hardly moved is added to it; a share
    that it could make alone counts as 0. `sensitivity` is how far, per sample, relative changes of
    the parameters move the outputs, which may themselves cancel to nothing (an unbiased start).

    >>> half = beyond_kernel(np.zeros((2, 1)), np.ones((2, 1)), 0.5 * np.ones((2, 1)))
    >>> half.share, half.error < 1e-12
    (0.5, True)
    """
    moved, samples = end - start, len(end)
    rest, whole = ((part**2).sum(axis=1) for part in (moved - linear, moved))
    size = float(whole.sum())
    rounding = np.finfo(end.dtype).eps * np.hypot(
        float(np.linalg.norm(end)), np.sqrt(samples) * sensitivity
    )
    if np.sqrt(size) <= rounding:
        return Beyond(0.0, 0.0, learned=False)
    ratio, noise = float(rest.sum()) / size, float(rounding / np.sqrt(size))
    spread = float(np.linalg.norm(rest - ratio * whole)) / size if samples > 1 else np.inf
    spread *= np.sqrt(samples / max(samples - 1, 1))
    share = float(np.sqrt(ratio))
    error = spread / (2.0 * share) if share > 0.0 else 0.0
    return Beyond(share if share > noise else 0.0, float(np.hypot(error, noise)))


def most_beyond(outputs: Iterable[Sequence[FloatArray]], sensitivity: float = 0.0) -> Beyond:
    """On the training inputs or on new ones, where it is more: units may switch between them."""
    found = (beyond_kernel(start, end, linear, sensitivity) for start, end, linear in outputs)
    return max(found, key=lambda beyond: (beyond.share, beyond.learned))


@dataclass(frozen=True)
class LayerMovement:
    """How far a layer's parameters moved, relatively, and the share of f_T - f_0 they carry."""

    moved: float
    carries: float

    @property
    def moved_in_words(self) -> str:
        """The number, which has no meaning where all parameters started at zero."""
        return f"{self.moved:.3g}" if self.moved < float("inf") else "from 0"


def layer_movements(points: Any) -> dict[str, LayerMovement]:
    """By the name of the module that holds the parameters, of a torch module at two points."""
    (before, after), x = (point.network for point in points), points[0].inputs["x"]
    samples = len(x[0])

    def outputs(put_back: list[str]) -> Any:
        point = {name: before.parameters[name] for name in put_back}
        return flat_outputs(call_at(after.module, point, x), samples)

    with gradients(on=False):
        trained = outputs([])
        learned = float((trained - outputs(list(before.parameters))).norm())
        found = {}
        for layer, names in layers_of(before).items():
            sizes = [
                np.linalg.norm([float(part.norm()) for part in parts])
                for parts in (
                    [after.parameters[name] - before.parameters[name] for name in names],
                    [before.parameters[name] for name in names],
                )
            ]
            moved = float(sizes[0] / sizes[1]) if sizes[1] > 0.0 else float("inf")
            lost = float((trained - outputs(names)).norm())
            carries = lost / learned if learned > 0.0 else 0.0
            found[layer] = LayerMovement(moved if sizes[0] > 0.0 else 0.0, carries)
    return found


def squared_loss_dual(kernel: NDArray[Any], targets: FloatArray, left: float = 1e-3) -> FloatArray:
    """nu = K^+ (I - exp(-K t)) r, the dual of gradient flow from 0 to the targets r.

    Followed until only the share `left` of r is left: gaps of functions are judged at a few
    percent, and stopping there, rather than at infinity, leaves alone the directions whose
    eigenvalue is rounding.

    >>> bool(np.allclose(squared_loss_dual(np.eye(2), np.array([1.0, 2.0])), [1, 2], 1e-2))
    True
    """
    values, vectors = np.linalg.eigh(kernel.astype(np.float64))
    top = float(values[-1])
    if not top > 0.0:
        return np.zeros(len(targets))
    # Relative to the largest: kernels may be as small as 1e-30, or as large. What is rounding of
    # the matrix is no direction that can be learned.
    rounding = len(values) * float(np.finfo(kernel.dtype).eps)
    rates = np.where(values > rounding * top, values / top, 0.0)
    parts = vectors.T @ targets
    time = _time_to_fit(rates, parts, rounding, left)
    moving = rates > 0.0
    response = np.where(moving, -np.expm1(-rates * time) / np.where(moving, rates, 1.0), 0.0)
    return np.asarray(vectors @ (response * parts) / top)


def _time_to_fit(rates: FloatArray, parts: FloatArray, slowest: float, share: float) -> float:
    """The time at which that share of the targets is left, or all that can be is fitted."""
    size = float(np.linalg.norm(parts))
    low, high = -1.0, float(np.log(10.0 / slowest))
    for _ in range(60):
        middle = 0.5 * (low + high)
        left = float(np.linalg.norm(np.exp(-rates * np.exp(middle)) * parts))
        low, high = (middle, high) if left > share * size else (low, middle)
    return float(np.exp(high))


def cross_entropy(outputs: FloatArray, one_hot: FloatArray) -> float:
    """-sum of log probabilities of the classes; rows without one do not count."""
    logs = outputs - logsumexp(outputs, axis=-1, keepdims=True)
    return float(-np.sum(one_hot * logs))


def cross_entropy_dual(
    kernel: NDArray[Any], start: FloatArray, one_hot: FloatArray, until: float
) -> FloatArray:
    """nu of gradient flow on cross-entropy, from 0 to where that has fallen to `until`.

    Outputs at the start and classes are (rows, classes): a row per sample, or per position of one.
    It has no end of its own, so that two networks are compared at one loss. Stiff, as the kernel's
    eigenvalues are: by backward differentiation, with the derivative -S K, S that of softmax.

    >>> labels = np.eye(2)
    >>> nu = cross_entropy_dual(np.eye(4), np.zeros((2, 2)), labels, until=0.5)
    >>> round(cross_entropy(nu.reshape(2, 2), labels), 3)
    0.5
    """
    kernel = kernel.astype(np.float64)
    top = float(np.linalg.norm(kernel, 2))
    if not top > 0.0 or cross_entropy(start, one_hot) <= until:
        return np.zeros(start.size)
    counted = one_hot.sum(axis=-1, keepdims=True)

    def outputs(nu: FloatArray) -> FloatArray:
        return np.asarray(start + (kernel @ nu).reshape(start.shape))

    # Time in units in which the fastest direction has rate one.
    def slope(_: float, nu: FloatArray) -> FloatArray:
        pulled = one_hot - counted * softmax(outputs(nu), axis=-1)
        return np.asarray(pulled.reshape(-1) / top)

    def derivative(_: float, nu: FloatArray) -> FloatArray:
        p = counted * softmax(outputs(nu), axis=-1)
        rows = kernel.reshape(*start.shape, -1)
        centred = rows - np.einsum("rc,rck->rk", p, rows)[:, None]
        return np.asarray(-(p[:, :, None] * centred).reshape(kernel.shape) / top)

    def excess(_: float, nu: FloatArray) -> float:
        return cross_entropy(outputs(nu), one_hot) - until

    excess.terminal = True  # type: ignore[attr-defined]
    # Directions slower than rounding of the largest are never learned.
    end = 1.0 / np.finfo(np.float64).eps
    found = solve_ivp(
        slope, (0.0, end), np.zeros(start.size), "BDF", jac=derivative, events=excess, rtol=1e-4
    )
    return np.asarray(found.y[:, -1])


@dataclass(frozen=True)
class Gaps:
    """Distances in function space, relative to the function and to how far it moved (the smaller).

    lazy     to the linearized twin with the same outputs on the training inputs
    lean     to the leanest network nearby with the same outputs; None where it was not searched
    at_rest  whether that network was reached; if not, it is at least `lean` away
    norm     the norm of its parameters as a share of the network's own
    known    whether it is known to be where starts of vanishing scale lead: not of torch modules
    labels   to the linearized twin trained on the labels, on numbers for ever, on classes to the
             network's own cross-entropy; None without labels
    """

    lazy: float
    lean: float | None
    at_rest: bool
    norm: float | None
    known: bool
    labels: float | None
    #: below this share of the function both extremes are one, up to how well they are known
    indistinct: ClassVar[float] = 0.03

    @property
    def distinct(self) -> bool:
        """Whether the two extremes are known to differ, so that a position means something."""
        if self.lean is None:
            return False
        known = self.lazy + self.lean if self.at_rest else self.lazy
        return known > self.indistinct

    @property
    def position(self) -> float | None:
        """lazy / (lazy + lean): 0 is the linearized twin, 1 the leanest network."""
        if self.lean is None:
            return None
        total = self.lazy + self.lean
        return self.lazy / total if total > 0.0 else 0.0


def gaps(points: Points, kernel: FloatArray, labels: Labels | None, lean: bool | None) -> Gaps:
    """Of the second of two points, with the kernel of the first on the training inputs.

    `lean`: whether the leanest network is searched for, None for where it is known to be the limit.
    """
    first, second = points
    start, end = (point.values["x"].reshape(-1) for point in points)
    start_new, end_new = (point.values["x_new"].reshape(-1) for point in points)
    sizes = [float(np.linalg.norm(part)) for part in (end_new - start_new, end_new)]
    # By the smaller of the two: a start may be far larger than what training makes of it.
    unit = min((size for size in sizes if size > 0.0), default=1.0)
    duals = [squared_loss_dual(kernel, end - start)]
    if labels is not None:
        duals.append(_dual_of_labels(kernel, start, end, labels))
    away = [
        float(np.linalg.norm(end_new - (start_new + first.twin_change(dual)))) / unit
        for dual in duals
    ]
    searched = first.rich_is_lean if lean is None else lean
    found = leanest(second) if searched else None
    return Gaps(
        lazy=away[0],
        lean=None if found is None else float(np.linalg.norm(end_new - found.elsewhere)) / unit,
        at_rest=found is not None and found.at_rest,
        norm=None if found is None else found.norm,
        known=first.rich_is_lean,
        labels=None if labels is None else away[1],
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
