"""Two-layer linear networks: Y ~ X U V^T, U (d x width), V (m x width).  [min2021]

Under the loss (c/2) ||Y - X U V^T||^2, with X = W S^(1/2) P1^T (thin) and P2 the rest of the basis,
U1 = P1^T U and V move and U2 = P2^T U never does. What decides the limit beyond the data is the
Gram matrix of the start: how U2 overlaps with U1 and V, and how unevenly the layers share the
product (`imbalance`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from flowbias.ground.arguments import InputError, read_rng, read_size
from flowbias.ground.linear_algebra import EPS, Spectrum
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.imbalance import Imbalance
from flowbias.models.lifted import (
    Factors,
    LiftedModel,
    bartlett_root,
    keeps_weights,
    read_layer_scales,
    read_width,
)
from flowbias.problems.matrix import checked_tensor

Rng = int | np.random.Generator


class LinearNet(LiftedModel):
    """A linear network at its start: `LinearNet(U, V)`, or one of the starts below.

    Weights of a wide start are not kept, only their Gram matrix, unless keep_weights=True asks for
    them.

    Parameters
    ----------
    U : (d, width), weights of the features
    V : (m, width), weights of the outputs

    >>> net = fb.LinearNet.gaussian(4, 2, width=10**6, scale=1e-3, rng=0)
    >>> net.shape, net.width
    ((4, 2), 1000000)
    """

    @classmethod
    def gaussian(
        cls,
        d: int,
        m: int,
        *,
        width: int,
        scale: float | None = None,
        rng: Rng,
        scale_u: float | None = None,
        scale_v: float | None = None,
        keep_weights: bool | None = None,
    ) -> LinearNet:
        """Independent N(0, scale^2) entries; scale_u and scale_v set the layers apart.

        Wide enough (2^20 weights), the Gram matrix is drawn in their place, with the same law:
        any width costs the same.
        """
        sizes = _read_sizes(d, m)
        scales = read_layer_scales(scale, scale_u, scale_v)
        return cls._gaussian(sizes, read_width(width), scales, read_rng(rng), keep_weights)

    @classmethod
    def xavier(
        cls, d: int, m: int, *, width: int, rng: Rng, keep_weights: bool | None = None
    ) -> LinearNet:
        """Entries N(0, 1/sqrt(m width)): U V^T is as large at any width.  [min2021, section 5.1]

        The paper trains standard normal weights on Y ~ U V^T/sqrt(m width). Its product is ours,
        at sqrt(m width) times our time; `gaussian(scale=1)` on X = I/sqrt(m width) has its
        weights and its clock as well [min2021, Remark 13].
        """
        sizes, hidden = _read_sizes(d, m), read_width(width)
        scale = (sizes[1] * float(hidden)) ** -0.25
        return cls._gaussian(sizes, hidden, (scale, scale), read_rng(rng), keep_weights)

    @classmethod
    def balanced(
        cls,
        product: ArrayLike,
        X: ArrayLike | None = None,
        *,
        width: int | None = None,
        rng: Rng | None = None,
    ) -> LinearNet:
        """A start with U V^T = product and no imbalance: U1^T U1 = V^T V.  [min2021, section 5.2]

        With P1^T product = A diag(s) B^T,

            U = product B diag(s)^(-1/2) Q^T,    V = B diag(s)^(1/2) Q^T,

        Q (width x rank) of orthonormal columns, random where rng is given and otherwise the first
        of the identity. (The paper's G^(1/4) Q for V lacks the transpose of Q.) Balance is that of
        the part that data X moves; without X, U^T U = V^T V. The width defaults to the rank.
        """
        theta = checked_tensor("product", product, ("d", "m"))
        left, right = _balanced_halves(theta, X)
        rank = left.shape[1]
        hidden = rank if width is None else read_width(width)
        if hidden < rank:
            raise InputError(
                f"width: must be at least the rank of the product ({rank}), got {hidden}. "
                "Widen the network, or lower the rank."
            )
        root = np.vstack([left, right])
        return cls._of_root(root, theta.shape[0], hidden, None if rng is None else read_rng(rng))

    @classmethod
    def invariant(
        cls,
        X: ArrayLike,
        m: int,
        *,
        width: int,
        scale: float | None = None,
        rng: Rng,
        scale_u: float | None = None,
        scale_v: float | None = None,
        keep_weights: bool | None = None,
    ) -> LinearNet:
        """Gaussian, then made orthogonal so that the limit is min-norm.  [min2021, Prop. 10, (31)]

        V U2^T = 0 and U1 U2^T = 0: the rows of U2 lose their part along those of U1 and V. What
        is left of them are Gaussian rows in width - (r + m) dimensions, independent of the
        others; U2 = 0 where the width leaves none.
        """
        spectrum = Spectrum.of(_read_inputs(X))
        shape = _read_sizes(len(spectrum.P1), m)
        scales = read_layer_scales(scale, scale_u, scale_v)
        hidden, generator = read_width(width), read_rng(rng)
        if keeps_weights(sum(shape), hidden, keep_weights):
            return cls(*_orthogonal_weights(spectrum, shape, hidden, scales, generator))
        root = _orthogonal_root(spectrum, shape, hidden, scales, generator)
        return cls._from_root(root, shape, hidden)

    @classmethod
    def _of_root(
        cls, root: FloatArray, d: int, width: int, rng: np.random.Generator | None
    ) -> LinearNet:
        """Weights root Q^T of any width, kept where they are few."""
        rows, rank = root.shape
        shape = d, rows - d
        if not keeps_weights(rows, width, None):
            return cls._from_root(root, shape, width)
        Q: FloatArray = np.eye(width, rank)
        if rng is not None:
            Q = np.asarray(np.linalg.qr(rng.standard_normal((width, rank))).Q, dtype=np.float64)
        Z = root @ Q.T
        return cls._from_root(root, shape, width, Factors(Z[:d], Z[d:]))

    def imbalance(self, X: ArrayLike | None = None) -> Imbalance:
        """Of D = U1^T U1 - V^T V, U1 = P1^T U; of all of U without X.  [min2021, section 3.2]"""
        if X is None:
            return super().imbalance()
        P1 = self._spectrum(X).P1
        d = self.shape[0]
        moving = np.vstack([P1.T @ self.root[:d], self.root[d:]])
        return Imbalance.of_root(moving, P1.shape[1])

    def invariance_defect(self, X: ArrayLike) -> float:
        """||[V U2^T; U1 U2^T]||_F: 0 where the limit is sure to be min-norm.  [min2021 (31), (34)]

        Rounding leaves about eps times the size of the Gram matrix.
        """
        spectrum = self._spectrum(X)
        d = self.shape[0]
        still = spectrum.off_range(self.root[:d])  # P2 U2: the same norms as U2
        moving = np.vstack([spectrum.P1.T @ self.root[:d], self.root[d:]])
        return float(np.linalg.norm(moving @ still.T))

    def _spectrum(self, X: ArrayLike) -> Spectrum:
        data = _read_inputs(X)
        if data.shape[1] != self.shape[0]:
            raise InputError(
                f"X: must have one column per row of U ({self.shape[0]}), got {data.shape[1]}. "
                "Pass samples x features."
            )
        return Spectrum.of(data)

    def _needs_width(self) -> str:
        return (
            "[min2021] assumes width >= min(m, d): where the rank of X exceeds the width as well, "
            "the bounds on the rate (Proposition 1, Theorem 3, Corollaries 4-6) are zero, and the "
            "limit Theta + P2 U2 V^T of zero error exists only for outputs of such a rank."
        )


def _read_sizes(d: Any, m: Any) -> tuple[int, int]:
    return (
        read_size("d", d, "the number of features, columns of X"),
        read_size("m", m, "the number of outputs, columns of Y"),
    )


def _read_inputs(X: Any) -> FloatArray:
    """Samples x features; zeros see nothing of the network, so that no part of U would count."""
    data = checked_tensor("X", X, ("samples", "features"))
    if not data.any():
        raise InputError(
            f"X: must have a nonzero entry, got all zeros of shape {data.shape}. "
            "Without data leave X out: imbalance() is that of all of U."
        )
    return data


def _balanced_halves(theta: FloatArray, X: Any) -> tuple[FloatArray, FloatArray]:
    """product B s^(-1/2) and B s^(1/2), with P1^T product = A diag(s) B^T."""
    seen = theta
    if X is not None:
        data = _read_inputs(X)
        if data.shape[1] != len(theta):
            raise InputError(
                f"product: must have one row per column of X ({data.shape[1]}), got {len(theta)}. "
                "It is the predictor to start from, features x outputs."
            )
        seen = Spectrum.of(data).P1.T @ theta
    _, values, right = scipy.linalg.svd(seen, full_matrices=False)
    size = float(np.linalg.norm(theta))
    # What X's basis leaves of a product that it does not see is rounding of the product's size.
    rank = int((values > max(theta.shape) * EPS * size).sum())
    B, roots = right[:rank].T, np.sqrt(values[:rank])
    unseen = float(np.linalg.norm(theta - (theta @ B) @ B.T))
    if rank == 0 or unseen > 1e-10 * size:
        raise InputError(
            f"product: must have outputs of its own only where X sees them, got rank {rank} of "
            f"P1^T product and a part of size {unseen:.3g} beyond it. There V is zero by balance, "
            "and no U makes up for it: project the product on the rows of X, or leave out X."
        )
    return (theta @ B) / roots, B * roots


def _orthogonal_weights(
    spectrum: Spectrum,
    shape: tuple[int, int],
    width: int,
    scales: tuple[float, float],
    rng: np.random.Generator,
) -> Factors:
    d, m = shape
    U = scales[0] * rng.standard_normal((d, width))
    V = scales[1] * rng.standard_normal((m, width))
    moving = spectrum.P1 @ (spectrum.P1.T @ U)
    still = U - moving
    rows = np.vstack([spectrum.P1.T @ U, V])
    basis = scipy.linalg.orth(rows.T, rcond=max(rows.shape) * EPS)
    for _ in range(2):  # twice is enough: the second pass removes what rounding left of the first
        still = spectrum.off_range(still - (still @ basis) @ basis.T)
    return Factors(moving + still, V)


def _orthogonal_root(
    spectrum: Spectrum,
    shape: tuple[int, int],
    width: int,
    scales: tuple[float, float],
    rng: np.random.Generator,
) -> FloatArray:
    """The same law: two independent Wishart blocks, in the basis [P1, P2] of the features."""
    d, m = shape
    rank = spectrum.rank
    first = bartlett_root(rank + m, width, rng)
    left = width - min(width, rank + m)
    still = np.zeros((d - rank, 0))
    if left and d > rank:
        still = scales[0] * bartlett_root(d - rank, left, rng)
    first[:rank] *= scales[0]
    first[rank:] *= scales[1]
    top = np.hstack([spectrum.P1 @ first[:rank], spectrum.P2 @ still])
    bottom = np.hstack([first[rank:], np.zeros((m, still.shape[1]))])
    return np.vstack([top, bottom])
