"""Gram matrices of wide Gaussian weights without the weights: Bartlett's decomposition.

For Z (size x width) with independent standard normal entries, Z = L Q with Q of orthonormal rows
and L lower trapezoidal, size x k, k = min(size, width), where all entries are independent:

    L_ii ~ chi with width - i degrees of freedom (i = 0, 1, ...),    L_ij ~ N(0, 1) below

So L L^T has the law of Z Z^T, Wishart with `width` degrees of freedom, at a cost that does not
depend on the width. For width < size the law is singular and the decomposition holds as well.
Rows are Gram-Schmidt orthogonalized in order: row i has a part of length chi(width - i) outside
the i rows before it, and normal coordinates along them, because Gaussians are rotation invariant.
"""

from __future__ import annotations

import numpy as np

from flowbias.ground.typing import FloatArray


def bartlett_root(size: int, width: int, rng: np.random.Generator) -> FloatArray:
    """L (size, min(size, width)) such that L L^T is Wishart with `width` degrees of freedom."""
    columns = min(size, width)
    root = np.tril(rng.standard_normal((size, columns)), -1)
    freedom = float(width) - np.arange(columns)
    np.fill_diagonal(root, np.sqrt(rng.chisquare(freedom)))
    return root
