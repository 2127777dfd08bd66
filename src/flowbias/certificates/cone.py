"""What coordinates that keep one sign can fit of y, in rational numbers.

X w ranges over a cone then. Whether y is inside, on its edge or outside is a question that rounded
numbers do not answer, and the limit depends on it: gradient flow fits the point P y of the cone
closest to y, and every coordinate that is zero in all w with X w = P y goes to zero.

The projection is Lawson and Hanson's. Which coordinates vanish follows from Farkas' lemma: a_i can
be in use if the others can undo it; if not, what is left of -a_i once they have tried is a
direction in which nothing that is in use points, and whatever points the other way vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from flint import fmpq, fmpq_mat

from flowbias.certificates.exact_simplex import rational
from flowbias.ground.typing import FloatArray, Mask

# Entries of X beyond which rational numbers take more than a moment.
SMALL = 2500


@dataclass(frozen=True)
class ConeProjection:
    """P y, and which coordinates are not zero in every w with X w = P y."""

    fit: list[fmpq]
    used: Mask


def reach(
    X: FloatArray, y: FloatArray, upward: Mask, downward: Mask, rows: list[int]
) -> ConeProjection | None:
    """What w with these sides can fit of y; None where X is too large to tell exactly.

    All that X says is in these of its rows: the others count as what they are closest to.
    """
    if X.size > SMALL:
        return None
    both = upward & downward
    sided = np.flatnonzero((upward | downward) & ~both & X.any(axis=0)).tolist()
    signs = np.where(upward, 1.0, -1.0)
    cone = _Cone(_spanned(X * signs, rows), np.flatnonzero(both).tolist())
    outputs = fmpq_mat(len(y), 1, [rational(value) for value in y])
    guess = _in_use(X * signs, y, np.flatnonzero(both).tolist(), sided)
    found, rest = cone.projected(outputs, sided, guess)
    used = set(found)
    open_ = [i for i in sided if i not in used and cone.along(i, rest) == 0]
    cone = cone.with_free(sorted(used))
    while open_:
        first, others = open_[0], open_[1:]
        undone, rest = cone.projected(-cone.column(first), others, [])
        if not any(rest.entries()):
            grown = [first, *undone]
            used.update(grown)
            cone = cone.with_free(grown)
            open_ = [i for i in others if i not in used]
        else:
            open_ = [i for i in others if cone.along(i, rest) == 0]
    in_use = both.copy()
    in_use[sorted(used)] = True
    # What X does not see stays where it is.
    in_use |= (upward | downward) & ~X.any(axis=0)
    return ConeProjection(_projection(cone, outputs), in_use)


def _spanned(X: FloatArray, rows: list[int]) -> list[list[fmpq]]:
    """The columns of X, each of whose rows is replaced by its projection on the span of some."""
    n, d = X.shape
    whole = fmpq_mat(n, d, [rational(value) for value in X.ravel()])
    if len(rows) < n:
        basis = fmpq_mat(len(rows), d, [rational(value) for value in X[rows].ravel()])
        turned = basis.transpose()
        whole = whole * turned * (basis * turned).solve(basis)
    return [[whole[i, j] for i in range(n)] for j in range(d)]


class _Cone:
    """Columns, of which some may be taken with either sign."""

    def __init__(self, columns: list[list[fmpq]], free: list[int]) -> None:
        self._columns, self._n = columns, len(columns[0])
        self.free = self._independent(free)

    def with_free(self, more: list[int]) -> _Cone:
        """The same columns, more of them free."""
        return _Cone(self._columns, [*self.free, *more])

    def column(self, i: int) -> fmpq_mat:
        return fmpq_mat(self._n, 1, self._columns[i])

    def along(self, i: int, direction: fmpq_mat) -> fmpq:
        pairs = zip(self._columns[i], direction.entries(), strict=True)
        return sum((a * b for a, b in pairs), fmpq(0))

    def _matrix(self, chosen: list[int]) -> fmpq_mat:
        return fmpq_mat(
            self._n, len(chosen), [self._columns[i][row] for row in range(self._n) for i in chosen]
        )

    def _independent(self, chosen: list[int]) -> list[int]:
        """The first of them that do not depend on those before."""
        if not chosen:
            return []
        reduced, rank = self._matrix(chosen).rref()
        pivots: list[int] = []
        for row in range(rank):
            at = pivots[-1] + 1 if pivots else 0
            pivots.append(next(j for j in range(at, len(chosen)) if reduced[row, j] != 0))
        return [chosen[j] for j in pivots]

    def fitted(self, y: fmpq_mat, chosen: list[int]) -> tuple[list[fmpq], fmpq_mat]:
        """Least squares on independent columns: the coefficients, and what is left of y."""
        if not chosen:
            return [], y
        matrix = self._matrix(chosen)
        turned = matrix.transpose()
        found = (turned * matrix).solve(turned * y)
        return found.entries(), y - matrix * found

    def projected(
        self, y: fmpq_mat, sided: list[int], guess: list[int]
    ) -> tuple[dict[int, fmpq], fmpq_mat]:
        """The positive coefficients of the closest point, and what is left of y."""
        split = len(self.free)
        passive = self._independent([*self.free, *guess])[split:]
        trial, rest = self.fitted(y, self.free + passive)
        if not all(value > 0 for value in trial[split:]):
            passive = []
            trial, rest = self.fitted(y, self.free)
        current = dict(zip(passive, trial[split:], strict=True))
        while True:
            slopes = {i: self.along(i, rest) for i in sided if i not in current}
            rising = max(slopes, key=lambda i: slopes[i], default=None)
            if rising is None or slopes[rising] <= 0:
                return current, rest
            current[rising] = fmpq(0)
            while True:
                passive = list(current)
                trial, rest = self.fitted(y, self.free + passive)
                wanted = dict(zip(passive, trial[split:], strict=True))
                if all(value > 0 for value in wanted.values()):
                    current = wanted
                    break
                current = _stopped(current, wanted)


def _stopped(current: dict[int, fmpq], wanted: dict[int, fmpq]) -> dict[int, fmpq]:
    """As far from one to the other as none turns negative; those that vanish are left out."""
    falling = [i for i, value in wanted.items() if value <= 0]
    share = min(current[i] / (current[i] - wanted[i]) for i in falling)
    moved = {i: at + share * (wanted[i] - at) for i, at in current.items()}
    return {i: value for i, value in moved.items() if value > 0}


def _in_use(X: FloatArray, y: FloatArray, free: list[int], sided: list[int]) -> list[int]:
    """A guess in doubles, which saves steps in rational numbers."""
    if not sided:
        return []
    columns = np.hstack([X[:, free], -X[:, free], X[:, sided]])
    sizes = np.abs(columns).max(axis=0, initial=0.0)
    size = float(np.abs(y).max()) or 1.0
    try:
        found, _ = scipy.optimize.nnls(columns / np.where(sizes > 0.0, sizes, 1.0), y / size)
    except RuntimeError:  # it cycles
        return []
    return [i for i, value in zip(sided, found[2 * len(free) :], strict=True) if value > 0.0]


def _projection(cone: _Cone, y: fmpq_mat) -> list[fmpq]:
    """y less what is orthogonal to all that is in use."""
    rest = cone.fitted(y, cone.free)[1]
    return (y - rest).entries()
