"""Inputs that resemble given ones but were not trained on.

Networks that fit the same data agree there; what training made of them shows elsewhere. Each
feature is drawn on its own from the values that it takes: between them by linear interpolation of
its quantiles where it is a real number, one of them where it is an integer (a class, a word).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Enough for a norm over inputs to be known to a few percent: its error falls as 1/sqrt(2 SAMPLES).
SAMPLES = 200


def fresh_inputs(
    parts: Sequence[NDArray[Any]], samples: int = SAMPLES, seed: int = 0
) -> list[NDArray[Any]]:
    """As many arrays, each of `samples` rows, the same ones at each call.

    >>> fresh_inputs([np.array([[0.0], [1.0]])], samples=3)[0].shape
    (3, 1)
    """
    rng = np.random.default_rng(seed)
    return [_drawn(part, samples, rng) for part in parts]


def _drawn(part: NDArray[Any], samples: int, rng: np.random.Generator) -> NDArray[Any]:
    count = len(part)
    columns = np.sort(part.reshape(count, -1), axis=0)
    place = rng.uniform(0.0, count - 1.0, size=(samples, columns.shape[1]))
    if not np.issubdtype(part.dtype, np.floating):
        place = np.round(place)
    below = np.minimum(place.astype(np.int64), max(count - 2, 0))
    above = np.minimum(below + 1, count - 1)
    share = place - below
    low = np.take_along_axis(columns, below, axis=0)
    high = np.take_along_axis(columns, above, axis=0)
    values = low + share * (high - low)
    return np.asarray(values.astype(part.dtype).reshape(samples, *part.shape[1:]))
