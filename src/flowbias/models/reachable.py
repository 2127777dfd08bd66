"""Which coordinates can move, and what they can reach.

A weight that starts at zero stays there, so a coordinate may keep one sign or be frozen at 0
[azulay2021, appendix A with k = 0]. Then X w ranges over a cone, not a subspace; gradient flow
converges to the point of that cone closest to y, and one-signed coordinates that point outwards
there go to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from flowbias.ground.arguments import InputError
from flowbias.ground.tolerances import DEFAULT, IN_RANGE
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential
from flowbias.problems.regression import Constraint, Regression, constraint_of


@dataclass(frozen=True)
class Reachable:
    """The constraint on the coordinates that stay in play, and how to get back to all of them."""

    constraint: Constraint
    kept: Mask | None  # boolean mask; None keeps all
    distance: float
    #: direction along which the dual runs off where some coordinates are driven to zero
    escape: FloatArray | None = None
    driven: Mask | None = None  # those coordinates

    def restrict(self, values: FloatArray) -> FloatArray:
        return values if self.kept is None else values[self.kept]

    def embed(self, values: FloatArray) -> FloatArray:
        """Back to all coordinates, with zeros where nothing moves."""
        if self.kept is None:
            return values
        full = np.zeros((len(self.kept), *values.shape[1:]))
        full[self.kept] = values
        return full


def reachable(problem: Regression, plus: Mask, minus: Mask) -> Reachable:
    """What a model with these positive and negative sides can reach on the data."""
    if plus.all() and minus.all():
        constraint = problem.constraint
        return Reachable(constraint, None, constraint.distance)
    moving = plus | minus
    if not moving.any():
        raise InputError(
            "model: must have a coordinate that can move, got weights that all start at zero. "
            "Zero is a saddle point that gradient flow never leaves; start somewhere else."
        )
    X = problem.X[:, moving]
    if (plus & minus)[moving].all():
        constraint = constraint_of(X, problem.y)
        return Reachable(constraint, moving, constraint.distance)
    return _in_cone(problem, plus, minus, moving)


def _in_cone(problem: Regression, plus: Mask, minus: Mask, moving: Mask) -> Reachable:
    sides = np.concatenate([np.flatnonzero(plus), np.flatnonzero(minus)])
    signs = np.concatenate([np.ones(plus.sum()), -np.ones(minus.sum())])
    size = float(np.abs(problem.y).max()) or 1.0
    coefficients, misfit = scipy.optimize.nnls(problem.X[:, sides] * signs, problem.y / size)
    distance = float(misfit / (np.linalg.norm(problem.y / size) or 1.0))
    if distance <= IN_RANGE:
        constraint = constraint_of(problem.X[:, moving], problem.y)
        return Reachable(constraint, None if moving.all() else moving, 0.0)
    closest = size * (problem.X[:, sides] @ (signs * coefficients))
    outward = problem.y - closest
    pull = problem.X.T @ outward
    # KKT of the projection: the pull vanishes on free coordinates and on weights that are in use,
    # and points outwards on those that the flow drives to zero.
    lengths = np.linalg.norm(problem.X, axis=0) * float(np.linalg.norm(outward))
    driven = ~(plus & minus) & moving & (np.abs(pull) > 1e-8 * lengths)
    kept = moving & ~driven
    # Where everything is driven to zero no constraint is left, and none is asked for.
    constraint = constraint_of(problem.X[:, kept], problem.y) if kept.any() else problem.constraint
    if not driven.any():
        return Reachable(constraint, kept, distance)
    return Reachable(constraint, kept, distance, outward, driven)


def run_off(
    reach: Reachable,
    problem: Regression,
    potential: Potential,
    shift: FloatArray | float,
    w: FloatArray,
    dual: FloatArray,
) -> FloatArray:
    """The dual, far enough along the direction in which some coordinates are driven to zero.

    Along the flow that part of the dual grows without end; a finite multiple at which those
    coordinates vanish in double precision certifies the limit.
    """
    outward, driven = reach.escape, reach.driven
    if outward is None or driven is None:
        return dual
    start = np.asarray(shift + problem.X.T @ dual)
    pull = problem.X.T @ outward
    smallest = float(np.abs(pull[driven]).min())
    # How far along an escaping direction of the dual to go, until next to nothing is left there.
    for distance in np.geomspace(1e1, 1e8, 8):
        step = distance * (1.0 + float(np.abs(start).max())) / smallest
        left = potential.conjugate_terms(start + step * np.where(driven, pull, 0.0))
        left = (left + potential.value_terms(np.zeros_like(start)))[driven]
        if float(left.sum()) <= DEFAULT.residual * (1.0 + abs(potential.value(w))):
            break
    return np.asarray(dual + step * outward)
