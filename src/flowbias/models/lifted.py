"""Products of two factors, M = U V^T, known through the Gram matrix of their rows.

With Z = [U; V] and measurements of M, gradient flow reads Z' = -c A Z, A = [[0, R], [R^T, 0]],
R = sum_n r_n X_n. The residual r depends on U V^T only, so that G = Z Z^T obeys an equation of its
own, G' = -c (A G + G A): width enters through G(0) alone.  [woodworth2020, section 6]

Any Z with the same Gram matrix does: Z = L Q with orthonormal rows of Q has the flow of L, times Q.
`root` is such an L with at most d + m columns, which says the same as G with twice the digits.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from flowbias.ground.arguments import (
    WIDEST,
    InputError,
    as_float,
    depth_inside,
    read_nonnegative,
    shown,
)
from flowbias.ground.typing import FloatArray
from flowbias.models.imbalance import Imbalance
from flowbias.potentials import Provides
from flowbias.potentials.scale import frozen_array
from flowbias.problems.matrix import MatrixProblem, checked_tensor


class Factors(NamedTuple):
    """The two factors of a product U V^T: U (d, width), V (m, width)."""

    U: FloatArray
    V: FloatArray


class LiftedModel:
    """The product U V^T at its start.

    `shape` (d, m) of the product, `width`, `factors` (None where only their Gram matrix was drawn)
    and `notes`, in words, on results that need a wider model than this.
    """

    #: whether both factors are one and the same (`W W^T`)
    is_tied: bool = False
    #: Z' = -rate c A Z: 1 except where they are
    rate: float = 1.0

    shape: tuple[int, int]
    width: int
    factors: Factors | None
    notes: tuple[str, ...]
    _root: FloatArray | None

    def __init__(self, U: Any, V: Any) -> None:
        factors = read_factors(U, V)
        shape = factors.U.shape[0], factors.V.shape[0]
        self._install(shape, factors.U.shape[1], factors, None)

    @classmethod
    def _from_root(
        cls,
        root: FloatArray | None,
        shape: tuple[int, int],
        width: int,
        factors: Factors | None = None,
    ) -> Self:
        model = cls.__new__(cls)
        model._install(shape, width, factors, root)
        return model

    @classmethod
    def _gaussian(
        cls,
        shape: tuple[int, int],
        width: int,
        scales: tuple[float, float],
        rng: np.random.Generator,
        keep_weights: bool | None,
    ) -> Self:
        """Independent normal weights: drawn, or only their Gram matrix by Bartlett's means."""
        d, m = shape
        row_scales = np.repeat(scales, shape)[:, None]
        with np.errstate(over="ignore"):  # what is no double is refused with the weights
            if keeps_weights(d + m, width, keep_weights):
                Z = row_scales * rng.standard_normal((d + m, width))
                return cls._from_root(None, shape, width, Factors(Z[:d], Z[d:]))
            return cls._from_root(row_scales * bartlett_root(d + m, width, rng), shape, width)

    def _install(
        self, shape: tuple[int, int], width: int, factors: Factors | None, root: FloatArray | None
    ) -> None:
        self.shape, self.width = shape, width
        self.factors = None if factors is None else Factors(*map(frozen_array, factors))
        self._root = None if root is None else frozen_array(root)
        _check_size(self.factors if self.factors is not None else (self.root,))
        self.notes = tuple(self._width_notes())
        for note in self.notes:
            warnings.warn(note, NarrowWarning, stacklevel=depth_inside())

    def _width_notes(self) -> list[str]:
        smaller = min(self.shape)
        if self.width >= smaller:
            return []
        return [
            f"width: {self.width} is below min{self.shape} = {smaller}, so U V^T has rank at most "
            f"{self.width}. {self._needs_width()} The flow itself is followed as usual."
        ]

    def _needs_width(self) -> str:
        """Which results assume a product of full rank."""
        return "Zero error is guaranteed only where a matrix of that rank fits the measurements."

    @property
    def provides(self) -> frozenset[Provides]:
        if self.factors is None:
            return frozenset({Provides.GRAM})
        return frozenset({Provides.GRAM, Provides.FACTORS})

    # --- the start -----------------------------------------------------------------------------

    @cached_property
    def root(self) -> FloatArray:
        """L with L L^T = gram and min(width, d + m) columns or fewer: weights, made narrow."""
        if self._root is not None:
            return self._root
        Z = np.vstack(self.factors or ())
        if self.width <= len(Z):
            return frozen_array(Z)
        # Z^T = Q R, so Z = R^T Q^T. Rows of graded size keep their own accuracy.
        return frozen_array(np.linalg.qr(Z.T).R.T)

    @cached_property
    def gram(self) -> FloatArray:
        """[U; V][U; V]^T, (d + m) square, symmetric to the last bit."""
        Z = self.root if self.factors is None else np.vstack(self.factors)
        product = Z @ Z.T
        return frozen_array(0.5 * (product + product.T))

    @cached_property
    def product(self) -> FloatArray:
        """U V^T at the start, (d, m)."""
        if self.factors is not None:
            return frozen_array(self.factors.U @ self.factors.V.T)
        d = self.shape[0]
        return frozen_array(self.root[:d] @ self.root[d:].T)

    def imbalance(self) -> Imbalance:
        """Of D = U^T U - V^T V, which the flow conserves whatever the measurements."""
        return Imbalance.of_root(self.root, self.shape[0])

    # --- the problem as the flow sees it -------------------------------------------------------

    def lifted_problem(self, problem: MatrixProblem) -> MatrixProblem:
        """The measurements that the flow of [U; V] follows; refused where shapes do not fit."""
        if problem.shape != self.shape:
            raise InputError(
                f"problem: must measure matrices of the model's shape {self.shape}, "
                f"got {problem.shape}. U has as many rows as the matrix, V as it has columns "
                "(for a network: the features of X, the outputs of Y)."
            )
        return problem

    def __repr__(self) -> str:
        kept = "weights kept" if self.factors is not None else "Gram matrix only"
        return f"{type(self).__name__}(shape={self.shape}, width={self.width}, {kept})"


