"""Polynomials in named variables: values, derivatives, and a readable basis of a space of them.

A monomial is the sorted tuple of its variables, repeated: (0, 0, 2) is th1*th1*th3. Padded to one
length by a variable that is always 1, all monomials are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb, lcm

import numpy as np
from numpy.typing import NDArray

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
