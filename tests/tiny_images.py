"""A data set of a few images in the genuine formats, for tests that need no genuine data."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from flowbias.datasets.image_files import NamedContent, PinnedFile, SourceError
from flowbias.datasets.image_sets import ImageSet, decode_idx, decode_records

TYPES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: np.ndarray) -> bytes:
    """An IDX file, written from its description and not by the code under test."""
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, TYPES[kind], array.ndim, *array.shape)
    return head + array.astype(f">{kind}").tobytes()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pin(name: str, content: bytes) -> PinnedFile:
    return PinnedFile(name, len(content), sha256(content))


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, (count, 4, 3), dtype=np.uint8),
        rng.integers(0, 10, count, dtype=np.uint8),
    )


TRAIN, TEST = digits(7, seed=0), digits(3, seed=1)
CONTENT = {
    "train-images": idx_bytes(TRAIN[0]),
    "train-labels": idx_bytes(TRAIN[1]),
    "test-images": idx_bytes(TEST[0]),
    "test-labels": idx_bytes(TEST[1]),
}
TINY = ImageSet(
    name="tiny",
    title="a few images",
    splits={
        split: tuple(pin(name, CONTENT[name]) for name in (f"{split}-images", f"{split}-labels"))
        for split in ("train", "test")
    },
    decode=decode_idx,
    sources=(),
    folders=("tiny", "Tiny/raw"),
)


@dataclass(frozen=True)
class Shelved:
    """A source with these files, which then fails for a reason, if it has one."""

    content: Mapping[str, bytes]
    title: str = "a shelf"
    reason: str = ""

    def files(self, scratch: Path) -> Iterator[NamedContent]:
        yield from self.content.items()
        if self.reason:
            raise SourceError(self.reason)


def tiny_from(*sources: object) -> ImageSet:
    return replace(TINY, sources=sources)


def put(folder: Path, content: Mapping[str, bytes] = CONTENT, suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(data) if suffix else data)


def tarball(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


# --- colours: six batches of two images, as the package packs them and as records -----------------

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
COLOURS = np.random.default_rng(2).integers(0, 256, (6, 2, 32, 32, 3), dtype=np.uint8)
COLOUR_LABELS = np.random.default_rng(3).integers(0, 10, (6, 2))


def record(image: np.ndarray, label: int) -> bytes:
    """One record of the binary version, a byte at a time as its page describes it."""
    planes = [image[row, col, c] for c in range(3) for row in range(32) for col in range(32)]
    return bytes([label, *planes])


RECORDS = {
    f"{batch}.bin": b"".join(map(record, COLOURS[i], COLOUR_LABELS[i].tolist()))
    for i, batch in enumerate(BATCHES)
}
TINY_COLOURS = ImageSet(
    name="tiny-colours",
    title="a few images in colour",
    splits={
        "train": tuple(pin(name, RECORDS[name]) for name in list(RECORDS)[:5]),
        "test": (pin("test_batch.bin", RECORDS["test_batch.bin"]),),
    },
    decode=decode_records,
    sources=(),
    folders=("tiny-colours",),
)


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def png_package() -> dict[str, bytes]:
    members = {
        f"package/{batch}.png": png(COLOURS[i].reshape(2, 1024, 3))
        for i, batch in enumerate(BATCHES)
    }
    train, test = COLOUR_LABELS[:5].ravel().tolist(), COLOUR_LABELS[5].tolist()
    return members | {
        "package/train_lables.json": json.dumps(train).encode(),
        "package/test_lables.json": json.dumps(test).encode(),
    }
