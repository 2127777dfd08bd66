"""What Newton's method on the dual asks of each block of columns of X.

Every task knows the dual nu of X's rows (n numbers) and finds from it what its columns need:
z = shift + X^T nu, w(z), w'(z). Nothing of length d leaves a block but w itself, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.designs import Block, Totals
from flowbias.designs.tasks import PerCoordinate, Uniform
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import trusted_share


@dataclass(frozen=True)
class Evaluate(PerCoordinate):
    """X w(z), Q(w) - <shift, w> and, where asked for, A diag(w'(z)) A^T."""

    dual: FloatArray
    row_scale: FloatArray
    with_gram: bool

    @np.errstate(all="ignore")
    def __call__(self, block: Block) -> Totals:
        potential = self.coordinates.potential
        rise = block.adjoint(self.dual)
        z = np.asarray(self.coordinates.shift + rise)
        w = potential.grad_dual(z)
        value = float(np.sum(rise * w - potential.conjugate_terms(z)))
        sums = (block.apply(w), value)
        if not self.with_gram:
            return Totals(sums)
        return Totals((*sums, block.gram(potential.hess_dual(z), self.row_scale)))


@dataclass(frozen=True)
class _OnStep(PerCoordinate):
    """A task along a step of the dual."""

    dual: FloatArray
    step: FloatArray

    def line(self, block: Block) -> tuple[FloatArray, FloatArray]:
        """z where the step begins, and what the whole of it adds."""
        both = block.adjoint(np.column_stack([self.dual, self.step]))
        return np.asarray(self.coordinates.shift + both[:, 0]), both[:, 1]


@dataclass(frozen=True)
class Along(_OnStep):
    """<X^T step, w> at fractions of a step, and the growth of w' over the whole of it."""

    reaches: FloatArray

    @np.errstate(all="ignore")
    def __call__(self, block: Block) -> Totals:
        potential = self.coordinates.potential
        z, rise = self.line(block)
        slopes = [float(rise @ potential.grad_dual(z + reach * rise)) for reach in self.reaches]
        return Totals((np.array(slopes),), (potential.growth_along(z, rise)(1.0),))


@dataclass(frozen=True)
class Trust(_OnStep):
    """The share of a step that is trusted, as the power of two that it is divided by."""

    @np.errstate(all="ignore")
    def __call__(self, block: Block) -> Totals:
        potential = self.coordinates.potential
        z, rise = self.line(block)
        share = trusted_share(potential, z, rise, potential.growth_along(z, rise))
        return Totals(largest=(-np.floor(np.log2(share)),))


@dataclass(frozen=True)
class Slope(PerCoordinate):
    """w'(z), per coordinate."""

    dual: FloatArray

    @np.errstate(all="ignore")
    def __call__(self, block: Block) -> FloatArray:
        z = np.asarray(self.coordinates.shift + block.adjoint(self.dual))
        return self.coordinates.potential.hess_dual(z)


@dataclass(frozen=True)
class CurvatureProduct(Uniform):
    """X diag(slope) X^T u for slopes at hand."""

    vector: FloatArray

    def __call__(self, block: Block, slope: FloatArray) -> Totals:
        return Totals((block.apply(slope * block.adjoint(self.vector)),))


@dataclass(frozen=True)
class WeightedGram(Uniform):
    """A diag(slope) A^T for slopes at hand."""

    row_scale: FloatArray

    def __call__(self, block: Block, slope: FloatArray) -> Totals:
        return Totals((block.gram(slope, self.row_scale),))


@dataclass(frozen=True)
class Predictor(PerCoordinate):
    """w(z) + w'(z) X^T correction: the last digits where an ulp of the dual is many of w."""

    dual: FloatArray
    correction: FloatArray | None = None

    @np.errstate(all="ignore")
    def __call__(self, block: Block) -> FloatArray:
        potential = self.coordinates.potential
        z = np.asarray(self.coordinates.shift + block.adjoint(self.dual))
        w = potential.grad_dual(z)
        if self.correction is not None:
            w = w + potential.hess_dual(z) * block.adjoint(self.correction)
        return np.broadcast_to(w, (block.width,))


@dataclass(frozen=True)
class Applied(Uniform):
    """X w."""

    def __call__(self, block: Block, w: FloatArray) -> Totals:
        return Totals((block.apply(w),))
