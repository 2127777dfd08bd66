"""Proof of a limit, recomputed from X, y, w, nu and the potential alone.

w is the limit of gradient flow on (X, y) if and only if

    X w = P y                               (feasibility; P projects on the range of X)
    grad Q(w) = shift + X^T nu              (stationarity)

and then Q(w) - <shift, w> + Q*(shift + X^T nu) = <nu, P y> (zero gap). Small measures prove that w
is nearly optimal, not that it is nearly the limit: where rows of X nearly depend on each other, or
where Q is nearly flat on a whole face, they cannot tell. So a limit is certified by its error
bound (docs/theory/error_bound.md has the proof): in doubles where that is enough, and in balls of
as many digits as it takes where it is not and X is small enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from flowbias.certificates.candidate import Candidate, Factor, as_it_is, declares_growth, is_proved
from flowbias.certificates.error_bound import PROVED, error_bound
from flowbias.certificates.exact_limit import ExactLimit, exact_limit
from flowbias.certificates.exact_vertex import ExactVertex, exact_vertex
from flowbias.certificates.measures import Measure, Measured
from flowbias.certificates.rows import RowRange, hidden_by_rounding, within_range
from flowbias.designs import Design, Totals, checked_array, design_of
from flowbias.designs.dense import PIECE_NUMBERS, ArrayDesign
from flowbias.designs.tasks import Coordinates, PerCoordinate, Uniform
from flowbias.ground import extended
from flowbias.ground.arguments import InputError, read_tolerance, real_array
from flowbias.ground.extended import row_lengths
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import ArrayLike, FloatArray, Mask
from flowbias.potentials import L1, SEEN, ConvexPotential, Potential, Provides

# What is proved to one digit is still an answer, though not one without a word about it.
ONE_DIGIT = 0.1
# Multiplications up to which the bound of an error that is not judged is worth its time: a minute
# or two.
BOUND_WORK = 2e11


@dataclass(frozen=True, slots=True)
class Certificate(Measured):
    """Measures of optimality, and how far w is from the limit at most.

    feasibility   ||X w - P y|| / (||P y|| + || |X| |w| ||)
    stationarity  ||grad Q(w) - shift - X^T nu||_inf / max(1, ||X^T nu||_inf)
    gap           |Q(w) - <shift, w> + Q*(shift + X^T nu) - <nu, P y>| / (1 + |Q(w)|)
    error_bound   bound of ||w - exact limit||_2; inf where none could be proved
    relative      stationarity and gap once more, in units of the dual point and of Q + Q*: at
                  large scales both are far below one, and the measures above see nothing
    size          ||w||_2, the unit of the error, or where that is next to nothing the rounding of
                  w(0) or of the fit to y; None where Q may have several minimizers, and what is
                  certified is that w is one of them
    distance      ||y - P y|| / ||y||; of the size of a rounding, 2e-16, where all of y can be
                  fitted, but by rows of X that rounding alone tells apart: these count as
                  dependent, and the limit is that of the others

    `ok` where feasibility and the relative measures are within tol and the error bound within
    1e-6 of the size. Where rows of X are nearly dependent no dual in doubles may do better; then w
    and the dual are compared with those of the limit in balls. Of a limit that is proved at first
    look the numbers are computed when one of them is looked at.

    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> solution.certificate.ok, solution.certificate.error_bound < 1e-12
    (True, True)
    """

    feasibility: float
    stationarity: float
    gap: float
    error_bound: float
    tol: float
    relative: tuple[float, float] = (0.0, 0.0)
    size: float | None = None
    distance: float = 0.0
    #: of the potential, where it is known to no more; on big X what its last digits are worth
    accuracy: float = 0.0
    #: the limit itself, where it took balls to tell how far it is
    exact: ExactLimit | None = field(default=None, repr=False, compare=False)
    #: the same of a norm, in rational numbers
    vertex: ExactVertex | None = field(default=None, repr=False, compare=False)
    #: whether w and nu are those of either, to tol
    is_exact: bool = False

    @classmethod
    def proved(cls, tol: float, numbers: Callable[[], Certificate]) -> Certificate:
        """Of a limit that is known to pass; its numbers are computed when they are looked at."""
        certificate = object.__new__(cls)
        certificate.__dict__["numbers"] = numbers
        object.__setattr__(certificate, "tol", tol)
        object.__setattr__(certificate, "distance", 0.0)  # a factor of all rows has proved it
        object.__setattr__(certificate, "exact", None)  # in doubles
        return certificate

    if not TYPE_CHECKING:  # for which the fields are there

        def __getattr__(self, name: str) -> Any:
            numbers = self.__dict__.get("numbers")
            if numbers is None or name not in self.__slots__:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            found = numbers()
            for each in fields(found):
                object.__setattr__(self, each.name, getattr(found, each.name))
            self.__dict__.pop("numbers", None)
            return getattr(self, name)

    @property
    def ok(self) -> bool:
        return "numbers" in self.__dict__ or all(measure.ok for measure in self.measures)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is judged, against what it may be at most; then what is only known."""
        away, gap = self.relative
        judged = None if self.is_exact else max(self.tol, self.accuracy)
        allowed = None if self.size is None else max(PROVED, self.tol)
        outside = (Measure("distance of y from the range", self.distance),)
        return (
            Measure("feasibility", self.feasibility, self.tol),
            Measure("stationarity, relative", away, judged),
            Measure("gap, relative", gap, judged),
            Measure("error bound, relative", self.relative_error, allowed),
            Measure("stationarity", self.stationarity),
            Measure("gap", self.gap),
            Measure("error bound", self.error_bound),
            *(outside if self.distance > 0.0 else ()),
        )

    @property
    def relative_error(self) -> float:
        """The error bound in units of w; inf where several minimizers are allowed."""
        return np.inf if self.size is None else ratio(self.error_bound, self.size)

    @property
    def by_measures_alone(self) -> bool:
        """Whether nothing bounds the error: of operators, of what is too big, or not known."""
        proved = self.size is not None or self.vertex is not None or self.exact is not None
        return not proved and not np.isfinite(self.error_bound)

    @property
    def digits(self) -> int:
        """How many digits of w are proved, that is of its largest entries."""
        error = self.relative_error
        return 0 if not error < 1.0 else int(min(-np.log10(max(error, 1e-300)), 15.0))

    def __repr__(self) -> str:
        outside = f", distance={self.distance:.1e}" if self.distance > 0.0 else ""
        return (
            f"Certificate(ok={self.ok}, feasibility={self.feasibility:.1e}, "
            f"stationarity={self.stationarity:.1e}, gap={self.gap:.1e}, "
            f"error_bound={self.error_bound:.1e}, tol={self.tol:.0e}{outside})"
        )


