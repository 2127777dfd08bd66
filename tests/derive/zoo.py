"""What is known about each example, worked out by hand: the tests compare against this."""

from dataclasses import dataclass

import numpy as np

from flowbias.derive import Parametrization
from flowbias.derive.zoo import EXAMPLES, Example


@dataclass(frozen=True)
class Known:
    """The truth about one example."""

    commuting: bool
    orbit: int
    #: independent conservation laws around the start
    laws: int
    #: whether J J^T is a function of w on the orbit
    metric_from_predictor: bool
    hessian: bool
    warp: bool
    #: dimension of the conserved polynomials of degree <= 2
    quadratic: int


def _separable(orbit: int, laws: int, quadratic: int) -> Known:
    return Known(True, orbit, laws, True, True, True, quadratic)


def _radial(laws: int, quadratic: int, orbit: int = 3) -> Known:
    # H = a(|w|) I + b(|w|) w w^T: g solves (log(g a r))' = (a + b r^2)/(a r), so a warp exists.
    return Known(False, orbit, laws, True, False, True, quadratic)


KNOWN = {
    "squares": _separable(3, 3, 3),
    "cubes": _separable(3, 3, 0),
    "fifth-powers": _separable(3, 3, 0),
    "product": _separable(3, 3, 3),
    # Per coordinate u^2 - v^2, x^2 - y^2, ux + vy, uy + vx: four, with one relation.
    "difference-of-products": _separable(2, 6, 8),
    "deep-diagonal": _separable(2, 4, 4),
    "neuron-positive": _radial(1, 1),
    "neuron-balanced": _radial(1, 1),
    "neuron-negative": _radial(1, 1),
    # a a^T - W^T W, a symmetric 2 x 2 matrix.
    "two-neurons": Known(False, 5, 3, False, False, False, 3),
    "balanced-neurons": _radial(3, 3),
    "chain": _radial(2, 2),
    # U^T U - V^T V.
    "matrix-factorization": Known(False, 5, 3, False, False, False, 3),
    # U -> U R changes neither W nor the metric: a function of W although the orbit is larger.
    "symmetric-factorization": Known(False, 4, 0, True, False, False, 0),
    "weight-normalization": _radial(1, 1),
    "polar": _radial(0, 0, orbit=2),
    # In Fourier space |u_k|^2 - |v_k|^2 for the real and the complex frequency.
    "circular-convolution": Known(False, 4, 2, True, False, False, 2),
    "sigmoid": _separable(3, 0, 0),
    "exponential": _separable(3, 0, 0),
    "linear-net": Known(False, 6, 6, False, False, False, 6),
}
#: Two layers 2-3-2: the smallest linear network whose conservation laws have a matrix in them.
LINEAR_NET = Example(
    "linear-net",
    "W = U V^T, 2-3-2",
    lambda th: (th[:6].reshape(2, 3) @ th[6:].reshape(2, 3).T).reshape(-1),
    (0.8, 0.1, -0.3, 0.6, 0.5, 0.2, 0.1, 0.9, -0.4, 0.3, 0.7, -0.6),
    tuple(f"{letter}{i}{j}" for letter in "uv" for i in (1, 2) for j in (1, 2, 3)),
)
ALL: tuple[Example, ...] = (*EXAMPLES, LINEAR_NET)


def example(key: str) -> Example:
    return next(e for e in ALL if e.key == key)


def disguised(e: Example, seed: int) -> Parametrization:
    """A F(Q theta) with Q orthogonal and A invertible: the same geometry in other coordinates."""
    import torch

    rng = np.random.default_rng(seed)
    p, d = len(e.theta0), e.parametrization().d
    Q = np.linalg.qr(rng.standard_normal((p, p)))[0]
    A = np.linalg.qr(rng.standard_normal((d, d)))[0] * rng.uniform(0.3, 3.0, d)
    turn, mix = torch.tensor(Q), torch.tensor(A)
    return Parametrization(lambda th: mix @ e.F(turn @ th), Q.T @ np.array(e.theta0))


def neuron(d: int, a: float, seed: int = 0) -> Parametrization:
    w = np.random.default_rng(seed).standard_normal(d)
    return Parametrization(lambda th: th[0] * th[1:], np.append(a, w / np.linalg.norm(w)))
