"""Kernels of infinitely wide networks, in closed form: NNGP and NTK of MLPs.

With entries of W_l of variance weight_var / (width before it) and of b_l of variance bias_var, all
drawn at the start, outputs tend to a Gaussian process of covariance K and the tangent kernel (each
parameter measured by its standard deviation) to Theta as widths grow [Lee et al. 2018, Jacot et al.
2018]:

    K_1 = weight_var <x, x'> / d + bias_var                   Theta_1 = K_1
    K_(l+1) = weight_var E[s(z) s(z')] + bias_var             Theta_(l+1) = K_(l+1) +
                                                       weight_var E[s'(z) s'(z')] Theta_l

with (z, z') Gaussian of covariance K_l. The expectations are known for ReLU, as arc-cosine kernels
[Cho and Saul 2009], and for erf [Williams 1997]. Two points are followed by the square of their
distance D = K(x, x) + K(x', x') - 2 K(x, x'), in which close points keep their digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flowbias.ground.arguments import InputError, as_float, read_size, shown
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import checked_array


class Moments(NamedTuple):
    """E[s(z)^2] on both sides, E[(s(z) - s(z'))^2], and E[s'(z) s'(z')]."""

    first: FloatArray
    second: FloatArray
    distance: FloatArray
    slopes: FloatArray

    @property
    def products(self) -> FloatArray:
        """E[s(z) s(z')]."""
        return 0.5 * (self.first[:, None] + self.second - self.distance)


class InfiniteWidthKernels(NamedTuple):
    """Covariance of outputs at the start (nngp), and the tangent kernel, which stays (ntk)."""

    nngp: FloatArray
    ntk: FloatArray


def relu_moments(first: FloatArray, second: FloatArray, distance: FloatArray) -> Moments:
    """Of s = ReLU, from E[z^2] (n1,), E[z'^2] (n2,) and E[(z - z')^2] (n1, n2)."""
    one, two = np.sqrt(first)[:, None], np.sqrt(second)
    # Half the angle by its opposite and adjacent side: arccos loses half of the digits.
    across = np.maximum(distance - (one - two) ** 2, 0.0)
    along = np.maximum((one + two) ** 2 - distance, 0.0)
    angle = 2.0 * np.arctan2(np.sqrt(across), np.sqrt(along))
    area = 0.5 * np.sqrt(across * along)
    # E[s s'] = area / (2 pi) + (pi - angle) / (2 pi) E[z z'], put into the distance.
    mean = 0.5 * (first[:, None] + second)
    apart = (angle * mean - area + 0.5 * (np.pi - angle) * distance) / np.pi
    return Moments(
        0.5 * first, 0.5 * second, np.maximum(apart, 0.0), (np.pi - angle) / (2.0 * np.pi)
    )


def erf_moments(first: FloatArray, second: FloatArray, distance: FloatArray) -> Moments:
    """Of s = erf."""

    def product(one: FloatArray, two: FloatArray, both: FloatArray) -> FloatArray:
        sizes = np.sqrt((1.0 + 2.0 * one) * (1.0 + 2.0 * two))
        return np.asarray(2.0 / np.pi * np.arcsin(2.0 * both / sizes))

    rows = first[:, None]
    both = 0.5 * (rows + second - distance)
    own = product(first, first, first), product(second, second, second)
    apart = own[0][:, None] + own[1] - 2.0 * product(rows, second, both)
    # 4 pi^-1 / sqrt((1 + 2 a)(1 + 2 b) - 4 c^2)
    left = (1.0 + 2.0 * rows) * (1.0 + 2.0 * second) - 4.0 * both**2
    return Moments(*own, np.maximum(apart, 0.0), 4.0 / (np.pi * np.sqrt(left)))


_ACTIVATIONS: dict[str, Callable[[FloatArray, FloatArray, FloatArray], Moments]] = {
    "relu": relu_moments,
    "erf": erf_moments,
}


def infinite_width_kernels(
    x1: Any,
    x2: Any = None,
    *,
    depth: int = 1,
    activation: str = "relu",
    weight_var: float = 2.0,
    bias_var: float = 0.0,
) -> InfiniteWidthKernels:
    """NNGP and NTK between inputs of an MLP whose hidden layers are infinitely wide.

    Parameters
    ----------
    x1, x2 : (n1, d) and (n2, d), inputs; x2 defaults to x1
    depth : hidden layers
    activation : "relu" or "erf"
    weight_var, bias_var : variances of weights, times the width before them, and of biases

    Returns
    -------
    InfiniteWidthKernels, both (n1, n2), for each output; outputs are independent

    Raises
    ------
    InputError for inputs of unequal width, or numbers that make no network

    >>> x = np.eye(2)
    >>> kernels = infinite_width_kernels(x, depth=1)
    >>> kernels.nngp.round(4)  # 2 E[s s'] of independent z, z' of variance 1: 1 / pi
    array([[1.    , 0.3183],
           [0.3183, 1.    ]])
    """
    first = checked_array("x1", x1, 2)
    second = first if x2 is None else checked_array("x2", x2, 2)
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"x2: must have as many features as x1 ({first.shape[1]}), got {second.shape[1]}. Pass "
            "inputs of one network."
        )
    layers = read_size("depth", depth, "hidden layers")
    weight = _read_variance("weight_var", weight_var, "2 keeps the size of ReLU units.")
    bias = _read_variance("bias_var", bias_var, "0 is for no bias.")
    moments_of = _ACTIVATIONS.get(str(activation))
    if moments_of is None:
        raise InputError(
            f"activation: must be 'relu' or 'erf', got {activation!r}. For others use a wide "
            "network and tangent_kernel."
        )
    nngp, ntk = _kernels((first, second), layers, moments_of, weight, bias)
    if not (np.isfinite(nngp).all() and np.isfinite(ntk).all()):
        raise InputError(
            "x1: must have kernels that are doubles, got some beyond. Rescale the inputs or lower "
            "weight_var and bias_var."
        )
    return InfiniteWidthKernels(nngp, ntk)


@np.errstate(over="ignore", invalid="ignore")
def _kernels(
    inputs: tuple[FloatArray, FloatArray],
    layers: int,
    moments_of: Callable[[FloatArray, FloatArray, FloatArray], Moments],
    weight: float,
    bias: float,
) -> tuple[FloatArray, FloatArray]:
    first, second = inputs
    scale = weight / first.shape[1]
    sizes = [scale * np.sum(x**2, axis=1) + bias for x in (first, second)]
    apart = scale * _squared_distances(first, second)
    nngp = ntk = 0.5 * (sizes[0][:, None] + sizes[1] - apart)
    for _ in range(layers):
        moments = moments_of(sizes[0], sizes[1], apart)
        sizes = [weight * size + bias for size in (moments.first, moments.second)]
        # A bias that both have is in no difference.
        apart = weight * moments.distance
        nngp = weight * moments.products + bias
        ntk = nngp + weight * moments.slopes * ntk
    return nngp, ntk


def _read_variance(name: str, value: Any, meaning: str) -> float:
    number = as_float(value)
    if number is None or not 0.0 <= number < np.inf:
        raise InputError(f"{name}: must be a finite number >= 0, got {shown(value)}. {meaning}")
    return number


def _squared_distances(first: FloatArray, second: FloatArray) -> FloatArray:
    """||x - x'||^2 from the differences, row by row: products would cancel for close points."""
    return np.stack([np.sum((second - row) ** 2, axis=1) for row in first])