class NarrowWarning(UserWarning):
    """A model narrower than some result about it assumes."""


def read_factors(U: Any, V: Any) -> Factors:
    """Two factors of one width, or an error that names the one that does not fit."""
    factors = Factors(
        checked_tensor("U", U, ("d", "width")), checked_tensor("V", V, ("m", "width"))
    )
    (_, width), (m, other) = factors.U.shape, factors.V.shape
    if width != other:
        turned = " Pass V.T: outputs are rows." if m == width else ""
        raise InputError(
            f"V: must have as many columns as U ({width}, the width), got shape {factors.V.shape}."
            f"{turned or ' Both factors have one column per hidden unit.'}"
        )
    return factors


def _check_size(parts: tuple[FloatArray, ...]) -> None:
    largest = max(float(np.abs(part).max()) for part in parts)
    if largest == 0.0:
        raise InputError(
            "U, V: must not both be zero, got a start of zeros. It is a saddle: every gradient "
            "vanishes there and the flow never leaves. Start small instead, for instance "
            "gaussian(..., scale=1e-3)."
        )
    # Weights whose squares are ordinary doubles; the Gram matrix has no other units.
    if not 1e-150 < largest < 1e150:
        raise InputError(
            f"U, V: must have a largest entry between 1e-150 and 1e+150, "
            f"got {largest:.6g}: products of weights leave the double range. Rescale the start "
            "and with it the target (both by a factor: the flow of U V^T/s^2 is the same)."
        )


def bartlett_root(size: int, width: int, rng: np.random.Generator) -> FloatArray:
    """L (size, k), k = min(size, width): L L^T is Wishart with `width` degrees of freedom.

    Bartlett's decomposition. For Z (size x width) with independent standard normal entries,
    Z = L Q with Q of orthonormal rows and L lower trapezoidal, where all entries are independent:

        L_ii ~ chi with width - i degrees of freedom (i = 0, 1, ...),    L_ij ~ N(0, 1) below

    So L L^T has the law of Z Z^T at a cost that does not depend on the width; for width < size
    the law is singular and the decomposition holds as well. Rows are orthogonalized in order: row
    i has a part of length chi(width - i) outside the i rows before it, and normal coordinates
    along them, because Gaussians are rotation invariant.
    """
    columns = min(size, width)
    root = np.tril(rng.standard_normal((size, columns)), -1)
    freedom = float(width) - np.arange(columns)
    np.fill_diagonal(root, np.sqrt(rng.chisquare(freedom)))
    return root


def read_width(width: Any, name: str = "width") -> int:
    """A positive whole number; 1e6 will do, 2.5 will not."""
    number = as_float(width)
    if number is None or not 1.0 <= number <= WIDEST or width % 1 != 0:
        raise InputError(
            f"{name}: must be an integer from 1 to 1e300, got {shown(width)}. "
            "It counts the hidden units: columns of U and of V."
        )
    return int(width)


def read_layer_scales(scale: Any, scale_u: Any, scale_v: Any) -> tuple[float, float]:
    """Standard deviations of U and V: `scale` for both, unless a layer has its own."""
    sizes = []
    for name, own in (("scale_u", scale_u), ("scale_v", scale_v)):
        value = scale if own is None else own
        given = "scale" if own is None else name
        if value is None:
            raise InputError(
                f"scale: must be given unless scale_u and scale_v both are, got None for {name}. "
                "Pass the standard deviation of the entries, for instance scale=0.1."
            )
        fix = "Pass the standard deviation of the entries."
        sizes.append(read_nonnegative(given, value, fix))
    return sizes[0], sizes[1]


def keeps_weights(rows: int, width: int, asked: bool | None) -> bool:
    """As asked; otherwise where weights are few, or no more than their Gram matrix's entries."""
    # Weights of more numbers than this (8 MB) are not drawn unless asked for: their Gram matrix is.
    kept_weights = 2**20
    if asked is not None:
        return asked
    return rows * width <= max(kept_weights, rows * rows)