@np.errstate(all="ignore")  # a candidate may be anything, and what is no number fails
def certify(
    X: Any,
    y: ArrayLike,
    w: ArrayLike,
    nu: ArrayLike,
    potential: ConvexPotential,
    shift: FloatArray | float = 0.0,
    *,
    tol: float = 1e-10,
) -> Certificate:
    """The certificate of (w, nu) as the limit on (X, y) under `potential` started at `shift`.

    Parameters
    ----------
    X, y : the data; X may be big (docs/big_problems.md) where the potential separates
    w : (d,), the candidate
    nu : (n,), its dual: grad Q(w) = shift + X^T nu
    potential : Q
    shift : grad Q at the start of the flow
    tol : what `certificate.ok` asks for

    Returns
    -------
    Certificate with feasibility, stationarity, gap, error_bound and ok

    Raises
    ------
    InputError for arrays that do not fit together

    >>> X, y = np.array([[1.0, 2.0]]), np.array([1.0])
    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), X, y)
    >>> fb.certify(X, y, solution.w, solution.dual, fb.Hypentropy(scale=0.1)).ok
    True
    >>> fb.certify(X, y, solution.w + 1e-6, solution.dual, fb.Hypentropy(scale=0.1)).ok
    False
    """
    if not isinstance(potential, ConvexPotential):
        raise InputError(
            f"potential: must be a potential, got {type(potential).__name__}. Pass "
            "model.potential, or fb.Hypentropy(scale=0.1) for instance."
        )
    separates = Provides.POTENTIAL in potential.provides
    tol = read_tolerance("tol", tol)
    design = design_of(X) if separates else None
    if design is None:
        design = ArrayDesign(checked_array("X", X, 2))
    y, nu = checked_array("y", y, 1), _reals("nu", nu)
    given: Any = w if design.in_memory is None else _reals("w", w)
    check_shapes(design.shape, {"y": y.shape, "w": np.shape(given), "nu": nu.shape})
    moved = _reals("shift", shift)
    _check_shift(moved, design.d)
    shift = moved if moved.ndim else float(moved)
    if design.in_memory is None:
        return measured(design, y, design.column(given), nu, potential, shift, tol=tol)[0]
    X, w = design.in_memory, cast(FloatArray, given)
    certificate, candidate = measured(design, y, w, nu, potential, shift, tol=tol)
    is_norm = Provides.COSTS in potential.provides and not np.any(shift)
    if is_norm and not _is_settled(certificate, w):
        vertex = exact_vertex(X, y, cast(L1, potential), w, nu)
        return certificate if vertex is None else _beside_vertex(certificate, X, w, nu, vertex)
    if certificate.ok or candidate is None:
        return certificate
    exact = exact_limit(X, y, candidate.potential, shift, nu, w)
    return certificate if exact is None else beside(exact, certificate, candidate)


