"""Polynomials that gradient flow conserves, whatever the data.

    h is conserved  <=>  grad h . grad F_i = 0 for all i, everywhere

Linear in the coefficients of h: one equation for each i at each of many random points, and the null
space is all the polynomial laws there are. No computer algebra: the basis is brought to echelon
form and rounded to integers, and what is printed is checked against the equations and along flows.
[Marcotte, Gribonval and Peyré, 2023]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from flowbias.derive.orbit import CLEAR_GAP
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.polynomials import (
    Monomials,
    Polynomial,
    count_monomials,
    echelon_form,
    rounded,
)
from flowbias.derive.reachable import (
    as_parametrization,
    generic_point,
    parameter_unit,
    reachable_points,
)
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray

#: Singular values of the equations below this, relative to the largest, belong to laws.
NULL_TOLERANCE = 1e-9
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
        return self.gap >= CLEAR_GAP and self.drift <= self.tolerance

    @property
    def summary(self) -> str:
        found = (
            f"no conserved polynomial of degree <= {self.degree}"
            if not self.laws
            else f"{len(self.laws)} conserved polynomial(s) of degree <= {self.degree}, "
            f"{self.independent} independent; constant along {self.flows} random flows to "
            f"{self.drift:.1e} (tolerance {self.tolerance:.0e})"
        )
        doubt = "" if self.gap >= CLEAR_GAP else f"; no clear gap ({self.gap:.1e}), not decided"
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
    random = np.random.default_rng(rng)
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
    null = relative <= NULL_TOLERANCE
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
    return (integers, True) if error <= NULL_TOLERANCE else (plain, False)


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
    if not isinstance(given, (int, np.integer)) or given < 1:
        raise InputError(
            f"degree: must be a whole number >= 1, got {degree!r}. Most known laws have degree 2."
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
