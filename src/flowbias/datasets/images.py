"""MNIST, Fashion-MNIST and CIFAR-10, checked to the last bit each time they are read.

    train, test = mnist(), mnist(split="test")
    x = train.flat(centre=train.mean())    # (60000, 784), what networks take

Files that are not in the data folder are fetched first; see `flowbias data --help`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from flowbias.datasets.image_fetch import fetch_images, shelf_of
from flowbias.datasets.image_sets import CIFAR10, FASHION_MNIST, MNIST, ImageSet
from flowbias.datasets.image_store import AbsentFileError, PinnedFile
from flowbias.datasets.sparse_regression import _require_integer
from flowbias.ground.typing import FloatArray

Folder = str | os.PathLike[str] | None

_SPLITS = {"train": ("train",), "test": ("test",), "both": ("train", "test")}


@dataclass(frozen=True, eq=False)
class Images:
    """Images (n, height, width) or, in colour, (n, height, width, 3), with their labels (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    name: str

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Images:
        """The first `count` images."""
        _require_integer("count", count, at_least=1, fix="Pass how many images to keep.")
        if count > len(self):
            raise ValueError(
                f"count: must be <= {len(self)}, the images of {self.name} here, got {count}. "
                'Pass fewer, or load split="both".'
            )
        return Images(self.images[:count], self.labels[:count], self.name)

    def take(self, indices: ArrayLike) -> Images:
        """The images at these indices, or where a mask is true."""
        chosen = np.asarray(indices)
        return Images(self.images[chosen], self.labels[chosen], self.name)

    def mean(self) -> FloatArray:
        """The mean image, of values from 0 to 1: what `centre` takes, for other images too."""
        # Sums of bytes in float64 are exact; a float32 sum of 60000 of them would not be.
        mean: FloatArray = self.images.mean(axis=0, dtype=np.float64) / 255.0
        return mean

    def flat(self, dtype: DTypeLike = np.float64, centre: ArrayLike = 0.0) -> NDArray[Any]:
        """images / 255 - centre as rows (n, features).

        `centre` is a number or an image: for test images, the `mean()` of the train images.
        """
        return self._scaled(dtype, centre).reshape(len(self), -1)

    def planes(self, dtype: DTypeLike = np.float32, centre: ArrayLike = 0.0) -> NDArray[Any]:
        """images / 255 - centre as (n, channels, height, width), for convolutions."""
        scaled = self._scaled(dtype, centre)
        if scaled.ndim == 3:
            return scaled[:, None]
        return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))

    def _scaled(self, dtype: DTypeLike, centre: ArrayLike) -> NDArray[Any]:
        kind = np.dtype(dtype)
        if not np.issubdtype(kind, np.floating):
            raise ValueError(
                f"dtype: must be a floating type, got {kind}. For the bytes use .images."
            )
        offset = np.asarray(centre, dtype=kind)
        shape = self.images.shape[1:]
        if offset.shape not in ((), shape) or not np.isfinite(offset).all():
            raise ValueError(
                f"centre: must be a finite number or an image of the shape {shape}, "
                f"got the shape {offset.shape}. Pass the mean() of the train images."
            )
        scaled = self.images.astype(kind)
        scaled /= 255
        scaled -= offset
        return scaled


def mnist(folder: Folder = None, split: str = "train", *, fetch: bool = True) -> Images:
    """Handwritten digits, 28 x 28: 60000 to train and 10000 to test.

    Parameters
    ----------
    folder : where the files are and where missing ones go; by default $FLOWBIAS_DATA, or
        flowbias/data in the user's cache folder
    split : "train", "test" or "both", in that order
    fetch : whether missing files are fetched

    Returns
    -------
    Images

    Raises
    ------
    InputError where files are missing and may not be fetched, or are not what they should be

    >>> images = fb.datasets.mnist(split="test")  # doctest: +SKIP
    """
    return load_images(MNIST, folder, split, fetch=fetch)


def fashion_mnist(folder: Folder = None, split: str = "train", *, fetch: bool = True) -> Images:
    """Clothes, 28 x 28: 60000 to train and 10000 to test.

    Parameters
    ----------
    folder : where the files are and where missing ones go; by default $FLOWBIAS_DATA, or
        flowbias/data in the user's cache folder
    split : "train", "test" or "both", in that order
    fetch : whether missing files are fetched

    Returns
    -------
    Images

    Raises
    ------
    InputError where files are missing and may not be fetched, or are not what they should be

    >>> images = fb.datasets.fashion_mnist(split="test")  # doctest: +SKIP
    """
    return load_images(FASHION_MNIST, folder, split, fetch=fetch)


def cifar10(folder: Folder = None, split: str = "train", *, fetch: bool = True) -> Images:
    """Ten kinds of things in colour, 32 x 32: 50000 to train and 10000 to test.

    Parameters
    ----------
    folder : where the files are and where missing ones go; by default $FLOWBIAS_DATA, or
        flowbias/data in the user's cache folder
    split : "train", "test" or "both", in that order
    fetch : whether missing files are fetched

    Returns
    -------
    Images

    Raises
    ------
    InputError where files are missing and may not be fetched, or are not what they should be

    >>> images = fb.datasets.cifar10(split="test")  # doctest: +SKIP
    """
    return load_images(CIFAR10, folder, split, fetch=fetch)


def load_images(
    image_set: ImageSet, folder: Folder = None, split: str = "train", *, fetch: bool = True
) -> Images:
    """A data set from its folder. Absent files are fetched; a damaged one is an error."""
    if split not in _SPLITS:
        raise ValueError(f"split: must be one of {', '.join(_SPLITS)}, got {split!r}.")
    parts = [
        image_set.decode([(file.name, _content(image_set, file, folder, fetch)) for file in files])
        for files in (image_set.splits[part] for part in _SPLITS[split])
    ]
    images, labels = zip(*parts, strict=True)
    if len(parts) == 1:
        return Images(images[0], labels[0], image_set.name)
    return Images(np.concatenate(images), np.concatenate(labels), image_set.name)


def _content(image_set: ImageSet, file: PinnedFile, folder: Folder, fetch: bool) -> bytes:
    try:
        return shelf_of(image_set, folder).read(file)
    except AbsentFileError:
        if not fetch:
            raise
    fetch_images(image_set, folder)
    return shelf_of(image_set, folder).read(file)