def judged(
    design: ArrayDesign,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: ConvexPotential,
    shift: FloatArray | float,
    factor: Factor | None,
    *,
    tol: float,
) -> Certificate:
    """The certificate in doubles, with its numbers where a first look does not prove the limit."""
    X = design.in_memory
    found = (design, y, w, nu), (potential, shift)
    # No copy of X is kept beyond the pieces in which X is copied anyway: memory is what a big solve
    # has least of.
    is_small = X.size <= PIECE_NUMBERS
    if factor is None or not is_small or Provides.POTENTIAL not in potential.provides:
        return _numbers(*found, tol=tol)
    if not is_proved(X, y, w, nu, cast(Potential, potential), shift, factor, tol=tol):
        return _numbers(*found, tol=tol)
    # Whoever looks at the numbers may have changed the arrays in place by then. All limits on one
    # problem share the copy of X.
    kept = as_it_is(design), y.copy(), w.copy(), nu.copy()
    return Certificate.proved(tol, partial(_numbers, kept, found[1], tol=tol))


def _numbers(
    found: tuple[ArrayDesign, FloatArray, FloatArray, FloatArray],
    model: tuple[ConvexPotential, FloatArray | float],
    *,
    tol: float,
) -> Certificate:
    return measured(*found, *model, tol=tol)[0]


def certify_beside(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: ConvexPotential,
    vertex: ExactVertex,
    *,
    tol: float,
) -> Certificate:
    """`certify` of a norm's minimizer where a vertex of its minimizers is known already."""
    certificate, _ = measured(ArrayDesign(X), y, w, nu, potential, tol=tol)
    return _beside_vertex(certificate, X, w, nu, vertex)


def _is_settled(certificate: Certificate, w: FloatArray) -> bool:
    """Whether doubles prove that w is the one minimizer, or that it is zero."""
    proved = certificate.error_bound <= PROVED * extended.length(w)
    return certificate.ok and (proved or not w.any())


def _beside_vertex(
    certificate: Certificate, X: FloatArray, w: FloatArray, nu: FloatArray, vertex: ExactVertex
) -> Certificate:
    """What X can fit of y is what the vertex fits, but for its last digit.

    Row by row: another minimizer gives up none whose unit is far below the others'.
    """
    moved, spread = np.abs(X @ (w - vertex.w)), extended.absolute_apply(X, w)
    apart = float(np.max(list(map(ratio, moved.tolist(), spread.tolist())), initial=0.0))
    return replace(
        certificate,
        feasibility=apart + float(np.finfo(float).eps),
        error_bound=min(certificate.error_bound, vertex.error_of(w)),
        distance=vertex.distance,
        vertex=vertex,
        is_exact=vertex.agrees(X, w, nu, certificate.tol),
    )


