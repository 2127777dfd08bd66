"""Low-rank completion: some entries of a planted matrix.  [woodworth2020, Figure 5]

    truth = A B^T,   A (rows, rank) and B (columns, rank) with N(0, 1) entries,

seen at `observed` places that are drawn without repetition. The small-scale (nuclear norm) limit
of a factorization recovers the truth from far fewer places than there are entries; the large-scale
(Frobenius norm) limit leaves unseen entries as they start.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowbias.datasets.sparse_regression import _generator, _require_integer
from flowbias.ground.typing import FloatArray


class LowRankCompletion(NamedTuple):
    """truth[rows, cols] = values: what is seen of a matrix of low rank, and all of it."""

    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    values: FloatArray
    truth: FloatArray


def low_rank_completion(
    shape: tuple[int, int] = (10, 10),
    rank: int = 1,
    observed: int = 60,
    rng: int | np.random.Generator = 0,
) -> LowRankCompletion:
    """Draw a matrix of `shape` and `rank` and the places at which it is seen.

    For one integer `rng` the problems are nested: a larger `observed` adds places, a larger rank
    adds terms to the truth, so that along a sweep only what is swept changes.

    Parameters
    ----------
    shape, rank : of the matrix
    observed : how many entries are seen
    rng : seed or generator

    Returns
    -------
    LowRankCompletion

    Raises
    ------
    InputError for numbers that make no problem

    >>> rows, cols, values, truth = fb.datasets.low_rank_completion((5, 4), observed=12, rng=0)
    >>> truth.shape, bool(np.all(truth[rows, cols] == values))
    ((5, 4), True)
    """
    height, width = _require_shape(shape)
    _require_integer("rank", rank, at_least=1, fix="Pass the rank of the planted matrix.")
    if rank > min(height, width):
        raise ValueError(
            f"rank: must be <= the smaller side {min(height, width)}, got {rank}. "
            "Lower rank or enlarge shape."
        )
    _require_integer("observed", observed, at_least=1, fix="Pass the number of entries to see.")
    if observed > height * width:
        raise ValueError(
            f"observed: must be <= {height * width}, the number of entries, got {observed}. "
            "Places do not repeat: lower observed or enlarge shape."
        )
    # One stream per quantity: drawing more of one leaves the others as they were.
    left_rng, right_rng, place_rng = _generator(rng).spawn(3)
    left, right = left_rng.standard_normal((rank, height)), right_rng.standard_normal((rank, width))
    truth = left.T @ right
    rows, cols = np.divmod(place_rng.permutation(height * width)[:observed], width)
    return LowRankCompletion(rows, cols, truth[rows, cols], truth)


def _require_shape(shape: object) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise ValueError(f"shape: must be two integers >= 1, got {shape!r}. Pass (rows, columns).")
    for side in shape:
        _require_integer("shape", side, at_least=1, fix="Pass (rows, columns).")
    return int(shape[0]), int(shape[1])
