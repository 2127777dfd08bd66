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

from flowbias.ground.typing import FloatArray


@dataclass(frozen=True)
class Search:
    """How far and how long the norm is let down."""

    #: of a whole step: with whole ones deep networks overshoot their outputs
    step: float = 0.5
    #: the shortest worth taking
    smallest_step: float = 2.0**-7
    #: outputs may be off by this share on the way: the next step corrects them
    stray: float = 0.1
    most_steps: int = 60
    #: at rest, once each of `calm_steps` steps moves the function by less than this share of its
    #: distance to the trained one
    at_rest: float = 5e-3
    calm_steps: int = 4
    #: networks with kinks never come to rest like that, as activations switch on and off: for them
    #: it is enough that the norm has stopped falling, by this share over the last `span` steps
    level: float = 0.02
    span: int = 20
    #: the outputs are put right in the end, to this share, in so many steps of Gauss and Newton
    restored: float = 1e-3
    restoring_steps: int = 12
    #: directions of J below this share of its largest are rounding, no way to change an output
    rank: float = 1e-6

    def ended(self, calm: int, norms: list[float]) -> bool:
        """Whether the function rests after so many calm steps, or the norm has stopped falling."""
        last = norms[-self.span :]
        level = len(norms) > 2 * self.span and max(last) - min(last) <= self.level * min(last)
        return calm >= self.calm_steps or level


SEARCH = Search()


class Adjustable(ABC):
    """A network whose parameters can be read and set, with its derivative on the training inputs.

    Vectors of outputs have one entry per sample and output, those of parameters one per parameter.
    """

    @abstractmethod
    def parameters(self) -> FloatArray: ...

    @abstractmethod
    def set_parameters(self, theta: FloatArray) -> None: ...

    @abstractmethod
    def outputs(self, name: str = "x") -> FloatArray:
        """f(X), or with "x_new" f on the inputs where functions are compared."""

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

    Ends early, with at_rest False, where no step keeps the outputs or after the most steps.
    """
    targets, trained = network.outputs(), network.outputs("x_new")
    first = now = network.parameters()
    size = _size(targets)
    elsewhere, calm, norms = trained, 0, [_size(first)]
    while len(norms) <= SEARCH.most_steps:
        whole = _least_norm(network, now, targets, and_itself=True)
        reached = _take_step(network, now, whole - now, targets, SEARCH.stray * size)
        if reached is None:
            break
        now = reached
        norms.append(_size(now))
        before, elsewhere = elsewhere, network.outputs("x_new")
        moved, away = _size(elsewhere - before), _size(elsewhere - trained)
        # Beside a network that is lean already, compare with the function itself.
        resting = moved <= SEARCH.at_rest * max(away, SEARCH.at_rest * _size(trained))
        calm = calm + 1 if resting else 0
        if SEARCH.ended(calm, norms):
            break
    _restore(network, now, targets)
    if _size(network.parameters()) >= norms[0]:
        # All that the norm had fallen by was owed to outputs that strayed: nothing is leaner here.
        network.set_parameters(first)
    return Leanest(
        elsewhere=network.outputs("x_new"),
        steps=len(norms) - 1,
        at_rest=SEARCH.ended(calm, norms),
        stray=_size(network.outputs() - targets) / size if size > 0.0 else 0.0,
        norm=_size(network.parameters()) / norms[0],
    )


def _restore(network: Adjustable, theta: FloatArray, targets: FloatArray) -> None:
    for _ in range(SEARCH.restoring_steps):
        missing = targets - network.outputs()
        if _size(missing) <= SEARCH.restored * _size(targets):
            return
        way = _least_norm(network, theta, targets) / SEARCH.step
        reached = _take_step(network, theta, way, targets, 0.0)
        if reached is None:
            return
        theta = reached


def _size(vector: FloatArray) -> float:
    return float(np.linalg.norm(vector))


def _least_norm(
    network: Adjustable, theta: FloatArray, targets: FloatArray, *, and_itself: bool = False
) -> FloatArray:
    """J^T K^+ wanted: the least parameters whose linearized outputs are what is missing at theta.

    With `and_itself` the least that do what theta does as well.
    """
    network.set_parameters(theta)
    wanted = (network.push_forward(theta) + targets if and_itself else targets) - network.outputs()
    values, vectors = np.linalg.eigh(network.kernel())
    seen = values > max(SEARCH.rank**2, len(values) * np.finfo(np.float64).eps) * values[-1]
    parts = vectors.T @ wanted
    dual = vectors @ np.where(seen, parts / np.where(seen, values, 1.0), 0.0)
    return network.pull_back(dual)


def _take_step(
    network: Adjustable, theta: FloatArray, way: FloatArray, targets: FloatArray, stray: float
) -> FloatArray | None:
    """The longest step that keeps the outputs, or None (and the parameters where they were)."""
    step = SEARCH.step
    # What is off already need not be put right in one step.
    allowed = max(stray, 0.9 * _size(network.outputs() - targets))
    while step >= SEARCH.smallest_step:
        network.set_parameters(theta + step * way)
        found = network.outputs()
        if np.isfinite(found).all() and _size(found - targets) <= allowed:
            return theta + step * way
        step /= 2.0
    network.set_parameters(theta)
    return None
