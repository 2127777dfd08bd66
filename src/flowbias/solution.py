"""What a solve returns: the predictor, its dual, the proof, and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flowbias._drawing import heat_map, picture, spectrum, stems
from flowbias._html import coefficients, facts, shown
from flowbias._typing import FloatArray
from flowbias.certificates.certificate import Certificate
from flowbias.potentials import ConvexPotential

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Status(Enum):
    """How a solve ended; each failure carries its remedy.

    >>> [status.name for status in fb.Status if not status.ok]
    ['STALLED']
    """

    CERTIFIED = "certified: feasibility {feasibility:.1e}, gap {gap:.1e}"
    PROJECTED = (
        "y is not in the range that the model can reach on X (relative distance {distance:.1e}); "
        "this is the least-squares limit, certified: feasibility {feasibility:.1e}, gap {gap:.1e}"
    )
    NOT_UNIQUE = (
        "certified minimizer, but not the only one: feasibility {feasibility:.1e}, gap {gap:.1e}; "
        "fb.rich_limit(model, X, y) returns the one that gradient flow selects"
    )
    INTEGRATED = (
        "followed by integration: feasibility {feasibility:.1e}, error estimate {error:.1e} from "
        "two tolerances and the integrators of its route, not a certificate"
    )
    STALLED = (
        "not certified: feasibility {feasibility:.1e}, stationarity {stationarity:.1e}, "
        "gap {gap:.1e} after {steps} steps; try a larger tol, remove nearly dependent rows of X, "
        "or take the limit at a nearby scale"
    )

    @property
    def ok(self) -> bool:
        return self is not Status.STALLED


class SolveError(RuntimeError):
    """A solve that could not be certified; `solution` holds what was reached.

    >>> X, y = [[1.0, 2.0], [1.0, 2.0 + 1e-12]], [1.0, 5.0]
    >>> try:
    ...     fb.limit(fb.DiagonalNet(depth=2, scale=0.1), X, y)
    ... except fb.SolveError as error:
    ...     print(error.solution.status.name)
    STALLED
    """

    def __init__(self, message: str, solution: Solution | LiftedSolution) -> None:
        super().__init__(message)
        self.solution = solution


@dataclass(frozen=True)
class Stats:
    """What a solve cost, its certificate not included.

    A factorization is one product A diag(c) A^T with its Cholesky factor.
    """

    factorizations: int
    steps: int
    seconds: float


class Sensitivity(NamedTuple):
    """Derivatives of the limit: (d, n) in y, and (d,) in the log of the scale."""

    dw_dy: FloatArray
    dw_dlog_scale: FloatArray | None


@dataclass(frozen=True, eq=False)
class Solution:
    """The limit w of gradient flow with its dual: grad Q(w) = shift + X^T dual.

    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> solution.w.round(3), solution.status.name
    (array([0.067, 0.467]), 'CERTIFIED')
    """

    w: FloatArray
    dual: FloatArray
    status: Status
    route: str
    certificate: Certificate
    stats: Stats
    potential: ConvexPotential
    shift: FloatArray | float = 0.0
    distance: float = 0.0
    details: dict[str, float] = field(default_factory=dict)
    _sensitivity: Callable[[], Sensitivity] | None = field(default=None, repr=False)

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        certificate = self.certificate
        words = self.status.value.format(
            feasibility=certificate.feasibility,
            stationarity=certificate.stationarity,
            gap=certificate.gap,
            distance=self.distance,
            steps=self.stats.steps,
        )
        # Where it stalled says why, on routes that follow a flow.
        return words if self.status.ok else f"{words} ({self.route})"

    def sensitivity(self) -> Sensitivity:
        """Derivatives of the limit in y and in the log of the scale."""
        if self._sensitivity is None:
            raise NotImplementedError(
                f"route {self.route!r} has no derivative: its minimizer need not be smooth in y. "
                "Take fb.limit at a small positive scale instead."
            )
        return self._sensitivity()

    def checked(self, throw: bool) -> Solution:
        """Itself, or SolveError where it is not certified and `throw` is set."""
        if throw and not self.status.ok:
            raise SolveError(self.message, self)
        return self

    def __repr__(self) -> str:
        return (
            f"Solution({self.message}\n"
            f"         route={self.route}, d={len(self.w)}, {self._coefficients()},\n"
            f"         error_bound={self.certificate.error_bound:.1e}, "
            f"factorizations={self.stats.factorizations}, seconds={self.stats.seconds:.3g})"
        )

    def _coefficients(self) -> str:
        """What they look like."""
        _, *seen = coefficients(self.w).values()
        if not seen:
            return "w not computed yet"
        nonzero, l1, l2 = map(shown, seen)
        return f"entries above 1e-6 of the largest: {nonzero}, l1={l1}, l2={l2}"

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The coefficients, of many the largest; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            axes.set_title(f"{self.status.name}, {self.route}")
            stems(axes, np.asarray(self.w))

        return picture(panel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        cost = {
            "factorizations": f"{self.stats.factorizations}",
            "seconds": f"{self.stats.seconds:.3g}",
        }
        about = facts(
            f"Solution: {self.status.name}",
            {"route": self.route, **coefficients(self.w), **self.details, **cost},
            note=self.message,
        )
        return about + self.certificate._repr_html_()


@dataclass(frozen=True, eq=False)
class LiftedSolution:
    """The limit M = U V^T of gradient flow from a product of two factors.

    feasibility  ||measure(M) - reachable|| / (||reachable|| + ||measure|| ||M||_F)
    error        estimate of ||M - limit||_F; exact routes: a few roundings of the terms of M
    distance     of the target from what can be reached, relative to it
    unique       whether the data alone determine the limit
    is_rest      whether the flow comes to rest with more of an error than the data force on it
    gram         [U; V][U; V]^T at the limit; None where no weights were followed to it
    """

    M: FloatArray
    status: Status
    route: str
    feasibility: float
    error: float
    stats: Stats
    distance: float = 0.0
    unique: bool = False
    is_rest: bool = False
    gram: FloatArray | None = None
    details: dict[str, float] = field(default_factory=dict)

    @property
    def w(self) -> FloatArray:
        """M, (d, m)."""
        return self.M

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

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The matrix and its singular values, of one row or column its entries."""
        return picture(*matrix_panels(self.M, self.status.name), path=path, ax=ax)

    def _repr_html_(self) -> str:
        return facts(
            f"{type(self).__name__}: {self.status.name}",
            {
                "route": self.route,
                **matrix_facts(self.M),
                "feasibility": f"{self.feasibility:.1e}",
                "error": f"{self.error:.1e}",
                **self.details,
                "seconds": f"{self.stats.seconds:.3g}",
            },
            note=self.message,
        )

    def checked(self, throw: bool) -> LiftedSolution:
        """Itself, or SolveError where it is no limit and `throw` is set."""
        if throw and not self.status.ok:
            raise SolveError(self.message, self)
        return self

    def __repr__(self) -> str:
        return (
            f"LiftedSolution({self.message}\n"
            f"               route={self.route}, shape={self.M.shape}, "
            f"Frobenius norm={np.linalg.norm(self.M):.6g}, error={self.error:.1e}, "
            f"seconds={self.stats.seconds:.3g})"
        )


def matrix_panels(M: FloatArray, title: str) -> tuple[Callable[[Axes], None], ...]:
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
