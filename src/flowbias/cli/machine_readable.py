"""Results as one JSON document.

JSON has no infinities and no NaN: infinities are the strings "Infinity" and "-Infinity" (which
Python's float() and JavaScript's Number() read), NaN is null. Other numbers have all their digits.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any


def write_json(document: Mapping[str, Any]) -> None:
    """The document on standard output, one line for each of its entries."""
    entries = [f"  {json.dumps(key)}: {to_json(value)}" for key, value in document.items()]
    sys.stdout.write("{\n" + ",\n".join(entries) + "\n}\n")
    sys.stdout.flush()


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
