"""The leanest network near a trained one: the least norm of parameters for the same outputs.

From the trained parameters, the norm is let down while the outputs on the training inputs stay,

    theta <- theta + s (J^T K^+ (J theta + f_T(X) - f(X)) - theta),

which for s = 1 is a step of sequential quadratic programming for min ||theta||^2 at f(X) = f_T(X),
and for small s the flow of an infinitesimal weight decay. Where it rests theta = J^T nu. This is
what a start of vanishing scale leads to: least l1 norm for diagonal networks of depth 2, least
nuclear norm for products of two factors, least norm for linear neurons and for linear networks of
one output. So the distance from a trained network to it is the distance to its rich extreme, and
needs no such extreme to be known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from flowbias._typing import FloatArray

# Half steps: with whole ones deep networks overshoot their outputs.
STEP = 0.5
SMALLEST_STEP = 2.0**-7
# Outputs may be off by this share on the way: the next step corrects them.
STRAY = 0.1
MOST_STEPS = 60
# At rest, once each of CALM_STEPS steps moves the function by less than this share of its distance
# to the trained one. Networks with kinks never come to rest like that: activations switch on and
# off. For them it is enough that the norm has stopped falling, over the last SPAN steps.
AT_REST = 5e-3
CALM_STEPS = 4
SPAN = 20
LEVEL = 0.02
# The outputs are put right in the end, to this share, in so many steps of Gauss and Newton.
RESTORED = 1e-3
RESTORING_STEPS = 12
# Directions of J below this share of its largest are rounding, not a way to change an output.
RANK = 1e-6


class Adjustable(ABC):
    """A network whose parameters can be read and set, with its derivative on the training inputs.

    Vectors of outputs have one entry per sample and output, those of parameters one per parameter.
    """

    @abstractmethod
    def parameters(self) -> FloatArray: ...

    @abstractmethod
    def set_parameters(self, theta: FloatArray) -> None: ...

    @abstractmethod
    def outputs(self) -> FloatArray:
        """f(X)."""

    @abstractmethod
    def outputs_elsewhere(self) -> FloatArray:
        """f on the inputs where functions are compared."""

    @abstractmethod
    def push_forward(self, theta: FloatArray) -> FloatArray:
        """J theta."""

    @abstractmethod
    def pull_back(self, nu: FloatArray) -> FloatArray:
        """J^T nu."""

    @abstractmethod
    def kernel(self) -> FloatArray:
        """J J^T."""


@dataclass(frozen=True)
class Leanest:
    """The function of the leanest network, and how well it was reached."""

    elsewhere: FloatArray
    steps: int
    at_rest: bool
    #: ||f(X) - f_T(X)|| / ||f_T(X)||
    stray: float
    #: ||theta|| / ||theta_T||
    norm: float


def leanest(network: Adjustable) -> Leanest:
    """Let the norm of a trained network down to where it rests; changes the network's parameters.

    Ends early, with at_rest False, where no step keeps the outputs or after MOST_STEPS.
    """
    targets, trained = network.outputs(), network.outputs_elsewhere()
    first = now = network.parameters()
    size = _size(targets)
    elsewhere, calm, norms = trained, 0, [_size(first)]
    while len(norms) <= MOST_STEPS and calm < CALM_STEPS and not _level(norms):
        whole = _least_norm(network, now, network.push_forward(now) + targets - network.outputs())
        reached = _take_step(network, now, whole - now, targets, STRAY * size)
        if reached is None:
            break
        now = reached
        norms.append(_size(now))
        before, elsewhere = elsewhere, network.outputs_elsewhere()
        moved, away = _size(elsewhere - before), _size(elsewhere - trained)
        # Beside a network that is lean already, compare with the function itself.
        calm = calm + 1 if moved <= AT_REST * max(away, AT_REST * _size(trained)) else 0
    _restore(network, now, targets)
    if _size(network.parameters()) >= norms[0]:
        # All that the norm had fallen by was owed to outputs that strayed: nothing is leaner here.
        network.set_parameters(first)
    return Leanest(
        elsewhere=network.outputs_elsewhere(),
        steps=len(norms) - 1,
        at_rest=calm >= CALM_STEPS or _level(norms),
        stray=_size(network.outputs() - targets) / size if size > 0.0 else 0.0,
        norm=_size(network.parameters()) / norms[0],
    )


def _level(norms: list[float]) -> bool:
    """Whether the norm has stopped falling."""
    last = norms[-SPAN:]
    return len(norms) > 2 * SPAN and max(last) - min(last) <= LEVEL * min(last)


def _restore(network: Adjustable, theta: FloatArray, targets: FloatArray) -> None:
    for _ in range(RESTORING_STEPS):
        missing = targets - network.outputs()
        if _size(missing) <= RESTORED * _size(targets):
            return
        way = _least_norm(network, theta, missing) / STEP
        reached = _take_step(network, theta, way, targets, 0.0)
        if reached is None:
            return
        theta = reached


def _size(vector: FloatArray) -> float:
    return float(np.linalg.norm(vector))


def _least_norm(network: Adjustable, theta: FloatArray, wanted: FloatArray) -> FloatArray:
    """J^T K^+ wanted: the least parameters whose linearized outputs are `wanted`."""
    network.set_parameters(theta)
    values, vectors = np.linalg.eigh(network.kernel())
    seen = values > max(RANK**2, len(values) * np.finfo(np.float64).eps) * values[-1]
    parts = vectors.T @ wanted
    dual = vectors @ np.where(seen, parts / np.where(seen, values, 1.0), 0.0)
    return network.pull_back(dual)


def _take_step(
    network: Adjustable, theta: FloatArray, way: FloatArray, targets: FloatArray, stray: float
) -> FloatArray | None:
    """The longest step that keeps the outputs, or None (and the parameters where they were)."""
    step = STEP
    # What is off already need not be put right in one step.
    allowed = max(stray, 0.9 * _size(network.outputs() - targets))
    while step >= SMALLEST_STEP:
        network.set_parameters(theta + step * way)
        found = network.outputs()
        if np.isfinite(found).all() and _size(found - targets) <= allowed:
            return theta + step * way
        step /= 2.0
    network.set_parameters(theta)
    return None
