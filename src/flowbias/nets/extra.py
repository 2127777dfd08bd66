"""The optional package behind this folder, loaded when it is first used."""

from __future__ import annotations

from typing import Any


def require_torch() -> Any:
    """The torch module, or an error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            "flowbias.nets builds and trains networks with torch, which is not installed. "
            "Install the extra `nets`: pip install 'flowbias[nets]'."
        ) from None
    return torch
