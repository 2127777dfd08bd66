"""The rows of a big X: brought to a common size, made independent, and y fitted to their range.

All from the n x n Gram matrix, n being small where d is big. A Gram matrix squares the condition
number: rows that depend on each other to within 1e-7 or so cannot be told from rows that do so
exactly. Those in between are an error: without the difference another w would fit y to rounding,
and no certificate would see it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates, RowGram, dependence, noise_of_rows
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.tasks import Inspect
from flowbias.problems.range_fit import fit_to_range, row_units
from flowbias.problems.regression import (
    SAFE_GRAM_RCOND,
    all_zeros,
    cholesky_with_condition,
)

# Eigenvalues of the Gram matrix are noise below this many roundings of the largest.
NOISE = 10.0
# Where some rows are dependent, P y is known to a rounding divided by the distance of the others
# from being so: nearer than this, not to the digits of a certificate.
TOLD_APART = 3e-7


@dataclass(frozen=True)
class Rows:
    """A w = target with independent rows A = basis^T diag(scale) X; basis None is the identity."""

    scale: FloatArray
    basis: FloatArray | None
    gram: FloatArray
    target: FloatArray
    distance: float = 0.0
    #: X w = span (A w); None: A w divided by scale
    span: FloatArray | None = None

    def dual(self, m: FloatArray) -> FloatArray:
        """The dual of X's own rows with X^T nu = A^T m."""
        return np.asarray(self.scale * (m if self.basis is None else self.basis @ m))

    def seen(self, fit: FloatArray) -> FloatArray:
        """A w from X w."""
        scaled = self.scale * fit
        return scaled if self.basis is None else self.basis.T @ scaled

    def misfit(self, left: FloatArray) -> float:
        """||X w - P y|| / ||P y|| from what is left of the target."""
        size = extended.length(self._in_data_units(self.target))
        return extended.length(self._in_data_units(left)) / size if size > 0 else 0.0

    def _in_data_units(self, values: FloatArray) -> FloatArray:
        return np.asarray(values / self.scale if self.span is None else self.span @ values)

    def matrix(self, gram: FloatArray) -> FloatArray:
        """A diag(c) A^T from that of the rescaled rows of X."""
        return gram if self.basis is None else self.basis.T @ gram @ self.basis


def rows_of(design: Design, y: FloatArray, coordinates: Coordinates) -> Rows:
    """Two passes over X: sizes of rows, with all checks of the entries, and their Gram matrix."""
    found = design.reduce(Inspect(coordinates))
    if found.sums[0]:
        raise InputError(
            f"model: must leave both signs open to every coordinate on a {design.kind} X, got "
            f"{found.sums[0]} coordinates closed on one side. Start no weight at zero, or pass X "
            "as an array of doubles: the dense solver takes one-sided starts."
        )
    largest = found.largest[0]
    if not largest.any():
        raise all_zeros(design.shape)
    scale = 1.0 / row_units(largest)
    gram = design.reduce(RowGram(scale)).sums[0]
    lengths = np.sqrt(np.diagonal(gram))
    if not np.isfinite(gram).all():
        row = int(np.flatnonzero(~np.isfinite(gram).all(axis=1))[0])
        raise InputError(
            f"X: must be finite, got products with row {row} that are not. "
            "Check what the operator returns, and the size of its entries."
        )
    if not lengths.any():
        raise all_zeros(design.shape)
    unit = row_units(lengths)
    scale, gram = scale / unit, gram / unit / unit[:, None]
    factor, rcond = cholesky_with_condition(np.tril(gram))
    if factor is not None and rcond > SAFE_GRAM_RCOND:
        return Rows(scale, None, gram, scale * y)
    return _independent(design, y, scale, gram)


def _independent(design: Design, y: FloatArray, scale: FloatArray, gram: FloatArray) -> Rows:
    """Orthonormal rows from the eigenvectors of the Gram matrix, as from the SVD of X."""
    values, vectors = scipy.linalg.eigh(gram)
    eps = float(np.finfo(float).eps)
    kept = values > NOISE * len(y) * eps * values[-1]
    roots, left = np.sqrt(values[kept]), vectors[:, kept]
    # Eigenvectors of a Gram matrix are known to its rounding times its condition number, that of
    # the rows squared; one of the two is counted by fit_to_range.
    rounding = len(y) * eps * float(roots[-1] / roots[0])
    if not kept.all():
        parts = left, values[kept], vectors[:, ~kept]
        vanishing, apart = dependence(design, scale, *parts)
        if apart > noise_of_rows(design.shape):
            raise _nearly_dependent(design, apart)
        if roots[0] < TOLD_APART * roots[-1]:
            raise _nearly_dependent(design, float(roots[0] / roots[-1]))
        # Each column is next to what it was, so its eigenvalue still says how large it is.
        left, _ = np.linalg.qr(left - vanishing @ (vanishing.T @ left))
    fit = fit_to_range(left, roots, 1.0 / scale, y, rounding)
    basis = left / roots
    span = left * roots / scale[:, None]
    return Rows(scale, basis, np.eye(len(roots)), fit.target, fit.distance, span)


def _nearly_dependent(design: Design, apart: float) -> InputError:
    return InputError(
        f"X: rows of a {design.kind} X must be independent to about 1e-7 or dependent to "
        f"rounding, got rows dependent to {apart:.1e}. Remove nearly repeated samples, and one "
        "sample of an X centred in single precision; or pass X as an array of doubles: the "
        "dense solver tells them apart."
    )
