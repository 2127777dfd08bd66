"""What a solve for a matrix returns: the matrix, what there is to prove it, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flowbias.certificates.certificate import Certificate
from flowbias.certificates.measures import Measure, Measured
from flowbias.ground.drawing import Panel, heat_map, spectrum, stems
from flowbias.ground.typing import Axes, FloatArray
from flowbias.results.solution import Proof, Solved, Stats, Status


class SolvedMatrix(Solved):
    """A result whose predictor is a matrix."""

    M: FloatArray

    @property
    def w(self) -> FloatArray:
        """M, as the predictor of every other solution is called."""
        return self.M

    def _panels(self) -> tuple[Panel, ...]:
        """The matrix and its singular values, of one row or column its entries."""
        return matrix_panels(self.M, self.status.name)

    def _looks(self) -> Mapping[str, str | float]:
        return matrix_facts(self.M)


@dataclass(frozen=True, eq=False, repr=False)
class MatrixSolution(SolvedMatrix):
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
    def singular_values(self) -> FloatArray:
        return np.asarray(np.linalg.svd(self.M, compute_uv=False))

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        words = self.status.words(self.certificate, self.distance, self.stats.steps)
        return words if self.unique is not False else f"{words}; other minimizers may exist"

    def _lines(self) -> tuple[str, ...]:
        values = self.singular_values
        rank = int((values > 1e-6 * values.max(initial=0.0)).sum())
        return (
            f"route={self.route}, shape={self.M.shape}, singular values above 1e-6 "
            f"of the largest: {rank}, nuclear norm={values.sum():.6g}, "
            f"Frobenius norm={np.linalg.norm(values):.6g},",
            f"seconds={self.stats.seconds:.3g}",
        )


@dataclass(frozen=True)
class FitCertificate(Measured):
    """That a product fits the data: a limit of zero error, with no potential to be minimized.

    Which of the many fits it is rests on the route: a theorem where the status is CERTIFIED, two
    integrations that agree where it is INTEGRATED.

    residual     ||measure(M) - reachable|| / ||reachable||, at most `allowed`: the tolerance, or
                 what the digits of M leave undecided
    feasibility  the same relative to its terms, ||reachable|| + ||measure|| ||M||_F
    error        estimate of ||M - limit||_F; exact routes: a few roundings of the terms of M
    minimizer    where all that moves is one neuron: the certificate of its limit as the minimizer
                 of its potential, whose error bound is then the error
    """

    residual: float
    feasibility: float
    error: float
    allowed: float
    minimizer: Certificate | None = None

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The residual is judged, and what there is of a minimizer; the others are only known."""
        fit = (
            Measure("residual", self.residual, self.allowed),
            Measure("feasibility", self.feasibility),
        )
        if self.minimizer is None:
            return (*fit, Measure("error, estimated", self.error))
        # Feasibility is that of the fit.
        return (*fit, *self.minimizer.measures[1:])


@dataclass(frozen=True, eq=False, repr=False)
class LiftedSolution(SolvedMatrix):
    """The limit M = U V^T of gradient flow from a product of two factors.

    distance     of the target from what can be reached, relative to it
    unique       whether the data alone determine the limit
    is_rest      whether the flow comes to rest with more of an error than the data force on it
    gram         [U; V][U; V]^T at the limit; None where no weights were followed to it

    >>> net = fb.LinearNet.gaussian(2, 1, width=100, scale=0.1, rng=0)
    >>> solution = fb.limit(net, [[1.0, 2.0]], [1.0])
    >>> solution.status.name, solution.certificate.ok
    ('CERTIFIED', True)
    """

    M: FloatArray
    status: Status
    route: str
    certificate: FitCertificate
    stats: Stats
    distance: float = 0.0
    unique: bool = False
    is_rest: bool = False
    gram: FloatArray | None = None
    details: dict[str, float] = field(default_factory=dict)

    @property
    def feasibility(self) -> float:
        """That of the certificate."""
        return self.certificate.feasibility

    @property
    def error(self) -> float:
        """That of the certificate."""
        return self.certificate.error

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        if self.status is Status.INTEGRATED:
            numbers = self.status.value.format(feasibility=self.feasibility, error=self.error)
            words = f"{numbers} ({self.route})"
        elif self.status is Status.STALLED:
            words = (
                f"no limit of zero error: feasibility {self.feasibility:.1e} ({self.route}). The "
                "flow ends at a saddle, or could not be followed to its end"
            )
        else:
            words = f"certified: feasibility {self.feasibility:.1e} ({self.route})"
        if self.distance > 0.0:
            words += f"; the target cannot be reached (relative distance {self.distance:.1e})"
            words += "" if self.is_rest else ": this is the least-squares limit"
        is_known = self.unique and self.status.ok
        return f"{words}; the data alone determine it" if is_known else words

    def _lines(self) -> tuple[str, ...]:
        return (
            f"route={self.route}, shape={self.M.shape}, "
            f"Frobenius norm={np.linalg.norm(self.M):.6g}, error={self.error:.1e}, "
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
