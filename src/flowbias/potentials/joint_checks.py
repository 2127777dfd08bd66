"""Conformance checks for potentials of all coordinates together; `checks.py` is the way in.

Tolerances are multiples of the potential's own `rounding`, times the conditioning of what is
compared: a relative change eps of z moves w(z) by ||dw/dz|| ||z|| eps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.joint import JointPotential

Finding = tuple[float, str]

# Share of the distance at which the sandwich of convexity is taken; any share is exact.
_SHARE = 1e-2


@dataclass(frozen=True)
class _Point:
    """A dual point with everything the potential says about it, and a direction to go."""

    z: FloatArray
    w: FloatArray
    hess: FloatArray
    unit: float  # relative accuracy that may be asked for
    direction: FloatArray
    random: np.random.Generator

    @property
    def size_w(self) -> float:
        """What an argument off by one relative unit moves w by, and w itself."""
        return float(np.linalg.norm(self.w) + np.linalg.norm(self.hess, 2) * self.length_z)

    @property
    def size_z(self) -> float:
        inverse = np.linalg.norm(np.linalg.inv(self.hess), 2)
        return self.length_z + float(inverse * np.linalg.norm(self.w))

    @property
    def length_z(self) -> float:
        return float(np.linalg.norm(self.z))


def run_joint(
    name: str,
    check: Callable[[JointPotential, _Point], Iterator[Finding]],
    potential: JointPotential,
    dual_points: ArrayLike | None,
    rng: int,
) -> None:
    """One check at every point."""
    with np.errstate(all="ignore"):
        for point in _points(potential, dual_points, rng):
            for excess, meaning in check(potential, point):
                if not excess <= 0.0:
                    raise AssertionError(
                        f"{name}: {meaning}, violated by {potential!r} at z={point.z}, "
                        f"w={point.w} (by {excess:.1e})"
                    )


def _points(potential: JointPotential, dual_points: ArrayLike | None, rng: int) -> list[_Point]:
    random = np.random.default_rng(rng)
    d = potential.dimension or 3  # where any number will do
    if dual_points is None:
        start = potential.grad_dual(np.broadcast_to(potential.shift, (d,)))
        sizes = 10.0 ** random.uniform(-2.0, 2.0, 8)
        predictors = start + sizes[:, None] * random.standard_normal((8, d))
        gradients = [potential.grad(w) for w in predictors]
        duals = np.array([*gradients, *(0.3 * gradients[i] for i in range(4))])
    else:
        duals = np.atleast_2d(np.asarray(dual_points, dtype=np.float64))
    points = []
    for z in duals:
        w, hess = potential.grad_dual(z), potential.hess_dual(z)
        if np.isfinite(z).all() and np.isfinite(w).all() and np.isfinite(hess).all():
            direction = random.standard_normal(len(z))
            # Roundings of the potential allowed on top of the conditioning.
            unit = 500.0 * max(potential.rounding, float(np.finfo(float).eps))
            points.append(_Point(z, w, hess, unit, direction / np.linalg.norm(direction), random))
    if not points:
        raise AssertionError(
            f"dual_points: must give finite predictors, got none for {potential!r}. "
            "Pass dual_points (k, d) inside the dual domain of this potential."
        )
    return points


# --- the checks: each yields (excess, meaning), excess <= 0 where the property holds ---------


def _grad_is_derivative(p: JointPotential, at: _Point) -> Iterator[Finding]:
    # For a convex Q the difference lies between the end gradients: no truncation error.
    there = at.w + _SHARE * (float(np.linalg.norm(at.w)) or 1.0) * at.direction
    step = there - at.w
    if not np.isfinite(p.value(there)):
        return
    rise, slack = p.value(there) - p.value(at.w), _value_slack(p, at)
    yield float(at.z @ step) - rise - slack, "Q(w+h) - Q(w) must not be below <grad(w), h>"
    beyond = float(p.grad(there) @ step)
    yield rise - beyond - slack, "Q(w+h) - Q(w) must not exceed <grad(w+h), h>"


def _conjugate_derivative(p: JointPotential, at: _Point) -> Iterator[Finding]:
    step = _SHARE * _dual_length(at) * at.direction
    there = p.grad_dual(at.z + step)
    if not np.isfinite(there).all():
        return
    rise, slack = p.conjugate(at.z + step) - p.conjugate(at.z), _value_slack(p, at)
    yield float(at.w @ step) - rise - slack, "Q*(z+h) - Q*(z) must not be below <w(z), h>"
    yield rise - float(there @ step) - slack, "Q*(z+h) - Q*(z) must not exceed <w(z+h), h>"


def _hess_is_derivative(p: JointPotential, at: _Point) -> Iterator[Finding]:
    share = at.unit ** (1.0 / 3.0)
    step = share * _dual_length(at) * at.direction
    difference = p.grad_dual(at.z + step) - p.grad_dual(at.z - step)
    if not np.isfinite(difference).all():
        return
    error = float(np.linalg.norm(difference - 2.0 * at.hess @ step))
    # Central differences err by the square of the step times an O(100) third derivative.
    truncation = 100.0 * share**2 * float(np.linalg.norm(at.hess, 2) * np.linalg.norm(step))
    yield error - truncation - at.unit * at.size_w, "hess_dual(z) h must be the change of w(z)"


def _primal_round_trip(p: JointPotential, at: _Point) -> Iterator[Finding]:
    error = float(np.linalg.norm(p.grad_dual(p.grad(at.w)) - at.w))
    yield error - at.unit * at.size_w, "grad_dual(grad(w)) must return w"


def _dual_round_trip(p: JointPotential, at: _Point) -> Iterator[Finding]:
    error = float(np.linalg.norm(p.grad(at.w) - at.z))
    yield error - at.unit * at.size_z, "grad(grad_dual(z)) must return z"


def _fenchel_equality(p: JointPotential, at: _Point) -> Iterator[Finding]:
    gap = abs(p.value(at.w) + p.conjugate(at.z) - float(at.z @ at.w))
    yield gap - _value_slack(p, at), "Q(w) + Q*(z) = <z, w> must hold at w = w(z)"


def _convexity(p: JointPotential, at: _Point) -> Iterator[Finding]:
    size = float(np.linalg.norm(at.hess, 2))
    lopsided = float(np.abs(at.hess - at.hess.T).max())
    yield lopsided - at.unit * size, "hess_dual(z) must be symmetric"
    smallest = float(np.linalg.eigvalsh(0.5 * (at.hess + at.hess.T))[0])
    yield -smallest - at.unit * size, "hess_dual(z) must be positive semidefinite"


def _strong_convexity(p: JointPotential, at: _Point) -> Iterator[Finding]:
    for share in (0.0, 0.1, 1.0):
        radius = share * float(np.linalg.norm(at.w))
        hess = p.hess_dual(p.grad(at.w + radius * at.direction))
        if np.isfinite(hess).all():
            least = 1.0 / float(np.linalg.norm(hess, 2))
            excess = p.strong_convexity(at.w, radius) - least * (1.0 + at.unit)
            yield excess, "strong_convexity(w, r) must not exceed the Hessian within r of w"


def _dual_length(at: _Point) -> float:
    """Over which w(z) changes by its own size, or z does."""
    moved = float(np.linalg.norm(at.hess, 2))
    length = float(np.linalg.norm(at.w)) / moved
    return min(length, at.length_z) or length or 1.0


def _value_slack(p: JointPotential, at: _Point) -> float:
    terms = abs(p.value(at.w)) + abs(p.conjugate(at.z)) + abs(float(at.z @ at.w))
    return at.unit * (terms + at.length_z * at.size_w)


JOINT_CHECKS: dict[str, Callable[[JointPotential, _Point], Iterator[Finding]]] = {
    "grad against difference quotient": _grad_is_derivative,
    "conjugate against difference quotient": _conjugate_derivative,
    "hess_dual against difference quotient": _hess_is_derivative,
    "round trip of w": _primal_round_trip,
    "round trip of z": _dual_round_trip,
    "Fenchel equality": _fenchel_equality,
    "convexity": _convexity,
    "strong convexity": _strong_convexity,
}
