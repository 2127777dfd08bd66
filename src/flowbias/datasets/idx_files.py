"""The IDX format, in which MNIST and Fashion-MNIST are published.

0 0 type rank | one big-endian uint32 per dimension | the entries, big-endian, last index fastest
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
