"""What univariate ReLU networks are compared with.  [woodworth2020, B.1]

Rich limit: the linear spline, the interpolant of least parameter norm [Savarese et al. 2019].
Kernel limit: the tangent kernel's interpolant, which looks like one cubic spline or another as the
relative scale of the layers changes [Williams et al. 2019]; the natural cubic spline is drawn
beside it. Outside the data all splines here go on as straight lines, as their variational
problems (least integral of |f''|, of f''^2) have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import ArrayLike, FloatArray
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
