"""Points that gradient flow can reach: where a statement about the flow has to hold.

Whatever the data, theta moves along combinations of the gradient fields grad F_i. Following one
random combination after another from theta0 stays on that orbit and leaves no special position of
theta0 in place, so that what holds at a few such points holds on an open part of the orbit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flowbias.derive.parametrization import Parametrization
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray

# A start or a field that is halved so often and still leads nowhere is given up.
_MOST_HALVINGS = 40


def as_parametrization(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    names: Any = None,
    afford: Callable[[Parametrization], None] | None = None,
) -> Parametrization:
    """What the functions of this package work on, from F and theta or as it is.

    `afford` refuses a size that is too large, before anything is paid for.
    """
    if not isinstance(F, Parametrization):
        if theta is None:
            raise InputError(
                "theta: must be given with a function F, got None. "
                "Pass the start, or a Parametrization(F, theta0) in place of F."
            )
        return Parametrization(F, theta, names, afford=afford)
    if theta is None and names is None:
        if afford is not None:
            afford(F)
        return F
    start = F.start if theta is None else theta
    names = F.names if names is None else names
    return Parametrization(F.torch_function, np.ravel(start), names, afford=afford)


def reachable_points(
    model: Parametrization, count: int, rng: np.random.Generator
) -> list[FloatArray]:
    """theta0 and `count` more points, each reached from the one before along a random field."""
    if count < 0:
        raise InputError(f"points: must be >= 0, got {count}. 0 looks at theta0 alone.")
    points = [np.array(model.start)]
    for _ in range(count):
        points.append(_moved(model, points[-1], rng))
    return points


def generic_point(
    model: Parametrization, rng: np.random.Generator, spread: float = 0.1
) -> FloatArray:
    """A point near theta0 on no special orbit: `spread` times its size away in all directions.

    Where F or its derivatives do not exist there, nearer.
    """
    unit = parameter_unit(model)
    for _ in range(_MOST_HALVINGS):
        point = model.start + spread * unit * rng.standard_normal(model.p)
        if np.isfinite(model.jacobian(point)).all():
            return np.asarray(point)
        spread *= 0.5
    raise InputError(
        f"F: must be differentiable around theta0, got no finite derivative near {model.start}. "
        "Start inside the domain of F."
    )


def parameter_unit(model: Parametrization) -> float:
    """Root mean square of theta0, 1 at the origin."""
    return float(np.sqrt(np.mean(model.start**2))) or 1.0


def random_field(model: Parametrization, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
    """z for which sum_i z_i grad F_i moves theta by a fraction of its size in unit time."""
    z = rng.standard_normal(model.d)
    velocity = model.pulled_back(theta, z)
    speed = float(np.linalg.norm(velocity))
    if speed == 0.0:
        # All gradients vanish here: the flow stands still, whatever z.
        return z
    size = float(np.linalg.norm(theta)) or 1.0
    probe = 1e-6 * size / speed  # of one difference quotient, which only sets a time scale
    change = float(np.linalg.norm(model.pulled_back(theta + probe * velocity, z) - velocity))
    # Unit time is to be well before the field has grown by its own size: fields of degree 3 and
    # more blow up soon after.
    growth = change / probe / speed
    # Far enough to leave a special point, near enough for fields that blow up in finite time.
    return z * min(0.4 * size / speed, 0.5 / growth if growth > 0.0 else np.inf)


def _moved(model: Parametrization, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
    z = random_field(model, theta, rng)
    for _ in range(_MOST_HALVINGS):
        ahead = model.flow_along(theta, z)
        if np.isfinite(ahead).all() and np.isfinite(model.jacobian(ahead)).all():
            return ahead
        z = 0.5 * z
    raise InputError(
        f"F: must have gradient flows that exist for some time, got none from theta = {theta} "
        f"along z = {z}. Start inside the domain of F."
    )
