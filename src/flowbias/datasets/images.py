"""MNIST, Fashion-MNIST and CIFAR-10, checked to the last bit each time they are read.

    train, test = mnist(), mnist(split="test")
    x = train.flat(centre=train.mean())    # (60000, 784), what networks take

Files that are not in the data folder are fetched first; see `flowbias data --help`.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from flowbias.datasets.image_files import (
    AbsentFileError,
    FileState,
    ImageFileError,
    PinnedFile,
    Shelf,
    Source,
    SourceError,
    data_folder,
    files_of,
)
from flowbias.datasets.image_sets import CIFAR10, FASHION_MNIST, MNIST, ImageSet
from flowbias.ground.arguments import InputError, read_count, shown
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
        read_count("count", count, "Pass how many images to keep.")
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
    folder, split, fetch : as for `mnist`

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
    folder, split, fetch : as for `mnist`

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
    if str(split) not in _SPLITS:
        raise InputError(f"split: must be one of {', '.join(_SPLITS)}, got {shown(split)}.")
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


# --- from the sources to the data folder: what is missing or damaged is fetched and checked -------


class FetchError(OSError):
    """No source could serve: names each with its reason, and what to do by hand."""


@dataclass(frozen=True)
class Fetched:
    """Where the files are now, and which sources they came from; none where all were there."""

    folder: Path
    sources: tuple[str, ...]


def shelf_of(image_set: ImageSet, folder: Folder = None) -> Shelf:
    """Where a data set is looked for: its folders below the data folder, then that itself."""
    root = data_folder(folder)
    command = f"flowbias data fetch {image_set.name}"
    if folder is not None:
        command += f" --folder {shlex.quote(str(folder))}"
    folders = (*(root / name for name in image_set.folders), root)
    return Shelf(folders, f"To get it: {command}")


def _nobody_listens(text: str) -> None:
    """To what is told on the way."""


def fetch_images(
    image_set: ImageSet,
    folder: Folder = None,
    tell: Callable[[str], None] = _nobody_listens,
) -> Fetched:
    """Get the files that are missing or damaged, from the first source that has them.

    `tell` hears which source is tried and why one was given up. Raises FetchError.
    """
    shelf = shelf_of(image_set, folder)
    reports = [shelf.inspect(file) for file in image_set.files]
    wanted = {r.file.name: r.file for r in reports if r.state is not FileState.GENUINE}
    served, reasons = [], []
    for source in image_set.sources:
        if not wanted:
            break
        tell(f"{image_set.name}: {source.title}")
        before = len(wanted)
        try:
            _take(source, wanted, shelf)
        except SourceError as error:
            reasons.append(f"{source.title}: {error}")
            tell(f"{image_set.name}: not from there: {error}")
        if len(wanted) < before:
            served.append(source.title)
    if wanted:
        raise FetchError(
            f"{image_set.name}: could not be fetched ({'; '.join(reasons)}). "
            f"Put {', '.join(wanted)} into {shelf.home} yourself, compressed (.gz) or not."
        )
    return Fetched(shelf.home, tuple(served))


def _take(source: Source, wanted: dict[str, PinnedFile], shelf: Shelf) -> None:
    """Keep what a source has of the wanted files, and cross it off."""
    with tempfile.TemporaryDirectory(prefix="flowbias-") as scratch:
        for name, content in files_of(source, Path(scratch)):
            if (file := wanted.get(name)) is None:
                continue
            try:
                file.require(content, name, "It is not used.")
            except ImageFileError as error:
                raise SourceError(str(error)) from None
            shelf.put(file, content)
            del wanted[name]
    if wanted:
        raise SourceError(f"it lacks {', '.join(wanted)}")
