"""A limit's data as they are meant: what there is to fit, on which rows, by which coordinates.

And what an exact answer is: the doubles nearest to it, and how near they are.

Rows that depend on others are left out (`rows.py`). Where the data were centred, the means are
taken out in balls, in which nothing rounds.

Where coordinates keep one sign X w ranges over a cone. Whether y is inside, on its edge or outside
is a question that rounded numbers do not answer, and the limit depends on it: gradient flow fits
the point P y of the cone closest to y, and every coordinate that is zero in all w with X w = P y
goes to zero. Both are decided in rational numbers.

The projection is least squares with weights that keep a sign [Lawson and Hanson 1974, chapter 23].
What is left of y there drives some coordinates against the end of their range. Which others vanish
follows from Farkas' lemma: a_i can be in use if the others can undo it; if not, what is left of
-a_i once they have tried is a direction in which nothing that is in use points, and whatever
points the other way vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from flint import arb, arb_mat, fmpq, fmpq_mat

from flowbias.certificates.exact_simplex import OutOfPivotsError, columns_of, rational_matrix
from flowbias.certificates.rows import DEPENDENT, cut_by_rounding, independent_columns, rows_to_fit
from flowbias.ground import extended
from flowbias.ground.balls import as_matrix, to_doubles
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential


@dataclass(frozen=True)
class ExactPoint:
    """The doubles nearest to a point that is within `radius` of them, and its dual."""

    w: FloatArray
    dual: FloatArray
    radius: float
    #: how far y is from what can be reached, relative to y; of the size of a rounding where rows
    #: that rounding alone tells apart count as dependent
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
        # One exponential or power takes about 64 products of words.
        return (len(self.rows) ** 2 + 64) * int(self.used.sum())

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
                is_cut = cut_by_rounding(X[:, used], len(rows)) > 0.0
                if is_cut and not _driven(X, y, fit, gone):
                    return None
                used = used & ~gone
                rows = _rows_to_fit(X[:, used])
                if is_cut and cut_by_rounding(X[:, used], len(rows)) == 0.0:
                    # Rounding hides nothing of the columns that are left: what they fit of y is
                    # that of X as it is, not of the rows that stood for others.
                    fit = None
        return cls(X, y, potential, np.broadcast_to(shift, X.shape[1:]), used, rows, fit, given)


def _rows_to_fit(columns: FloatArray) -> list[int]:
    return rows_to_fit(columns) if columns.any() else []


def _driven(X: FloatArray, y: FloatArray, fit: list[fmpq], gone: Mask) -> bool:
    """Whether y - P y drives these coordinates to zero by more than the rounding of X could."""
    outward = y - to_doubles([arb(part) for part in fit])
    pull = np.abs(X[:, gone].T @ outward)
    lengths = row_lengths(X[:, gone].T) * extended.length(outward)
    return bool((pull > len(X) * DEPENDENT * lengths).all())


def _less_means(matrix: arb_mat) -> arb_mat:
    """Columns that add up to zero."""
    n = matrix.nrows()
    ones = arb_mat(1, n, [arb(1)] * n)
    return matrix - ones.transpose() * (ones * matrix / n)


# Entries of X beyond which rational numbers take more than a moment.
CONE_ENTRIES = 2500


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
    if X.size > CONE_ENTRIES:
        return None
    sides, seen = _Sides(upward, downward), (X != 0.0).any(axis=0)
    cone = Cone(_spanned(sides.turned(X), rows), sides.free)
    outputs, sided = rational_matrix(y[:, None]), sides.one_sided(seen)
    found, rest = cone.projected(outputs, sided, _in_use(sides.turned(X), y, sides.free, sided))
    used = set(found)
    open_ = [i for i in sided if i not in used and cone.along(i, rest) == 0]
    cone = cone.with_free(sorted(used))
    while open_:
        first, others = open_[0], open_[1:]
        undone, rest = cone.projected(-columns_of(cone.columns, [first]), others, [])
        if not any(rest.entries()):
            grown = [first, *undone]
            used.update(grown)
            cone = cone.with_free(grown)
            open_ = [i for i in others if i not in used]
        else:
            open_ = [i for i in others if cone.along(i, rest) == 0]
    in_use = upward & downward
    in_use[sorted(used)] = True
    # What X does not see stays where it is.
    in_use |= (upward | downward) & ~seen
    # y less what is orthogonal to all that is in use.
    return ConeProjection((outputs - cone.fitted(outputs, cone.free)[1]).entries(), in_use)


def not_driven(
    X: FloatArray, y: FloatArray, upward: Mask, downward: Mask, pivots: int
) -> list[int]:
    """The coordinates that what is left of y does not drive to zero."""
    sides = _Sides(upward, downward)
    turned = sides.turned(X)
    cone, sided = Cone(rational_matrix(turned), sides.free), sides.one_sided(upward | downward)
    guess = _in_use(turned, y, sides.free, sided)
    _, rest = cone.projected(rational_matrix(y[:, None]), sided, guess, pivots)
    driven = {i for i in sided if cone.along(i, rest) < 0}
    return [i for i in range(X.shape[1]) if i not in driven]


@dataclass(frozen=True)
class _Sides:
    """Which signs coordinates may have."""

    upward: Mask
    downward: Mask

    @property
    def free(self) -> list[int]:
        return np.flatnonzero(self.upward & self.downward).tolist()

    def one_sided(self, of: Mask) -> list[int]:
        return np.flatnonzero((self.upward ^ self.downward) & of).tolist()

    def turned(self, X: FloatArray) -> FloatArray:
        """Columns such that what keeps a sign is positive."""
        return np.where(self.upward, X, -X)


def _spanned(X: FloatArray, rows: list[int]) -> fmpq_mat:
    """X, each of whose rows is replaced by its projection on the span of some."""
    whole = rational_matrix(X)
    if len(rows) == len(X):
        return whole
    basis = rational_matrix(X[rows])
    turned = basis.transpose()
    return whole * turned * (basis * turned).solve(basis)


class Cone:
    """Columns, of which some may be taken with either sign."""

    def __init__(self, columns: fmpq_mat, free: list[int]) -> None:
        self.columns = columns
        self.free = self._independent(free)

    def with_free(self, more: list[int]) -> Cone:
        """The same columns, more of them free."""
        return Cone(self.columns, [*self.free, *more])

    def rank(self, chosen: list[int]) -> int:
        """How many of these columns are independent."""
        return len(self._independent(chosen))

    def along(self, i: int, direction: fmpq_mat) -> fmpq:
        return (columns_of(self.columns, [i]).transpose() * direction)[0, 0]

    def _independent(self, chosen: list[int]) -> list[int]:
        """The first of them that do not depend on those before."""
        return [chosen[j] for j in independent_columns(columns_of(self.columns, chosen))]

    def fitted(self, y: fmpq_mat, chosen: list[int]) -> tuple[list[fmpq], fmpq_mat]:
        """Least squares on independent columns: the coefficients, and what is left of y."""
        if not chosen:
            return [], y
        matrix = columns_of(self.columns, chosen)
        turned = matrix.transpose()
        found = (turned * matrix).solve(turned * y)
        return found.entries(), y - matrix * found

    def projected(
        self, y: fmpq_mat, sided: list[int], guess: list[int], pivots: float = np.inf
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
                if pivots <= 0:
                    raise OutOfPivotsError
                pivots -= 1
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
