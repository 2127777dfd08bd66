"""Results as one JSON document; `flowbias.data_files.contents` says how numbers are written."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from flowbias.data_files.contents import json_text


def write_json(document: Mapping[str, Any]) -> None:
    """The document on standard output, one line for each of its entries."""
    sys.stdout.write(json_text(document))
    sys.stdout.flush()