@np.errstate(all="ignore")
def beside(exact: ExactLimit, certificate: Certificate, candidate: Candidate) -> Certificate:
    """The certificate of a candidate once the limit itself is known."""
    X, w, nu = candidate.X, candidate.w, candidate.nu
    misfit = np.asarray(extended.apply(X, w) - exact.fit, dtype=np.float64)
    spread = extended.length(extended.absolute_apply(X, w)) + candidate.blur
    return replace(
        certificate,
        feasibility=ratio(extended.length(misfit), extended.length(exact.fit) + spread),
        error_bound=min(certificate.error_bound, exact.error_of(w)),
        distance=exact.distance,
        exact=exact,
        is_exact=exact.agrees(X, w, nu, certificate.tol),
    )


@dataclass(frozen=True)
class _Largest(Uniform):
    """Largest |w|."""

    def __call__(self, block: Any, w: FloatArray) -> Totals:
        return Totals(largest=(float(np.abs(w).max(initial=0.0)),))


@dataclass(frozen=True)
class _Start(PerCoordinate):
    """Largest |w(0)|."""

    def __call__(self, block: Any) -> Totals:
        at = np.broadcast_to(self.coordinates.shift, (block.width,))
        w = self.coordinates.potential.grad_dual(at)
        return Totals(largest=(float(np.abs(w).max(initial=0.0)),))


@dataclass(frozen=True)
class _Measure(PerCoordinate):
    """All that the measures of a certificate sum or maximize over coordinates."""

    nu: FloatArray
    #: |w| from which a coordinate is seen; None where the block is all of X, which tells itself
    seen: float | None
    has_entries: bool

    @np.errstate(all="ignore")
    def __call__(self, block: Any, w: FloatArray) -> Totals:
        potential, shift = self.coordinates.potential, self.coordinates.shift
        rise = block.adjoint(self.nu)
        z = np.asarray(shift + rise)
        values, conjugates = potential.value_terms(w), potential.conjugate_terms(z)
        # Q + Q* - <z, w> term by term (each >= 0): with what infeasibility adds the sum is the
        # duality gap, and no digit of a large <nu, P y> is lost.
        products = potential.pairing_terms(z, w)
        sizes = np.abs(values) + np.abs(conjugates)
        sizes += np.abs(potential.pairing_terms(rise, w)) + np.abs(products)
        counted = potential.determined(w)
        if self.seen is not None:
            counted = counted & (np.abs(w) > self.seen)
        away = (potential.grad(w) - z)[counted]
        # In extended precision where that takes no longer than the solve: where rows depend on each
        # other, as those of centred data do, what is left of y is all that tells how much of it can
        # be fitted.
        applied = block.apply(w) if self.seen is not None else block.extended_apply(w)
        # Without entries ||P y|| alone is the unit of feasibility: a stricter one.
        spread = block.absolute_apply(w) if self.has_entries else np.zeros(block.n)
        terms = float(np.sum(values + conjugates - products))
        squares = float(np.sum(np.square(w * SEEN / self.seen))) if self.seen else 0.0
        return Totals(
            (applied, spread, float(values.sum()), terms, float(sizes.sum()), squares),
            tuple(float(np.abs(v).max(initial=0.0)) for v in (away, rise, z, w)),
        )


