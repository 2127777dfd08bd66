"""Samples X and outputs y from bytes that anybody wrote, checked and never run; and files to write.

Tables, archives and documents read back to the same bits.
JSON has no infinities and no NaN: infinities are the strings "Infinity" and "-Infinity" (which
Python's float() and JavaScript's Number() read), NaN is null. Other numbers have all their digits.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def npz_bytes(members: Mapping[str, Any]) -> bytes:
    """A NumPy archive; words and numbers become arrays without dimensions, never pickles."""
    # The command line's help needs this module, but has no use for NumPy.
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **members)
    return buffer.getvalue()


def csv_bytes(names: Sequence[str], rows: Iterable[Iterable[str | float]]) -> bytes:
    """Comma-separated values; numbers with all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)  # csv writes floats by repr, which reads back to the same bits
    return text.getvalue().encode()


def json_text(document: Mapping[str, Any]) -> str:
    """The document, one line for each of its entries."""
    entries = [f"  {json.dumps(key)}: {to_json(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def to_json(value: Any) -> str:
    """A value as JSON, in one line."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value
