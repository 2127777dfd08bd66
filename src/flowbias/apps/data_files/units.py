"""The problem that is solved for a table of numbers, and the way back to the table's own units.

With an intercept X and y are taken less their means, and one row less says the same: the intercept
is a bias that costs nothing, as for the estimators. Standardized, columns are measured in their
standard deviations (without an intercept in their root mean squares). Implicit bias is a matter of
units: a small coefficient of a large column is cheap, and of two columns that say the same the
larger is taken. Where nobody chose the units on purpose that names false features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.estimators.intercepts.centring import Contrasts, centred
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray, Mask
from flowbias.problems.regression import Regression

# Columns in units further apart than this are standardized unless one says what to do.
FACTOR = 10.0


@dataclass(frozen=True, eq=False)
class Units:
    """Numbers as a file has them, checked; what is solved; and coefficients as said of the file."""

    given: Regression
    #: standard deviations, or root mean squares; None: as they are
    unit: FloatArray | None
    intercept: bool
    #: how far the units of the columns are apart
    factor: float

    @classmethod
    def of(
        cls,
        given: Regression,
        *,
        standardize: bool | None,
        intercept: bool | None,
        words: Mask,
    ) -> Units:
        """None is for this to decide: standardized where units differ, and then an intercept.

        `words` says which columns are zeros and ones that stand for words, and have no unit.
        """
        factor = _apart(given.X[:, ~words])
        if standardize is None:
            standardize = factor > FACTOR
        intercept = standardize if intercept is None else intercept
        if intercept and len(given.y) < 2:
            raise InputError(
                "--intercept: must have at least 2 samples, got 1, which the intercept alone "
                "fits. Pass --no-intercept, or more samples."
            )
        unit = None
        if standardize:
            unit = _sizes(given.X, about_mean=intercept)
            unit[unit == 0.0] = 1.0  # constant, and 0 once centred
        return cls(given, unit, intercept, factor)

    @property
    def scaled(self) -> FloatArray:
        """X in the units that coefficients are compared in."""
        return self.given.X if self.unit is None else self.given.X / self.unit

    @property
    def problem(self) -> Regression:
        """What is solved."""
        if not self.intercept:
            return self.given if self.unit is None else Regression(self.scaled, self.given.y)
        X, y = centred(self.scaled, None)[0], centred(self.given.y[:, None], None)[0]
        rest = self._contrasts.of(np.hstack([X, y]))
        return Regression(rest[:, :-1], rest[:, -1])

    @property
    def _contrasts(self) -> Contrasts:
        return Contrasts(np.ones(len(self.given.y)))

    def per_unit(self, w: FloatArray) -> FloatArray:
        """Coefficients of the problem, as those of the columns as they are."""
        return w if self.unit is None else w / self.unit

    def at_zero(self, w: FloatArray) -> float | None:
        """The intercept that goes with them; None where there is none."""
        if not self.intercept:
            return None
        return float(self.given.y.mean() - self.given.X.mean(axis=0) @ self.per_unit(w))

    def dual_of_given(self, dual: FloatArray) -> FloatArray:
        """One entry per sample of the file."""
        return self._contrasts.adjoint(dual) if self.intercept else dual

    @property
    def constant(self) -> list[int]:
        """Columns of which an intercept leaves nothing."""
        same = np.ptp(self.given.X, axis=0) == 0.0
        return [int(i) for i in np.flatnonzero(same)] if self.intercept else []

    @property
    def remarks(self) -> list[str]:
        """What was done, and how to have it otherwise."""
        said = []
        if self.unit is not None:
            less = (
                "less its mean, over its standard deviation"
                if self.intercept
                else ("over its root mean square")
            )
            apart = f" (units differ by a factor of {self.factor:.2g})" * (self.factor > FACTOR)
            said.append(f"each column is taken {less}{apart}; --no-standardize takes it as it is")
        elif self.factor > FACTOR:
            said.append(
                f"units differ by a factor of {self.factor:.2g}, which decides what is sparse; "
                "--standardize takes that out"
            )
        return said


def _apart(X: FloatArray, enough: int = 8) -> float:
    """The largest unit over the smallest: of spreads, or of sizes where that says more.

    1 where samples are fewer than `enough` to tell: normal columns would soon seem ten times apart.
    """
    apart = 1.0
    for about_mean in (True, False) if len(X) >= enough else ():
        sizes = _sizes(X, about_mean=about_mean)
        sizes = sizes[sizes > 0.0]
        with np.errstate(over="ignore"):
            apart = max(apart, sizes.max(initial=0.0) / sizes.min(initial=np.inf))
    return float(apart)


def _sizes(X: FloatArray, *, about_mean: bool) -> FloatArray:
    """Standard deviations or root mean squares of the columns."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    shrunk = X / np.where(largest > 0.0, largest, 1.0)  # squares may leave the double range
    if about_mean:
        shrunk = centred(shrunk, None)[0]
    return np.asarray(largest * np.sqrt(np.square(shrunk).mean(axis=0)))
