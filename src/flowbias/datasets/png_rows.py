"""CIFAR-10 as lossless PNG files with an image to a row, and from there to its binary version."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flowbias.datasets.cifar_records import read_labels, write_records
from flowbias.datasets.image_sources import NamedContent, tar_members

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = "test_batch"
# The package spells them that way.
_TRAIN_LABELS, _TEST_LABELS = "train_lables.json", "test_lables.json"


def read_png_rows(data: bytes, name: str) -> NDArray[np.uint8]:
    """Colours (rows, columns, 3) of a PNG; `name` says in an error which file it was."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            mode, colours = picture.mode, np.array(picture, dtype=np.uint8)
    except (OSError, SyntaxError) as error:
        # Pillow reports a broken chunk as a SyntaxError.
        raise ValueError(
            f"{name}: must be a whole PNG file, got {error}. Fetch it again."
        ) from None
    if mode != "RGB":
        raise ValueError(
            f"{name}: must have 8-bit colours (RGB), got {mode}. "
            "Converted colours would not be those of the data set."
        )
    return colours


def records_of_png_package(path: Path) -> Iterator[NamedContent]:
    """The files of the binary version, from a package with PNG files and labels as JSON."""
    members = dict(tar_members(path))
    expected = {*(f"{batch}.png" for batch in (*_TRAIN, _TEST)), _TRAIN_LABELS, _TEST_LABELS}
    if missing := sorted(expected - members.keys()):
        raise ValueError(f"{path.name}: must hold {', '.join(missing)}, got none of that name.")
    train = np.array_split(read_labels(members[_TRAIN_LABELS], _TRAIN_LABELS), len(_TRAIN))
    labels = dict(zip(_TRAIN, train, strict=True))
    labels[_TEST] = np.array(read_labels(members[_TEST_LABELS], _TEST_LABELS))
    for batch, batch_labels in labels.items():
        png = f"{batch}.png"
        yield f"{batch}.bin", write_records(read_png_rows(members[png], png), batch_labels, png)
