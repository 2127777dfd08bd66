"""Closed forms of potentials that the papers give, in the units of derived ones.

A derived potential has Hess Q = g (J J^T)^{-1} with g = 1 at the start, and is least there. The
papers' are off by a constant factor: the mirror rate of a diagonal network, 3 |a(0)| / 2 for one
neuron [azulay2021, Theorem 2], with |a(0)| = ||w(0)||^(1/2) for balanced ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flowbias.derive import Example
from flowbias.ground.typing import FloatArray
from flowbias.models import DiagonalNet, Neuron, UntiedDiagonalNet
from flowbias.potentials import NeuronPotential

ClosedForm = Callable[[FloatArray], float]


def _of_network(net: Any, start: FloatArray) -> ClosedForm:
    """Bregman divergence from the start, in the network's own time."""
    return lambda w: net.potential.bregman(w, start) / net.mirror_rate


def _powers(depth: int) -> Callable[[FloatArray], ClosedForm]:
    def closed(theta: FloatArray) -> ClosedForm:
        net = DiagonalNet(depth=depth, scale=1.0, w0=theta[:3])
        return _of_network(net, np.zeros(3))

    return closed


def _products(theta: FloatArray) -> ClosedForm:
    u, v, x, y = np.split(theta, 4)
    net = UntiedDiagonalNet.from_weights(u, x, v, y)
    return _of_network(net, u * v - x * y)


def _neuron(theta: FloatArray) -> ClosedForm:
    neuron = Neuron(theta[0], theta[1:])
    rate = 1.5 * abs(neuron.a)
    return lambda w: neuron.potential.bregman(w, neuron.initial) / rate


def _balanced(theta: FloatArray) -> ClosedForm:
    start = theta[0] * theta[2:5] + theta[1] * theta[5:8]
    rate = 1.5 * float(np.sqrt(np.linalg.norm(start)))
    return lambda w: NeuronPotential(0.0).bregman(w, start) / rate


_CLOSED_FORMS: dict[str, Callable[[FloatArray], ClosedForm]] = {
    "squares": _powers(2),
    "cubes": _powers(3),
    "fifth-powers": _powers(5),
    "difference-of-products": _products,
    "neuron-positive": _neuron,
    "neuron-balanced": _neuron,
    "neuron-negative": _neuron,
    "balanced-neurons": _balanced,
}


def closed_form(example: Example) -> ClosedForm | None:
    """What the papers say the example minimizes; None where they say nothing."""
    form = _CLOSED_FORMS.get(example.key)
    return None if form is None else form(np.array(example.theta0))
