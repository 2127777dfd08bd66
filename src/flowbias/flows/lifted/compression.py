"""The flow of a product U V^T, in unknowns whose number does not depend on the width.

    Z = [U; V],   Z' = -c A Z,   A = [[0, R], [R^T, 0]],   R = adjoint(measure(U V^T) - target)

A depends on G = Z Z^T alone, so G obeys an equation of its own, whatever the width
[woodworth2020, section 6]. It is followed here through a root: L with L L^T = G obeys the very same
equation as Z, with as many columns as G has rank. Z = L Q^T with Q^T Q = I at the start, hence at
all times, and Z(t) = L(t) Q^T gives the weights back.

Why a root, and neither G nor the propagator Phi (Z(t) = Phi(t) Z(0)), all three measured by the
same integrator at the same tolerance: what has not grown yet of a start of size a is a^2 in G, and
doubles keep it relative to what has. At a = 1e-6 and rtol 1e-12, on a 6 x 3 product halfway through
its modes, G was off by 8e-10, L by 2e-13 and Phi by 3e-14, and G took 1.4 to 1.9 times the steps.
Phi is as accurate, but an evaluation has to form Phi G(0) Phi^T: d (d + m)^2 multiplications more.
L takes 3 d m k of them for a d x m product and k columns, where G in symmetric storage takes
2 d m (d + m), and has fewer unknowns than either for G of low rank: narrow or balanced starts.

For Y ~ X U V^T only U1 = P1^T U moves, P1 the row space of X; U2 stays [min2021, section 3].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.flows.fit import Quality
from flowbias.flows.request import SMALLEST
from flowbias.ground.arguments import InputError
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray
from flowbias.models.lifted import Factors, LiftedModel
from flowbias.problems.matrix import MatrixProblem, MatrixRegression

# A part of a start that is this many roundings of each row it belongs to, or less, is one.
_ROUNDINGS = 8.0
# Roundings of a term that may have gone into a product and into the matrices it is made of.
_TERM_ROUNDINGS = 16.0
# Share of the smallest column at which it is one that has come to light, not only become shorter.
_EVEN = 1e-2


@dataclass(frozen=True, eq=False)
class LiftedFit:
    """Measurements of the product of the rows that move, and how close a product fits them.

    For Y = X U V^T, X = W diag(root) P1^T: root * (U1 V^T) ~ W^T Y. Residuals are relative to
    `reachable`: what products of the given width come closest to the target with.
    """

    measure: Callable[[FloatArray], FloatArray]
    adjoint: Callable[[FloatArray], FloatArray]
    target: FloatArray
    reachable: FloatArray
    size: float
    shape: tuple[int, int]

    def pull(self, product: FloatArray) -> FloatArray:
        """-R: the matrix that moves the factors, U' = -c R V, V' = -c R^T U."""
        return self.adjoint(self.target - self.measure(product))

    def residual(self, product: FloatArray) -> float:
        """||measure(M) - reachable|| / ||reachable||."""
        return float(np.linalg.norm(self.measure(product) - self.reachable)) / self.size

    def quality(self, product: FloatArray) -> Quality:
        """All there is to know about one product."""
        fitted = self.measure(product)
        misfit = float(np.linalg.norm(fitted - self.target))
        short = float(np.linalg.norm(fitted - self.reachable))
        terms = self.size + float(np.linalg.norm(fitted))
        return Quality(misfit, short / self.size, np.array([short]), np.array([terms]))

    @cached_property
    def norm(self) -> float:
        """Of `measure` as an operator, by power iteration from a fixed vector."""
        matrix = self.adjoint(np.cos(np.arange(self.target.size, dtype=float)).reshape(self._form))
        # To a few percent: it is used for rounding errors only.
        for _ in range(12):
            matrix = self.adjoint(self.measure(matrix / (np.linalg.norm(matrix) or 1.0)))
        return float(np.sqrt(np.linalg.norm(matrix)))

    @property
    def _form(self) -> tuple[int, ...]:
        return self.target.shape


def lifted_fit(model: LiftedModel, problem: MatrixProblem) -> LiftedFit:
    """All rows of both factors, as they are; of dependent measurements as many as their rank."""
    lifted = model.lifted_problem(problem)
    reachable = lifted.reachable
    if isinstance(lifted, MatrixRegression):
        W = lifted.spectrum.W
        scores = W.T @ lifted.Y
        best = _of_rank(scores, model.width)
        reachable = reachable if best is scores else np.ravel(W @ best)
    size = _size(reachable, lifted.target - lifted.measure(model.product))
    fit = LiftedFit(lifted.measure, lifted.adjoint, lifted.target, reachable, size, lifted.shape)
    basis = None if isinstance(lifted, MatrixRegression) else lifted.range_basis
    return fit if basis is None else _of_full_rank(fit, basis)


def _of_full_rank(fit: LiftedFit, basis: FloatArray) -> LiftedFit:
    """The same flow from independent measurements: adjoint(r) = adjoint(B B^T r)."""
    return replace(
        fit,
        measure=lambda M: basis.T @ fit.measure(M),
        adjoint=lambda q: fit.adjoint(basis @ q),
        target=basis.T @ fit.target,
        reachable=basis.T @ fit.reachable,
    )


def regression_fit(model: LiftedModel, problem: MatrixRegression) -> LiftedFit:
    """The rows U1 = P1^T U and V alone.

    Of W^T Y, width h reaches the closest matrix of rank h: root is invertible, so that U1 V^T may
    be any matrix of that rank.
    """
    spectrum = problem.spectrum
    root = spectrum.root[:, None]
    # Outputs that the data cannot reach leave nothing, not rounding, to be fitted.
    target = product_without_noise(spectrum.W.T, problem.Y)
    reachable = _of_rank(target, model.width)
    start = root * (spectrum.P1.T @ model.product)
    return LiftedFit(
        lambda M: root * M,
        lambda r: root * r,
        target,
        reachable,
        _size(reachable, target - start),
        target.shape,
    )


def _of_rank(target: FloatArray, width: int) -> FloatArray:
    """The closest matrix that `width` hidden units can make; itself where they are enough."""
    if width >= min(target.shape):
        return target
    left, values, right = scipy.linalg.svd(target, full_matrices=False)
    return np.asarray((left[:, :width] * values[:width]) @ right[:width])


def _size(reachable: FloatArray, start: FloatArray) -> float:
    # Where the target is zero the start is what residuals are compared to.
    return float(np.linalg.norm(reachable)) or float(np.linalg.norm(start)) or 1.0


@dataclass(frozen=True, eq=False)
class Compression:
    """A start in as few numbers as its flow takes, and the way back to weights.

        [U; V] = ([P1 U1 + resting; V] Q^T + [beyond; 0]) turn,   [U1; V] = weights (p, k)

    `resting` and `beyond` are the parts of U that the data does not see and the flow does not
    move, within and beyond the span of the moving rows, of rank k. basis is P1, or None where all
    of U moves.
    rests_apart says whether what rests of U adds nothing to U V^T: V U2^T = 0, U1 U2^T = 0.
    [min2021 (31)]
    """

    model: LiftedModel
    start: FloatArray  # [U; V] in as many columns as the model's root, or all weights
    weights: FloatArray
    rows: int
    basis: FloatArray | None
    resting: FloatArray | None
    span: FloatArray | None  # Q, from the columns of `start`; None: weights as they are
    rests_apart: bool = True

    def paired(self, weights: FloatArray) -> FloatArray:
        """The weights; both factors as their mean where they are one, W W^T.

        Two factors that start equal may be on the way to a saddle of the loss of U V^T, which
        rounding alone would make them leave; W has no such way out.
        """
        if not self.model.is_tied:
            return weights
        mean = 0.5 * (weights[: self.rows] + weights[self.rows :])
        return np.vstack([mean, mean])

    def moving_product(self, weights: FloatArray) -> FloatArray:
        """U1 V^T of one state, or of each."""
        upper, lower = weights[..., : self.rows, :], weights[..., self.rows :, :]
        return np.asarray(upper @ np.swapaxes(lower, -1, -2))

    def product(self, weights: FloatArray) -> FloatArray:
        """U V^T of one state, or of each."""
        if self.basis is None or self.resting is None:
            return self.moving_product(weights)
        upper, lower = weights[..., : self.rows, :], weights[..., self.rows :, :]
        return np.asarray((self.basis @ upper + self.resting) @ np.swapaxes(lower, -1, -2))

    def imbalance(self, weights: FloatArray) -> FloatArray:
        """U1^T U1 - V^T V in the columns of the compressed weights; conserved."""
        upper, lower = weights[: self.rows], weights[self.rows :]
        return np.asarray(upper.T @ upper - lower.T @ lower)

    def gram(self, weights: FloatArray) -> FloatArray:
        """[U; V][U; V]^T, (d + m) square."""
        Z = self.root(weights)
        return np.asarray(Z @ Z.T)

    def factors(self, weights: FloatArray) -> Factors:
        """U and V themselves; the model must have kept them at the start."""
        Z = self.root(weights)
        if self.span is not None and self._turn is not None:
            Z = Z @ self._turn
        d = self.model.shape[0]
        return Factors(Z[:d], Z[d:])

    def root(self, weights: FloatArray) -> FloatArray:
        if self.span is None:
            return weights
        # Rows that rest are taken from the start as they are, digit by digit.
        upper, lower = weights[: self.rows], weights[self.rows :]
        if self.basis is None:
            return np.vstack([upper, lower]) @ self.span.T
        d = self.model.shape[0]
        still = _off(self.basis, self.start[:d])
        return np.vstack([self.basis @ upper @ self.span.T + still, lower @ self.span.T])

    @cached_property
    def _turn(self) -> FloatArray | None:
        """T with orthonormal rows and weights = start T; None for the identity."""
        Z = np.vstack(self.model.factors or ())
        if np.array_equal(Z, self.start):
            return None
        # Rows of one size: small ones count as much as large ones.
        sizes = np.linalg.norm(Z, axis=1)
        sizes[sizes == 0.0] = 1.0
        start, weights = self.start / sizes[:, None], Z / sizes[:, None]
        return np.asarray(scipy.linalg.lstsq(start, weights)[0])


def compress(model: LiftedModel, basis: FloatArray | None) -> Compression:
    """The start of the rows that move: all, or with a basis P1 those of [P1^T U; V]."""
    d = model.shape[0]
    start = _start(model)
    if basis is None:
        weights, span = _narrowed(start)
        return Compression(model, start, weights, d, None, None, span)
    # What rounding puts where the start has nothing would grow.
    moving = np.vstack([product_without_noise(basis.T, start[:d]), start[d:]])
    weights, span = _narrowed(moving)
    resting = _off(basis, start[:d]) @ span
    # Against U alone: a large V would hide it, and multiplies it.
    size = float(np.abs(model.root[:d]).max())
    rests_apart = float(np.abs(resting).max()) <= 64.0 * float(np.sqrt(d)) * EPS * size
    return Compression(model, start, weights, basis.shape[1], basis, resting, span, rests_apart)


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """A start on a problem, reduced to the rows that move."""

    model: LiftedModel
    problem: MatrixProblem
    compression: Compression
    fit: LiftedFit
    #: singular values of X where the problem is a regression
    root: FloatArray | None

    @property
    def lift(self) -> FloatArray | None:
        """From what the fit compares to what each sample measures; None where they are the same."""
        problem = self.problem
        if not isinstance(problem, MatrixRegression):
            return problem.range_basis
        return None if self.root is None else problem.spectrum.W

    @property
    def is_unique(self) -> bool:
        """Whether one matrix alone has the measurements that the data ask for."""
        d, m = self.problem.shape
        return self.fit.target.size == d * m if self.root is None else len(self.root) == d

    def residual(self, M: FloatArray) -> float:
        """||measure(M) - reachable|| / ||reachable||: what is decided by."""
        basis = self.compression.basis
        return self.fit.residual(M if basis is None else basis.T @ M)

    def feasibility(self, M: FloatArray) -> float:
        """||measure(M) - reachable|| / (||reachable|| + ||measure|| ||M||): what is shown.

        As in every certificate relative to the terms of the difference: next to a large start a
        tiny target is met up to the digits of M.
        """
        size = self.fit.size
        terms = size + self.fit.norm * float(np.linalg.norm(M))
        return self.residual(M) * size / terms

    def rounding(self, M: FloatArray) -> float:
        """What the digits of M leave undecided of the residual."""
        # Of all of M: what rests is subtracted again to see what moved.
        size = self.fit.norm * float(np.linalg.norm(M))
        return 100.0 * EPS * size / self.fit.size

    @property
    def distance(self) -> float:
        """Of the target from what can be reached, relative to the target."""
        problem, fit = self.problem, self.fit
        outside = float(np.linalg.norm(problem.target - problem.reachable))
        outside = float(np.hypot(outside, np.linalg.norm(fit.target - fit.reachable)))
        size = float(np.linalg.norm(problem.target))
        return outside / size if outside > 1e-10 * size else 0.0


def reduced_problem(
    model: LiftedModel, problem: MatrixProblem, all_rows: bool = False
) -> ReducedProblem:
    """The rows that move: for a regression those in the row space of X, unless all do."""
    lifted = model.lifted_problem(problem)
    _check_sizes(model, lifted)
    if isinstance(lifted, MatrixRegression) and not all_rows:
        spectrum = lifted.spectrum
        basis = spectrum.P1
        fit = regression_fit(model, lifted)
        return ReducedProblem(model, lifted, compress(model, basis), fit, spectrum.root)
    return ReducedProblem(model, lifted, compress(model, None), lifted_fit(model, problem), None)


def _check_sizes(model: LiftedModel, problem: MatrixProblem) -> None:
    """Refuse sizes whose products leave the double range somewhere along the flow."""
    with np.errstate(over="ignore"):
        sizes = {
            "target": float(np.abs(problem.target).max(initial=0.0)),
            "measurements": float(np.abs(problem.adjoint(np.ones(problem.target.shape))).max()),
            "start": float(np.abs(model.root).max()),
        }
    for name, size in sizes.items():
        if size != 0.0 and not SMALLEST <= size <= 1.0 / SMALLEST:
            raise InputError(
                f"{name}: must have entries between {SMALLEST:g} and {1.0 / SMALLEST:g} in size, "
                f"got {size:.1e}. Rescale it: the flow multiplies it by itself and by the others."
            )


def uncompressed(model: LiftedModel) -> Compression:
    """All weights, as they are; the model must have kept them."""
    Z = np.vstack(model.factors or ())
    return Compression(model, Z, Z, model.shape[0], None, None, None)


def _start(model: LiftedModel) -> FloatArray:
    """The root of the model, or its weights where the root is only a narrower form of them.

    Such a root is accurate row by row; of hidden units much smaller than others it may have lost
    digits, which the weights still have.
    """
    root = model.root
    if model.factors is None or root.shape[1] < len(root) or model.width <= len(root):
        return root
    return np.vstack(model.factors)


def _off(basis: FloatArray, rows: FloatArray) -> FloatArray:
    return rows - basis @ (basis.T @ rows)


def _narrowed(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """rows Q and Q: as few orthonormal columns as lose no more than rounding of any row or column.

    Rows are brought to one length first: a start may have layers of very different sizes, and
    what is rounding for one is all of the other. Columns, the hidden units, are sorted by size:
    Householder reflections with pivots then leave errors relative to each of them, also where they
    lie decades apart [Cox and Higham, Stability of Householder QR factorization for weighted least
    squares problems, 1998]; and rows Q, triangular, has columns of decreasing size. Rows that are
    equal or opposite stay so to the last bit: the flow keeps them so, and rounding may not. Rows
    that would come out with as many columns, none smaller than before, are left as they are.
    """
    weights, span = _graded_root(rows)
    if span.shape[0] == span.shape[1] and _is_even(rows, weights):
        return rows, np.eye(len(span))
    signs = np.sign(rows[np.arange(len(rows)), (rows != 0.0).argmax(axis=1)])
    signs[signs == 0.0] = 1.0
    distinct, places = np.unique(signs[:, None] * rows, axis=0, return_inverse=True)
    weights, span = _graded_root(distinct)
    return signs[:, None] * weights[np.ravel(places)], span


def _is_even(rows: FloatArray, root: FloatArray) -> bool:
    """Whether the root has no columns much smaller than the rows had, once rows have one length."""
    lengths = np.linalg.norm(rows, axis=1)
    lengths[lengths == 0.0] = 1.0
    before, after = (np.linalg.norm(part / lengths[:, None], axis=0) for part in (rows, root))
    return bool(np.sort(after)[0] >= _EVEN * np.sort(before)[0])


def _graded_root(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    lengths = np.linalg.norm(rows, axis=1)
    lengths = np.where(lengths > 0.0, lengths, 1.0)
    scaled = rows / lengths[:, None]
    sizes = np.linalg.norm(scaled, axis=0)
    order = np.argsort(-sizes, kind="stable")
    span, triangle, pivots = scipy.linalg.qr(scaled.T[order], mode="economic", pivoting=True)
    # What is left of a unit after the larger ones were taken out is known to its own rounding.
    noise = _ROUNDINGS * max(rows.shape) * EPS * sizes[order][: len(triangle)]
    rank = 1 + int(np.flatnonzero(np.abs(np.diag(triangle)) > noise).max(initial=0))
    weights, columns = np.empty((len(rows), rank)), np.empty((rows.shape[1], rank))
    weights[pivots] = triangle[:rank].T
    columns[order] = span[:, :rank]
    return weights * lengths[:, None], columns


def product_without_noise(*parts: FloatArray) -> FloatArray:
    """The product of matrices, zero where it is the rounding of its terms: it would grow.

    Of its own terms: next to a large column a small one is no rounding.
    """
    product, terms = parts[0], np.abs(parts[0])
    for part in parts[1:]:
        product, terms = product @ part, terms @ np.abs(part)
    noise = _TERM_ROUNDINGS * np.sqrt(len(parts[0])) * EPS * terms
    return np.where(np.abs(product) <= noise, 0.0, product)
