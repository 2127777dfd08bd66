"""The kernel extreme: the interpolator of least (weighted) Euclidean norm."""

from __future__ import annotations

from typing import Any

from flowbias.ground.typing import ArrayLike
from flowbias.limits.solve import limit
from flowbias.potentials import L2
from flowbias.results.solution import Solution


def min_norm(
    X: Any,
    y: Any = None,
    *,
    weights: ArrayLike = 1.0,
    tol: float = 1e-10,
    throw: bool = True,
    progress: bool = False,
) -> Solution:
    """argmin sum weights w^2 / 2  s.t.  X w = P y: the limit as the scale goes to infinity.

    The kernel limit of a depth-D network started at w0 has weights |w0|^(2 - 2 D).

    >>> fb.min_norm([[1.0, 2.0]], [1.0]).w.round(3)
    array([0.2, 0.4])
    """
    return limit(L2(weights), X, y, tol=tol, throw=throw, progress=progress)
