"""Products with X in extended precision, block by block so that X is never copied whole.

Extended means the platform's long double: 64 bits of mantissa on x86. Where it is no longer than a
double everything still holds, with the rounding bounds that `EPS` then states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.ground.typing import FloatArray

Extended = NDArray[np.longdouble]

# Entries that are converted at a time.
PART_NUMBERS = 2**17
EPS = float(np.finfo(np.longdouble).eps)
# Looked up once: of few numbers that takes as long as the product.
_ddot, _DOUBLE = scipy.linalg.blas.ddot, np.dtype(np.float64)


def column_parts(d: int, width: int) -> Iterator[slice]:
    """Slices of at most `width` columns that cover d."""
    for start in range(0, d, width):
        yield slice(start, min(start + width, d))


def column_blocks(n: int, d: int) -> Iterator[slice]:
    """Slices that cover d columns of n rows, a bounded number of entries each."""
    return column_parts(d, max(1, PART_NUMBERS // n))


def _columns_in_use(X: FloatArray, w: FloatArray | Extended) -> Iterator[Any]:
    """Block by block those that w uses: near the rich limit these are few."""
    for part in column_blocks(*X.shape):
        used = np.flatnonzero(w[part])
        yield part if 2 * len(used) > part.stop - part.start else part.start + used


def apply(X: FloatArray, w: FloatArray | Extended) -> Extended:
    """X w."""
    total = np.zeros(len(X), dtype=np.longdouble)
    for part in _columns_in_use(X, w):
        total += X[:, part].astype(np.longdouble) @ w[part].astype(np.longdouble)
    return total


def adjoint(X: FloatArray, nu: FloatArray | Extended) -> Extended:
    """X^T nu."""
    extended = nu.astype(np.longdouble)
    out = np.empty(X.shape[1], dtype=np.longdouble)
    for part in column_blocks(*X.shape):
        out[part] = extended @ X[:, part].astype(np.longdouble)
    return out


def absolute_apply(X: FloatArray, w: FloatArray) -> FloatArray:
    """|X| |w|; np.abs(X) as a whole would be a second X."""
    total = np.zeros(len(X))
    for part in _columns_in_use(X, w):
        terms = X[:, part] * w[part]
        total += np.abs(terms, out=terms).sum(axis=1)
    return total


def absolute_adjoint(X: FloatArray, nu: FloatArray) -> FloatArray:
    """|X|^T |nu|."""
    out = np.empty(X.shape[1])
    for part in column_blocks(*X.shape):
        out[part] = np.abs(nu) @ np.abs(X[:, part])
    return out


def length(v: FloatArray | Extended) -> float:
    """Euclidean norm, safe for entries whose squares overflow or vanish."""
    # Neither warns of anything, unlike v @ v; of few doubles the first takes a quarter of the time.
    is_plain = v.dtype is _DOUBLE and v.ndim == 1 and v.size
    square = _ddot(v, v) if is_plain else float(np.vdot(v, v))
    if 1e-200 < square < 1e200:  # no square has left the range but of what does not count
        return math.sqrt(square)
    size = largest(np.abs(v)) if v.size else 0.0
    if size == 0.0 or not np.isfinite(size):
        return size
    return size * float(np.linalg.norm(np.asarray(v / size, dtype=np.float64)))


def largest(v: FloatArray) -> float:
    """The largest entry, NaN where there is one: of few in a third of the time of v.max()."""
    return float(v.item(v.argmax()))


def least(v: FloatArray) -> float:
    """The least entry, likewise."""
    return float(v.item(v.argmin()))


def row_units(lengths: FloatArray) -> FloatArray:
    """What to divide rows by. A row of zeros counts as the smallest: y shows there all the more."""
    return np.where(lengths > 0, lengths, np.min(lengths, initial=np.inf, where=lengths > 0))


def row_lengths(X: FloatArray) -> FloatArray:
    """Euclidean length of each row, safe for entries whose squares overflow or vanish."""
    squares = np.einsum("ij,ij->i", X, X)
    if squares.size and least(squares) > 1e-240 and largest(squares) < 1e240:
        return np.asarray(np.sqrt(squares))
    sizes = np.maximum(X.max(axis=1, initial=0.0), -X.min(axis=1, initial=0.0))
    lengths = np.zeros(len(X))
    # A row of NaN has no length, rather than none.
    for i in np.flatnonzero(sizes != 0.0):
        lengths[i] = sizes[i] * np.linalg.norm(X[i] / sizes[i])
    return lengths
