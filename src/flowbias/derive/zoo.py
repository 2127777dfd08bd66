"""Parametrizations that differ in kind: what the gallery shows and the tests judge.

Each F uses methods of tensors only, so that listing them loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.derive.parametrization import Parametrization
from flowbias.ground.typing import FloatArray


@dataclass(frozen=True)
class Example:
    """A parametrization with a start: `title` for people, `key` for files.

    >>> fb.derive.EXAMPLES[0].title
    'w = u^2 - v^2'
    """

    key: str
    title: str
    F: Callable[[Any], Any]
    theta0: tuple[float, ...]
    names: tuple[str, ...]

    def parametrization(self) -> Parametrization:
        return Parametrization(self.F, np.array(self.theta0), self.names)


def _numbered(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{i + 1}" for i in range(count))


def _pairs(depth: int) -> Callable[[Any], Any]:
    return lambda th: th[:3] ** depth - th[3:] ** depth


def _neuron(th: Any) -> Any:
    return th[0] * th[1:]


def _two_neurons(th: Any) -> Any:
    return th[0] * th[2:5] + th[1] * th[5:8]


def _product(th: Any) -> Any:
    return (th[:4].reshape(2, 2) @ th[4:].reshape(2, 2).T).reshape(-1)


def _linear_net(th: Any) -> Any:
    return (th[:6].reshape(2, 3) @ th[6:].reshape(2, 3).T).reshape(-1)


def _symmetric(th: Any) -> Any:
    U = th.reshape(2, 2)
    # The three different entries of the symmetric U U^T.
    return (U @ U.T).reshape(-1)[[0, 1, 3]]


def _circular_convolution(th: Any) -> Any:
    u, v = th[:3], th[3:]
    return u[0] * v + u[1] * v.roll(1) + u[2] * v.roll(2)


def _circle(angle: Any) -> Any:
    # (cos t, sin t) without torch.cat: one cosine of two shifted angles.
    quarter = angle.new_tensor([0.0, -0.5 * np.pi])
    return (angle + quarter).cos()


def _weight_normalized(th: Any) -> Any:
    return th[0] * th[1:] / (th[1:] ** 2).sum().sqrt()


def _neuron_start(a: float, w: FloatArray) -> tuple[float, ...]:
    return (a, *map(float, w))


_W = np.array([0.6, -0.3, 0.5])  # ||w||^2 = 0.7
_NEURON_NAMES = ("a", *_numbered("w", 3))
_TWO_NAMES = ("a1", "a2", "u1", "u2", "u3", "v1", "v2", "v3")
_UNIT = _W / np.linalg.norm(_W)

EXAMPLES: tuple[Example, ...] = (
    Example(
        "squares",
        "w = u^2 - v^2",
        _pairs(2),
        (0.5, 0.8, 0.3, 0.5, 0.8, 0.3),
        _numbered("u", 3) + _numbered("v", 3),
    ),
    Example(
        "cubes",
        "w = u^3 - v^3",
        _pairs(3),
        (0.5, 0.8, 0.6, 0.5, 0.8, 0.6),
        _numbered("u", 3) + _numbered("v", 3),
    ),
    Example(
        "fifth-powers",
        "w = u^5 - v^5",
        _pairs(5),
        (0.7, 0.8, 0.6, 0.7, 0.8, 0.6),
        _numbered("u", 3) + _numbered("v", 3),
    ),
    Example(
        "product",
        "w = u v",
        lambda th: th[:3] * th[3:],
        (0.5, 0.8, 0.3, 0.2, 0.4, 0.6),
        _numbered("u", 3) + _numbered("v", 3),
    ),
    Example(
        "difference-of-products",
        "w = u v - x y",
        lambda th: th[0:2] * th[2:4] - th[4:6] * th[6:8],
        (0.5, 0.8, 0.3, 0.2, 0.4, 0.6, 0.7, 0.1),
        _numbered("u", 2) + _numbered("v", 2) + _numbered("x", 2) + _numbered("y", 2),
    ),
    Example(
        "deep-diagonal",
        "w = u v x",
        lambda th: th[0:2] * th[2:4] * th[4:6],
        (0.5, 0.8, 0.9, 0.6, 0.7, 0.4),
        _numbered("u", 2) + _numbered("v", 2) + _numbered("x", 2),
    ),
    Example(
        "neuron-positive",
        "w = a v, one neuron, delta > 0",
        _neuron,
        _neuron_start(1.2, _W),
        _NEURON_NAMES,
    ),
    Example(
        "neuron-balanced",
        "w = a v, one neuron, delta = 0",
        _neuron,
        _neuron_start(float(np.linalg.norm(_W)), _W),
        _NEURON_NAMES,
    ),
    Example(
        "neuron-negative",
        "w = a v, one neuron, delta < 0",
        _neuron,
        _neuron_start(0.4, _W),
        _NEURON_NAMES,
    ),
    Example(
        "two-neurons",
        "w = a1 u + a2 v, generic",
        _two_neurons,
        (0.9, 0.5, 0.6, -0.3, 0.5, 0.2, 0.7, -0.4),
        _TWO_NAMES,
    ),
    Example(
        "balanced-neurons",
        "w = a1 u + a2 v, balanced",
        _two_neurons,
        (0.9, 0.5, *map(float, 0.9 * _UNIT), *map(float, 0.5 * _UNIT)),
        _TWO_NAMES,
    ),
    Example(
        "chain",
        "w = a b v",
        lambda th: th[0] * th[1] * th[2:],
        (0.9, 0.7, 0.6, -0.3, 0.5),
        ("a", "b", *_numbered("v", 3)),
    ),
    Example(
        "matrix-factorization",
        "W = U V^T, 2 x 2",
        _product,
        (0.8, 0.1, -0.3, 0.6, 0.5, 0.2, 0.1, 0.9),
        ("u11", "u12", "u21", "u22", "v11", "v12", "v21", "v22"),
    ),
    Example(
        "symmetric-factorization",
        "W = U U^T, 2 x 2",
        _symmetric,
        (0.8, 0.1, -0.3, 0.6),
        ("u11", "u12", "u21", "u22"),
    ),
    Example(
        "weight-normalization",
        "w = g v/||v||",
        _weight_normalized,
        (0.9, 0.6, -0.3, 0.5),
        ("g", *_numbered("v", 3)),
    ),
    Example(
        "polar",
        "w = r (cos t, sin t)",
        lambda th: th[:1] * _circle(th[1:]),
        (0.8, 0.6),
        ("r", "t"),
    ),
    Example(
        "circular-convolution",
        "w = u * v, circular",
        _circular_convolution,
        (0.8, 0.1, -0.3, 0.6, 0.5, 0.2),
        _numbered("u", 3) + _numbered("v", 3),
    ),
    Example(
        "sigmoid",
        "w = 1/(1 + exp(-t))",
        lambda th: th.sigmoid(),
        (0.5, -0.8, 0.3),
        _numbered("t", 3),
    ),
    Example(
        "exponential",
        "w = exp(t)",
        lambda th: th.exp(),
        (0.5, -0.8, 0.3),
        _numbered("t", 3),
    ),
)

#: Two layers 2-3-2: the smallest linear network whose conservation laws have a matrix in them.
LINEAR_NET = Example(
    "linear-net",
    "W = U V^T, 2-3-2",
    _linear_net,
    (0.8, 0.1, -0.3, 0.6, 0.5, 0.2, 0.1, 0.9, -0.4, 0.3, 0.7, -0.6),
    tuple(f"{letter}{i}{j}" for letter in "uv" for i in (1, 2) for j in (1, 2, 3)),
)
