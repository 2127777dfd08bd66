"""What a solve for a matrix returns: the matrix, its dual, the proof, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flowbias.ground.drawing import Panel, heat_map, spectrum, stems
from flowbias.ground.typing import FloatArray
from flowbias.results.solution import Proof, Solved, Stats, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class MatrixSolution(Solved):
    """The matrix M with the dual nu of its measurements.

    gram        [U; V][U; V]^T at the limit of a factorization; None where no factors are behind M
    unique      whether M is shown to be the only minimizer; None where it always is
    """

    M: FloatArray
    dual: FloatArray
    status: Status
    route: str
    certificate: Proof
    stats: Stats
    distance: float = 0.0
    gram: FloatArray | None = None
    unique: bool | None = None
    details: dict[str, float] = field(default_factory=dict)

    @property
    def w(self) -> FloatArray:
        """M, as the predictor of every other solution is called."""
        return self.M

    @property
    def singular_values(self) -> FloatArray:
        return np.asarray(np.linalg.svd(self.M, compute_uv=False))

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        words = self.status.words(self.certificate, self.distance, self.stats.steps)
        return words if self.unique is not False else f"{words}; other minimizers may exist"

    def _panels(self) -> tuple[Panel, ...]:
        """The matrix and its singular values, of one row or column its entries."""
        return matrix_panels(self.M, self.status.name)

    def _looks(self) -> Mapping[str, str | float]:
        return matrix_facts(self.M)

    def _lines(self) -> tuple[str, ...]:
        values = self.singular_values
        rank = int((values > 1e-6 * values.max(initial=0.0)).sum())
        return (
            f"route={self.route}, shape={self.M.shape}, singular values above 1e-6 "
            f"of the largest: {rank}, nuclear norm={values.sum():.6g}, "
            f"Frobenius norm={np.linalg.norm(values):.6g},",
            f"seconds={self.stats.seconds:.3g}",
        )


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
