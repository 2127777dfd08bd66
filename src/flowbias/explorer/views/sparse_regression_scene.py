"""Limits on planted data at every scale: from least l2 norm to least l1 norm.

Exponents of ten of the scale run from 2 to -300 on an axis asinh(exponent / 2): even around 1,
where most happens, and wide enough at its far end to show how far away the l1 limit can be
[woodworth2020, Theorem 2].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from flowbias._typing import FloatArray
from flowbias.certificates import certify
from flowbias.explorer.view import Settings
from flowbias.explorer.views.planted_data import Planted, population_error
from flowbias.limits.basis_pursuit import basis_pursuit
from flowbias.limits.min_norm import min_norm
from flowbias.limits.scale_path import limit_path
from flowbias.limits.solve import limit
from flowbias.models.diagonal import DiagonalNet
from flowbias.potentials import L1
from flowbias.problem import Regression
from flowbias.solution import Solution

# Where the cursor can stand, smallest scale first.
_FAR = (-300.0, -150.0, -100.0, -70.0, -50.0, -35.0, -25.0, -20.0, -15.0, -12.0, -10.0)
_NEAR = (-9.0, -8.0, -7.0, -6.0, -5.5, -5.0, -4.5, *(-4.0 + 0.25 * k for k in range(19)))
_ABOVE = (0.75, 1.0, 1.5, 2.0)
EXPONENTS = (*_FAR, *_NEAR, *_ABOVE)
# Limits on the curves, largest first as warm starts like it: few where little changes.
_STEEP = tuple(0.5 - 0.25 * k for k in range(9))
PATH_EXPONENTS = (
    *(2.0, 1.0, *_STEEP, -2.0, -2.5, -3.0, -3.5, -4.0, -5.0, -6.0, -8.0),
    *(-10.0, -25.0, -100.0, -300.0),
)
# The scale e^-1e12, at which the potential differs from l1 by less than the certificate asks.
_NO_SCALE = -1e12


def place(exponent: float | FloatArray) -> FloatArray:
    """Where a scale 10^exponent lies on the axis."""
    return np.asarray(np.arcsinh(np.asarray(exponent) / 2.0))


@dataclass(frozen=True)
class ScalePath:
    """The limits along PATH_EXPONENTS, one per row of w, between the two extremes."""

    problem: Regression
    w_true: FloatArray
    w: FloatArray
    uncertified: int
    least_l1: FloatArray
    least_l2: FloatArray

    def error(self, w: FloatArray) -> FloatArray:
        return population_error(w, self.w_true)

    def excess_l1(self, w: FloatArray) -> FloatArray:
        """How much larger the l1 norm of each row is than the least possible, relatively."""
        return np.asarray(np.abs(w).sum(axis=-1) / np.abs(self.least_l1).sum() - 1.0)

    def excess_l2(self, w: FloatArray) -> FloatArray:
        """The same of the l2 norm."""
        return np.asarray(np.linalg.norm(w, axis=-1) / np.linalg.norm(self.least_l2) - 1.0)


@dataclass(frozen=True)
class SparseScene:
    """The path, and the limit at the cursor."""

    planted: Planted
    depth: int
    path: ScalePath
    exponent: float
    at_cursor: Solution


def scene_of(settings: Settings) -> SparseScene:
    planted, depth = Planted.of(settings), int(settings["depth"])
    exponent = float(settings["log_scale"])
    path = _path(planted, depth)
    model = DiagonalNet(depth, log_scale=exponent * math.log(10.0))
    return SparseScene(planted, depth, path, exponent, limit(model, path.problem, throw=False))


# Less than a megabyte each: as many as ten readers look at.
@lru_cache(maxsize=32)
def _path(planted: Planted, depth: int) -> ScalePath:
    data = planted.draw()
    problem = Regression(data.X, data.y)
    log_scales = np.multiply(PATH_EXPONENTS, math.log(10.0))
    path = limit_path(DiagonalNet(depth, 1.0), problem, log_scales=log_scales, throw=False)
    return ScalePath(
        problem=problem,
        w_true=data.w_true,
        w=path.w,
        uncertified=sum(not solution.status.ok for solution in path),
        least_l1=least_l1(problem),
        least_l2=min_norm(problem).w,
    )


def least_l1(problem: Regression) -> FloatArray:
    """An interpolator of least l1 norm, certified as one.

    The limit from a scale of nearly nothing is one, and several times quicker to find than a
    vertex of the linear program, which is solved where the dual of that limit proves too little.
    """
    rich = limit(DiagonalNet(2, log_scale=_NO_SCALE), problem, throw=False)
    # Inside |X^T nu| <= 1 as it is evaluated, rounding included.
    widest = float(np.abs(problem.X.T @ rich.dual).max()) * (1.0 + 8.0 * np.finfo(float).eps)
    dual = rich.dual / widest
    if certify(problem.X, problem.y, rich.w, dual, L1()).ok:
        return rich.w
    return basis_pursuit(problem).w
