"""The binary version of CIFAR-10, and the way to it from images that are rows of pictures.

A record is 3073 bytes: the label, then the red, the green and the blue plane of 32 by 32 pixels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