@np.errstate(all="ignore")
def measured(
    design: Design,
    y: FloatArray,
    w: Any,
    nu: FloatArray,
    potential: ConvexPotential,
    shift: FloatArray | float = 0.0,
    *,
    tol: float,
) -> tuple[Certificate, Candidate | None]:
    """The certificate in doubles, and what balls may have to look at if that is not enough.

    On an array w is judged by its error bound. Elsewhere it is where the bound is worth its time
    and finite, and a few units in the last place of X are forgiven: there are no balls for a big X.
    """
    X, separable = design.in_memory, cast(Potential, potential)
    coordinates = Coordinates(separable, shift, design.d)
    # Which coordinates of w are seen is a matter of the largest, in whatever block it is.
    # (Of an array that takes no pass over X.)
    seen = None
    if X is None:
        is_array = type(w) is np.ndarray
        seen = SEEN * (np.abs(w).max() if is_array else design.reduce(_Largest(), w).largest[0])
    found = design.reduce(_Measure(coordinates, nu, seen, design.has_entries), w)
    applied, spread, total, terms, sizes, squares = found.sums
    away, dual_size, point_size, largest_w = found.largest
    away = away if np.isfinite(largest_w) else np.nan
    misfit = np.asarray(applied - y, dtype=np.float64)
    asked, spread_size = extended.length(y), extended.length(spread)
    rows = RowRange(design)
    fit, rounding_of_fit, driven = y, 0.0, np.zeros(0, dtype=bool)
    if extended.length(misfit) > tol * (asked + spread_size):
        # Either w is wrong or y has a part outside the range of X, which no w can fit.
        misfit, rounding_of_fit, driven = _within_reach(rows, w, misfit, potential)
        fit = np.asarray(applied - misfit, dtype=np.float64)
        if largest_w == 0.0 and extended.length(fit) <= rounding_of_fit * _asked(design, y):
            # w says that nothing of y can be fitted, and what is left of it is rounding.
            fit = misfit = np.zeros_like(y)
    gap = abs(terms + float(nu @ misfit))
    # Where w = 0 nothing is left to compare with, and the gap stands for itself.
    units = max(dual_size, point_size), sizes if largest_w != 0.0 else 1.0
    relative = ratio(away, units[0]), ratio(gap, units[1])
    # X w is in the range of X, so no more of y than this is outside of it.
    noise = extended.length(misfit) + rounding_of_fit * asked
    noise += (design.d + 2) * extended.EPS * (spread_size + asked)
    bound, accuracy, size, blur, candidate = np.inf, 0.0, None, 0.0, None
    if X is None:
        if not np.max(relative) <= tol and design.has_entries:
            accuracy = _accuracy(rows, nu, spread + np.abs(fit), units)
        if design.has_entries and float(design.n) * design.entries <= BOUND_WORK:
            bound = error_bound(design, fit, w, nu, potential, shift, noise)
            if largest_w > 0.0 and np.isfinite(bound):
                size = largest_w * float(np.sqrt(squares))
                if bound > PROVED * size:
                    # Next to nothing: half of the digits of what is not.
                    half = float(np.sqrt(np.finfo(float).eps))
                    size = max(size, half * design.reduce(_Start(coordinates)).largest[0])
    elif Provides.POTENTIAL in potential.provides and declares_growth(separable):
        candidate = Candidate(X, y, fit, w, nu, separable, shift, noise)
        bound, size, blur = np.inf, candidate.size, candidate.blur
        if not _is_reached_by_rounding(X, potential):
            bound = candidate.bound(driven)
    elif Provides.COSTS in potential.provides and not (y.any() or np.any(shift)):
        bound = extended.length(w)  # a norm has no other minimizer then than 0
    else:
        bound = error_bound(design, fit, w, nu, potential, shift, noise)
    distance = ratio(extended.length(y - fit), asked)
    if not distance > IN_RANGE:
        distance = rows.hidden() if X is None else _hidden(X, potential, driven)
    certificate = Certificate(
        feasibility=ratio(extended.length(misfit), extended.length(fit) + spread_size + blur),
        stationarity=away / max(1.0, dual_size),
        gap=gap / (1.0 + abs(total)),
        error_bound=bound,
        tol=tol,
        relative=relative,
        size=size,
        distance=distance,
        accuracy=accuracy,
    )
    return certificate, candidate


@dataclass(frozen=True)
class _AbsoluteAdjoint(Uniform):
    nu: FloatArray

    def __call__(self, block: Any) -> Totals:
        return Totals(largest=(float(block.absolute_adjoint(self.nu).max()),))


def _accuracy(
    rows: RowRange, nu: FloatArray, spread: FloatArray, units: tuple[float, float]
) -> float:
    """What last digits of X are worth, through the shortest dual with the same X^T nu."""
    shortest, _ = rows.fitted(nu)
    largest = float(rows.design.reduce(_AbsoluteAdjoint(shortest)).largest[0])
    of_value = ratio(float(np.abs(shortest) @ spread), units[1])
    # Units in the last place by which a big X may be perturbed in the certificate's own
    # evaluation: for nearly dependent rows nu is so huge that no double nu does better, and there
    # are no balls there.
    ulps = 8.0 * float(np.finfo(float).eps)
    # No amount of rounding excuses more than four digits.
    return min(1e-4, ulps * max(ratio(largest, units[0]), of_value))


