"""X too big for the dense solver: one kind of design per file, one table that knows them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from flowbias.designs._base import Block, BlockTask, Design, Totals
from flowbias.designs.dense import DenseDesign, MemoryMappedDesign
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.designs.sparse import SparseDesign, as_dense
from flowbias.ground.arguments import InputError, refuse_masked
from flowbias.ground.typing import FloatArray

__all__ = [
    "KINDS",
    "Block",
    "BlockTask",
    "Design",
    "Totals",
    "checked_array",
    "checked_outputs",
    "design_of",
    "refuse_dense",
]

# Numbers (80 MB as doubles) up to which a sparse, mapped or single-precision X is simply made
# dense: the dense solver takes fewer steps.
DENSE_UP_TO = 10_000_000


@dataclass(frozen=True)
class DesignKind:
    """What is taken as a design, how it becomes one, and what to do where only an array will do."""

    accepts: Callable[[Any], bool]
    make: Callable[[Any], Design]
    #: how to make an array of something, by its name
    as_array: str = ""


def _is_large(X: Any) -> bool:
    return len(X.shape) == 2 and int(X.shape[0]) * int(X.shape[1]) > DENSE_UP_TO


def _is_short(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype.kind in "buif" and X.dtype != np.float64


def _is_dask(X: Any) -> bool:
    # By name, because dask is optional: where X comes from dask, dask is loaded already.
    return any(f"{c.__module__}.{c.__name__}" == "dask.array.core.Array" for c in type(X).__mro__)


def _dask_design(X: Any) -> Design:
    from flowbias.designs.dask_array import DaskDesign

    return DaskDesign(X)


#: First that accepts. What none accepts is for the dense solver.
KINDS = (
    DesignKind(_is_dask, _dask_design, "{0}.compute()"),
    DesignKind(
        lambda X: isinstance(X, scipy.sparse.linalg.LinearOperator),
        OperatorDesign,
        "{0} @ np.eye({0}.shape[1])",
    ),
    DesignKind(lambda X: scipy.sparse.issparse(X) and _is_large(X), SparseDesign, "{0}.toarray()"),
    # These two are arrays already.
    DesignKind(lambda X: isinstance(X, np.memmap) and _is_large(X), MemoryMappedDesign),
    DesignKind(lambda X: _is_short(X) and _is_large(X), DenseDesign),
)


def _kind_of(X: Any) -> DesignKind | None:
    return next((kind for kind in KINDS if kind.accepts(X)), None)


def design_of(X: Any) -> Design | None:
    """X as a design; None where it is for the dense solver. A design is its own."""
    if isinstance(X, Design):
        return X
    kind = _kind_of(X)
    return None if kind is None else kind.make(X)


def refuse_dense(name: str, value: Any) -> None:
    """InputError for what must not be made dense without being asked."""
    if isinstance(value, Design):
        raise InputError(
            f"{name}: must be an array in memory for this call, got a {type(value).__name__} of "
            f"shape {value.shape}. fb.limit, fb.limit_path and fb.min_norm take it as X."
        )
    kind = _kind_of(value)
    if kind is not None and kind.as_array:
        raise InputError(
            f"{name}: must be an array in memory for this call, got a {type(value).__name__} of "
            f"shape {tuple(value.shape)}. Pass {kind.as_array.format(name)}, if that fits into "
            "memory. fb.limit, fb.limit_path and fb.min_norm take it as X, with y beside it."
        )


def _is_finite(array: FloatArray) -> bool:
    """Whether all entries are, without a temporary of the array's size."""
    # One pass, and no warning, where no square overflows; vdot copies what is not contiguous.
    if array.flags.c_contiguous and math.isfinite(np.vdot(array, array)):
        return True
    # These propagate NaN and infinity.
    return math.isfinite(array.max()) and math.isfinite(array.min())


def checked_outputs(y: Any, n: int) -> FloatArray:
    """y as n finite doubles."""
    checked = checked_array("y", y, 1)
    if len(checked) != n:
        raise InputError(
            f"y: must have one entry per row of X ({n}), "
            f"got {len(checked)}. Check that X is samples x features."
        )
    return checked


def checked_array(name: str, value: Any, ndim: int) -> FloatArray:
    """`value` as a finite float64 array of `ndim` dimensions, without a copy where possible."""
    if value is None:
        raise InputError(
            f"{name}: must be given, got None. Pass X and y, or a Regression(X, y) in place of X."
        )
    if type(value) is not np.ndarray:
        refuse_dense(name, value)
        refuse_masked(name, value)
        if scipy.sparse.issparse(value):
            value = as_dense(value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(
            f"{name}: must be a rectangular array, got rows of different lengths. "
            "Check that every sample has the same features."
        ) from None
    if array.dtype.kind not in "buif":
        raise InputError(
            f"{name}: must hold real numbers, got dtype {array.dtype}. "
            f"Convert it first, for example {name}.astype(float)."
        )
    if array.ndim != ndim:
        fix = (
            f"Use {name}.reshape(1, -1) for one sample, {name}.reshape(-1, 1) for one feature."
            if ndim == 2
            else "Solve one output at a time: pass a single column, for example y[:, 0]."
        )
        raise InputError(f"{name}: must have {ndim} dimension(s), got shape {array.shape}. {fix}")
    if array.size == 0:
        raise InputError(f"{name}: must not be empty, got shape {array.shape}. Pass some data.")
    array = array.astype(np.float64, copy=False)
    if not _is_finite(array):
        bad = np.argwhere(~np.isfinite(array))[0]
        raise InputError(
            f"{name}: must be finite, got {array[tuple(bad)]} at index {tuple(map(int, bad))}. "
            "Drop or impute such entries."
        )
    return array
