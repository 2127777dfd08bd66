"""Which point of the optimal face, when the linear program has more than one solution.

Near the rounding of its cost a slack says little about its weight, and below it nothing. But on the
face of minimizers the slacks are mu B with B = -(+-) A^T eta, where eta is how the dual leaves the
face, and P = B^-k holds for the *ratio*: the same power law at cost zero, without small numbers.
Weights off the face only change the target. The solution maximizes sum P^(2/D) on the face.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.branches import Branches, PowerResponse
from flowbias.limits.interior_point import State
from flowbias.limits.newton import polish
from flowbias.limits.normal_equations import Effort
from flowbias.problems.regression import Constraint

MAX_STEPS = 60
# Rounding that a slack of cost one may have gathered.
ROUNDING = 1e3 * float(np.finfo(float).eps)


def select_on_face(
    constraint: Constraint,
    branches: Branches,
    response: PowerResponse,
    state: State,
    near: FloatArray,
    effort: Effort,
    *,
    tol: float,
) -> FloatArray | None:
    """The weights of `state`, whose law is `response`, with those on the face made exact.

    `near` holds rough weights, from a mu well above rounding. None where this fails, or where it
    changes a weight by more than the rounding of its slack explains: then there is no such face.
    """
    # Half way (in log) between the slacks on the face, of order mu, and those off it.
    on_face = state.slack < np.exp(0.5 * response.offset / response.exponent)
    columns = _columns(constraint, branches, on_face)
    ratio = PowerResponse(response.exponent, 0.0)
    wanted = ratio.slack(near[on_face])
    if not np.isfinite(wanted).all():
        return None  # a rough weight of zero: it is on no face
    eta = scipy.linalg.lstsq(columns.T, -wanted)[0]
    slack = -columns.T @ eta
    if not (slack > 0).all():
        return None
    plus, minus = branches.plus.copy(), branches.minus.copy()
    plus[plus], minus[minus] = on_face[: branches.split], on_face[branches.split :]
    face = Branches(plus, minus, np.zeros(int(on_face.sum())))
    elsewhere = np.where(on_face, 0.0, state.weight)
    rest = constraint.with_target(
        constraint.target - constraint.apply(branches.difference(elsewhere))
    )
    begin = State(near[on_face], slack, eta)
    found, residual = polish(rest, face, ratio, begin, effort, tol=tol, max_steps=MAX_STEPS)
    if not residual <= 1e3 * tol:
        return None
    explained = ROUNDING / state.slack[on_face]
    if (np.abs(np.log(found.weight / state.weight[on_face])) > explained).any():
        return None
    weight = elsewhere
    weight[on_face] = found.weight
    return weight


def _columns(constraint: Constraint, branches: Branches, chosen: Mask) -> FloatArray:
    """The constraint's columns of the chosen branches, with their signs."""
    index = np.concatenate([np.flatnonzero(branches.plus), np.flatnonzero(branches.minus)])
    sign = np.concatenate([np.ones(branches.split), -np.ones(branches.count - branches.split)])
    columns = constraint.row_scale[:, None] * constraint.rows[:, index[chosen]]
    return np.asarray(columns * sign[chosen])
