"""Matrix factorization: M = U V^T fitted to linear measurements.  [woodworth2020, section 6]

With entries of size alpha and width k the product has size sigma = alpha^2 sqrt(k) and the Gram
matrix of the rows alpha^2 k = sigma sqrt(k); the second decides the regime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError, read_rng, read_size
from flowbias.ground.typing import ArrayLike
from flowbias.models.lifted import (
    Factors,
    LiftedModel,
    bartlett_root,
    keeps_weights,
    read_factors,
    read_layer_scales,
    read_width,
)
from flowbias.problems.matrix import MatrixProblem, SymmetrizedProblem, checked_tensor, read_shape

Rng = int | np.random.Generator


class MatrixFactorization(LiftedModel):
    """A product of two factors at its start: `MatrixFactorization(U, V)`, or one of those below.

    Weights of a wide start are not kept, only their Gram matrix, unless keep_weights=True asks for
    them.

    Parameters
    ----------
    U : (d1, width)
    V : (d2, width); rectangular shapes are allowed

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=100, scale=0.1, rng=0)
    >>> problem = fb.MatrixCompletion([0, 0, 1], [0, 1, 0], [1.0, 2.0, 3.0], (2, 2))
    >>> fb.limit(model, problem).M.round(2)
    array([[1.  , 2.  ],
           [3.  , 0.23]])
    """

    @classmethod
    def gaussian(
        cls,
        shape: tuple[int, int],
        *,
        width: int,
        scale: float | None = None,
        rng: Rng,
        scale_u: float | None = None,
        scale_v: float | None = None,
        keep_weights: bool | None = None,
    ) -> MatrixFactorization:
        """Independent N(0, scale^2) entries, at any width; a scale per factor where given."""
        scales = read_layer_scales(scale, scale_u, scale_v)
        sizes, hidden = read_shape("shape", shape), read_width(width)
        return cls._gaussian(sizes, hidden, scales, read_rng(rng), keep_weights)

    @classmethod
    def identity(
        cls, shape: int | tuple[int, int], *, scale: float, width: int | None = None
    ) -> MatrixFactorization:
        """U = V = scale I, so that M(0) = scale^2 I; the width defaults to the larger side.

        Rectangular factors hold the leading rows of the identity.
        """
        if isinstance(shape, tuple | list):
            rows, cols = read_shape("shape", shape)
        else:
            rows = cols = read_size("shape", shape, "d, or (rows, columns)")
        hidden = max(rows, cols) if width is None else read_width(width)
        if hidden < max(rows, cols):
            raise InputError(
                f"width: must be at least {max(rows, cols)} to hold the identity of shape "
                f"{(rows, cols)}, got {hidden}. Leave it out, or use gaussian."
            )
        size, _ = read_layer_scales(scale, None, None)
        unit = size * np.eye(rows + cols, max(rows, cols))
        unit[rows:] = size * np.eye(cols, max(rows, cols))
        kept = None
        if keeps_weights(rows + cols, hidden, None):
            kept = Factors(size * np.eye(rows, hidden), size * np.eye(cols, hidden))
        return cls._from_root(unit, (rows, cols), hidden, kept)

    @classmethod
    def unbiased(cls, U0: ArrayLike, V0: ArrayLike, *, scale: float = 1.0) -> MatrixFactorization:
        """U = scale [U0, -U0], V = scale [V0, V0]: M(0) = 0, but no saddle.  [woodworth2019]

        Of twice the width of U0 and V0. The Gram matrix is block diagonal, so the product is
        zero to the last bit.
        """
        size, _ = read_layer_scales(scale, None, None)
        U, V = (size * part for part in read_factors(U0, V0))
        return cls(np.hstack([U, -U]), np.hstack([V, V]))

    @classmethod
    def unbiased_gaussian(
        cls,
        shape: tuple[int, int],
        *,
        width: int,
        scale: float | None = None,
        rng: Rng,
        scale_u: float | None = None,
        scale_v: float | None = None,
        keep_weights: bool | None = None,
    ) -> MatrixFactorization:
        """`unbiased` from Gaussian U0, V0 of half the (even) width, at any width."""
        (rows, cols), hidden = read_shape("shape", shape), read_width(width)
        if hidden % 2:
            raise InputError(
                f"width: must be even for a doubled start, got {hidden}. "
                "Half of the units repeat the other half with U's sign turned."
            )
        scales = read_layer_scales(scale, scale_u, scale_v)
        generator = read_rng(rng)
        if keeps_weights(rows + cols, hidden, keep_weights):
            U0 = scales[0] * generator.standard_normal((rows, hidden // 2))
            V0 = scales[1] * generator.standard_normal((cols, hidden // 2))
            return cls.unbiased(U0, V0)
        left = np.sqrt(2.0) * scales[0] * bartlett_root(rows, hidden // 2, generator)
        right = np.sqrt(2.0) * scales[1] * bartlett_root(cols, hidden // 2, generator)
        root = np.zeros((rows + cols, left.shape[1] + right.shape[1]))
        root[:rows, : left.shape[1]] = left
        root[rows:, left.shape[1] :] = right
        return cls._from_root(root, (rows, cols), hidden)

    @classmethod
    def symmetric(cls, W: ArrayLike) -> SymmetricFactorization:
        """M = W W^T, one factor used twice."""
        return SymmetricFactorization(W)

    def _needs_width(self) -> str:
        return (
            "Low rank is then imposed, not found: statements about which of all fitting matrices "
            "the flow picks [woodworth2020, Theorems 4 and 9] no longer apply."
        )


class SymmetricFactorization(LiftedModel):
    """M = W W^T, W (d, width): lifted as the product of two factors that start equal.

    Its flow is W' = -c (R + R^T) W. With U = V = W and each X_n replaced by its symmetric part,
    R is symmetric, U and V obey U' = -c R V, V' = -c R U, stay equal, and follow W at half the
    speed: hence `rate` = 2, and `lifted_problem` symmetrizes. (Measurements of a symmetric matrix
    are those of its symmetric part, so neither the loss nor the fit changes.)
    """

    is_tied = True
    rate = 2.0

    def __init__(self, W: Any) -> None:
        factor = checked_tensor("W", W, ("d", "width"))
        super().__init__(factor, factor)

    @classmethod
    def gaussian(
        cls,
        d: int,
        *,
        width: int,
        scale: float,
        rng: Rng,
        keep_weights: bool | None = None,
    ) -> SymmetricFactorization:
        """W with independent N(0, scale^2) entries, at any width."""
        size = read_size("d", d, "the number of rows of W")
        hidden, generator = read_width(width), read_rng(rng)
        alpha, _ = read_layer_scales(scale, None, None)
        if keeps_weights(size, hidden, keep_weights):
            return cls(alpha * generator.standard_normal((size, hidden)))
        root = alpha * bartlett_root(size, hidden, generator)
        return cls._from_root(np.vstack([root, root]), (size, size), hidden)

    def lifted_problem(self, problem: MatrixProblem) -> MatrixProblem:
        return SymmetrizedProblem(super().lifted_problem(problem))
