"""Labels as numbers, checked once for all that take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.kernels.compare import as_array
from flowbias.problem import InputError


def read_labels(y: Any, shape: tuple[int, ...]) -> FloatArray:
    """One finite number per sample and output, in that shape."""
    labels = _numbers(y)
    if labels.size != np.prod(shape) or not np.isfinite(labels).all():
        what = f"shape {labels.shape}" if labels.size != np.prod(shape) else "NaN or infinity"
        raise InputError(
            f"y: must have one finite number per sample and output, shape {shape}, got {what}. "
            "Pass classes one-hot."
        )
    return labels.reshape(shape)


def read_label_rows(y: Any, samples: int) -> FloatArray:
    """One row of finite numbers per sample."""
    labels = _numbers(y)
    short = labels.ndim == 0 or len(labels) != samples
    if short or not np.isfinite(labels).all():
        what = f"shape {labels.shape}" if short else "NaN or infinity"
        raise InputError(
            f"y: must have one row of finite numbers per input ({samples}), got {what}. "
            "Pass classes one-hot."
        )
    return labels.reshape(samples, -1)


def vary(labels: FloatArray) -> bool:
    """Whether samples differ in their labels: otherwise centering leaves nothing of them."""
    return bool(np.any(labels != labels[:1]))


def _numbers(y: Any) -> FloatArray:
    try:
        return np.asarray(as_array(y), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"y: must be numbers, got {type(y).__name__}: {error}. Encode classes one-hot."
        ) from error
