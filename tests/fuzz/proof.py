"""How far w can be from the exact limit, whatever way it was found.

For parts x~ >= 0 with B (p~ - m~) = b exactly, x = x(nu) for any nu, and the minimizer x*,

    G = sum D_phi(x~, x)  =  primal at x~ less dual at nu
                          >= primal at x~ less primal at x*  =  sum D_phi(x~, x*)

where D_phi is the Bregman distance of phi: so no part of x~ is further from x* than D_phi <= G
allows. x~ is the w at nu, moved along W B^T to where B w = b; a solve in ball arithmetic encloses
it. A coordinate with two parts takes what is added from either, and a little of both, which costs
next to nothing where rounding hides the sign of a part.
"""

from __future__ import annotations

from dataclasses import dataclass

from flint import arb, arb_mat, ctx

from tests.fuzz.branches import Number, Vector, largest
from tests.fuzz.mirror_path import NotFoundError, Path, Point

# Newton steps that use up the digits at hand: each doubles those that are right.
LAST_STEPS = 40


@dataclass(frozen=True)
class Proved:
    """w, and a bound of its distance from the limit in the l2 norm."""

    w: Vector
    error: Number


def proved(path: Path, u: Number, dual: arb_mat) -> Proved:
    """The limit at position u near `dual`."""
    dual, _ = path.correct(u, dual, arb(10) ** (-ctx.dps // 3), LAST_STEPS)
    point = path.at(u, dual)
    weights = _weights(path, point)
    moves = _to_feasibility(path, weights, path.residual(point.w))
    enclosed = path.branches.parts(u, (path.columns * dual).entries())
    floor = largest(point.w) * arb(10) ** (-4 * ctx.dps // 5)
    gap, ends = arb(0), []
    for start, exact, move in zip(
        zip(point.plus, point.minus, strict=True), zip(*enclosed, strict=True), moves, strict=True
    ):
        for part, at, more in zip(start, exact, _shared(start, move, floor), strict=True):
            if part is None:
                continue
            end = part + more
            if not end > 0:
                raise NotFoundError("a one-sided part is below rounding")
            gap += abs(path.branches.divergence(u, end, at))
            ends.append(end)
    # |dw| <= |dp| + |dm|, so its square is at most twice the sum of squares.
    squares = sum((path.branches.radius(u, gap.upper(), end) ** 2 for end in ends), arb(0))
    w = [value + move for value, move in zip(point.w, moves, strict=True)]
    spread = sum((value.rad() for value in w), arb(0))
    return Proved([value.mid() for value in w], ((2 * squares).sqrt() + spread).upper())


def _weights(path: Path, point: Point) -> Vector:
    """dw/dz with a floor: half of the digits for what it adds, half for the enclosure's width.

    No floor where a coordinate has one part only, which must not be moved below zero.
    """
    floored = path.floored(point.slopes, ctx.dps // 2)
    return [
        slope if p is None or m is None else weight
        for slope, weight, p, m in zip(point.slopes, floored, point.plus, point.minus, strict=True)
    ]


def _to_feasibility(path: Path, weights: Vector, residual: arb_mat) -> Vector:
    """W B^T (B W B^T)^-1 residual, enclosed."""
    try:
        pull = path.hessian(weights).solve(residual)
    except ZeroDivisionError as singular:
        raise NotFoundError("H is singular in these digits") from singular
    return [
        weight * value
        for weight, value in zip(weights, (path.columns * pull).entries(), strict=True)
    ]


def _shared(parts: tuple[Number, Number], move: Number, floor: Number) -> tuple[Number, Number]:
    """What p and m each gain so that p - m gains `move`, p and m positive."""
    plus, minus = parts
    if minus is None:
        return move, None
    if plus is None:
        return None, -move
    lift = 2 * abs(move).upper() + floor  # twice: the radius of a ball is itself rounded up
    return lift + move, lift