def _reals(name: str, values: Any) -> FloatArray:
    """As doubles; what is not finite is left for the certificate to fail on."""
    array = real_array(name, values, "Pass one number per entry.")
    return array.astype(np.float64, copy=False)


def _check_shift(shift: Any, d: int) -> None:
    if np.shape(shift) not in ((), (1,), (d,)):
        raise InputError(
            f"shift: must be a number or one per feature ({d}), got shape {np.shape(shift)}. "
            "Pass model.shift."
        )


def check_shapes(shape: tuple[int, ...], given: dict[str, tuple[int, ...]]) -> None:
    """InputError where y, w or nu do not belong to an X of this shape."""
    wanted = {"y": shape[:1], "w": shape[1:], "nu": shape[:1]}
    for name, got in given.items():
        if len(shape) != 2 or got != wanted[name]:
            raise InputError(
                f"{name}: must have shape {wanted[name]} for X of shape {shape}, got {got}. "
                "X is samples x features, w has one entry per feature, y and nu one per sample."
            )


def ratio(measure: float, unit: float) -> float:
    """measure / unit, where 0 / 0 is a perfect score and NaN stays NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 0.0 if measure == 0.0 and unit == 0.0 else float(np.divide(measure, unit))


def _hidden(X: FloatArray, potential: ConvexPotential, driven: Mask) -> float:
    """What rounding hides of the rows, of the coordinates that can move and do not vanish."""
    upward, downward = potential.open_sides(X.shape[1], 1.0)
    moving = upward | downward
    if driven.any():
        moving = moving & ~driven
    return hidden_by_rounding(X if moving.all() else X[:, moving])


def _is_reached_by_rounding(X: FloatArray, potential: ConvexPotential) -> bool:
    """Whether coordinates keep a sign and rounding hides some of what X tells of them.

    Of two columns that are opposite but for their last digits large w of one sign fit a direction
    that neither has alone: what can be fitted of y is then no question for doubles.
    """
    upward, downward = potential.open_sides(X.shape[1], 1.0)
    keeps_a_sign = bool((upward != downward).any())
    return keeps_a_sign and _hidden(X, potential, np.zeros_like(upward)) > 0.0


def _asked(design: Design, y: FloatArray) -> float:
    """||y|| without what is asked of rows of zeros, where those are known."""
    X = design.in_memory
    return extended.length(y if X is None else np.where(X.any(axis=1), y, 0.0))


def _within_reach(
    rows: RowRange, w: FloatArray, misfit: FloatArray, potential: ConvexPotential
) -> tuple[FloatArray, float, Mask]:
    """The part of X w - y that coordinates which are free to move can fit, and its rounding.

    The rest is all that is orthogonal to the range of X; and where a coordinate keeps one sign and
    has vanished, what only the other sign could fit. Which those are comes third; a big X has none.
    """
    X = rows.design.in_memory
    if X is None:
        fitted, rounding = rows.fitted(misfit)
        return fitted, min(rounding, IN_RANGE), np.zeros(0, dtype=bool)
    size = float(np.abs(misfit).max())
    unit = max(float(X.max()), -float(X.min()))
    probe = float(np.abs(w).max(initial=0.0)) or 1.0
    upward, downward = potential.open_sides(len(w), probe)
    pull = -(X / unit).T @ (misfit / size)
    at_end = np.abs(w) <= SEEN * probe
    # A pull that is larger, relative to the column and to what is left of y, is none by rounding.
    sizes = row_lengths((X / unit).T) * np.linalg.norm(misfit / size)
    clear = np.abs(pull) > 1e-8 * sizes
    stuck = at_end & clear & ((~upward & (pull > 0)) | (~downward & (pull < 0)))
    fitted, rounding = within_range(X[:, ~stuck], misfit)
    return fitted, min(rounding, IN_RANGE), stuck
