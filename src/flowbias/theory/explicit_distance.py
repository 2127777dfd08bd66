"""Explicit distance in parameters, and why it is not the implicit bias.  [woodworth2020, (8)-(9)]

    R(w) = min ||theta - a||^2  s.t.  w+^2 - w-^2 = w,     R = sum a^2 r(w/a^2),     a = alpha w0

The paper prints R = sum r(w/alpha^2), without the factor alpha^2, and calls r the unique real root
of a quartic that has two (docs/errata.md, W4). r is exactly q_4, the regularizer of depth 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits import limit
from flowbias.potentials import DepthPotential, DistancePotential
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import (
    OutsideHypothesis,
    Vector,
    checked,
    positive,
    same_size,
    something_to_fit,
)
from flowbias.theory.claim import WOODWORTH, Claim, Statement, Tolerance, beyond_the_papers

_QUARTIC = WOODWORTH("section 4", "after (9), corrected")
# A minimum is flat: its value is off by the square of the 1e-8 that its place may be.
_AT_A_MINIMUM = Tolerance("value at a minimum located to 1e-8", 1e-12)


@checked
def distance_by_minimization(w: Vector, scale: float, w0: ArrayLike = 1.0) -> Claim:
    """R(w), measured by minimizing over the weights, is sum a^2 r(w/a^2) with a = scale w0.

    >>> fb.theory.distance_by_minimization([0.5, -2.0], scale=0.5).holds
    True
    """
    vector = np.asarray(w, dtype=np.float64)
    starts = _starts(scale, w0, vector.size)
    measured = sum(_least_distance(x, a) for x, a in zip(np.abs(vector), starts, strict=True))
    stated = Statement(
        WOODWORTH("section 4", "(9)"),
        "the least squared distance from the start to weights of predictor w",
        "value at a minimum located to 1e-8, and cancellation in (w+ - a)^2",
    )
    return stated.equal(
        "explicit distance",
        float(measured),
        DistancePotential(scale=starts).value(vector),
        atol=_AT_A_MINIMUM.size * float(np.sum(starts**2 + np.abs(vector))),
    )


def _starts(scale: float, w0: ArrayLike, d: int) -> FloatArray:
    """a = scale |w0|, one per feature."""
    shape = np.asarray(w0, dtype=np.float64)
    if shape.ndim == 1:
        same_size("w0", shape.size, d, "entries, one per feature")
    size = positive("scale", scale, "It is the size of the weights at the start.")
    return np.broadcast_to(size * np.abs(shape), (d,))


def _least_distance(w: float, a: float) -> float:
    """min (w+ - a)^2 + (w- - a)^2 on w+^2 - w-^2 = w > 0, along w+ = sqrt w cosh t."""
    if w == 0.0:
        return 0.0
    root = np.sqrt(w)

    def squared_distance(t: float) -> float:
        return float((root * np.cosh(t) - a) ** 2 + (root * np.sinh(t) - a) ** 2)

    # At the nearest point 0 <= w- <= a: both weights move towards w, and none changes its sign.
    ends = (0.0, float(np.arcsinh(a / root)))
    found = scipy.optimize.minimize_scalar(
        squared_distance, bounds=ends, method="bounded", options={"xatol": 1e-9 * ends[1]}
    )
    return float(found.fun)


@checked
def distance_quartic(z: float) -> tuple[Claim, Claim]:
    """The quartic for r(z) has two real roots, and the smaller one is q_4(z).

    p_z(u) = u^4 - 6 u^3 + (12 - 2 z^2) u^2 - (8 + 10 z^2) u + z^2 + z^4.

    >>> all(claim.holds for claim in fb.theory.distance_quartic(3.0))
    True
    """
    z = positive("z", abs(float(z)), "At z = 0 the quartic has the double root 0.")
    square = z * z
    roots = np.roots([1.0, -6.0, 12.0 - 2.0 * square, -8.0 - 10.0 * square, square + square**2])
    real = np.sort(roots[np.abs(roots.imag) < 1e-6 * np.abs(roots)].real)
    smallest = float(real[0]) if real.size else np.nan
    counted = Statement(
        _QUARTIC, "the distance has one stationary point with w+ > 0 and one with w+ < 0", "a count"
    )
    stated = Statement(
        _QUARTIC,
        "the explicit distance at depth 2 is the implicit regularizer of depth 4",
        "companion matrix of a quartic, whose roots are sqrt(1 + z) apart",
    )
    name, atol = "smaller root of the quartic", 1e-13 * (1.0 + z) ** 1.5
    return (
        counted.equal("real roots of the quartic", real.size, 2.0),
        stated.equal(name, smallest, _depth_4(z), rtol=1e-9, atol=atol),
    )


@checked
def distance_is_depth_4(z: float) -> Claim:
    """r(z) = q_4(z), r measured by minimization over the weights.

    >>> fb.theory.distance_is_depth_4(3.0).holds
    True
    """
    z = positive("z", abs(float(z)), "Both sides are 0 at z = 0.")
    words = "staying close in parameters at depth 2 is the implicit bias of depth 4"
    stated = Statement(beyond_the_papers("9 Explicit distance"), words, *_AT_A_MINIMUM)
    return stated.equal("distance is depth 4", _least_distance(z, 1.0), _depth_4(z), size=1.0 + z)


@checked
def explicit_norm_is_quasi_norm(w: Vector, depth: float) -> Claim:
    """min ||w+||^2 + ||w-||^2 s.t. w+^D - w-^D = w is sum |w|^(2/D): a quasi-norm from D = 3 on.

    [woodworth2020, section 5]: what explicit regularization of the weights would prefer, and no
    gradient flow does, whose rich limit is l1 at every depth. Measured by minimizing over w-.

    >>> fb.theory.explicit_norm_is_quasi_norm([0.5, -2.0], depth=3).holds
    True
    """
    if not positive("depth", depth, "It is D of w+^D - w-^D.") >= 2.0:
        raise OutsideHypothesis(
            f"depth: must be at least 2, got {depth!r}. Below that both weights share in "
            "the least norm."
        )
    power = 2.0 / depth
    sizes = np.abs(np.asarray(w, dtype=np.float64))
    predicted = float(np.sum(sizes**power))
    words = "the least squared norm of weights with predictor w is its 2/D quasi-norm"
    stated = Statement(WOODWORTH("section 5"), words, *_AT_A_MINIMUM)
    return stated.equal(
        "explicit norm is a quasi-norm",
        float(sum(_least_squares(float(size), depth) for size in sizes)),
        predicted,
        size=predicted,
    )


def _least_squares(w: float, depth: float) -> float:
    """min w+^2 + w-^2 on w+^D - w-^D = w >= 0, over w- from 0 to the size of w+ without it."""
    alone = w ** (1.0 / depth)

    def squares(share: float) -> float:
        return float((1.0 + share**depth) ** (2.0 / depth) + share**2)

    found = scipy.optimize.minimize_scalar(
        squares, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9}
    )
    return float(alone**2 * found.fun)


@checked
def closest_interpolator(X: Any, y: Any, scale: float, w0: ArrayLike = 1.0) -> Claim:
    """The predictor of the closest weights with zero loss minimizes R on X w = y.

    [woodworth2020, (8)], measured by minimizing the distance over all 2d weights at once.

    >>> fb.theory.closest_interpolator([[1.0, 2.0]], [1.0], scale=0.5).holds
    True
    """
    problem = Regression(X, y)
    d = problem.X.shape[1]
    a = _starts(scale, w0, d)
    something_to_fit(problem.y)
    minimizer = limit(DistancePotential(scale=a), problem).w
    theta = _closest_weights(problem, np.concatenate([a, a]))
    reached = theta[:d] ** 2 - theta[d:] ** 2
    stated = Statement(
        WOODWORTH("section 4", "(8)"),
        "the closest weights that fit the data have the predictor of least R",
        "sequential quadratic programming stops near the root of rounding",
    )
    return stated.same("closest interpolator", reached, minimizer, atol=1e-5, among=problem.X)


def _closest_weights(problem: Regression, start: FloatArray) -> FloatArray:
    d = problem.X.shape[1]
    # Rows that are independent, which the solver of quadratic programs needs; the fit is the same.
    left, values, right = np.linalg.svd(problem.X, full_matrices=False)
    rank = int(np.linalg.matrix_rank(problem.X))
    X, y = right[:rank], left.T[:rank] @ problem.y / values[:rank]

    def squared_distance(theta: FloatArray) -> float:
        return float(np.sum((theta - start) ** 2))

    def away(theta: FloatArray) -> FloatArray:
        return 2.0 * (theta - start)

    def misfit(theta: FloatArray) -> FloatArray:
        return np.asarray(X @ (theta[:d] ** 2 - theta[d:] ** 2) - y)

    def slope(theta: FloatArray) -> FloatArray:
        return np.hstack([2.0 * X * theta[:d], -2.0 * X * theta[d:]])

    found = scipy.optimize.minimize(
        squared_distance,
        start,
        jac=away,
        method="SLSQP",
        constraints=scipy.optimize.NonlinearConstraint(misfit, 0.0, 0.0, jac=slope),
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return np.asarray(found.x)


def _depth_4(z: float) -> float:
    return DepthPotential(4, scale=1.0).value(np.asarray([z]))
