"""The optional package behind derive, kernels, nets and regime, loaded when it is first used."""

from __future__ import annotations

from typing import Any


def require_torch() -> Any:
    """The torch module, or an error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            "flowbias computes with torch modules and functions here, and torch is not installed. "
            "Install the extra `nets`: pip install 'flowbias[nets]'."
        ) from None
    return torch
