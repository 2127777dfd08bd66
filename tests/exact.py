"""Limits to 50 digits, sharing no code with the library: the judge of tests and benchmarks.

    X w(shift + X^T nu) = y     by damped Newton in nu, in mpmath, with H = X diag(w'(z)) X^T

The potential is taken at the value of the doubles it was built from. Along a Newton step whose
Hessian grows at most by g(s) after a fraction s, the dual function falls as long as the integral
of g stays below 1; the fraction where it reaches 1 is the step taken:

    exponentials   g = e^{s r},             r = rate max |dz|          fraction  log(1 + r) / r
    powers         g = (1 - s r)^-(k+1),    r = max |dz| / slack       (1 - (1 + k r)^(-1/k)) / r

Both are 1 - O(r), so convergence stays quadratic, and no line search is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import scipy.linalg
from mpmath import mp

from flowbias.potentials import (
    BiasedDepthPotential,
    DepthPotential,
    DistancePotential,
    Hypentropy,
    HyperbolicPotential,
    UntiedPotential,
)

MAX_STEPS = 300
# Digits kept beyond those asked for: sums over features and the condition of H.
GUARD_DIGITS = 15
# Products in H beyond which it is formed in doubles: about a second in mpmath.
LARGE = 10**6

_exact = np.frompyfunc(mp.mpf, 1, 1)
_exp = np.frompyfunc(mp.exp, 1, 1)
_power = np.frompyfunc(mp.power, 2, 1)


def exact_limit(
    model_or_potential: Any, X: Any, y: Any, dual0: Any, shift: Any = None, dps: int = 50
) -> np.ndarray:
    """The limit on (X, y) to about `dps` digits, as an array of mpf; `.astype(float)` rounds it.

    Started from `dual0`, for instance `solution.dual`, in the units of the potential. `shift`
    defaults to the model's own. X must have independent rows and y must be reachable.
    """
    potential = model_or_potential.potential
    shift = model_or_potential.shift if shift is None else shift
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    shift = np.broadcast_to(np.asarray(shift, dtype=float), X.shape[1:])
    dual0 = np.asarray(dual0, dtype=float)
    few, many = _extra_digits(potential)
    try:
        with mp.workdps(dps + GUARD_DIGITS + few):
            return _solve(potential, X, y, dual0, shift, dps)
    except (ValueError, ZeroDivisionError):  # H is singular to that many digits
        with mp.workdps(dps + GUARD_DIGITS + many):
            return _solve(potential, X, y, dual0, shift, dps)


def distance(w: Any, exact: np.ndarray, dps: int = 50) -> float:
    """||w - exact||_2, the subtraction done in `dps` digits."""
    with mp.workdps(dps):
        difference = _exact(np.asarray(w)) - exact
        return float(mp.sqrt(np.sum(difference * difference)))


def _solve(potential: Any, X: Any, y: Any, dual0: Any, shift: Any, dps: int) -> np.ndarray:
    mapping, rows = exact_map(potential), _exact(X)
    unit = mp.exp(mp.mpf(mapping.log_unit))
    start = unit * _exact(shift)
    dual = _inside(mapping, start, rows, unit * _exact(dual0))
    return _newton(mapping, start, rows, _exact(y), dual, dps)


def _newton(mapping: Any, start: Any, rows: Any, y: Any, dual: Any, dps: int) -> np.ndarray:
    for _ in range(MAX_STEPS):
        z = start + dual @ rows
        w, slope = mapping.at(z)
        residual = y - rows @ w
        size = np.abs(y).max() + np.abs(rows).max() * np.abs(w).max()
        if np.abs(residual).max() <= mp.mpf(10) ** -dps * size:
            return w
        step = _direction(rows, slope, residual)
        dual = dual + mapping.fraction(z, step @ rows) * step
    raise ArithmeticError(
        f"no convergence in {MAX_STEPS} Newton steps: residual {float(np.abs(residual).max()):.1e}"
    )


def _direction(rows: Any, slope: Any, residual: Any) -> Any:
    """H^{-1} residual; on large problems with H in doubles, which costs some steps more."""
    if len(rows) * rows.size <= LARGE:
        hessian = mp.matrix(((rows * slope) @ rows.T).tolist())
        return np.array(list(mp.cholesky_solve(hessian, mp.matrix(residual.tolist()))))
    steepest, furthest = np.max(slope), np.abs(residual).max()
    X, weights = rows.astype(float), (slope / steepest).astype(float)
    hessian = (X * weights) @ X.T
    balance = 1.0 / np.sqrt(np.diagonal(hessian))
    factor = scipy.linalg.cho_factor(hessian * balance * balance[:, None])
    step = scipy.linalg.cho_solve(factor, balance * (residual / furthest).astype(float))
    return furthest / steepest * _exact(balance * step)


def _inside(mapping: Any, start: Any, rows: Any, dual: Any) -> Any:
    """`dual`, shrunk by the few units that rounding to double may have put it out of the domain."""
    for power in range(54):
        shrunk = dual * (1 - mp.mpf(2) ** (power - 53)) if power else dual
        if mapping.contains(start + shrunk @ rows):
            return shrunk
    return 0 * dual


# --- dual maps, in their own units ---------------------------------------------------------------


@dataclass(frozen=True)
class Exponentials:
    """w = plus e^{rate z} - minus e^{-rate z}."""

    plus: Any
    minus: Any
    rate: Any
    log_unit: float = 0.0

    def at(self, z: Any) -> tuple[Any, Any]:
        up, down = self.plus * _exp(self.rate * z), self.minus * _exp(-self.rate * z)
        return up - down, self.rate * (up + down)

    def fraction(self, z: Any, rise: Any) -> Any:
        r = self.rate * np.abs(rise).max()
        return mp.log1p(r) / r

    def contains(self, z: Any) -> bool:
        return True


@dataclass(frozen=True)
class Powers:
    """w = gain_plus (1 - z/reach_plus)^-k - gain_minus (1 + z/reach_minus)^-k."""

    gains: tuple[Any, Any]
    reaches: tuple[Any, Any]
    k: Any
    log_unit: float = 0.0

    def _slacks(self, z: Any) -> tuple[Any, Any]:
        return 1 - z / self.reaches[0], 1 + z / self.reaches[1]

    def at(self, z: Any) -> tuple[Any, Any]:
        w, slope = 0, 0
        branches = zip((1, -1), self.gains, self.reaches, self._slacks(z), strict=True)
        for sign, gain, reach, slack in branches:
            part = gain * _power(slack, -self.k)
            w, slope = w + sign * part, slope + self.k * part / (slack * reach)
        return w, slope

    def fraction(self, z: Any, rise: Any) -> Any:
        slacks, reaches = self._slacks(z), self.reaches
        r = max(np.max(np.abs(rise) / (s * c)) for s, c in zip(slacks, reaches, strict=True))
        return (1 - mp.power(1 + self.k * r, -1 / self.k)) / r

    def contains(self, z: Any) -> bool:
        return all(np.all(slack > 0) for slack in self._slacks(z))


@singledispatch
def exact_map(potential: Any) -> Any:
    """The dual map of a potential at the exact value of the doubles that define it."""
    raise TypeError(f"potential: must have a closed dual map here, got {potential!r}.")


@exact_map.register
def _(potential: HyperbolicPotential) -> Exponentials:
    plus, minus = _exp(_exact(potential.log_plus)), _exp(_exact(potential.log_minus))
    return Exponentials(plus, minus, mp.mpf(potential.rate), potential.log_unit)


@exact_map.register
def _(potential: Hypentropy) -> Exponentials:
    square = _start(potential) ** 2
    return Exponentials(square, square, mp.mpf(1), potential.log_unit)


@exact_map.register
def _(potential: UntiedPotential) -> Exponentials:
    shape = _exact(potential.shape)
    quarter = _start(potential) ** 2 * (1 + shape**2) / (1 - shape**2)  # sqrt(k) / 4
    return Exponentials(quarter, quarter, mp.mpf(2), potential.log_unit)


@exact_map.register
def _(potential: DepthPotential) -> Powers:
    start = _start(potential)
    return _powers(potential, start, start)


@exact_map.register
def _(potential: BiasedDepthPotential) -> Powers:
    return _powers(potential, *(_size(side.size) * side.present for side in potential._weights))


@exact_map.register
def _(potential: DistancePotential) -> Powers:
    gain, one = _start(potential) ** 2, mp.mpf(1)
    return Powers((gain, gain), (one, one), mp.mpf(2))


def _start(potential: Any) -> Any:
    """The size of the start."""
    return _size(potential._start)


def _size(start: Any) -> Any:
    """From whichever number was given: the scale, or its logarithm, which is that of another."""
    number = _exp(_exact(start.log_number)) if start.direct is None else _exact(start.direct)
    return number if start.factor is None else number * _exact(start.factor)


def _powers(potential: Any, plus: Any, minus: Any) -> Powers:
    depth = mp.mpf(potential.depth)
    gains = tuple(_power(a, depth) for a in (plus, minus))
    reaches = tuple(_reach(a, depth) for a in (plus, minus))
    return Powers(gains, reaches, depth / (depth - 2), potential.log_unit)


def _reach(start: Any, depth: Any) -> Any:
    return np.frompyfunc(lambda a: a ** (2 - depth) if a > 0 else mp.inf, 1, 1)(start)


def _extra_digits(potential: Any) -> tuple[int, int]:
    """Digits lost where a start is small or large; more of them for degenerate problems.

    Small: 1 - z/reach cancels to about scale^(D-2), and w'(z) ranges over scale^(2D-2), both ends
    of which meet in H where the problem is degenerate. Large: branches of size scale^D cancel.
    """
    depth = getattr(potential, "depth", 2.0)
    logs = np.concatenate([np.ravel(potential.log_plus), np.ravel(potential.log_minus)])
    if depth == 2.0:
        logs = 0.5 * logs  # of squared weights
    small = -np.min(logs, initial=0.0, where=np.isfinite(logs)) / np.log(10.0)
    large = np.max(logs, initial=0.0) / np.log(10.0)
    few = (depth - 2.0) * small + 2.0 * depth * large
    many = (2.0 * depth - 2.0) * small + 2.0 * depth * large
    return int(np.ceil(few)), int(np.ceil(many))
