"""Conformance checks for potentials, ours and yours.

    check_potential(MyPotential(...))                      # raises AssertionError, naming the check
    @pytest.mark.parametrize(("name", "check"), potential_checks(MyPotential(...)))

Every tolerance is a multiple of the rounding error that exact formulas would show: an argument off
by one unit in the last place moves w(z) by |z| w'(z) eps, and grad(w) by |w| / w'(z) eps. For
potentials of all coordinates together it is a multiple of their own `rounding`: a relative change
eps of z moves w(z) by ||dw/dz|| ||z|| eps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.routing import Provides
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials._base import ConvexPotential, Potential
from flowbias.potentials.joint import JointPotential

Check = Callable[[], None]
_Finding: TypeAlias = tuple[FloatArray, str]

# Units in the last place allowed on top of the conditioning: a handful of operations each.
_ULPS = 200.0 * np.finfo(np.float64).eps
_RELATIVE_STEP = 1e-4


@dataclass(frozen=True)
class _Points:
    """Dual points with everything the potential says about them, all of one shape."""

    z: FloatArray
    w: FloatArray
    slope: FloatArray
    usable: NDArray[np.bool_]


def check_potential(
    potential: ConvexPotential, *, dual_points: ArrayLike | None = None, rng: int = 0
) -> None:
    """Run every check; the first failure raises an AssertionError that names it."""
    for _, check in potential_checks(potential, dual_points=dual_points, rng=rng):
        check()


def potential_checks(
    potential: ConvexPotential, *, dual_points: ArrayLike | None = None, rng: int = 0
) -> list[tuple[str, Check]]:
    """(name, callable) of every check, for parametrized tests.

    By default dual points are drawn as gradients at predictors of many sizes, and fractions of
    those. Given ones must broadcast against the coordinates of a separable potential, and are
    (k, d) for a joint one.
    """
    joint = Provides.JOINT_POTENTIAL in potential.provides
    kind: tuple[Any, Any] = (_JOINT_CHECKS, _run_joint) if joint else (_CHECKS, _run)
    checks, run = kind
    return [
        (name, partial(run, name, check, potential, dual_points, rng))
        for name, check in checks.items()
    ]


def _run(
    name: str,
    check: Callable[[Potential, _Points], Iterator[_Finding]],
    potential: Potential,
    dual_points: ArrayLike | None,
    rng: int,
) -> None:
    with np.errstate(all="ignore"):
        points = _points(potential, dual_points, rng)
        for excess, meaning in check(potential, points):
            excess = np.broadcast_to(excess, np.shape(points.z))
            failed = points.usable & ~(excess <= 0.0)
            if failed.any():
                at, w = points.z[failed].flat[0], points.w[failed].flat[0]
                raise AssertionError(
                    f"{name}: {meaning}, violated by {potential!r} at z={at:.17g}, w={w:.17g} "
                    f"({int(failed.sum())} of {failed.size} points)"
                )


def _points(potential: Potential, dual_points: ArrayLike | None, rng: int) -> _Points:
    """Dual points and their images; points in the mask `usable` are judged."""
    if dual_points is None:
        random = np.random.default_rng(rng)
        sizes = 10.0 ** np.concatenate(
            [random.uniform(-6.0, 6.0, 12), random.uniform(-1.0, 1.0, 6)]
        )
        signed = np.concatenate([sizes, -sizes])[:, None]
        gradients = potential.grad(signed)
        fractions = [fraction * gradients for fraction in (0.3, 0.9, 0.999)]
        z = np.concatenate([gradients, *fractions])
    else:
        z = np.atleast_1d(np.asarray(dual_points, dtype=np.float64))
    w, slope = potential.grad_dual(z), potential.hess_dual(z)
    z = np.broadcast_to(z, np.shape(w))
    # A point whose image leaves the normal doubles tests the format, not the potential.
    ordinary = [(np.abs(a) > 1e-280) & (np.abs(a) < 1e280) for a in (w, slope)]
    usable = np.isfinite(z) & ordinary[0] & ordinary[1]
    if not usable.any():
        raise AssertionError(
            f"dual_points: must give finite nonzero predictors, got none for {potential!r}. "
            "Pass dual_points inside the dual domain of this potential."
        )
    return _Points(z, w, slope, usable)


# --- the checks: each yields (excess, meaning), excess <= 0 where the property holds ---------


def _grad_is_derivative(p: Potential, at: _Points) -> Iterator[_Finding]:
    # For a convex Q the difference quotient lies between the end gradients: no truncation error.
    step = _RELATIVE_STEP * at.w
    there = at.w + step
    step = there - at.w
    difference = p.value_terms(there) - p.value_terms(at.w)
    here, beyond = p.grad(at.w) * step, p.grad(there) * step
    rounding = _ULPS * (
        np.abs(p.value_terms(at.w)) + np.abs(here / _RELATIVE_STEP) + np.abs(beyond)
    )
    yield here - difference - rounding, "(Q(w+h) - Q(w))/h must not be below grad(w)"
    yield difference - beyond - rounding, "(Q(w+h) - Q(w))/h must not exceed grad(w+h)"


def _conjugate_derivative(p: Potential, at: _Points) -> Iterator[_Finding]:
    step = _dual_step(at)
    there = at.z + step
    step = there - at.z
    difference = p.conjugate_terms(there) - p.conjugate_terms(at.z)
    here, beyond = at.w * step, p.grad_dual(there) * step
    conditioning = np.abs(at.w) + np.abs(at.z) * at.slope
    rounding = _ULPS * (np.abs(p.conjugate_terms(at.z)) + conditioning * np.abs(at.z))
    yield here - difference - rounding, "(Q*(z+h) - Q*(z))/h must not be below w(z)"
    yield difference - beyond - rounding, "(Q*(z+h) - Q*(z))/h must not exceed w(z+h)"


def _hess_is_derivative(p: Potential, at: _Points) -> Iterator[_Finding]:
    step = _dual_step(at)
    above, below = at.z + step, at.z - step
    width = above - below
    slope = (p.grad_dual(above) - p.grad_dual(below)) / width
    rounding = _ULPS * (np.abs(at.w) + np.abs(at.z) * at.slope) / width
    # Central differences at relative step 1e-4: its square times an O(100) third derivative.
    allowed = 1e-5 * at.slope + rounding
    meaning = "hess_dual(z) must equal (w(z+h) - w(z-h))/2h"
    # A step that rounding swallows says nothing.
    yield np.where(width > 0.0, np.abs(slope - at.slope) - allowed, 0.0), meaning


def _primal_round_trip(p: Potential, at: _Points) -> Iterator[_Finding]:
    error = np.abs(p.grad_dual(p.grad(at.w)) - at.w)
    allowed = _ULPS * (np.abs(at.w) + np.abs(at.z) * at.slope)
    yield error - allowed, "grad_dual(grad(w)) must return w"


def _dual_round_trip(p: Potential, at: _Points) -> Iterator[_Finding]:
    error = np.abs(p.grad(at.w) - at.z)
    allowed = _ULPS * (np.abs(at.z) + np.abs(at.w) / at.slope)
    yield error - allowed, "grad(grad_dual(z)) must return z"


def _fenchel_equality(p: Potential, at: _Points) -> Iterator[_Finding]:
    value, conjugate, product = p.value_terms(at.w), p.conjugate_terms(at.z), at.z * at.w
    size = np.abs(value) + np.abs(conjugate) + np.abs(product) + np.square(at.z) * at.slope
    gap = np.abs(value + conjugate - product)
    yield gap - _ULPS * size, "Q(w) + Q*(z) = z w must hold at w = w(z)"


def _convexity(p: Potential, at: _Points) -> Iterator[_Finding]:
    yield -at.slope, "hess_dual(z) must be >= 0"
    there = 1.5 * at.w
    rise = (p.grad(there) - p.grad(at.w)) * np.sign(at.w)
    # NaN: 1.5 w may lie outside the domain of a user's potential, where nothing is claimed.
    rise = np.where(np.isnan(p.grad(there)), 0.0, rise)
    yield -rise - _ULPS * np.abs(at.z), "grad must be monotone"


def _hess_growth_bounds(p: Potential, at: _Points) -> Iterator[_Finding]:
    for radius in (0.01, 0.1, 1.0):
        reach = radius * np.abs(at.w) / at.slope
        bound = p.hess_growth(at.z, reach)
        for fraction in (-1.0, -0.5, 0.5, 1.0):
            ratio = p.hess_dual(at.z + fraction * reach) / at.slope
            worst = np.maximum(ratio, 1.0 / ratio)
            # z + t and z are rounded: the slope moves as much as the bound allows for |z| eps.
            slack = _ULPS + p.hess_growth(at.z, 4.0 * np.spacing(np.abs(at.z) + reach)) - 1.0
            excess = np.where(bound < np.inf, worst - bound * (1.0 + slack), 0.0)
            yield excess, "w'(z+t)/w'(z) and its inverse must stay below hess_growth(z, |t|)"


def _totals(p: Potential, at: _Points) -> Iterator[_Finding]:
    w = np.where(at.usable, at.w, 0.0)
    total, summed = p.value(w), float(np.sum(p.value_terms(w)))
    wrong = not (total == summed or np.isnan(summed))
    yield np.where(wrong, 1.0, 0.0), "value(w) must be the sum of value_terms(w)"


def _dual_step(at: _Points) -> FloatArray:
    """A small fraction of the length over which w(z) changes by its own size."""
    return _RELATIVE_STEP * np.abs(at.w) / at.slope


_CHECKS: dict[str, Callable[[Potential, _Points], Iterator[_Finding]]] = {
    "grad against difference quotient": _grad_is_derivative,
    "conjugate against difference quotient": _conjugate_derivative,
    "hess_dual against difference quotient": _hess_is_derivative,
    "round trip of w": _primal_round_trip,
    "round trip of z": _dual_round_trip,
    "Fenchel equality": _fenchel_equality,
    "convexity": _convexity,
    "hess_growth bound": _hess_growth_bounds,
    "totals": _totals,
}


# --- the same of all coordinates together ----------------------------------------------------

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


def _run_joint(
    name: str,
    check: Callable[[JointPotential, _Point], Iterator[tuple[float, str]]],
    potential: JointPotential,
    dual_points: ArrayLike | None,
    rng: int,
) -> None:
    """One check at every point."""
    with np.errstate(all="ignore"):
        for point in _joint_points(potential, dual_points, rng):
            for excess, meaning in check(potential, point):
                if not excess <= 0.0:
                    raise AssertionError(
                        f"{name}: {meaning}, violated by {potential!r} at z={point.z}, "
                        f"w={point.w} (by {excess:.1e})"
                    )


def _joint_points(
    potential: JointPotential, dual_points: ArrayLike | None, rng: int
) -> list[_Point]:
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
            points.append(_Point(z, w, hess, unit, direction / np.linalg.norm(direction)))
    if not points:
        raise AssertionError(
            f"dual_points: must give finite predictors, got none for {potential!r}. "
            "Pass dual_points (k, d) inside the dual domain of this potential."
        )
    return points


def _joint_grad_is_derivative(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
    # For a convex Q the difference lies between the end gradients: no truncation error.
    there = at.w + _SHARE * (float(np.linalg.norm(at.w)) or 1.0) * at.direction
    step = there - at.w
    if not np.isfinite(p.value(there)):
        return
    rise, slack = p.value(there) - p.value(at.w), _value_slack(p, at)
    yield float(at.z @ step) - rise - slack, "Q(w+h) - Q(w) must not be below <grad(w), h>"
    beyond = float(p.grad(there) @ step)
    yield rise - beyond - slack, "Q(w+h) - Q(w) must not exceed <grad(w+h), h>"


def _joint_conjugate_derivative(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
    step = _SHARE * _dual_length(at) * at.direction
    there = p.grad_dual(at.z + step)
    if not np.isfinite(there).all():
        return
    rise, slack = p.conjugate(at.z + step) - p.conjugate(at.z), _value_slack(p, at)
    yield float(at.w @ step) - rise - slack, "Q*(z+h) - Q*(z) must not be below <w(z), h>"
    yield rise - float(there @ step) - slack, "Q*(z+h) - Q*(z) must not exceed <w(z+h), h>"


def _joint_hess_is_derivative(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
    share = at.unit ** (1.0 / 3.0)
    step = share * _dual_length(at) * at.direction
    difference = p.grad_dual(at.z + step) - p.grad_dual(at.z - step)
    if not np.isfinite(difference).all():
        return
    error = float(np.linalg.norm(difference - 2.0 * at.hess @ step))
    # Central differences err by the square of the step times an O(100) third derivative.
    truncation = 100.0 * share**2 * float(np.linalg.norm(at.hess, 2) * np.linalg.norm(step))
    yield error - truncation - at.unit * at.size_w, "hess_dual(z) h must be the change of w(z)"


def _joint_primal_round_trip(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
    error = float(np.linalg.norm(p.grad_dual(p.grad(at.w)) - at.w))
    yield error - at.unit * at.size_w, "grad_dual(grad(w)) must return w"


def _joint_dual_round_trip(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
    error = float(np.linalg.norm(p.grad(at.w) - at.z))
    yield error - at.unit * at.size_z, "grad(grad_dual(z)) must return z"


def _joint_fenchel_equality(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
    gap = abs(p.value(at.w) + p.conjugate(at.z) - float(at.z @ at.w))
    yield gap - _value_slack(p, at), "Q(w) + Q*(z) = <z, w> must hold at w = w(z)"


def _joint_convexity(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
    size = float(np.linalg.norm(at.hess, 2))
    lopsided = float(np.abs(at.hess - at.hess.T).max())
    yield lopsided - at.unit * size, "hess_dual(z) must be symmetric"
    smallest = float(np.linalg.eigvalsh(0.5 * (at.hess + at.hess.T))[0])
    yield -smallest - at.unit * size, "hess_dual(z) must be positive semidefinite"


def _joint_strong_convexity(p: JointPotential, at: _Point) -> Iterator[tuple[float, str]]:
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


_JOINT_CHECKS: dict[str, Callable[[JointPotential, _Point], Iterator[tuple[float, str]]]] = {
    "grad against difference quotient": _joint_grad_is_derivative,
    "conjugate against difference quotient": _joint_conjugate_derivative,
    "hess_dual against difference quotient": _joint_hess_is_derivative,
    "round trip of w": _joint_primal_round_trip,
    "round trip of z": _joint_dual_round_trip,
    "Fenchel equality": _joint_fenchel_equality,
    "convexity": _joint_convexity,
    "strong convexity": _joint_strong_convexity,
}
