"""Parametrizations that differ in kind: what the gallery shows and the tests judge.

Each F uses methods of tensors only, so that listing them loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.derive.parametrization import Parametrization


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


def _numbered(letters: str, count: int) -> tuple[str, ...]:
    """u1, u2, v1, v2 for "uv" and 2."""
    return tuple(f"{letter}{i + 1}" for letter in letters for i in range(count))


def _pairs(depth: int) -> Callable[[Any], Any]:
    return lambda th: th[:3] ** depth - th[3:] ** depth


def _neuron(th: Any) -> Any:
    return th[0] * th[1:]


def _two_neurons(th: Any) -> Any:
    return th[0] * th[2:5] + th[1] * th[5:8]


def _product(th: Any) -> Any:
    return (th[:4].reshape(2, 2) @ th[4:].reshape(2, 2).T).reshape(-1)


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


_W = np.array([0.6, -0.3, 0.5])  # ||w||^2 = 0.7
_UNIT = _W / np.linalg.norm(_W)
_DEPTHS = (
    ("squares", 2, (0.5, 0.8, 0.3)),
    ("cubes", 3, (0.5, 0.8, 0.6)),
    ("fifth-powers", 5, (0.7, 0.8, 0.6)),
)
# delta = a^2 - ||w||^2
_NEURONS = (
    ("positive", "> 0", 1.2),
    ("balanced", "= 0", float(np.linalg.norm(_W))),
    ("negative", "< 0", 0.4),
)
_TWO_NAMES = ("a1", "a2", *_numbered("uv", 3))
_MATRIX_NAMES = ("u11", "u12", "u21", "u22", "v11", "v12", "v21", "v22")

EXAMPLES: tuple[Example, ...] = (
    *(
        Example(key, f"w = u^{depth} - v^{depth}", _pairs(depth), 2 * start, _numbered("uv", 3))
        for key, depth, start in _DEPTHS
    ),
    Example(
        "product",
        "w = u v",
        lambda th: th[:3] * th[3:],
        (0.5, 0.8, 0.3, 0.2, 0.4, 0.6),
        _numbered("uv", 3),
    ),
    Example(
        "difference-of-products",
        "w = u v - x y",
        lambda th: th[0:2] * th[2:4] - th[4:6] * th[6:8],
        (0.5, 0.8, 0.3, 0.2, 0.4, 0.6, 0.7, 0.1),
        _numbered("uvxy", 2),
    ),
    Example(
        "deep-diagonal",
        "w = u v x",
        lambda th: th[0:2] * th[2:4] * th[4:6],
        (0.5, 0.8, 0.9, 0.6, 0.7, 0.4),
        _numbered("uvx", 2),
    ),
    *(
        Example(
            f"neuron-{key}",
            f"w = a v, one neuron, delta {sign}",
            _neuron,
            (a, *map(float, _W)),
            ("a", *_numbered("w", 3)),
        )
        for key, sign, a in _NEURONS
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
        _MATRIX_NAMES,
    ),
    Example(
        "symmetric-factorization",
        "W = U U^T, 2 x 2",
        _symmetric,
        (0.8, 0.1, -0.3, 0.6),
        _MATRIX_NAMES[:4],
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
        _numbered("uv", 3),
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
