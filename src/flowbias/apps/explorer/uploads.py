"""X and y from a file that a reader sends to the page: bounded before anything is read.

An archive is judged by the headers of its arrays, so that a few kilobytes that unpack to gigabytes
cost nothing; text by its separators. What is within bounds goes to the readers of `data_files`.
"""

from __future__ import annotations

import io
import math
import zipfile

import numpy as np

from flowbias.apps.data_files.regression_data import (
    RegressionData,
    from_csv,
    from_npz,
    reading_an_archive,
)
from flowbias.ground.arguments import InputError

# The largest file, in bytes.
LARGEST_FILE = 5_000_000
# Entries of X and y together, and samples: three solves on them take a second or two.
LARGEST_TABLE = 60_000
MOST_SAMPLES = 200

# NumPy takes a member with or without the ending, and the one without if there are both.
_MEMBERS = ("X", "X.npy", "y", "y.npy")
# How np.savez packs. Others may ask for gigabytes of dictionary before the first byte.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# A header is a hundred bytes or two, but may claim gigabytes.
_LONGEST_HEADER = 2**14
_ZIP, _PICKLE, _NPY = b"PK\x03\x04", b"\x80", b"\x93NUMPY"
_EMPTY_ZIP = b"PK\x05\x06"
_SEPARATORS = (b",", b";", b"\t", b"\n", b"\r")
_COMMAND = "For larger data use the command: flowbias limit DATA --scale 1e-3."


def read_upload(content: bytes) -> RegressionData:
    """The data of a file, by what is in it; InputError says what is wrong with it."""
    if len(content) > LARGEST_FILE:
        raise InputError(
            f"file: must have at most {LARGEST_FILE / 1e6:g} MB, got {len(content) / 1e6:.3g} MB. "
            f"{_COMMAND}"
        )
    if content.startswith(_PICKLE):
        raise InputError(
            "file: must be a csv or npz file, got a pickle, which is a program and is never run. "
            "Write it with np.savez(file, X=X, y=y)."
        )
    if content.startswith(_NPY):
        raise InputError(
            "file: must be a csv or npz file, got a single NumPy array. "
            "Put both arrays into one file: np.savez(file, X=X, y=y)."
        )
    try:
        read = _read_npz if content.startswith((_ZIP, _EMPTY_ZIP)) else _read_csv
        data = read(content)
    except InputError as error:
        raise InputError(f"file: {error}") from error
    _require_small(*data.problem.X.shape)
    return data


def _read_csv(content: bytes) -> RegressionData:
    fields = sum(content.count(mark) for mark in _SEPARATORS)
    # A header and line ends of two bytes are counted as well, hence twice.
    if fields > 2 * LARGEST_TABLE:
        raise InputError(_too_large(f"about {fields:.2g}"))
    return from_csv(io.BytesIO(content))


def _read_npz(content: bytes) -> RegressionData:
    with reading_an_archive(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in sorted(set(_MEMBERS) & set(archive.namelist())):
            _require_small_array(name.removesuffix(".npy"), _opening(archive, name))
    return from_npz(io.BytesIO(content))


def _opening(archive: zipfile.ZipFile, name: str) -> io.BytesIO:
    """The first bytes of a member: as much as is ever unpacked of one that is too large."""
    if archive.getinfo(name).compress_type not in _PACKED:
        raise InputError(f"{name}: must be stored or deflated, is not. Write it with np.savez.")
    with archive.open(name) as member:
        return io.BytesIO(member.read(_LONGEST_HEADER))


def _require_small_array(name: str, member: io.BytesIO) -> None:
    """From the header alone: what an array claims to hold is what reading it would allocate."""
    version = np.lib.format.read_magic(member)
    header = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = header(member)
    if dtype.kind not in "buif":
        what = "Python objects (a pickle), which are never read" if dtype.hasobject else str(dtype)
        raise InputError(f"{name}: must be an array of real numbers, got {what}.")
    if math.prod(shape) > LARGEST_TABLE:
        raise InputError(f"{name}: {_too_large(f'shape {shape}')}")


def _require_small(samples: int, features: int) -> None:
    if samples * (features + 1) > LARGEST_TABLE:
        raise InputError(f"file: {_too_large(f'{samples} samples of {features} features')}")
    if samples > MOST_SAMPLES:
        raise InputError(
            f"file: must have at most {MOST_SAMPLES} samples to be answered at once, got "
            f"{samples}. {_COMMAND}"
        )


def _too_large(got: str) -> str:
    return (
        f"must have at most {LARGEST_TABLE} numbers to be answered at once, got {got}. {_COMMAND}"
    )
