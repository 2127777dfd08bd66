"""The formats in which image sets are published.

IDX (MNIST, Fashion-MNIST): 0 0 type rank | one big-endian uint32 per dimension | the entries,
big-endian, last index fastest. The binary version of CIFAR-10: records of 3073 bytes, the label,
then the red, the green and the blue plane of 32 by 32 pixels; and the way to it from lossless PNG
files with an image to a row.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.datasets.image_sources import NamedContent, tar_members

# The third byte of the file, and the entries that it announces.
_ENTRIES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(data: bytes, name: str) -> NDArray[Any]:
    """The array that `data` holds; `name` says in an error which file it was."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _ENTRIES:
        raise ValueError(
            f"{name}: must start as an IDX file does, with 0 0, a type and a rank, "
            f"got {data[:4].hex(' ') or 'nothing'}. Is it still compressed, or a page of HTML?"
        )
    entry, rank = np.dtype(_ENTRIES[data[2]]), data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise ValueError(
            f"{name}: must have {start} bytes before its entries, got {len(data)}. It was cut off."
        )
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected = start + math.prod(shape) * entry.itemsize
    if len(data) != expected:
        raise ValueError(
            f"{name}: must have {expected} bytes for the shape {shape} that it announces, "
            f"got {len(data)}. It was cut off, or is another file."
        )
    entries = np.frombuffer(data, entry, offset=start).reshape(shape)
    # In the machine's own byte order, and writable: a view of `data` would be neither.
    return entries.astype(entry.newbyteorder("="))


def decode_idx(files: Sequence[tuple[str, bytes]]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images from the first file, labels from the second."""
    (image_name, image_data), (label_name, label_data) = files
    return read_idx(image_data, image_name), read_idx(label_data, label_name).astype(np.int64)


SIDE = 32
_PIXELS = SIDE * SIDE
_RECORD = 1 + 3 * _PIXELS


def read_records(data: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 32, 32, 3) and labels (n,); `name` says in an error which file it was."""
    if not data or len(data) % _RECORD:
        raise ValueError(
            f"{name}: must be a whole number of records of {_RECORD} bytes, got {len(data)} bytes. "
            "It was cut off, or is not of the binary version of CIFAR-10."
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    planes = records[:, 1:].reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0].astype(np.int64)


def decode_records(
    files: Sequence[tuple[str, bytes]],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All records of all files, in order."""
    images, labels = zip(*(read_records(data, name) for name, data in files), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def write_records(rows: NDArray[np.uint8], labels: NDArray[np.integer], name: str) -> bytes:
    """Records of images that are rows of 1024 pixels (n, 1024, 3)."""
    if rows.shape != (len(labels), _PIXELS, 3):
        raise ValueError(
            f"{name}: must hold {len(labels)} rows of {_PIXELS} pixels in three colours, "
            f"got the shape {rows.shape}. It is not the package that was pinned."
        )
    planes = rows.transpose(0, 2, 1).reshape(len(labels), 3 * _PIXELS)
    return np.column_stack([np.asarray(labels, np.uint8), planes]).tobytes()


def read_labels(data: bytes, name: str) -> list[int]:
    """The labels that a JSON file lists."""
    try:
        labels = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{name}: must be a JSON list of labels, got {error}.") from None
    if not isinstance(labels, list) or not all(type(x) is int and 0 <= x < 10 for x in labels):
        raise ValueError(f"{name}: must be a JSON list of labels from 0 to 9, got other entries.")
    return labels


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
