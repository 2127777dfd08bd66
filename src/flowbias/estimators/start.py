"""The network that `depth`, `scale`, `log_scale` and `shape` describe, and scales to try."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowbias.designs import Design, design_of
from flowbias.estimators.intercepts.frames import Frame
from flowbias.estimators.intercepts.samples import as_array
from flowbias.ground.arguments import LARGEST_SIZE, InputError
from flowbias.ground.typing import FloatArray
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.models.untied import with_shape
from flowbias.potentials.scale import read_real, require

# scale^depth over the l2 norm of the least-norm fit at the largest default scale. At depth 2 the
# limit there exceeds the least l2 norm by a factor of at most 1 + e, (1 + e) / sqrt(48 e) = 10: a
# fiftieth of a percent. [woodworth2020, Theorem 2, with the sharper constant]
KERNEL_END = 10.0
# Eigenvalues of a Gram matrix below this share of the largest are rounding.
GRAM_ROUNDING = 1e-12


def network(
    depth: Any, scale: Any = 1.0, log_scale: Any = None, shape: Any = 0.0
) -> DiagonalNet | UntiedDiagonalNet:
    """The diagonal network at its start; log_scale, where given, stands in for the scale."""
    start = {"scale": scale} if log_scale is None else {"log_scale": log_scale}
    ratio = _read_shape(shape)
    tied = DiagonalNet(depth, **start)
    if not ratio:
        return tied
    refusal = (
        "shape: must be 0 unless depth is 2, got {shape:g} at depth {depth:g}. "
        "Layers of different size are known at depth 2 only."
    )
    return with_shape(tied, ratio, refusal, **start)


class Grid(NamedTuple):
    """A network, and log-scales of its start to try, largest first."""

    network: DiagonalNet | UntiedDiagonalNet
    log_scales: FloatArray


def grids_of(
    frame: Frame, depth: Any, shape: Any, scales: Any, log_scales: Any, n_scales: Any, eps: Any
) -> list[Grid]:
    """One for each depth, of `log_scales_of`."""
    if scales is None and log_scales is None:
        n_scales, eps = _read_grid(n_scales, eps)
    networks = [network(each, shape=shape) for each in read_depths(depth)]
    rest = shape, n_scales, eps
    return [Grid(n, log_scales_of(scales, log_scales, frame, n.depth, *rest)) for n in networks]


def read_depths(depth: Any) -> list[float]:
    """One depth, or a list of them."""
    depths = np.atleast_1d(read_real("depth", depth, "Pass one depth or a list."))
    if depths.ndim != 1 or depths.size == 0:
        raise InputError(
            f"depth: must be a number or a non-empty list of them, got {depth!r}. "
            "Pass depth=2 or depth=[2, 3]."
        )
    return [float(each) for each in depths]


def _read_shape(shape: Any) -> float:
    ratio = read_real("shape", shape, "Pass one number in (-1, 1).")
    if ratio.ndim:
        raise InputError(f"shape: must be a single number, got {shape!r}. Pass shape=0.5.")
    return float(ratio)


def log_scales_of(
    scales: Any,
    log_scales: Any,
    frame: Frame,
    depth: float,
    shape: float,
    n_scales: int,
    eps: float,
    end: float = KERNEL_END,
) -> FloatArray:
    """The log-scales asked for, largest first; by default `n_scales` that suit the data."""
    if scales is not None and log_scales is not None:
        raise InputError(
            "scales: must not be given together with log_scales, got both. Pass one of them."
        )
    if scales is not None:
        sizes = _read_list("scales", scales, "Pass numbers, for example np.geomspace(10, 1e-5, 50)")
        require("scales", sizes, sizes > 0, "must be > 0 and finite", _SCALES)
        return np.sort(np.log(sizes))[::-1]
    if log_scales is None:
        return default_log_scales(frame, depth, shape, n_scales, eps, end)
    logs = _read_list("log_scales", log_scales, "Pass natural logarithms: np.linspace(2, -10, 50)")
    return np.sort(logs)[::-1]


_SCALES = "For scales too small for a float pass log_scales."


def _read_list(name: str, given: Any, fix: str) -> FloatArray:
    values = np.atleast_1d(read_real(name, given, f"{fix}."))
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise InputError(
            f"{name}: must be a non-empty list of finite numbers, got {given!r}. {fix}."
        )
    return values


def default_log_scales(
    frame: Frame,
    depth: float,
    shape: float,
    n_scales: int,
    eps: float = 1e-10,
    end: float = KERNEL_END,
) -> FloatArray:
    """From the kernel regime down, evenly spaced: scale^depth from end ||w|| to eps of it.

    w is the fit of least l2 norm (the largest one, for several outputs), so the grid follows a
    change of units in X or y. An uneven start counts as alpha^2 (1 + s^2) / (1 - s^2).
    [azulay2021, section 4]
    """
    count, share = _read_grid(n_scales, eps)
    # A fit that is no double is refused where it is asked for.
    size = min(_least_norm(frame), 1e300) or 1.0
    uneven = _read_shape(shape) ** 2
    top = (np.log(end * size) - np.log((1.0 + uneven) / (1.0 - uneven))) / depth
    return np.linspace(top, top + np.log(share) / depth, count)


def _least_norm(frame: Frame) -> float:
    """||w||_2 of the least-norm fit, the largest over outputs; a rough one, for a grid."""
    design = design_of(frame.X)
    # In units of the largest entries: their squares may leave the double range.
    unit = float(abs(frame.X).max() if design is None else _largest_entry(design)) or 1.0
    y_unit = float(np.abs(frame.y).max()) or 1.0
    y, wide = frame.y / y_unit, True
    if design is not None:
        shrunk = np.full(design.n, 1.0 / unit)
        product = sum(block.gram(np.ones(block.width), shrunk) for block in design.blocks())
    else:
        X = frame.X / unit
        wide = X.shape[0] <= X.shape[1]
        product = as_array(X @ X.T if wide else X.T @ X)
        y = y if wide else X.T @ y
    values, vectors = np.linalg.eigh(product)
    kept = values > GRAM_ROUNDING * values[-1]
    # ||w||^2 = y^T (X X^T)^+ y; from the other side w = (X^T X)^+ X^T y.
    weights = values[kept, None] ** (1 if wide else 2)
    norms = np.square(vectors[:, kept].T @ y) / weights
    return float(np.sqrt(norms.sum(axis=0).max())) * y_unit / unit


def _largest_entry(design: Design) -> float:
    return max(float(block.largest_entries().max()) for block in design.blocks())


def _read_grid(n_scales: Any, eps: Any) -> tuple[int, float]:
    count = read_real("n_scales", n_scales, "Pass a whole number.")
    share = read_real("eps", eps, _SHARE)
    if count.ndim:
        raise InputError(
            f"n_scales: must be a whole number >= 1, got shape {count.shape}. {_COUNT}"
        )
    if share.ndim:
        raise InputError(f"eps: must lie in (0, 1), got shape {share.shape}. {_SHARE}")
    # Infinity is no whole number, and has no rest.
    whole = (count >= 1) & (count <= LARGEST_SIZE) & (np.floor(count) == count)
    require("n_scales", count, whole, "must be a whole number >= 1", _COUNT)
    require("eps", share, (share > 0) & (share < 1), "must lie in (0, 1)", _SHARE)
    return int(count), float(share)


_COUNT = "Pass n_scales=50."
_SHARE = "It is the smallest scale^depth as a share of the largest: pass eps=1e-10."
