"""How a matrix is shown and drawn, whatever it solves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowbias.ground.drawing import Panel, heat_map, spectrum, stems
from flowbias.ground.typing import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def matrix_panels(M: FloatArray, title: str) -> tuple[Panel, ...]:
    """How a matrix is drawn: as a map and by its singular values; of one row or column as stems."""

    def entries(axes: Axes) -> None:
        axes.set_title(title)
        stems(axes, np.ravel(M), label="entry of  M")

    def mapped(axes: Axes) -> None:
        axes.set_title(title)
        heat_map(axes, M)

    def values(axes: Axes) -> None:
        spectrum(axes, np.asarray(np.linalg.svd(M, compute_uv=False)))

    return (entries,) if min(M.shape) == 1 else (mapped, values)


def matrix_facts(M: FloatArray) -> dict[str, str | float]:
    """What a matrix looks like."""
    values = np.asarray(np.linalg.svd(M, compute_uv=False))
    rank = int(np.count_nonzero(values > 1e-6 * values.max(initial=0.0)))
    return {
        "shape": " x ".join(str(n) for n in M.shape),
        "singular values above 1e-6 of the largest": f"{rank}",
        "nuclear norm": float(values.sum()),
        "Frobenius norm": float(np.linalg.norm(values)),
    }
