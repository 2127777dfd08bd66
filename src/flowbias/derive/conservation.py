"""Polynomials that gradient flow conserves, whatever the data.

    h is conserved  <=>  grad h . grad F_i = 0 for all i, everywhere

Linear in the coefficients of h: one equation for each i at each of many random points, and the null
space is all the polynomial laws there are. No computer algebra: the basis is brought to echelon
form and rounded to integers, and what is printed is checked against the equations and along flows.
[Marcotte, Gribonval and Peyré, 2023]

A monomial is the sorted tuple of its variables, repeated: (0, 0, 2) is th1*th1*th3. Padded to one
length by a variable that is always 1, all monomials are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement
from math import comb, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.derive.commuting import TOLERANCE
from flowbias.derive.parametrization import (
    Parametrization,
    as_parametrization,
    generic_point,
    parameter_unit,
    reachable_points,
)
from flowbias.derive.unit_time import CLEARLY
from flowbias.ground.arguments import LARGEST_SIZE, InputError, read_rng, shown
from flowbias.ground.typing import FloatArray


@dataclass(frozen=True, repr=False)
class Polynomial:
    """sum_m coefficients[m] * product of the variables of monomials[m]."""

    coefficients: tuple[float, ...]
    monomials: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    def __call__(self, theta: FloatArray) -> float:
        return float(np.dot(self.coefficients, self._monomials.values(theta)))

    def gradient(self, theta: FloatArray) -> FloatArray:
        """(p,)."""
        rows = [self._monomials.derivative(theta, e) for e in np.eye(len(self.names))]
        return np.asarray(np.array(rows) @ np.array(self.coefficients))

    def size(self, theta: FloatArray) -> float:
        """Sum of the absolute values of the terms: the unit of rounding in the value."""
        return float(np.dot(np.abs(self.coefficients), np.abs(self._monomials.values(theta))))

    @property
    def degree(self) -> int:
        return max(map(len, self.monomials))

    @property
    def _monomials(self) -> Monomials:
        return Monomials.listed(self.monomials, len(self.names))

    def __repr__(self) -> str:
        text = ""
        for c, monomial in zip(self.coefficients, self.monomials, strict=True):
            sign = (" - " if text else "-") if c < 0 else (" + " if text else "")
            factor = "" if abs(c) == 1.0 else f"{abs(c):.6g}*"
            text += sign + factor + "*".join(self.names[i] for i in monomial)
        return text


@dataclass(frozen=True)
class Monomials:
    """A list of monomials, as indices padded with p (whose variable is 1)."""

    indices: NDArray[np.intp]
    p: int

    @classmethod
    def up_to(cls, degree: int, p: int) -> Monomials:
        """All of degree 1 to `degree`, low degrees first, in the order of the variables."""
        found = [
            m for k in range(1, degree + 1) for m in combinations_with_replacement(range(p), k)
        ]
        return cls.listed(found, p)

    @classmethod
    def listed(cls, monomials: Sequence[tuple[int, ...]], p: int) -> Monomials:
        longest = max(map(len, monomials))
        padded = [m + (p,) * (longest - len(m)) for m in monomials]
        return cls(np.array(padded, dtype=np.intp), p)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, m: int) -> tuple[int, ...]:
        return tuple(int(i) for i in self.indices[m] if i < self.p)

    @property
    def degrees(self) -> NDArray[np.intp]:
        return np.asarray((self.indices < self.p).sum(axis=1))

    def values(self, theta: FloatArray) -> FloatArray:
        return np.asarray(np.append(theta, 1.0)[self.indices].prod(axis=1))

    def derivative(self, theta: FloatArray, along: FloatArray) -> FloatArray:
        """Derivative of every monomial along a vector."""
        at, moving = np.append(theta, 1.0)[self.indices], np.append(along, 0.0)[self.indices]
        total = np.zeros(len(self.indices))
        for k in range(self.indices.shape[1]):
            # The product rule without division: a variable may be zero.
            total += moving[:, k] * np.delete(at, k, axis=1).prod(axis=1)
        return total


def count_monomials(p: int, degree: int) -> int:
    """How many of degree 1 to `degree` there are in p variables."""
    return comb(p + degree, degree) - 1


def echelon_form(basis: FloatArray, zero: float = 1e-9) -> FloatArray:
    """Reduced row echelon form of a space given by orthonormal rows.

    Each row leads with a 1 in a column where all others have 0: for conserved quantities this
    gives one short polynomial each, where orthonormal rows mix all of them. Entries below `zero`
    are zeros of the space, not small coefficients.
    """
    rows = np.array(basis)
    pivots: list[int] = []
    for column in range(rows.shape[1]):
        r = len(pivots)
        if r == len(rows):
            break
        best = r + int(np.argmax(np.abs(rows[r:, column])))
        if abs(rows[best, column]) < zero:
            continue
        rows[[r, best]] = rows[[best, r]]
        rows[r] /= rows[r, column]
        others = np.arange(len(rows)) != r
        rows[others] -= np.outer(rows[others, column], rows[r])
        pivots.append(column)
    # From the untouched basis once more: elimination has added up its rounding.
    reduced = np.linalg.solve(basis[:, pivots], basis)
    reduced[np.abs(reduced) < zero * np.abs(reduced).max(axis=1, keepdims=True)] = 0.0
    return np.asarray(reduced)


def rounded(row: FloatArray) -> FloatArray | None:
    """The same coefficients as small integers without a common factor; None if they are none.

    One within 1e-7 of a fraction with a denominator up to 24 is taken for it. The caller verifies
    the rounded polynomial: a coincidence is then found out.
    """
    scaled = row / row[np.flatnonzero(row)[0]]
    fractions = [Fraction(float(c)).limit_denominator(24) for c in scaled]
    error = np.abs(scaled - np.array([float(f) for f in fractions]))
    if (error > 1e-7 * np.maximum(1.0, np.abs(scaled))).any():
        return None
    common = lcm(*(f.denominator for f in fractions))
    # One coefficient is 1, so that the smallest common multiple leaves no common factor.
    return np.array([float(f * common) for f in fractions])


TOLERANCE_ORIGIN = "flows followed with local error 1e-13; factor 1000 for their steps"
# More equations than unknowns, so that a null vector is no accident of the points.
_OVERSAMPLING = 1.5


@dataclass(frozen=True, repr=False)
class ConservationLaws:
    """A basis of the conserved polynomials up to a degree (constants left out)."""

    laws: tuple[Polynomial, ...]
    degree: int
    #: how many of them are functionally independent around theta0
    independent: int
    #: whether each has small integer coefficients that satisfy the equations
    exact: tuple[bool, ...]
    #: singular values of the equations, relative: largest of a law, smallest of no law
    largest_null: float
    smallest_other: float
    #: largest change along random flows, relative to the terms of the law
    drift: float
    flows: int
    #: relative change along flows that are followed to about 1e-12
    tolerance: float = 1e-10
    tolerance_origin: str = TOLERANCE_ORIGIN

    def __len__(self) -> int:
        return len(self.laws)

    @property
    def gap(self) -> float:
        return self.smallest_other / max(self.largest_null, float(np.finfo(float).eps))

    @property
    def holds(self) -> bool:
        """Whether the count is clear and every law is constant along the flows."""
        return self.gap >= CLEARLY and self.drift <= self.tolerance

    @property
    def summary(self) -> str:
        found = (
            f"no conserved polynomial of degree <= {self.degree}"
            if not self.laws
            else f"{len(self.laws)} conserved polynomial(s) of degree <= {self.degree}, "
            f"{self.independent} independent; constant along {self.flows} random flows to "
            f"{self.drift:.1e} (tolerance {self.tolerance:.0e})"
        )
        doubt = "" if self.gap >= CLEARLY else f"; no clear gap ({self.gap:.1e}), not decided"
        return found + doubt

    def __repr__(self) -> str:
        lines = [f"ConservationLaws({self.summary})"]
        for law, exact in zip(self.laws, self.exact, strict=True):
            lines.append(f"  {law}" + ("" if exact else "   (coefficients rounded for print)"))
        return "\n".join(lines)


def conservation_laws(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    degree: int = 2,
    *,
    names: Sequence[str] | None = None,
    flows: int = 3,
    rng: int | np.random.Generator = 0,
    max_cost: float = 2e11,
) -> ConservationLaws:
    """All polynomials up to `degree` that gradient flow of w = F(theta) leaves constant.

    Parameters
    ----------
    F : the parametrization w = F(theta), a function of a torch vector, or a `Parametrization`
    theta : where; left out for a `Parametrization`
    degree : the largest to look at
    names : of the parameters, for printing
    flows : random flows along which candidates are tried
    rng : seed or generator of those flows
    max_cost : floating-point operations allowed, about: 2e11 are half a minute on one core

    Returns
    -------
    ConservationLaws

    Raises
    ------
    InputError where F is no smooth function of a vector, or the cost too large

    >>> fb.derive.conservation_laws(lambda theta: theta[:1] * theta[1:], [0.5, 0.2]).independent
    1
    """
    afford = partial(_require_affordable, degree=degree, max_cost=max_cost)
    model = as_parametrization(F, theta, names, afford)
    random = read_rng(rng)
    monomials = Monomials.up_to(degree, model.p)
    unit = parameter_unit(model)
    equations = _equations(model, monomials, unit, random)
    basis, largest_null, smallest_other = _null_space(equations)
    # Equations are in units of theta0; polynomials in theta itself.
    units = unit ** monomials.degrees.astype(np.float64)
    found = [_readable(row, units, equations) for row in echelon_form(basis)] if len(basis) else []
    laws = tuple(_polynomial(row, monomials, model.names) for row, _ in found)
    visited = reachable_points(model, flows, random)
    return ConservationLaws(
        laws=laws,
        degree=degree,
        independent=_independent(laws, generic_point(model, random)),
        exact=tuple(exact for _, exact in found),
        largest_null=largest_null,
        smallest_other=smallest_other,
        drift=max((_drift(law, visited) for law in laws), default=0.0),
        flows=flows,
    )


def _equations(
    model: Parametrization, monomials: Monomials, unit: float, random: np.random.Generator
) -> FloatArray:
    """Rows grad h . grad F_i in the coefficients of h, scaled to unit length."""
    points = int(np.ceil(_OVERSAMPLING * len(monomials) / model.d)) + 4
    rows = []
    for _ in range(points):
        # At theta0's own size: nearer, monomials look alike.
        theta = generic_point(model, random, spread=1.0)
        rows += [monomials.derivative(theta / unit, g) for g in model.jacobian(theta)]
    equations = np.array(rows)
    sizes = np.linalg.norm(equations, axis=1, keepdims=True)
    return np.asarray(equations[sizes[:, 0] > 0.0] / sizes[sizes[:, 0] > 0.0])


def _null_space(equations: FloatArray) -> tuple[FloatArray, float, float]:
    """Orthonormal rows, and the singular values on both sides of the decision."""
    _, values, right = np.linalg.svd(equations, full_matrices=True)
    values = np.pad(values, (0, len(right) - len(values)))
    relative = values / max(float(values.max(initial=0.0)), float(np.finfo(float).tiny))
    # Of the equations, relative to the largest: those of laws.
    null = relative <= TOLERANCE
    inside = float(relative[null].max(initial=0.0))
    outside = float(relative[~null].min(initial=np.inf))
    return right[null], inside, outside


def _readable(row: FloatArray, units: FloatArray, equations: FloatArray) -> tuple[FloatArray, bool]:
    """Coefficients in theta, as integers if those satisfy the equations as well as `row` does."""
    plain = row / units
    plain = plain / plain[np.flatnonzero(plain)[0]]
    integers = rounded(plain)
    if integers is None:
        return plain, False
    scaled = integers * units
    error = np.abs(equations @ scaled).max() / np.linalg.norm(scaled)
    return (integers, True) if error <= TOLERANCE else (plain, False)


def _polynomial(row: FloatArray, monomials: Monomials, names: tuple[str, ...]) -> Polynomial:
    used = np.flatnonzero(row)
    return Polynomial(
        tuple(float(row[m]) for m in used), tuple(monomials[int(m)] for m in used), names
    )


def _independent(laws: tuple[Polynomial, ...], theta: FloatArray) -> int:
    """Rank of the gradients at a generic point."""
    if not laws:
        return 0
    gradients = np.array([law.gradient(theta) for law in laws])
    sizes = np.linalg.norm(gradients, axis=1, keepdims=True)
    return int(np.linalg.matrix_rank(gradients / np.where(sizes > 0.0, sizes, 1.0), tol=1e-9))


def _drift(law: Polynomial, visited: list[FloatArray]) -> float:
    """Largest change from theta0, relative to the terms that cancel in the law."""
    start = law(visited[0])
    size = max(law.size(point) for point in visited)
    return max(abs(law(point) - start) for point in visited) / (size or 1.0)


def _require_affordable(model: Parametrization, degree: int, max_cost: float) -> None:
    given: Any = degree
    if not isinstance(given, (int, np.integer)) or not 1 <= given <= LARGEST_SIZE:
        raise InputError(
            f"degree: must be a whole number >= 1, got {shown(degree)}. Most known laws have "
            "degree 2."
        )
    unknowns = count_monomials(model.p, degree)
    cost = 20.0 * _OVERSAMPLING * float(unknowns) ** 3
    if cost > max_cost:
        raise InputError(
            f"theta: must have few enough parameters for degree {degree}, got {model.p}: "
            f"{unknowns} coefficients take about {cost:.1e} operations (allowed {max_cost:.1e}) "
            f"and {16e-9 * _OVERSAMPLING * float(unknowns) ** 2:.1g} GB. Lower the degree, study a "
            f"smaller instance of the same F, or pass max_cost={2 * cost:.0e}."
        )
