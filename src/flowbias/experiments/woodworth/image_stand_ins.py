"""Made-up pictures in the format of MNIST and CIFAR-10, for runs without any data.

They are no substitute for the genuine ones: they only have the property that the figures are
about, labels that features learned from few pictures explain far better than given ones.
"""

from __future__ import annotations

import numpy as np

from flowbias.datasets.images import Images
from flowbias.ground.typing import FloatArray

# Waves per side of a made-up digit: few enough that a picture is smooth.
_WAVES = 4
# Half the grey values that separate a mark from the noise behind it.
_CONTRAST = 90.0


def made_up_digits(count: int, seed: int) -> Images:
    """Smooth grey pictures, 28 x 28, with labels from 0 to 3: the signs of two products of waves.

    Each label is a product of two coordinates out of sixteen, which no function that is additive
    in the coordinates can tell.
    """
    rng = np.random.default_rng((seed, 28))
    waves = rng.standard_normal((count, _WAVES, _WAVES))
    # Away from zero, where the label would be a matter of rounding.
    waves[:, 0] += np.sign(waves[:, 0])
    side = np.cos(np.pi * np.outer(np.arange(_WAVES), (np.arange(28) + 0.5) / 28))
    signs = waves[:, 0, :2] * waves[:, 0, 2:] > 0
    pictures = np.einsum("nij,ix,jy->nxy", waves, side, side)
    return Images(_grey(24.0 * pictures), signs @ np.array([2, 1]), "made-up digits")


def made_up_objects(count: int, seed: int) -> Images:
    """Noise in colour, 32 x 32, each with one of four marks somewhere on it."""
    rng = np.random.default_rng((seed, 32))
    labels = rng.integers(4, size=count)
    pictures = 15.0 * rng.standard_normal((count, 32, 32, 3))
    up, down = np.eye(8), np.eye(8)[::-1]
    bars = np.tile([[1.0], [-1.0]], (4, 8))
    marks = np.stack([2 * up - 1, 2 * down - 1, bars, bars.T])
    corners = rng.integers(32 - 8, size=(count, 2))
    for picture, label, (row, column) in zip(pictures, labels, corners, strict=True):
        picture[row : row + 8, column : column + 8] += _CONTRAST * marks[label][..., None]
    return Images(_grey(pictures), labels, "made-up objects")


def _grey(values: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.clip(np.rint(128.0 + values), 0, 255).astype(np.uint8)
