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
from flowbias.certificates.certificate import certify
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
    """The limit at the cursor, and the path where that is known already."""

    sparsity: int
    w_true: FloatArray
    path: ScalePath | None
    exponent: float
    at_cursor: Solution


class Sweep:
    """Data drawn once, and what has been solved on them from any scale."""

    def __init__(self, planted: Planted, depth: int) -> None:
        data = planted.draw()
        self.problem, self.w_true = Regression(data.X, data.y), data.w_true
        self._depth = depth
        # None until it is asked for: it takes some twenty times as long as one limit.
        self.known_path: ScalePath | None = None
        # The one at the cursor is wanted without the path and then with it.
        self.limit_at = lru_cache(maxsize=2)(self._limit_at)

    def _limit_at(self, exponent: float) -> Solution:
        model = DiagonalNet(self._depth, log_scale=exponent * math.log(10.0))
        return limit(model, self.problem, throw=False)

    def path(self) -> ScalePath:
        """Solved when first asked for."""
        path = self.known_path or self._solved_path()
        self.known_path = path
        return path

    def _solved_path(self) -> ScalePath:
        log_scales = np.multiply(PATH_EXPONENTS, math.log(10.0))
        model = DiagonalNet(self._depth, 1.0)
        path = limit_path(model, self.problem, log_scales=log_scales, throw=False)
        return ScalePath(
            w_true=self.w_true,
            w=path.w,
            uncertified=sum(not solution.status.ok for solution in path),
            least_l1=least_l1(self.problem),
            least_l2=min_norm(self.problem).w,
        )


# Less than a megabyte each: as many as ten readers look at.
@lru_cache(maxsize=32)
def sweep_of(planted: Planted, depth: int) -> Sweep:
    return Sweep(planted, depth)


def scene_of(settings: Settings) -> SparseScene:
    sweep = _sweep(settings)
    return _scene(settings, sweep, sweep.path())


def first_scene_of(settings: Settings) -> SparseScene | None:
    """The limit at the cursor without the path; None where the path is known."""
    sweep = _sweep(settings)
    return None if sweep.known_path else _scene(settings, sweep, None)


def _sweep(settings: Settings) -> Sweep:
    return sweep_of(Planted.of(settings), int(settings["depth"]))


def _scene(settings: Settings, sweep: Sweep, path: ScalePath | None) -> SparseScene:
    exponent = float(settings["log_scale"])
    return SparseScene(
        sparsity=int(settings["sparsity"]),
        w_true=sweep.w_true,
        path=path,
        exponent=exponent,
        at_cursor=sweep.limit_at(exponent),
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
