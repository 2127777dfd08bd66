"""Is F differentiable where it starts, and does torch differentiate it right?

torch returns a number at a kink as well (0 for |x| at 0), so its answer alone proves nothing. With
one-sided quotients R(h) = (F(th + h v) - F(th))/h and L(h) = (F(th) - F(th - h v))/h:

    smooth:      R - L = O(h), so a ten times shorter step leaves a tenth
    kink, jump:  R - L stays, or grows

and (R + L)/2 must tend to the derivative that torch gives: its distance, too, falls with h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray, Mask

if TYPE_CHECKING:
    from flowbias.derive.parametrization import Parametrization

_Directions: TypeAlias = list[tuple[str, FloatArray]]

# Relative to the parameter, beside a tenth of it: quotients err by eps/h in rounding and h in
# curvature.
_STEP = 1e-4
# R - L falls by the factor 10 for C^2, by 10^a for a derivative that is Hoelder of order a.
_SHRINKS = 0.6
# Jumps and errors below this share of the slopes are curvature at the shorter step.
_VISIBLE = 1e-3


def require_smooth(model: Parametrization) -> None:
    """Refuse a start where F has no derivative, saying along what and in which predictor."""
    J = model.jacobian(model.start)
    if not np.isfinite(J).all():
        i, j = map(int, np.argwhere(~np.isfinite(J))[0])
        raise InputError(
            f"F: must be differentiable at theta0, got {J[i, j]} for the derivative of w{i + 1} in "
            f"{model.names[j]} = {model.start[j]:g}. Start away from that point."
        )
    coordinates, random = _directions(model)
    for name, direction in coordinates + random:
        _require_derivative(model, name, direction, J)
    for _, direction in random:
        _require_second_derivative(model, direction)


def _directions(model: Parametrization) -> tuple[_Directions, _Directions]:
    """Coordinates and random combinations, each in the size of the parameters it moves."""
    typical = float(np.abs(model.start).max()) or 1.0
    sizes = np.where(model.start == 0.0, typical, np.abs(model.start))
    coordinates: _Directions = []
    if model.p <= 2000:  # four calls of F for each; beyond, only random directions
        for j, name in enumerate(model.names):
            step = np.zeros(model.p)
            step[j] = sizes[j]
            coordinates.append((f"{name} = {model.start[j]:g}", step))
    draw = np.random.default_rng(0)
    signs = draw.choice([-1.0, 1.0], (8, model.p))
    return coordinates, [("a random direction", sizes * row) for row in signs]


class _Quotients(NamedTuple):
    """One-sided difference quotients at the shorter step, and where they disagree for good."""

    left: FloatArray
    right: FloatArray
    #: (R + L)/2 at the longer step
    far: FloatArray
    jump: FloatArray
    noticed: FloatArray
    kink: Mask


def _quotients(
    function: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    direction: FloatArray,
    terms: FloatArray | float,
) -> _Quotients:
    """`terms`: size of what function(start) is a sum of, which is what rounding is relative to."""
    here = function(start)
    sides, shorter = [], 0.1 * _STEP
    for h in (_STEP, shorter):
        ahead, behind = function(start + h * direction), function(start - h * direction)
        sides.append(((here - behind) / h, (ahead - here) / h))
    (far_left, far_right), (left, right) = sides
    jump = np.abs(right - left)
    # What a quotient at the shorter step may lose, in units of eps |F| / h.
    rounding = 100.0 * np.finfo(float).eps * (np.abs(here) + terms) / shorter
    noticed = rounding + _VISIBLE * (np.abs(right) + np.abs(left))
    kink = (jump > noticed) & (jump > _SHRINKS * np.abs(far_right - far_left))
    return _Quotients(left, right, 0.5 * (far_left + far_right), jump, noticed, kink)


def _require_derivative(
    model: Parametrization, name: str, direction: FloatArray, J: FloatArray
) -> None:
    # Most directions move one parameter: a column of J each, not all of it.
    moved = np.flatnonzero(direction)
    columns = J if len(moved) == model.p else J[:, moved]
    slope = columns @ direction[moved]
    terms = np.abs(columns) @ np.abs(direction[moved])
    left, right, far, jump, noticed, kink = _quotients(
        model.predictor_at, model.start, direction, terms
    )
    if not (np.isfinite(left) & np.isfinite(right)).all():
        raise InputError(
            f"F: must be finite around theta0, got NaN or infinity within {_STEP:g} of it along "
            f"{name}. Start inside the domain of F."
        )
    if kink.any():
        i, length = int(np.flatnonzero(kink)[0]), float(np.linalg.norm(direction))
        raise InputError(
            "F: must be differentiable at theta0, got one-sided derivatives "
            f"{left[i] / length:.6g} and {right[i] / length:.6g} of w{i + 1} along {name}. "
            "Start away from the kink."
        )
    central = 0.5 * (left + right)
    error = np.abs(central - slope)
    # An error that falls with the step belongs to higher derivatives, not to this one.
    wrong = (error > noticed + _VISIBLE * np.abs(slope) + jump) & (
        error > _SHRINKS * np.abs(far - slope)
    )
    if wrong.any():
        i, length = int(np.flatnonzero(wrong)[0]), float(np.linalg.norm(direction))
        raise InputError(
            f"F: must be differentiated correctly by torch, got {slope[i] / length:.6g} where "
            f"difference quotients of w{i + 1} along {name} give {central[i] / length:.6g}. "
            "Look for .detach(), .item(), or torch.where around a singular branch."
        )


def _require_second_derivative(model: Parametrization, direction: FloatArray) -> None:
    # One generic combination of the predictors shows a kink in the gradient of any of them.
    weights = 1.0 + np.random.default_rng(1).random(model.d)
    terms = float(np.abs(model.pulled_back(model.start, weights)).max())
    found = _quotients(
        lambda theta: model.pulled_back(theta, weights), model.start, direction, terms
    )
    if found.kink.any():
        j = int(np.flatnonzero(found.kink)[0])
        raise InputError(
            f"F: must be twice differentiable at theta0, got a derivative in {model.names[j]} = "
            f"{model.start[j]:g} that has a kink there. Start away from that point."
        )
