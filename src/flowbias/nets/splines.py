"""What univariate ReLU networks are compared with.  [woodworth2020, B.1]

Rich limit: the linear spline, the interpolant of least parameter norm [Savarese et al. 2019].
Kernel limit: the tangent kernel's interpolant, which looks like a cubic spline where the second
layer makes most of the kernel, and like the linear one where the first does [Williams et al. 2019];
of one network exactly, or of wide ones in closed form. The natural cubic spline is drawn beside it.
Outside the data all splines here go on as straight lines, as their variational problems (least
integral of |f''|, of f''^2) have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from flowbias.ground.arguments import InputError, read_positive
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.kernels.infinite_width import relu_moments
from flowbias.kernels.linearize import linearized_flow
from flowbias.nets.settings import read_module
from flowbias.problems.regression import checked_array

Curve = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Spline:
    """A function of one variable between the first and the last knot, straight beyond them."""

    name: str
    inside: Curve
    first: float
    last: float
    #: slopes at the two ends
    slopes: tuple[float, float]

    def __call__(self, x: ArrayLike) -> FloatArray:
        points = np.asarray(x, dtype=float)
        held = np.clip(points, self.first, self.last)
        low, high = np.minimum(points - self.first, 0.0), np.maximum(points - self.last, 0.0)
        return self.inside(held) + self.slopes[0] * low + self.slopes[1] * high

    def __repr__(self) -> str:
        return f"Spline({self.name}, from {self.first:g} to {self.last:g})"


def linear_spline(x: ArrayLike, y: ArrayLike) -> Spline:
    """The broken line through the points.

    Parameters
    ----------
    x, y : (n,), places and values

    Returns
    -------
    Spline

    Raises
    ------
    InputError for places that repeat

    >>> linear_spline([0, 1, 3], [0, 1, 0])([0.5, 2.0, 5.0])
    array([ 0.5,  0.5, -1. ])
    """
    knots, values = _read_points(x, y)
    slopes = np.diff(values) / np.diff(knots)
    return Spline(
        name="linear",
        inside=lambda points: np.interp(points, knots, values),
        first=float(knots[0]),
        last=float(knots[-1]),
        slopes=(float(slopes[0]), float(slopes[-1])),
    )


def natural_cubic_spline(x: ArrayLike, y: ArrayLike) -> Spline:
    """The cubic spline through the points with no curvature at its ends.

    Parameters
    ----------
    x, y : (n,), places and values

    Returns
    -------
    Spline

    Raises
    ------
    InputError for places that repeat

    >>> natural_cubic_spline([0, 1, 2], [0, 1, 2])([0.5, 4.0]).round(12)
    array([0.5, 4. ])
    """
    knots, values = _read_points(x, y)
    cubic = CubicSpline(knots, values, bc_type="natural")
    return Spline(
        name="natural cubic",
        inside=lambda points: np.asarray(cubic(points)),
        first=float(knots[0]),
        last=float(knots[-1]),
        slopes=(float(cubic(knots[0], 1)), float(cubic(knots[-1], 1))),
    )


def tangent_kernel_interpolant(module: Any, x: ArrayLike, y: ArrayLike) -> Curve:
    """The kernel limit of a univariate module, exactly: its linearized twin at infinite time.

        f_0(x) + K(x, X) K(X, X)^+ (y - f_0(X))

    Computed in double precision from the module at its present parameters.

    Parameters
    ----------
    module : of one input and one output
    x, y : (n,), the data

    Returns
    -------
    a function of places

    Raises
    ------
    InputError for a module or data that cannot be used

    >>> net, x, y = fb.nets.univariate(50, rng=0), [-1.0, 0.0, 1.0], [0.0, 1.0, 0.0]
    >>> np.abs(fb.nets.tangent_kernel_interpolant(net, x, y)(np.array(x))).round(4)
    array([0., 1., 0.])
    """
    torch, network = require_torch(), next(read_module(module).parameters())
    knots, values = _read_points(x, y)

    def column(points: FloatArray) -> Any:
        return torch.as_tensor(points, dtype=torch.float64, device=network.device)[:, None]

    flow = linearized_flow(module, column(knots), torch.from_numpy(values)[:, None])

    def curve(points: FloatArray) -> FloatArray:
        flat = np.asarray(points, dtype=float)
        return flow.predict(column(flat.ravel())).reshape(flat.shape)

    return curve


def wide_interpolant(
    x: ArrayLike,
    y: ArrayLike,
    *,
    width: float = 10_000,
    scale: float = 1.0,
    relative_scale: float = 1.0,
) -> Curve:
    """The kernel limit of `univariate` networks without the luck of their draw, in closed form.

        K(x, x') = scale^2 (width r^2 E[s(z) s(z')] + (2 / r^2) (x x' + 1) E[s'(z) s'(z')]) + 1

    with r = relative_scale, s = ReLU and (z, z') Gaussian with the moments of w x + b, whose
    expectations are the arc-cosine kernels [Cho and Saul 2009]: what the tangent kernel of networks
    tends to as they are made wide. The second layer's part, the first, has the singularity |x -
    x'|^3 of cubic splines; the first layer's |x - x'|, of linear ones. Their relative size is r^4
    width / 2. Doubled networks, with twice the kernel, have the same limit.

    Parameters
    ----------
    x, y : (n,), the data
    width, scale, relative_scale : as for `univariate`

    Returns
    -------
    a function of places

    Raises
    ------
    InputError for places that repeat, or numbers that make no network

    >>> curve = fb.nets.wide_interpolant([-1.0, 0.0, 1.0], [0.0, 1.0, 0.0], relative_scale=0.01)
    >>> curve(np.array([0.0, 0.5])).round(3)  # the first layer alone: nearly a broken line
    array([1.   , 0.536])
    """
    knots, values = _read_points(x, y)
    units = read_positive("width", width, "Pass the number of hidden units.")
    alpha = np.float64(read_positive("scale", scale, "It multiplies all parameters at the start."))
    ratio = np.float64(
        read_positive("relative_scale", relative_scale, "It shifts scale to the first layer.")
    )

    @np.errstate(all="ignore")
    def kernel(points: FloatArray) -> FloatArray:
        apart = (points[:, None] - knots) ** 2
        moments = relu_moments(points**2 + 1.0, knots**2 + 1.0, apart)
        second = moments.products
        first = moments.slopes * (points[:, None] * knots + 1.0)
        return np.asarray(alpha**2 * (units * ratio**2 * second + 2.0 / ratio**2 * first) + 1.0)

    try:
        weights = np.linalg.solve(kernel(knots), values)
    except np.linalg.LinAlgError:
        weights = np.full(len(values), np.nan)
    if not np.isfinite(weights).all():
        raise InputError(
            f"scale: must leave the kernel of the points regular in doubles, got {alpha:g} with "
            f"relative_scale {ratio:g} and width {units:g}. Bring them nearer to 1."
        )

    def curve(points: FloatArray) -> FloatArray:
        flat = np.asarray(points, dtype=float)
        return np.asarray(kernel(flat.ravel()) @ weights).reshape(flat.shape)

    return curve


def _read_points(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Points in order of x, each x once."""
    places, values = checked_array("x", x, 1), checked_array("y", y, 1)
    if len(places) != len(values) or len(places) < 2:
        raise InputError(
            f"y: must have one value per point of x, two or more, got {len(places)} and "
            f"{len(values)}. Pass x and y of the same points."
        )
    order = np.argsort(places)
    knots = places[order]
    if not (np.diff(knots) > 0).all():
        twice = knots[:-1][np.diff(knots) <= 0][0]
        raise InputError(
            f"x: must not repeat a point, got {twice} twice. Average the values there."
        )
    return knots, values[order]
