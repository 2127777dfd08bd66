"""A limit's data as they are meant: what there is to fit, on which rows, by which coordinates.

And what an exact answer is: the doubles nearest to it, and how near they are.

Rows that depend on others are left out (`rank.py`). Where coordinates keep one sign, what can be
fitted of y is decided in rational numbers, and so is which of them vanish (`cone.py`). Where the
data were centred, the means are taken out in balls, in which nothing rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, fmpq

from flowbias.certificates.cone import reach
from flowbias.certificates.rank import DEPENDENT, cut_by_rounding, rows_to_fit
from flowbias.ground import extended
from flowbias.ground.balls import as_matrix, to_doubles
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential

# Products of words that one exponential or power takes, about.
POWER = 64


@dataclass(frozen=True)
class ExactPoint:
    """The doubles nearest to a point that is within `radius` of them, and its dual."""

    w: FloatArray
    dual: FloatArray
    radius: float
    #: how far y is from what can be reached, relative to y
    distance: float

    def has_dual(self, X: FloatArray, nu: FloatArray, tol: float) -> Mask:
        """The coordinates where X^T nu is that of the point, to tol."""
        apart = extended.adjoint(X, nu - self.dual)
        return np.asarray(np.abs(apart) <= tol * extended.absolute_adjoint(X, self.dual))

    def error_of(self, w: FloatArray) -> float:
        """An upper bound of the distance of w to the point."""
        rounding = (len(w) + 4) * float(np.finfo(float).eps)
        return (1.0 + rounding) * extended.length(w - self.w) + self.radius


@dataclass(frozen=True)
class ExactProblem:
    """The data, the law, and what there is to find: P y on some rows, by coordinates in use."""

    X: FloatArray
    y: FloatArray
    potential: Potential
    shift: FloatArray
    used: Mask
    rows: list[int]
    #: P y where coordinates keep one sign; None where it is that of the subspace
    fit: list[fmpq] | None
    #: of which X and y are the rounded difference to their means; None: they are what is meant
    given: tuple[FloatArray, FloatArray] | None

    def data(self) -> tuple[arb_mat, arb_mat]:
        """X on the coordinates in use, and y, as they are meant."""
        X, y = (self.X, self.y) if self.given is None else self.given
        data = as_matrix(X[:, self.used]), as_matrix(y[:, None])
        return data if self.given is None else (_less_means(data[0]), _less_means(data[1]))

    @property
    def products(self) -> int:
        """Of a Newton step: X W X^T and its factor, and w(z)."""
        return (len(self.rows) ** 2 + POWER) * int(self.used.sum())

    @classmethod
    def of(
        cls,
        X: FloatArray,
        y: FloatArray,
        potential: Potential,
        shift: FloatArray | float,
        given: tuple[FloatArray, FloatArray] | None = None,
    ) -> ExactProblem | None:
        """None where rounding decides which coordinates vanish."""
        upward, downward = potential.open_sides(X.shape[1], 1.0)
        used, fit = upward | downward, None
        rows = _rows_to_fit(X[:, used])
        if (upward != downward).any() and rows:
            reached = reach(X[:, used], y, upward[used], downward[used], rows)
            if reached is not None:
                fit, gone = reached.fit, used.copy()
                gone[used] = ~reached.used
                if cut_by_rounding(X[:, used], len(rows)) > 0.0 and not _driven(X, y, fit, gone):
                    return None
                used = used & ~gone
                rows = _rows_to_fit(X[:, used])
        return cls(X, y, potential, np.broadcast_to(shift, X.shape[1:]), used, rows, fit, given)


def _rows_to_fit(columns: FloatArray) -> list[int]:
    return rows_to_fit(columns) if columns.any() else []


def _driven(X: FloatArray, y: FloatArray, fit: list[fmpq], gone: Mask) -> bool:
    """Whether y - P y drives these coordinates to zero by more than the rounding of X could."""
    outward = y - to_doubles([arb(part) for part in fit])
    pull = np.abs(X[:, gone].T @ outward)
    lengths = np.linalg.norm(X[:, gone], axis=0) * np.linalg.norm(outward)
    return bool((pull > len(X) * DEPENDENT * lengths).all())


def _less_means(matrix: arb_mat) -> arb_mat:
    """Columns that add up to zero."""
    n = matrix.nrows()
    ones = arb_mat(1, n, [arb(1)] * n)
    return matrix - ones.transpose() * (ones * matrix / n)
